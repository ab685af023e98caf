"""Random spread over queues: the recurrence against full enumeration, the approximation against the recurrence."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import pytest

from twinbus.plan import chance


def counted(senders: int, queues: int) -> Counter[int]:
    """Count the largest number on one queue over all possible choices."""
    return Counter(max(Counter(ways).values()) for ways in product(range(queues), repeat=senders))


@pytest.mark.parametrize(("senders", "queues"), [(1, 1), (1, 5), (4, 1), (5, 3), (6, 4), (7, 2), (9, 3), (3, 9)])
def test_it_is_what_counting_all_ways_gives(senders: int, queues: int) -> None:
    ways = counted(senders, queues)
    total = queues**senders
    for most in range(senders + 1):
        expected = sum(count for fullest, count in ways.items() if fullest <= most) / total
        assert chance.within(senders, queues, most) == pytest.approx(expected, abs=1e-12)
    found = chance.fullest(senders, queues)
    assert found.exact
    assert found.mean == pytest.approx(sum(fullest * count for fullest, count in ways.items()) / total)
    assert dict(found.probabilities) == pytest.approx({most: count / total for most, count in ways.items()})


def test_probabilities_add_up_and_levels_are_in_order() -> None:
    for senders, queues in ((80, 10), (1_000, 10), (100_000, 10), (5_000, 1_000)):
        found = chance.fullest(senders, queues)
        assert sum(each for _, each in found.probabilities) == pytest.approx(1, abs=1e-9)
        assert senders / queues <= found.median <= found.in_95 <= found.in_99 <= senders


@pytest.mark.parametrize(("senders", "queues"), [(20_000, 10), (5_000, 100), (3_000, 200), (50_000, 5), (2_000, 1_000)])
def test_the_estimate_is_what_the_recurrence_gives_one_level_at_a_time(senders: int, queues: int) -> None:
    found = chance.fullest(senders, queues)
    assert not found.exact
    assert chance.within(senders, queues, found.in_95 - 1) < 0.95 <= chance.within(senders, queues, found.in_95)
    assert abs(chance.within(senders, queues, found.median) - 0.5) < 0.3


def test_too_many_for_the_exact_form_is_still_at_once() -> None:
    # With two queues the mean is known: half, plus the mean absolute deviation of a binomial.
    found = chance.fullest(1_000_000, 2)
    assert not found.exact
    assert found.mean == pytest.approx(500_000 + math.sqrt(1_000_000 / (2 * math.pi)), rel=0.001)


def test_empty_queues() -> None:
    ways = [Counter(picks) for picks in product(range(4), repeat=5)]
    assert chance.empty(5, 4) == pytest.approx(sum(4 - len(way) for way in ways) / len(ways))
