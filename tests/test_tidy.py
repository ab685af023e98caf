"""Habits that a test can keep: small files, good names, nothing left for later."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TREE = [
    path
    for folder in ("src", "tests", "bench", "compliance", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not {"node_modules", ".cache", ".venv"} & set(path.parts)
]
LINES_MAX = 700


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_is_too_long() -> None:
    lengths = {shown(path): len(path.read_text().splitlines()) for path in SOURCES}
    too_long = {name: lines for name, lines in lengths.items() if lines > LINES_MAX}
    assert not too_long, "split it by what it is about"


def test_nothing_is_left_for_later() -> None:
    # Built from parts, so that this file does not find itself.
    words = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
    found = [
        f"{shown(path)}:{number}: {line.strip()}"
        for path in TREE
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(line)
    ]
    assert found == []


def test_files_are_named_for_what_they_are() -> None:
    vague = {"utils", "util", "helpers", "helper", "manager", "misc", "common"}
    assert [shown(path) for path in TREE if path.stem in vague] == []


def test_every_file_says_what_it_is_for() -> None:
    silent = [
        shown(path) for path in SOURCES if (text := path.read_text()).strip() and not ast.get_docstring(ast.parse(text))
    ]
    assert silent == []


def test_nobody_raises_a_bare_exception() -> None:
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                name = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                if ast.unparse(name) in ("Exception", "BaseException"):
                    found.append(f"{shown(path)}:{node.lineno}")
    assert found == []
