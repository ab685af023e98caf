from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.build import build
from twinbus.entities.available import Available
from twinbus.entities.message import GONE, QueuedMessage
from twinbus.limits import COMPACT_EVERY, COMPACT_STEP


def message(seq: int) -> QueuedMessage:
    return QueuedMessage(seq, seq, 1, 0, None, 0, 0, None, None)


@given(st.permutations(range(40)), st.sets(st.integers(0, 39)), st.integers(0, 45), st.integers(0, 45))
def test_order_whatever_came_when_and_whatever_left(order: list[int], gone: set[int], start: int, count: int) -> None:
    available = Available()
    for seq in order:
        if seq % 3:
            available.push(message(seq))
        else:
            available.give_back(message(seq))
    everything = [*available.fresh, *(available.returned.since(0) if available.returned else ())]
    for one in everything:
        if one.seq in gone:
            one.state = GONE
            available.note_gone()
    kept = sorted(set(range(40)) - gone)
    assert len(available) == len(kept)
    browsed = sorted(one.seq for one in available.browse(start, count))
    assert [seq for seq in kept if seq >= start][:count] == browsed[:count]
    first = available.first()
    assert (first.seq if first else None) == (kept[0] if kept else None)
    popped = []
    while (one := available.pop()) is not None:
        popped.append(one.seq)
    assert popped == kept
    assert len(available) == 0


def test_room_is_made_when_half_are_gone() -> None:
    available = Available()
    messages = [message(seq) for seq in range(100)]
    for one in messages:
        available.push(one)
    for one in messages[20:75]:
        one.state = GONE
        available.note_gone()
    assert len(available) == 45
    assert len(available.fresh) < 60


class Watched(QueuedMessage):
    """Counts how often the states of all messages are read."""

    __slots__ = ("_state",)

    reads = 0

    @property
    def state(self) -> int:  # type: ignore[override]
        Watched.reads += 1
        return self._state

    @state.setter
    def state(self, state: int) -> None:
        self._state = state


def watched(seq: int) -> QueuedMessage:
    """A message whose reads are counted in the pure build; compiled code reads its attributes directly."""
    return message(seq) if build() == "compiled" else Watched(seq, seq, 1, 0, None, 0, 0, None, None)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("returned", [False, True])
def test_a_message_that_leaves_many_costs_a_bounded_look_at_the_others(seed: int, returned: bool) -> None:
    count = 3 * COMPACT_STEP
    messages = [watched(seq) for seq in range(count)]
    available = Available()
    for one in messages:
        if returned:
            available.give_back(one)
        else:
            available.push(one)
    kept = {0, 1_000, count - 1}
    leaving = [one for one in messages if one.seq not in kept]
    if seed:
        random.Random(seed).shuffle(leaving)
    for left, one in enumerate(leaving, start=1):
        one.state = GONE
        Watched.reads = 0
        available.note_gone()
        assert Watched.reads <= COMPACT_STEP + 2 * COMPACT_EVERY
        assert len(available) == count - left
        if left % 1_000 == 0:
            numbers = [each.seq for each in available.fresh]
            assert numbers == sorted(numbers)
    assert available.gone < 64
    assert sorted(one.seq for one in available.drain()) == sorted(kept)


@pytest.mark.parametrize("returned", [False, True])
def test_finding_and_browsing_many_look_at_few(returned: bool) -> None:
    count = 10_000
    messages = [watched(seq) for seq in range(0, 3 * count, 3)]
    available = Available()
    for one in messages:
        if returned:
            available.give_back(one)
        else:
            available.push(one)
    Watched.reads = 0
    for seq in (0, 3, 3 * count // 2, 3 * count - 3):
        found = available.find(seq)
        assert found is not None
        assert found.seq == seq
        assert available.find(seq + 1) is None
        assert available.find(seq - 1) is None
        assert [one.seq for one in available.browse(seq, 2)] == [seq, seq + 3][: (3 * count - seq) // 3]
    assert Watched.reads <= 20
    messages[7].state = GONE
    assert available.find(21) is None


def test_returned_messages_that_leave_in_order_are_dropped_at_once() -> None:
    available = Available()
    messages = [message(seq) for seq in range(100)]
    for one in messages:
        available.give_back(one)
    for one in messages[:40]:
        one.state = GONE
        available.note_gone()
    assert available.returned is not None
    assert len(available.returned) == 60
    assert available.gone == 0


def test_a_message_extracted_from_the_middle_comes_back_to_its_place() -> None:
    available = Available()
    held = [message(seq) for seq in range(1, 6)]
    for one in held:
        available.push(one)
    first, third = available.extract(held[0]), available.extract(held[2])
    assert first is held[0]
    assert third is not held[2]
    assert (third.seq, held[2].state, len(available)) == (3, GONE, 3)
    assert available.find(3) is None
    available.give_back(third)
    assert available.find(3) is third
    again = available.extract(third)
    available.give_back(again)
    assert available.find(3) is again
    assert [one.seq for one in available.pick(9, 99, 0)[0]] == [2, 3, 4, 5]
    assert len(available) == available.gone == 0
