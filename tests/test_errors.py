"""`errors.py` says where every error is defined: what is not in it is named in its docstring."""

from __future__ import annotations

import ast
from pathlib import Path

import twinbus.errors

SOURCE = Path(twinbus.errors.__file__).parent


def raised_classes(path: Path) -> set[str]:
    """The public classes of a file that extend something that can be raised."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
            if any(base.endswith(("Error", "Exception")) for base in bases):
                found.add(node.name)
    return found


def test_errors_outside_are_named_in_the_docstring() -> None:
    text = twinbus.errors.__doc__ or ""
    for path in sorted(SOURCE.rglob("*.py")):
        if path == SOURCE / "errors.py":
            continue
        for name in raised_classes(path):
            where = path.relative_to(SOURCE).as_posix()
            assert f"`{name}`" in text, f"errors.py does not say that {name} is in {where}"
            assert f"`{where}`" in text, f"errors.py does not name {where}"


def test_errors_inside_are_drawn_in_the_tree() -> None:
    text = twinbus.errors.__doc__ or ""
    missing = [name for name in sorted(raised_classes(SOURCE / "errors.py")) if name not in text]
    assert missing == []
