"""Which build runs, and what would differ between the two."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path

import pytest

import twinbus.build
from twinbus.build import build

SOURCE = Path(__file__).parent.parent / "src" / "twinbus"
# The packages that have compiled modules.
HOT = ("amqp", "broker", "entities", "store")


def test_the_build_is_that_of_the_hot_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    import twinbus.store.facts as facts

    compiled = str(facts.__file__).endswith(tuple(EXTENSION_SUFFIXES))
    assert build() == ("compiled" if compiled else "pure")
    for origin, wanted in ((f"facts{EXTENSION_SUFFIXES[0]}", "compiled"), ("facts.py", "pure"), (None, "pure")):
        spec = ModuleSpec("twinbus.store.facts", None, origin=origin)
        monkeypatch.setattr(twinbus.build, "find_spec", lambda name, spec=spec: spec)
        assert build() == wanted


def has_length_only(node: ast.ClassDef) -> bool:
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    return "__len__" in methods and "__bool__" not in methods


def names(node: ast.AST | None) -> set[str]:
    """The last names of a variable or an attribute, and those in an annotation such as `Returned | None`."""
    if isinstance(node, ast.BinOp):
        return names(node.left) | names(node.right)
    if isinstance(node, ast.Constant) and node.value is None:
        return {"None"}
    return {getattr(node, "id", getattr(node, "attr", ""))}


def truth_tests(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield node.test
        elif isinstance(node, ast.BoolOp):
            yield from node.values
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand
        elif isinstance(node, ast.comprehension):
            yield from node.ifs


def test_nothing_asks_whether_an_optional_object_with_a_length_is_true() -> None:
    """mypyc takes such an object for true even if it is empty, unless its class has `__bool__`: use `is not None`."""
    trees = {path: ast.parse(path.read_text()) for part in HOT for path in sorted((SOURCE / part).rglob("*.py"))}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    sized = {node.name for node in nodes if isinstance(node, ast.ClassDef) and has_length_only(node)}
    assert "Returned" in sized
    optional: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.AnnAssign | ast.arg):
            annotated = names(node.annotation)
            if "None" in annotated and annotated & sized:
                optional |= {node.arg} if isinstance(node, ast.arg) else names(node.target)
    assert "returned" in optional
    found = [
        f"{path.name}:{each.lineno}"
        for path, tree in trees.items()
        for each in truth_tests(tree)
        if isinstance(each, ast.Name | ast.Attribute) and names(each) <= optional
    ]
    assert found == []
