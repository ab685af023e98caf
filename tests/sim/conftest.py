"""Checks every move of a simulation against the table in `states.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from move_watch import watched_moves


@pytest.fixture(autouse=True)
def moves_by_the_table() -> Iterator[None]:
    with watched_moves() as watch:
        yield
    assert watch.seen
