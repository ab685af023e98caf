"""The documentation says what is so: links lead somewhere, and its examples of configuration load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from twinbus.broker.config_file import load_config
from twinbus.broker.config_toml import QUEUE_KEYS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "compliance").glob("*.md")])


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in target and not target.startswith("#"):
            assert (page.parent / target.partition("#")[0]).exists(), f"{ids(page)}: {target}"


@pytest.mark.parametrize(("language", "name"), [("json", "config.json"), ("toml", "twinbus.toml")])
def test_the_examples_of_configuration_load(language: str, name: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "config.md").read_text()
    (example,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    (tmp_path / name).write_text(example)
    assert load_config(tmp_path / name).namespaces[0].queues


def test_every_setting_of_a_queue_is_documented() -> None:
    text = (ROOT / "docs" / "config.md").read_text()
    assert [key for key in QUEUE_KEYS if f"`{key}`" not in text] == []


def test_make_targets_are_the_documented_ones() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert targets == set(phony[1].split())
