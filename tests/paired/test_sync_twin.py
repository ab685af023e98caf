"""The sync client is what the script generates from the asyncio one, with the same names and signatures."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

import pytest

from twinbus import paired
from twinbus.paired import aio

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "unasync.py"


def test_nothing_has_drifted() -> None:
    drifted = runpy.run_path(str(SCRIPT))["drifted"]()
    assert [path.name for path in drifted] == [], "run scripts/unasync.py"


@pytest.mark.parametrize("name", aio.__all__)
def test_both_colours_have_the_same_names(name: str) -> None:
    sync, twin = getattr(paired, name), getattr(aio, name)
    assert sync is not twin
    colours = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
    public = {colours.get(each, each) for each in vars(twin) if not each.startswith("_") or each in colours}
    assert public <= set(vars(sync))
    for each in public:
        method, other = vars(sync)[each], vars(twin).get(each)
        if inspect.isfunction(method) and inspect.isfunction(other):
            assert list(inspect.signature(method).parameters) == list(inspect.signature(other).parameters)
            assert not inspect.iscoroutinefunction(method)
