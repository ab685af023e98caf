"""Habits that a test can keep: small files, good names, nothing left for later."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.mirror import without_tests, wrong_entries

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


# What these run has the asserts.
ASSERTED_ELSEWHERE = {
    "test_every_command_does_what_the_page_says": "the runner of pages compares every output",
    "test_queue_follows_the_model": "the state machine",
    "test_a_walk_leaves_no_body_behind": "the state machine",
    "test_any_order": "the model of Spark's engine",
}


def asserts(test: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.raises", "pytest.warns", "pytest.fail"))
        for node in ast.walk(test)
    )


def test_every_test_asserts_something() -> None:
    found = [
        f"{shown(path)}:{node.lineno} {node.name}"
        for path in TREE
        if path.name.startswith("test_")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if node.name not in ASSERTED_ELSEWHERE and not asserts(node)
    ]
    assert found == []


def test_a_class_name_stands_for_one_thing() -> None:
    """The synchronous twin of the paired client is generated, and has the names of the asynchronous one."""
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        if "_sync" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(shown(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_tests_of_every_module_are_found_by_name() -> None:
    assert without_tests() == [], "name a test after the module, or list the module in tests/mirror.py"
    assert wrong_entries() == [], "correct tests/mirror.py"


def test_nobody_changes_the_module_path() -> None:
    # Built from parts, so that this file does not find itself.
    words = ("sys.path" + ".insert", "sys.path" + ".append")
    assert [
        shown(path)
        for path in [*TREE, *(ROOT / "scripts").glob("*.py")]
        if any(word in path.read_text() for word in words)
    ] == []


def test_nobody_raises_a_bare_exception() -> None:
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                name = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                if ast.unparse(name) in ("Exception", "BaseException"):
                    found.append(f"{shown(path)}:{node.lineno}")
    assert found == []


def test_the_rules_inherit_one_level_at_most() -> None:
    """Queues and topics own their parts: whoever reads one of them looks for no method in an ancestor's ancestor."""
    bases: dict[str, list[str]] = {}
    for path in (ROOT / "src" / "twinbus" / "entities").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
    deep = [name for name, own in bases.items() for base in own if any(up in bases for up in bases.get(base, []))]
    assert deep == []
