"""The walk of one message on the architecture page: at most 20 files, and every function is where the page says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "twinbus"
FILES_MAX = 20


def rows() -> list[tuple[str, list[str]]]:
    """Each file of the walk, and the functions that the page names in it."""
    section = PAGE.read_text().split("## One message, file by file")[1].split("\n## ")[0]
    found = [line for line in section.splitlines() if line.startswith("| `")]
    return [(line.split("`")[1], re.findall(r"`(\w+)`", line)) for line in found]


def test_the_walk_is_short_and_names_each_file_once() -> None:
    files = [file for file, _ in rows()]
    assert 0 < len(files) <= FILES_MAX
    assert len(set(files)) == len(files)


def test_every_function_is_in_its_file() -> None:
    for file, functions in rows():
        tree = ast.parse((SOURCE / file).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert functions, f"{file} is on the walk and does nothing"
        assert set(functions) <= defined, f"{file} has no {set(functions) - defined}"
