"""The plan of a round: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.spark.syphon.plan import PlanRow, deal, plan

QUEUES = [f"first/x-servicebus-transfer/{index}" for index in range(10)]


def test_a_row_for_each_queue_and_slot() -> None:
    rows = plan(QUEUES[:2], slots=2, messages_max=7, seconds_max=3.0)
    assert rows == [
        PlanRow(QUEUES[0], 0, 7, 3.0),
        PlanRow(QUEUES[0], 1, 7, 3.0),
        PlanRow(QUEUES[1], 0, 7, 3.0),
        PlanRow(QUEUES[1], 1, 7, 3.0),
    ]


def test_ten_queues_on_two_cores_are_two_tasks() -> None:
    first, second = deal(plan(QUEUES, messages_max=100, seconds_max=20.0), 2)
    assert (first.queues, second.queues) == (tuple(QUEUES[0::2]), tuple(QUEUES[1::2]))
    assert (first.messages_max, first.seconds_max) == (500, 20.0)


def test_more_slots_than_tasks_meet_and_count_once() -> None:
    (share,) = deal(plan(QUEUES[:1], slots=3, messages_max=100), 1)
    assert (share.queues, share.messages_max) == ((QUEUES[0],), 300)


@given(queues=st.integers(1, 40), slots=st.integers(1, 6), tasks=st.integers(1, 64))
def test_every_row_is_dealt_once_and_evenly(queues: int, slots: int, tasks: int) -> None:
    rows = plan([str(number) for number in range(queues)], slots=slots)
    shares = deal(rows, tasks)
    assert sorted((row.queue, row.slot) for share in shares for row in share.rows) == sorted(
        (row.queue, row.slot) for row in rows
    )
    assert len(shares) == min(tasks, len(rows))
    sizes = [len(share.rows) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    if len(shares) >= slots:
        assert all(len(share.queues) == len(share.rows) for share in shares)


@pytest.mark.parametrize(("slots", "tasks"), [(0, 1), (1, 0)])
def test_none_is_refused(slots: int, tasks: int) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        deal(plan(QUEUES, slots=slots), tasks)
