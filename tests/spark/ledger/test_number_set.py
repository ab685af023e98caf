"""Ranges of numbers equal the sets that they represent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinbus.spark.ledger.number_set import NumberSet

numbers = st.lists(st.integers(0, 40), max_size=40)


def made(found: list[int]) -> NumberSet:
    ranges = NumberSet()
    for number in found:
        before = number in ranges
        assert ranges.add(number) is not before
    return ranges


def members(ranges: NumberSet) -> set[int]:
    return {number for low, high in ranges for number in range(low, high + 1)}


@given(numbers, numbers)
def test_it_is_a_set(one: list[int], other: list[int]) -> None:
    first, second = made(one), made(other)
    assert members(first) == set(one)
    assert len(first) == len(set(one))
    assert {number for number in range(42) if number in first} == set(one)
    assert members(first | second) == {*one, *other}
    assert members(first - second) == set(one) - set(other)
    # As few ranges as possible: equal sets have equal ranges.
    assert first == NumberSet((number, number) for number in one)
    assert (first - second) | (first - (first - second)) == first


def test_a_writer_counts_up_in_one_range() -> None:
    assert list(made(list(range(1, 1_000)))) == [(1, 999)]
