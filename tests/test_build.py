"""Which build runs."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec

import pytest

import twinbus.build
from twinbus.build import build


def test_the_build_is_that_of_the_hot_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    import twinbus.store.facts as facts

    compiled = str(facts.__file__).endswith(tuple(EXTENSION_SUFFIXES))
    assert build() == ("compiled" if compiled else "pure")
    for origin, wanted in ((f"facts{EXTENSION_SUFFIXES[0]}", "compiled"), ("facts.py", "pure"), (None, "pure")):
        spec = ModuleSpec("twinbus.store.facts", None, origin=origin)
        monkeypatch.setattr(twinbus.build, "find_spec", lambda name, spec=spec: spec)
        assert build() == wanted
