"""Every page has its place in the site, the decisions by the first page. `make site` builds it and checks its links."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT


def test_every_page_is_in_the_navigation_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    listed = re.findall(r"([\w/-]+\.md)$", text, re.MULTILINE)
    pages = [page.name for page in (ROOT / "docs").glob("*.md")]
    assert sorted(listed) == sorted(pages)
