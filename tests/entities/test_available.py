from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinbus.entities.available import Available
from twinbus.entities.message import GONE, QueuedMessage


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
    everything = [*available.fresh, *(entry[1] for entry in available.returned)]
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
