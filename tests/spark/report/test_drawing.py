"""Charts: names are text, ids are unique, colours are the page's, and the same numbers give the same bytes."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.spark.report.scenario import NASTY
from twinbus.errors import ConfigError
from twinbus.spark.report.drawing import drawing, save, shown, svg
from twinbus.spark.report.palette import COLOURS, STAGE_WORDS, STAGES, light, style


def chart(key: str, name: str) -> str:
    with drawing(8, 2) as figure:
        axes = figure.subplots()
        axes.barh([0], [1], color=light("direct"))
        axes.set_yticks([0], [shown(name)])
        return svg(figure, key, name, name)


@pytest.mark.parametrize("name", NASTY)
def test_a_name_is_text_and_nothing_else(name: str) -> None:
    tree = ElementTree.fromstring(chart("one", name))
    texts = ["".join(each.itertext()) for each in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert shown(name) in texts
    assert {each.tag.rpartition("}")[2] for each in tree.iter()} <= {
        "svg",
        "title",
        "desc",
        "g",
        "path",
        "text",
        "tspan",
        "defs",
        "clipPath",
        "rect",
        "use",
    }


def test_two_charts_of_a_page_share_no_id_and_point_to_their_own() -> None:
    first, second = chart("one", "x"), chart("two", "x")
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, own in zip((first, second), ids, strict=True):
        assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text)) <= own


def test_colours_and_fonts_are_the_pages() -> None:
    text = chart("one", "x")
    assert "var(--direct)" in text
    assert "var(--sans)" in text
    assert "DejaVu" not in text
    assert not re.search("|".join(pair[0] for pair in COLOURS.values()), text)


def test_the_same_again_and_nothing_of_the_time() -> None:
    assert chart("one", "x") == chart("one", "x")
    assert not re.search(r"20\d\d-\d\d|<metadata|matplotlib\.org", chart("one", "x"))


def test_long_and_invisible_names() -> None:
    assert shown("") == "(none)"
    assert shown("a\x00b\u202ec\ud800") == "a\ufffdb\ufffdc\ufffd"
    assert len(shown("x" * 1_000)) == 60
    assert shown("a" * 50 + "b" * 50, 20) == "a" * 13 + "…" + "b" * 6


def test_every_stage_has_a_colour_of_its_own_in_light_and_dark() -> None:
    assert set(STAGES) <= set(COLOURS)
    assert set(STAGES) == set(STAGE_WORDS)
    for side in (0, 1):
        assert len({pair[side] for pair in COLOURS.values()}) == len(COLOURS)
    assert light("a stage of tomorrow") == light("other")
    assert style().count("--to-backlog:") == 2


@pytest.mark.parametrize("side", [0, 1])
def test_text_can_be_read(side: int) -> None:
    def luminance(colour: str) -> float:
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    paper = luminance(COLOURS["paper"][side])
    for name in ("ink", "muted"):
        other = luminance(COLOURS[name][side])
        assert (max(paper, other) + 0.05) / (min(paper, other) + 0.05) >= 4.5, name


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with drawing(2, 2) as figure, pytest.raises(ConfigError, match=r"an \.svg or a \.png"):
        save(figure, tmp_path / "chart.pdf")
