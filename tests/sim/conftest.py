"""Checks every move of a simulation against the table in `states.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from move_watch import watched_moves

from twinbus.build import build


@pytest.fixture(autouse=True)
def moves_by_the_table() -> Iterator[None]:
    if build() == "compiled":
        # Compiled code does not call the methods that the watch replaces: the pure build is watched.
        yield
        return
    with watched_moves() as watch:
        yield
    assert watch.seen
