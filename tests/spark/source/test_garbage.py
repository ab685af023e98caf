from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from twinbus.spark.source.garbage import YOUNG_OBJECTS, seldom_collected


@pytest.fixture
def threshold() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("threshold")
@pytest.mark.parametrize(
    ("given", "within"),
    [
        ((700, 10, 10), (YOUNG_OBJECTS, 10, 10)),
        # Turned off by the user, or set higher: left unchanged.
        ((0, 10, 10), (0, 10, 10)),
        ((YOUNG_OBJECTS + 1, 5, 5), (YOUNG_OBJECTS + 1, 5, 5)),
    ],
)
def test_it_looks_seldom_within_the_block_alone(given: tuple[int, int, int], within: tuple[int, int, int]) -> None:
    gc.set_threshold(*given)
    with seldom_collected():
        assert gc.get_threshold() == within
    assert gc.get_threshold() == given


@pytest.mark.usefixtures("threshold")
def test_a_failure_leaves_nothing_behind() -> None:
    gc.set_threshold(700, 10, 10)
    with pytest.raises(ZeroDivisionError), seldom_collected():
        _ = 1 / 0
    assert gc.get_threshold() == (700, 10, 10)
