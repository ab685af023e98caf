"""A hook of mkdocs: pages may link to files of the repository that are not among the documentation.

The repository's own view of a page resolves `../CHANGELOG.md`; a site ends at its root. Files that pages link to are
taken into the site, under the same path below the root.
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
        # A page of the repository is not one of the site: it would bring its own links.
        shown = f"{path}.txt" if path.endswith(".md") else path
        files.append(File.generated(config, f"repository/{shown}", content=(ROOT / path).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    def inside(match: re.Match[str]) -> str:
        path = outside(page.file.src_uri, match[2])
        if path is None:
            return match[0]
        shown = f"{path}.txt" if path.endswith(".md") else path
        here = posixpath.dirname(page.file.src_uri) or "."
        return match[1] + posixpath.relpath(f"repository/{shown}", here)

    return _LINK.sub(inside, markdown)
