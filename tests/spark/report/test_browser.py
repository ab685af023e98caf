"""The page in a real browser: every chart is visible, on a desktop and on a phone, in light and in dark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twinbus.spark.report.facts import CostReport
from twinbus.spark.report.page import page

if TYPE_CHECKING:
    from tests.browser import Browser

# The first test that asks for a report waits for it, and for Spark's start.
pytestmark = pytest.mark.timeout(180)

# For each visible chart: its width and height, and how many of its texts and shapes have a size.
SEEN = """
return [...document.querySelectorAll('figure svg')].filter(each => each.checkVisibility()).map(each => {
  const box = each.getBoundingClientRect();
  const sized = kind => [...each.querySelectorAll(kind)].filter(one => one.getBoundingClientRect().width > 0).length;
  const sizes = [...each.querySelectorAll('text')].map(one => one.getBoundingClientRect().height);
  return [box.width, box.height, sized('path'), sized('text'), Math.min(...sizes)];
})
"""


def seen(browser: Browser) -> list[list[float]]:
    found: list[list[float]] = browser.script(SEEN)
    return found


def test_every_chart_is_visible_at_a_desk_and_on_a_phone(outage: CostReport, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(outage))
    for width, height, mobile in ((1280, 900, False), (390, 844, True), (320, 640, True)):
        browser.resize(width, height, mobile=mobile)
        browser.open(file.as_uri())
        charts = seen(browser)
        assert len(charts) == 6
        for wide, high, shapes, texts, smallest in charts:
            assert wide > 0.8 * min(width, 900)
            assert high > 60
            assert shapes > 3
            assert texts > 3
            # Texts are large enough to read.
            assert smallest >= 8, (width, smallest)
        # Nothing overflows: the page itself never scrolls sideways.
        assert browser.script("return document.documentElement.scrollWidth") <= width
    # The fixture checks that no request left the file, and that the console is empty.


# Names in tables that are on more than one line.
CUT = """
return [...document.querySelectorAll('td.name')]
  .filter(each => each.clientHeight > 1.8 * parseFloat(getComputedStyle(each).lineHeight))
  .map(each => each.textContent)
"""


def test_a_phone_cuts_no_name_into_lines(outage: CostReport, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(outage))
    browser.resize(390, 844, mobile=True)
    browser.open(file.as_uri())
    assert len(browser.all("td.name")) > 20
    assert browser.script(CUT) == []


def test_dark_is_dark_and_paper_is_white(outage: CostReport, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(outage))
    browser.open(file.as_uri())

    def colours() -> tuple[str, str, str]:
        names = (
            "return getComputedStyle(document.body).backgroundColor",
            "return getComputedStyle(document.body).color",
        )
        bar = "return getComputedStyle(document.querySelector('figure svg path[style*=to-backlog]')).fill"
        paper, ink, orange = (str(browser.script(each)) for each in (*names, bar))
        return paper, ink, orange

    browser.prefer("light")
    light = colours()
    browser.prefer("dark")
    dark = colours()
    assert light[0] == "rgb(254, 254, 254)"
    assert dark[0] == "rgb(20, 23, 28)"
    assert all(one != other for one, other in zip(light, dark, strict=True))


def test_hostile_names_do_nothing(nasty: CostReport, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(nasty))
    browser.resize(390, 844, mobile=True)
    browser.open(file.as_uri())
    assert browser.script("return document.scripts.length") == 0
    assert len(seen(browser)) == 6
    assert "<script>alert(1)</script>" in browser.one("main").text
    assert "price $x^2$ and $y_1$" in browser.one("main").text
    assert browser.script("return document.documentElement.scrollWidth") <= 390
