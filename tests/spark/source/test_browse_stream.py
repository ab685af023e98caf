from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.spark.source.desk import Desk, read_between
from twinbus.client import Message
from twinbus.client.blocking import BlockingBus
from twinbus.clock import SteppedClock
from twinbus.errors import ConfigError, MessageNotFoundError, UnsupportedError
from twinbus.ledger.words import Kind
from twinbus.spark.source.settling import BrowseMark, Settler
from twinbus.spark.versions import ReadAllAvailable, ReadMaxRows
from twinbus.testing import Broker

ALL = ReadAllAvailable()


@contextmanager
def streaming(desk: Desk, queue: str, **options: Any) -> Iterator[Any]:
    reader = desk.stream(queueName=queue, **{"maxWaitTime": 0.1, **options})
    try:
        yield reader
    finally:
        reader.stop()


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["messageId"] for row in rows]


def test_a_batch_is_settled_when_the_next_is_asked_for(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert ids(read_between(reader, start, end)) == list("abc")
        assert desk.ids(queue) == list("abc")
        assert reader.latestOffset(end, ALL) == end
        assert desk.ids(queue) == []


def test_commit_settles_too_and_once(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        desk.fill(queue, list("de"))
        reader.commit(end)
        assert desk.ids(queue) == list("de")
        before = desk.operations(queue)
        reader.commit(end)
        assert desk.operations(queue) == before
        following = reader.latestOffset(end, ALL)
        assert ids(read_between(reader, end, following)) == list("de")


def test_a_batch_is_read_again_exactly_as_it_was(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        desk.fill(queue, list("def"))
    with streaming(desk, queue) as restarted:
        for _ in range(2):
            assert ids(read_between(restarted, start, end)) == list("abc")
        following = restarted.latestOffset(end, ALL)
        assert ids(read_between(restarted, end, following)) == list("def")
    assert desk.ids(queue) == list("def")


def test_limits(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abcdefgh"))
    with streaming(desk, queue, maxMessagesPerTrigger=3) as reader:
        assert reader.getDefaultReadLimit() == ReadMaxRows(3)
        offset = reader.initialOffset()
        found = []
        while (end := reader.latestOffset(offset, ReadMaxRows(3))) != offset:
            found.append("".join(ids(read_between(reader, offset, end))))
            assert reader.reportLatestOffset()["sequenceNumber"] == 8
            offset = end
        assert found == ["abc", "def", "gh"]


def test_a_small_batch_is_held_back(desk: Desk, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.fill(queue, list("ab"))
    # Messages that arrive while the stream waits: more than it asks for.
    coming = [["c"], ["d", "e"]]
    monkeypatch.setattr(BlockingBus, "pause", lambda *_: desk.fill(queue, coming.pop(0)))
    with streaming(desk, queue, minMessagesPerTrigger=4) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert ids(read_between(reader, start, end)) == list("abcde")
    with streaming(desk, queue, minMessagesPerTrigger=9, maxTriggerDelay="0s") as reader:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert len(read_between(reader, start, end)) == 5
    with streaming(desk, queue, minMessagesPerTrigger=9) as reader:
        reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert len(read_between(reader, start, end)) == 5


def test_limits_of_bytes(desk: Desk, queue: str) -> None:
    for size in (100, 100, 5_000, 100, 100):
        desk.send(queue, [Message(b"x" * size)])
    with streaming(desk, queue, maxBytesPerTrigger=1_000) as reader:
        offset = reader.initialOffset()
        found = []
        while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
            found.append([len(row["body"]) for row in read_between(reader, offset, end)])
            offset = end
    # A message that is too large comes alone.
    assert found == [[100, 100], [5_000], [100, 100]]


def test_available_now_ends_with_what_was_there(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue, maxWaitTime=60) as reader:
        reader.prepareForTriggerAvailableNow()
        desk.fill(queue, list("xyz"))
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(10))
        assert ids(read_between(reader, start, end)) == list("abc")
        assert reader.latestOffset(end, ReadMaxRows(10)) == end
        assert desk.ids(queue) == list("xyz")


def test_available_now_of_an_empty_queue_does_not_wait(desk: Desk, queue: str) -> None:
    with streaming(desk, queue, maxWaitTime=3600) as reader:
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start


@pytest.mark.parametrize("deletes", [True, False])
def test_messages_of_one_millisecond_are_told_apart(desk: Desk, queue: str, deletes: bool, monkeypatch: Any) -> None:
    if not deletes:

        def refuse(*_: Any, **__: Any) -> int:
            raise UnsupportedError("no such operation")

        monkeypatch.setattr("twinbus.client.blocking.BlockingBus.delete_batch", refuse)
    desk.send(queue, [Message(b"", message_id=str(number)) for number in range(2_000)])
    assert len({each.enqueued_ms for each in desk.look(queue)}) == 1
    with streaming(desk, queue, maxMessagesPerTrigger=700) as reader:
        offset = reader.latestOffset(reader.initialOffset(), ReadMaxRows(700))
        offset = reader.latestOffset(offset, ReadMaxRows(700))
        assert desk.ids(queue) == [str(number) for number in range(700, 2_000)]
        offset = reader.latestOffset(offset, ReadMaxRows(700))
        assert desk.ids(queue) == [str(number) for number in range(1_400, 2_000)]
        assert reader.latestOffset(offset, ReadMaxRows(700)) == offset
        assert desk.ids(queue) == []


def test_what_stays_is_not_counted_as_delivered(desk: Desk, queue: str) -> None:
    desk.send(queue, [Message(b"", message_id=str(number)) for number in range(50)])
    with streaming(desk, queue) as reader:
        offset = reader.latestOffset(reader.initialOffset(), ReadMaxRows(20))
        reader.latestOffset(offset, ReadMaxRows(20))
    assert [each.delivery_count for each in desk.look(queue)] == [0] * 30


def test_an_idle_stream_costs_one_operation_a_wait(desk: Desk, queue: str) -> None:
    desk.fill(queue, ["a"])
    with streaming(desk, queue, maxWaitTime=0.1) as reader:
        offset = reader.latestOffset(reader.initialOffset(), ALL)
        reader.latestOffset(offset, ALL)
        before = desk.operations(queue)
        for _ in range(20):
            assert reader.latestOffset(offset, ALL) == offset
            reader.reportLatestOffset()
        assert desk.operations(queue) - before == {Kind.EMPTY_POLL: 20}
        # A message ends the wait, and is read at once.
        desk.fill(queue, ["b"])
        end = reader.latestOffset(offset, ALL)
        (row,) = read_between(reader, offset, end)
        assert (row["messageId"], row["deliveryCount"]) == ("b", 0)


def test_a_wait_ends_with_the_first_message(desk: Desk, queue: str) -> None:
    with streaming(desk, queue, maxWaitTime=50) as reader:
        start = reader.initialOffset()
        sender = threading.Timer(0.3, lambda: desk.fill(queue, ["late"]))
        sender.start()
        end = reader.latestOffset(start, ALL)
        sender.join()
        assert ids(read_between(reader, start, end)) == ["late"]


def test_scheduled_and_deferred_messages_are_let_lie(desk: Desk, queue: str) -> None:
    desk.fill(queue, ["s1"], scheduled_ms=4_000_000_000_000)
    desk.fill(queue, ["d"])
    held = desk.bus.receive(queue, 1, 1)
    desk.bus.defer(queue, held, {})
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start
        desk.fill(queue, ["a", "b"])
        desk.fill(queue, ["s2"], scheduled_ms=4_000_000_000_000)
        end = reader.latestOffset(start, ALL)
        assert ids(read_between(reader, start, end)) == ["a", "b"]
        desk.fill(queue, ["c"])
        following = reader.latestOffset(end, ALL)
        assert desk.ids(queue) == ["s1", "d", "s2", "c"]
        assert ids(read_between(reader, end, following)) == ["c"]
        assert reader.latestOffset(following, ALL) == following
    assert desk.ids(queue) == ["s1", "d", "s2"]


def test_what_somebody_else_holds_is_settled_when_it_comes_back(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        held = desk.bus.receive(queue, 1, 1)
        end = reader.latestOffset(start, ALL)
        assert ids(read_between(reader, start, end)) == list("abc")
        assert reader.latestOffset(end, ALL) == end
        assert desk.ids(queue) == ["a"]
        desk.bus.release(queue, held)
        while desk.ids(queue):
            assert reader.latestOffset(end, ALL) == end


def test_a_queue_made_anew_is_noticed(desk: Desk, broker: Broker, queue: str) -> None:
    desk.fill(queue, list("abcde"))
    with streaming(desk, queue) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        reader.latestOffset(end, ALL)
    broker.delete_queue(queue)
    broker.create_queue(queue)
    desk.bus.close()
    desk.fill(queue, list("xy"))
    with streaming(desk, queue) as reader, pytest.raises(MessageNotFoundError, match=r"created again.*failOnDataLoss"):
        reader.latestOffset(end, ALL)
    assert desk.ids(queue) == ["x", "y"]
    with streaming(desk, queue, failOnDataLoss="false") as reader:
        following = reader.latestOffset(end, ALL)
        assert ids(read_between(reader, end, following)) == ["x", "y"]
        desk.fill(queue, ["z"])
        last = reader.latestOffset(following, ALL)
        assert ids(read_between(reader, following, last)) == ["z"]
        assert desk.ids(queue) == ["z"]


def test_a_queue_made_anew_under_a_stream_that_runs(desk: Desk, broker: Broker, queue: str) -> None:
    desk.fill(queue, list("abcde"))
    with streaming(desk, queue, failOnDataLoss="false") as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert reader.latestOffset(end, ALL) == end
        broker.delete_queue(queue)
        broker.create_queue(queue)
        desk.bus.close()
        desk.fill(queue, list("xy"))
        following = reader.latestOffset(end, ALL)
        assert ids(read_between(reader, end, following)) == ["x", "y"]
        assert reader.latestOffset(following, ALL) == following
        assert desk.ids(queue) == []


def test_a_queue_made_anew_while_nothing_is_in_it(desk: Desk, broker: Broker, queue: str) -> None:
    desk.fill(queue, list("abcde"))
    with streaming(desk, queue) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        reader.latestOffset(end, ALL)
    broker.delete_queue(queue)
    broker.create_queue(queue)
    desk.bus.close()
    with streaming(desk, queue) as reader:
        assert reader.latestOffset(end, ALL) == end
        desk.fill(queue, ["x"])
        with pytest.raises(MessageNotFoundError, match="created again"):
            reader.latestOffset(end, ALL)
    assert desk.ids(queue) == ["x"]


def test_a_batch_whose_end_is_gone_is_noticed(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abc"))
    with streaming(desk, queue) as reader, streaming(desk, queue, failOnDataLoss="false") as forgiving:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        desk.bus.complete(queue, desk.bus.receive(queue, 3, 1))
        with pytest.raises(MessageNotFoundError, match="is gone"):
            read_between(reader, start, end)
        assert read_between(forgiving, start, end) == []


def test_messages_that_lapse_are_nobodys_fault(desk: Desk) -> None:
    clock = SteppedClock()
    with Broker(queues=["q"], clock=clock, sync=False) as broker, Desk(broker) as own:
        own.fill("q", list("abc"), ttl_ms=5_000)
        with streaming(own, "q") as reader:
            start = reader.initialOffset()
            end = reader.latestOffset(start, ALL)
            clock.step(seconds=6)
            assert read_between(reader, start, end) == []


def test_sessions_are_refused_with_the_next_step(desk: Desk, broker: Broker, queue: str) -> None:
    broker.create_queue(f"s-{queue}", requires_session=True)
    for mode in ("browse", "claim"):
        reader = desk.stream(queueName=f"s-{queue}", readMode=mode)
        with pytest.raises(ConfigError, match=r"requires sessions.*spark\.read"):
            reader.latestOffset(reader.initialOffset(), ALL)


def test_the_checkpoint_of_another_mode_is_refused(desk: Desk, queue: str) -> None:
    with streaming(desk, queue) as reader, pytest.raises(ConfigError, match="checkpointLocation"):
        reader.latestOffset({"claims": "1-5"}, ALL)
    with streaming(desk, queue, readMode="claim") as reader, pytest.raises(ConfigError, match="checkpointLocation"):
        reader.latestOffset({"sequenceNumber": 5}, ALL)


@pytest.mark.parametrize("mode", ["browse", "claim"])
def test_the_checkpoint_of_another_queue_removes_nothing(desk: Desk, broker: Broker, queue: str, mode: str) -> None:
    """Its numbers say nothing about this queue, whose messages have not been read."""
    other = f"o-{queue}"
    broker.create_queue(other)
    desk.fill(other, list("xyz"))
    desk.fill(queue, list("abcde"))
    with streaming(desk, queue, readMode=mode) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
    with streaming(desk, other, readMode=mode) as reader:
        for step in (
            lambda: reader.latestOffset(end, ALL),
            lambda: reader.partitions(start, end),
            lambda: reader.commit(end),
        ):
            with pytest.raises(ConfigError, match=rf"{queue}.*{other}.*checkpointLocation"):
                step()
    assert desk.ids(other) == list("xyz")
    with streaming(desk, other, readMode=mode, failOnDataLoss="false") as reader:
        assert reader.partitions(start, end) == []
        following = reader.latestOffset(end, ALL)
        assert ids(read_between(reader, end, following)) == list("xyz")
        assert reader.latestOffset(following, ALL) == following
        assert desk.left(other) == []


def test_the_checkpoint_of_another_namespace_removes_nothing(desk: Desk, queue: str) -> None:
    with Broker(queues=[queue], sync=False) as elsewhere, Desk(elsewhere) as own:
        own.fill(queue, ["x"])
        desk.fill(queue, ["a"])
        with streaming(desk, queue) as reader:
            end = reader.latestOffset(reader.initialOffset(), ALL)
        with streaming(own, queue.upper()) as reader, pytest.raises(ConfigError, match="checkpointLocation"):
            reader.latestOffset(end, ALL)
        assert own.ids(queue) == ["x"]
    with streaming(desk, queue.upper()) as reader:
        assert reader.latestOffset(end, ALL) == end


def test_a_checkpoint_without_the_name_of_its_queue_is_continued(desk: Desk, queue: str) -> None:
    """Earlier versions did not write it."""
    desk.fill(queue, list("ab"))
    with streaming(desk, queue) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
    del end["entity"]
    with streaming(desk, queue) as reader:
        assert reader.latestOffset(end, ALL) == end
    assert desk.left(queue) == []


def test_an_empty_queue_with_the_checkpoint_of_another_is_waited_for(
    desk: Desk, broker: Broker, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One operation a wait and one warning, as long as nothing comes."""
    other = f"o-{queue}"
    broker.create_queue(other)
    desk.fill(queue, ["a"])
    with streaming(desk, queue) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
    with streaming(desk, other, failOnDataLoss="false") as reader:
        assert reader.latestOffset(end, ALL) == end
        before = desk.operations(other).total()
        assert reader.latestOffset(end, ALL) == end
        assert desk.operations(other).total() - before <= 1
    assert len([each for each in caplog.records if "checkpointLocation" in each.message]) == 1


def test_it_travels_without_its_connection(desk: Desk, queue: str) -> None:
    desk.fill(queue, ["a"])
    with streaming(desk, queue) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        travelled = pickle.loads(pickle.dumps(reader))
        partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
        assert [row["messageId"] for each in partitions for batch in travelled.read(each) for row in batch.to_pylist()]


def test_a_lost_answer_deletes_no_more_than_was_asked(desk: Desk, queue: str, monkeypatch: Any) -> None:
    """The broker deleted and its answer was lost: a retry must not delete more."""
    from twinbus.client.blocking import BlockingBus
    from twinbus.errors import OperationTimeoutError

    desk.send(queue, [Message(b"", message_id=str(number)) for number in range(30)])
    real = BlockingBus.delete_batch
    lost = []

    def losing(self: BlockingBus, path: str, count: int, *, before_ms: int) -> int:
        done = real(self, path, count, before_ms=before_ms + 1_000)
        if not lost:
            lost.append(done)
            raise OperationTimeoutError("the answer was lost")
        return done

    monkeypatch.setattr(BlockingBus, "delete_batch", losing)
    with Desk(desk.broker) as own:
        settler = Settler(own.bus, queue)
        last = desk.look(queue)[9]
        settler.settle(BrowseMark(10, last.enqueued_ms or 0))
    assert lost == [10]
    assert desk.ids(queue) == [str(number) for number in range(10, 30)]


def test_operations_of_a_stream(desk: Desk, queue: str) -> None:
    """The cost that docs/spark.md states: one peek and one delete per message, and few more per batch."""
    for _ in range(60):
        desk.send(queue, [Message(b"x" * 100) for _ in range(50)])
    with streaming(desk, queue, maxMessagesPerTrigger=1_000) as reader:
        offset = reader.initialOffset()
        while (end := reader.latestOffset(offset, ReadMaxRows(1_000))) != offset:
            read_between(reader, offset, end)
            offset = end
    counted = desk.operations(queue)
    # Messages of the millisecond in which a batch ends are received and completed: two operations.
    assert counted[Kind.DELETE] + counted[Kind.COMPLETE] == 3_000
    assert counted[Kind.COMPLETE] == counted[Kind.RECEIVE] <= 300
    assert 3_000 <= counted[Kind.PEEK] <= 3_000 + 300 + 150


def test_the_progress_tells_what_is_waiting(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abcde"))
    with streaming(desk, queue) as reader:
        assert reader.reportLatestOffset() is None
        end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
        told = reader.reportLatestOffset()
        assert (told["sequenceNumber"], told["depth"], told["lagMessages"]) == (5, 5, 3)
        assert told["lagSeconds"] >= 0
        end = reader.latestOffset(end, ReadMaxRows(9))
        assert reader.reportLatestOffset()["lagMessages"] == 0
        reader.latestOffset(end, ReadMaxRows(9))
        assert reader.reportLatestOffset() == {"sequenceNumber": 5, "depth": 0, "lagMessages": 0, "lagSeconds": 0.0}
