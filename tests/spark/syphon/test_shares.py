"""The shares of a round."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.spark.syphon.shares import shares_of

QUEUES = [f"first/x-servicebus-transfer/{index}" for index in range(10)]


def test_ten_queues_on_two_cores_are_two_tasks() -> None:
    first, second = shares_of(QUEUES, 2, messages_max=100, seconds_max=20.0)
    assert (first.queues, second.queues) == (tuple(QUEUES[0::2]), tuple(QUEUES[1::2]))
    assert (first.messages_max, first.seconds_max) == (500, 20.0)


def test_more_slots_than_tasks_meet_and_count_once() -> None:
    (share,) = shares_of(QUEUES[:1], 1, slots=3, messages_max=100)
    assert (share.queues, share.messages_max) == ((QUEUES[0],), 300)


@given(queues=st.integers(1, 40), slots=st.integers(1, 6), tasks=st.integers(1, 64))
def test_every_slot_is_dealt_once_and_evenly(queues: int, slots: int, tasks: int) -> None:
    names = [str(number) for number in range(queues)]
    shares = shares_of(names, tasks, slots=slots, messages_max=1)
    assert len(shares) == min(tasks, queues * slots)
    sizes = [share.messages_max for share in shares]
    assert sum(sizes) == queues * slots
    assert max(sizes) - min(sizes) <= 1
    dealt = Counter(queue for share in shares for queue in share.queues)
    assert set(dealt) == set(names)
    if len(shares) >= slots:
        # Each slot of a queue belongs to another task.
        assert set(dealt.values()) == {slots}


@pytest.mark.parametrize(("slots", "tasks"), [(0, 1), (1, 0)])
def test_none_is_refused(slots: int, tasks: int) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        shares_of(QUEUES, tasks, slots=slots)
