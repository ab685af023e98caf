"""The documentation says what is so: links lead somewhere, and its examples of configuration load."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from twinbus.broker.configuration.file import load_config

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "compliance").glob("*.md")])


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in target and not target.startswith("#"):
            assert (page.parent / target.partition("#")[0]).exists(), f"{ids(page)}: {target}"


def misplaced(text: str) -> list[str]:
    """Lines of a page that a bad merge leaves: repeated ones, tables without a head, paragraphs that run together."""
    found: list[str] = []
    before, code = "", False
    lines = text.split("\n")
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        fence = line.lstrip().startswith("```")
        code ^= fence
        if not (code or fence):
            row, opens = line.startswith("|"), not before.startswith("|")
            headless = row and opens and not after.startswith("|-")
            runs_on = row and opens and before not in ("", "</summary>") and not before.startswith("<!--")
            heading = line.startswith("#") and before != ""
            if headless or runs_on or heading or (line != "" and line == before):
                found.append(line)
        before = "" if fence else line
    return found if text.endswith("\n") else [*found, lines[-1]]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_a_page_is_put_together_rightly(page: Path) -> None:
    assert misplaced(page.read_text()) == []


@pytest.mark.parametrize(
    "text",
    ["# Title\n\n| a | b |\n| a | c |\n", "said\nsaid\n", "- last\n## Next\n", "use:\n| a |\n|---|\n", "cut off"],
)
def test_a_bad_merge_is_noticed(text: str) -> None:
    assert misplaced(text) != []


@pytest.mark.parametrize(("language", "name"), [("json", "config.json"), ("toml", "twinbus.toml")])
def test_the_examples_of_configuration_load(language: str, name: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "config.md").read_text()
    (example,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    (tmp_path / name).write_text(example)
    assert load_config(tmp_path / name).namespaces[0].queues


def test_the_example_of_signing_in_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "console.md").read_text(), re.DOTALL)
    (tmp_path / "twinbus.toml").write_text(example)
    jwt = load_config(tmp_path / "twinbus.toml").namespaces[0].jwt
    assert jwt is not None
    assert jwt.sign_in is not None
    assert jwt.sign_in.client_secret_file == tmp_path / "client-secret"


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))


@pytest.mark.parametrize("page", DECISIONS, ids=ids)
def test_a_decision_says_what_was_chosen_and_what_would_change_it(page: Path) -> None:
    text = page.read_text()
    number = int(page.name[:4])
    assert re.match(rf"# 0*{number}\. ", text), "the title begins with the page's number"
    for title in ("## Context", "## Choice", "## What would change our mind"):
        assert f"\n{title}\n" in text, f"{ids(page)} has no part {title!r}"


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_every_dependency_has_a_decision() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        name: each
        for name, each in project["optional-dependencies"].items()
        if name not in ("dev", "compat", "hosts", "site")
    }
    wanted = [*project["dependencies"], *(each for some in extras.values() for each in some)]
    texts = " ".join(page.read_text() for page in DECISIONS)
    names = {re.split(r"[^\w.-]", each)[0] for each in wanted}
    assert {name for name in names if not re.search(rf"\b{re.escape(name)}\b", texts)} == set()


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]
    assert [page.name for page in [*pages, *DECISIONS] if f"{page.name})" not in index] == []


PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


@pytest.mark.parametrize("picture", PICTURES, ids=ids)
def test_a_picture_is_readable_everywhere(picture: Path) -> None:
    text = picture.read_text()
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert root.findtext(f"{space}title")
    assert root.findtext(f"{space}desc"), "for those who cannot see it"
    # A terminal brings its own background.
    assert "prefers-color-scheme: dark" in text or picture.name == "demo.svg"
    assert root.find(f".//{space}script") is None
    assert "href" not in text, "nothing from outside"


def test_every_picture_is_shown_somewhere() -> None:
    shown = " ".join(page.read_text() for page in PAGES)
    # The one of the README is also for others to show.
    unused = [picture.name for picture in PICTURES if f"{picture.name})" not in shown]
    assert [name for name in unused if name != "twinbus.svg"] == []


def test_make_targets_are_the_documented_ones() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert targets == set(phony[1].split())


def test_the_comparison_has_the_readme_s_figure_of_the_sdk_s_tests() -> None:
    told = re.search(r"<!-- compliance -->\*\*(\d+ of \d+)", (ROOT / "README.md").read_text())
    assert told is not None
    assert f"{told[1]} (Python)" in (ROOT / "docs" / "comparison.md").read_text()
