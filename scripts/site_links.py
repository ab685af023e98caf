"""A hook of mkdocs: pages may link to files of the repository that are not part of the documentation.

The repository's own view of a page resolves `../CHANGELOG.md`; a site ends at its root. Files that pages link to are
taken into the site as text, below `repository`; of a folder, all its files one after the other.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"(\]\()((?:\.\./)+[^)\s#]+)")


def outside(source: str, target: str) -> str | None:
    """The path in the repository that a link of a page means, if that is not below `docs`."""
    found = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), target))
    return None if found.startswith("docs/") else found


def on_files(files: Files, config: Any) -> Files:
    wanted = {
        path
        for file in files.documentation_pages()
        for _, target in _LINK.findall(Path(str(file.abs_src_path)).read_text())
        if (path := outside(file.src_uri, target)) is not None
    }
    for path in sorted(wanted):
        files.append(File.generated(config, shown(path), content=content(ROOT / path)))
    return files


def shown(path: str) -> str:
    """Where a file is in the site. As text: a page of the repository would bring its own links."""
    return f"repository/{path}.txt"


def content(path: Path) -> bytes:
    if path.is_file():
        return path.read_bytes()
    inside = sorted(each for each in path.rglob("*") if each.is_file())
    return b"\n".join(f"# {each.relative_to(ROOT)}\n".encode() + each.read_bytes() for each in inside)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    if "\n## " not in markdown:
        # Without headings, the table of contents would only take room from a wide table.
        page.meta["hide"] = ["toc"]

    def inside(match: re.Match[str]) -> str:
        path = outside(page.file.src_uri, match[2])
        if path is None:
            return match[0]
        return match[1] + posixpath.relpath(shown(path), posixpath.dirname(page.file.src_uri) or ".")

    return _LINK.sub(inside, markdown)
