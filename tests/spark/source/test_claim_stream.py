from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.spark.source.desk import Desk, read_between
from twinbus.client import Message
from twinbus.client.blocking import BlockingBus
from twinbus.clock import SteppedClock
from twinbus.errors import MessageNotFoundError, OperationTimeoutError
from twinbus.ledger.words import Kind
from twinbus.spark.versions import ReadAllAvailable, ReadMaxRows, UntoldStream
from twinbus.testing import Broker

ALL = ReadAllAvailable()


@contextmanager
def streaming(desk: Desk, queue: str, **options: Any) -> Iterator[Any]:
    reader = desk.stream(queueName=queue, **{"maxWaitTime": 0.1, "readMode": "claim", **options})
    try:
        yield reader
    finally:
        reader.stop()


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["messageId"] for row in rows]


def test_nobody_else_receives_what_is_claimed(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert end["claims"] == "1-3"
        assert desk.bus.receive(queue, 10, 0) == []
        rows = read_between(reader, start, end)
        assert ids(rows) == list("abc")
        assert {row["state"] for row in rows} == {"deferred"}
        assert [dict(row["properties"]) for row in rows] == [{}] * 3
        assert reader.latestOffset(end, ALL) == end
        assert desk.left(queue) == []


def test_commit_settles_too_and_once(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        reader.commit(end)
        assert desk.left(queue) == []
        before = desk.operations(queue)
        reader.commit(end)
        assert desk.operations(queue) == before


def test_a_part_that_was_settled_before_a_crash(desk: Desk, queue: str) -> None:
    desk.send(queue, [Message(b"", message_id=str(number)) for number in range(250)])
    with streaming(desk, queue) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
    desk.bus.take_deferred(queue, [1, 2, 3, 50, 120, 250])
    with streaming(desk, queue) as restarted:
        assert restarted.latestOffset(end, ALL) == end
    assert desk.left(queue) == []


def test_claims_without_a_batch_join_the_next(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abcdef"))
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(2))
        # Claimed, and the driver dies before the engine has written the offset.
        reader.latestOffset(end, ReadMaxRows(3))
    desk.fill(queue, list("g"))
    with streaming(desk, queue) as restarted:
        following = restarted.latestOffset(end, ReadMaxRows(4))
        assert sorted(ids(read_between(restarted, end, following))) == list("cdef")
        last = restarted.latestOffset(following, ReadMaxRows(4))
        assert ids(read_between(restarted, following, last)) == ["g"]
        assert restarted.latestOffset(last, ALL) == last
    assert desk.left(queue) == []


def test_more_claims_without_a_batch_than_a_batch_takes(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abcdef"))
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        reader.latestOffset(start, ALL)
    with streaming(desk, queue) as restarted:
        found = ""
        offset = start
        while (end := restarted.latestOffset(offset, ReadMaxRows(4))) != offset:
            found += "".join(ids(read_between(restarted, offset, end)))
            offset = end
    assert found == "abcdef"
    assert desk.left(queue) == []


def test_claims_of_another_stream_are_not_adopted(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("ab"))
    with streaming(desk, queue, claimName="first") as first:
        end = first.latestOffset(first.initialOffset(), ALL)
    held = desk.fill(queue, ["own"])
    held = desk.bus.receive(queue, 1, 1)
    desk.bus.defer(queue, held, {})
    with streaming(desk, queue, claimName="second") as second:
        start = second.initialOffset()
        assert second.latestOffset(start, ALL) == start
    with streaming(desk, queue, claimName="first") as first:
        assert ids(read_between(first, {}, end)) == ["a", "b"]
        first.commit(end)
    assert desk.left(queue, ["own"]) == ["own"]


def test_two_streams_and_a_receiver_share_a_queue(desk: Desk, queue: str) -> None:
    desk.fill(queue, [str(number) for number in range(30)])
    with streaming(desk, queue, claimName="a") as a, streaming(desk, queue, claimName="b") as b:
        ends = {}
        found: list[str] = []
        offsets = {reader: reader.initialOffset() for reader in (a, b)}
        for _ in range(3):
            taken = desk.bus.receive(queue, 2, 1)
            found += [str(message.message_id) for message in taken]
            desk.bus.complete(queue, taken)
            for reader in (a, b):
                ends[reader] = reader.latestOffset(offsets[reader], ReadMaxRows(4))
                found += ids(read_between(reader, offsets[reader], ends[reader]))
                offsets[reader] = ends[reader]
        for reader in (a, b):
            reader.commit(offsets[reader])
    assert sorted(found, key=int) == [str(number) for number in range(30)]
    assert desk.left(queue) == []


def test_a_small_batch_is_held_back(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("ab"))
    clock = SteppedClock()
    coming = [["c"], ["d"], []]

    class Coming(SteppedClock):
        """A clock on which messages arrive as time passes."""

        def now_ms(self) -> int:
            if coming:
                desk.fill(queue, coming.pop(0))
            return clock.step(ms=100)

    with streaming(desk, queue, minMessagesPerTrigger=9, maxTriggerDelay="1s") as reader:
        reader._clock = Coming()
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        # Not enough messages, and no more time.
        assert len(read_between(reader, start, end)) == 4
        assert not coming


def test_limits_of_messages_and_bytes(desk: Desk, queue: str) -> None:
    desk.send(queue, [Message(b"x" * 1_000, message_id=str(number)) for number in range(20)])
    with streaming(desk, queue, maxBytesPerTrigger=4_000, maxMessagesPerTrigger=100) as reader:
        offset = reader.initialOffset()
        counts = []
        while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
            counts.append(len(read_between(reader, offset, end)))
            offset = end
    assert sum(counts) == 20
    assert max(counts) == 3
    assert desk.left(queue) == []


def test_available_now_ends_with_what_was_there(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue, maxWaitTime=60) as reader:
        reader.prepareForTriggerAvailableNow()
        desk.fill(queue, list("xyz"))
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(10))
        assert ids(read_between(reader, start, end)) == list("abc")
        assert reader.latestOffset(end, ReadMaxRows(10)) == end
    assert desk.left(queue, "xyz") == list("xyz")
    assert [each.delivery_count for each in desk.look(queue)] == [0, 0, 0]


def test_an_idle_stream_costs_one_operation_a_wait(desk: Desk, queue: str) -> None:
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        reader.latestOffset(start, ALL)
        before = desk.operations(queue)
        for _ in range(10):
            assert reader.latestOffset(start, ALL) == start
            reader.reportLatestOffset()
        assert desk.operations(queue) - before == {Kind.EMPTY_POLL: 10}


def test_a_wait_ends_with_the_first_message(desk: Desk, queue: str) -> None:
    with streaming(desk, queue, maxWaitTime=50) as reader:
        start = reader.initialOffset()
        sender = threading.Timer(0.3, lambda: desk.fill(queue, ["late"]))
        sender.start()
        end = reader.latestOffset(start, ALL)
        sender.join()
        assert ids(read_between(reader, start, end)) == ["late"]


def test_claims_that_are_gone_are_noticed(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue) as reader, streaming(desk, queue, failOnDataLoss="false") as forgiving:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        desk.bus.take_deferred(queue, [2])
        with pytest.raises(MessageNotFoundError, match="1 of 3"):
            read_between(reader, start, end)
        assert ids(read_between(forgiving, start, end)) == ["a", "c"]


def test_a_claim_whose_answer_was_lost_is_found(desk: Desk, queue: str, monkeypatch: Any) -> None:
    desk.fill(queue, list("abcd"))
    real = BlockingBus.defer
    lost: list[int] = []

    def losing(self: BlockingBus, path: str, messages: Any, properties: Any) -> Any:
        outcomes = real(self, path, messages, properties)
        if not lost:
            lost.append(1)
            return [OperationTimeoutError("the answer was lost")] * 2 + outcomes[2:]
        return outcomes

    monkeypatch.setattr(BlockingBus, "defer", losing)
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert ids(read_between(reader, start, end)) == ["c", "d"]
        following = reader.latestOffset(end, ALL)
        assert ids(read_between(reader, end, following)) == ["a", "b"]


def test_a_dead_letter_queue_is_streamed_in_any_order(desk: Desk, broker: Broker, queue: str) -> None:
    """Messages keep their sequence numbers when they are dead-lettered, so a later one can have a lower number."""
    desk.fill(queue, list("abc"))
    held = desk.bus.receive(queue, 3, 1)

    def bury(message: Any) -> None:
        desk.bus._submit(desk.bus._receivers[queue].dead_letter(message, "why", None)).result()

    with streaming(desk, queue, subQueue="deadletter") as reader:
        offset = reader.initialOffset()
        found = []
        for message in reversed(held):
            bury(message)
            end = reader.latestOffset(offset, ALL)
            found += [(row["messageId"], row["deadLetterReason"]) for row in read_between(reader, offset, end)]
            offset = end
        reader.commit(offset)
    assert found == [("c", "why"), ("b", "why"), ("a", "why")]
    assert desk.left(f"{queue}/$DeadLetterQueue") == []


def test_a_subscription_is_streamed(desk: Desk, broker: Broker, queue: str) -> None:
    topic = f"t-{queue}"
    broker.create_topic(topic)
    broker.create_subscription(topic, "s")
    desk.fill(topic, list("ab"))
    for mode, wanted in (("browse", "a"), ("claim", "b")):
        reader = desk.stream(topicName=topic, subscriptionName="s", readMode=mode, maxWaitTime=0.1)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(1))
        assert ids(read_between(reader, start, end)) == [wanted]
        reader.commit(end)
        reader.stop()
    assert desk.left(f"{topic}/Subscriptions/s") == []


def test_operations_of_a_stream(desk: Desk, queue: str) -> None:
    """The cost that docs/spark.md states: receive, defer, peek, take, one each."""
    desk.send(queue, [Message(b"x" * 100) for _ in range(1_000)])
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        read_between(reader, start, end)
        reader.latestOffset(end, ALL)
    counted = desk.operations(queue)
    for kind in (Kind.RECEIVE, Kind.DEFER, Kind.RECEIVE_DEFERRED):
        assert counted[kind] == 1_000
    # One more peek at each when a stream starts, for what an earlier run left.
    assert 2_000 <= counted[Kind.PEEK] <= 2_060


def test_the_progress_tells_what_is_claimed_and_what_was_gone(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abcde"))
    with streaming(desk, queue, maxWaitTime=10) as reader:
        end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
        told = reader.reportLatestOffset()
        assert (told["claimed"], told["depth"], told["lagMessages"], told["expiredClaims"]) == (2, 5, 3, 0)
        desk.bus.take_deferred(queue, [1])
        reader.latestOffset(end, ReadMaxRows(9))
        told = reader.reportLatestOffset()
        assert (told["claimed"], told["lagMessages"], told["expiredClaims"]) == (3, 0, 1)


def test_what_was_just_taken_out_is_not_found_again(desk: Desk, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker answers before its disk does: for a moment a peek still shows taken messages."""
    desk.fill(queue, list("ab"))
    with streaming(desk, queue, maxWaitTime=10) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
    desk.fill(queue, ["c"])
    monkeypatch.setattr(BlockingBus, "take_deferred", lambda *_: [])
    with streaming(desk, queue, maxWaitTime=10) as restarted:
        assert restarted.latestOffset(end, ALL)["claims"] == "3"


def test_a_queue_made_anew_has_other_messages_with_the_same_numbers(desk: Desk, broker: Broker, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        reader.latestOffset(end, ALL)
    broker.delete_queue(queue)
    broker.create_queue(queue)
    desk.bus.close()
    desk.fill(queue, list("xyz"))
    with streaming(desk, queue) as reader:
        with pytest.raises(MessageNotFoundError, match="are gone"):
            read_between(reader, start, end)
        # Equal offsets would be no batch for Spark.
        assert reader.latestOffset(end, ALL) != end
    # Killed before the offset was written.
    with streaming(desk, queue) as reader:
        following = reader.latestOffset(end, ALL)
        assert ids(read_between(reader, end, following)) == list("xyz")
        assert reader.latestOffset(following, ALL) == following
        assert desk.left(queue) == []


def test_a_queue_made_anew_on_spark_before_4_2(desk: Desk, broker: Broker, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        reader.latestOffset(end, ALL)
    broker.delete_queue(queue)
    broker.create_queue(queue)
    desk.bus.close()
    desk.fill(queue, list("vwxyz"))
    with streaming(desk, queue) as reader:
        untold = UntoldStream(reader)
        following = untold.latestOffset()
        assert ids(read_between(untold, end, following)) == list("vwxyz")
        untold.commit(following)
        assert desk.left(queue) == []


def test_another_claim_name_removes_what_was_committed(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("ab"))
    with streaming(desk, queue, claimName="one") as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
    with streaming(desk, queue, claimName="two") as reader:
        assert reader.latestOffset(end, ALL) == end
        assert desk.left(queue) == []
