"""Long work gives way: how much runs in one turn of the loop, with a clock that ticks on every reading."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.connections.test_flow import numbers
from tests.broker.order_tale import opened
from tests.broker.peer import Peer, text
from twinbus.amqp.events import Attached, Disposed, Transfer
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Int
from twinbus.broker import commits
from twinbus.broker.commits import CommitLoop
from twinbus.broker.connections.attachment import Attachment
from twinbus.broker.messages.intake import BATCH_FORMAT, Intake
from twinbus.broker.nodes.requests import Request
from twinbus.broker.server import Server
from twinbus.broker.slices import Slices, Work
from twinbus.client import Message
from twinbus.client.batch import encode_batch
from twinbus.entities.filters import SqlFilter
from twinbus.entities.message import NewMessage
from twinbus.entities.rule import Rule
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.limits import ANSWERS_WAITING_MAX, COMMIT_ROWS_MAX, SLICE_EVENTS, SLICE_MS
from twinbus.store.facts import Facts, Table
from twinbus.testing import Broker

# The clock is read once per step: a slice has that many steps, plus one before the first reading.
STEPS = SLICE_MS + 1


def ticking() -> Callable[[], float]:
    """A clock that advances a millisecond with every reading."""
    looks = itertools.count()
    return lambda: next(looks) / 1000


class Disk:
    """The part of a commit loop that slices use."""

    full = False


def slices(disk: Disk) -> Slices:
    return Slices(asyncio.get_running_loop(), disk, ticking())  # type: ignore[arg-type]


async def test_pieces_of_work_take_steps_in_turn_and_the_loop_has_its_own_between() -> None:
    seen: list[str] = []

    def work(name: str) -> Work:
        for _ in range(20):
            seen.append(name)
            yield None

    def bystander() -> None:
        seen.append("bystander")
        asyncio.get_running_loop().call_soon(bystander)

    made = slices(Disk())
    bystander()
    made.start(work("a"))
    made.start(work("b"))
    while Counter(seen)["a"] + Counter(seen)["b"] < 40:
        await asyncio.sleep(0)
    runs = [len(list(group)) for name, group in itertools.groupby(seen, "bystander".__eq__) if not name]
    assert max(runs) <= STEPS
    tail = [name for name in seen if name != "bystander"][STEPS : 2 * STEPS]
    assert set(tail) == {"a", "b"}


async def test_a_step_that_asks_does_not_prolong_its_slice() -> None:
    made = slices(Disk())
    turn = 0
    seen: list[int] = []

    def work() -> Work:
        for _ in range(40):
            seen.append(turn)
            if made.over():
                yield None

    made.start(work())
    while len(seen) < 40:
        turn += 1
        await asyncio.sleep(0)
    assert max(Counter(seen).values()) <= STEPS


async def test_work_waits_while_a_commit_has_enough_rows() -> None:
    disk = Disk()
    seen: list[int] = []

    def work() -> Work:
        for number in range(3):
            seen.append(number)
            yield None

    made = slices(disk)
    disk.full = True
    made.start(work())
    for _ in range(5):
        await asyncio.sleep(0)
    assert seen == []
    disk.full = False
    made.wake()
    for _ in range(3):
        await asyncio.sleep(0)
    assert seen == [0, 1, 2]


async def test_work_waits_in_a_list_until_it_is_resumed() -> None:
    line: list[Work] = []
    seen: list[str] = []

    def work() -> Work:
        seen.append("before")
        yield line
        seen.append("after")

    made = slices(Disk())
    made.start(work())
    for _ in range(3):
        await asyncio.sleep(0)
    assert (seen, len(line)) == (["before"], 1)
    made.resume(line)
    for _ in range(3):
        await asyncio.sleep(0)
    assert (seen, line) == (["before", "after"], [])


async def test_work_that_fails_keeps_no_other_from_its_end(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []

    def bad() -> Work:
        yield None
        raise ValueError("odd")

    def good() -> Work:
        yield None
        seen.append(1)

    made = slices(Disk())
    made.start(bad())
    made.start(good())
    made.finish()
    assert seen == [1]
    assert "a piece of work failed" in caplog.text


# --- the broker -----------------------------------------------------------------------------------------------------


class Turns:
    """Counts the turns of a broker's loop, and what happens in each: calls, or by how much a figure grows."""

    def __init__(self, broker: Broker, figure: Callable[[Server], int] = lambda server: 0) -> None:
        self.number = 0
        self.done: list[int] = []
        # For what compiled code does: it does not call a method that a test replaces.
        self._figure = figure
        self._broker = broker
        broker.call(self._start)

    def _start(self, server: Server) -> None:
        host = server.hosts["contoso"]
        host.slices._now_s = ticking()
        self._loop = host.loop
        self._server = server
        self._last = self._figure(server)
        self._next()

    def _look(self) -> None:
        before, self._last = self._last, self._figure(self._server)
        self.done += [self.number] * (self._last - before)

    def _next(self) -> None:
        self._look()
        self.number += 1
        self._handle = self._loop.call_soon(self._next)

    def counting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.done.append(self.number)
            return call(*arguments, **options)

        return counted

    def look(self) -> None:
        """Count what this turn has done so far."""
        self._broker.call(lambda server: self._look())

    @property
    def most(self) -> int:
        """The most that was done in one turn."""
        return max(Counter(self.done).values())


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(queues=["q"], sync=False) as made:
        yield made


def test_many_attaches_in_one_write_take_several_turns(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(broker)
    monkeypatch.setattr(Attachment, "attach", turns.counting(Attachment.attach))
    with Peer(broker) as peer:
        for number in range(1_000):
            peer.session.attach_sender(str(number), source=Source("s"), target=Target("q"))
        peer.flush()
        for _ in range(1_000):
            peer.wait(Attached)
    assert len(turns.done) == 1_000
    assert turns.most <= (STEPS + 1) * SLICE_EVENTS


def test_frames_keep_their_order_over_several_turns(broker: Broker) -> None:
    Turns(broker)
    with Peer(broker) as peer:
        link = peer.sender("q")
        ids = set()
        for number in range(800):
            message = text("x")
            message.message_id = str(number)
            ids.add(link.send(message.encode(), tag=str(number).encode(), settled=False))
        peer.flush()
        while ids:
            ids -= {each[0] for each in peer.wait(Disposed).deliveries}
        receiver = peer.receiver("q", credit=800)
        assert numbers(peer, receiver, 800) == list(range(800))


def test_what_was_read_before_a_hang_up_is_handled(broker: Broker) -> None:
    Turns(broker)
    with Peer(broker) as peer:
        link = peer.sender("q")
        for number in range(900):
            link.send(text("x").encode(), tag=str(number).encode(), settled=True)
        peer.flush()

    def count(server: Server) -> int:
        return server.hosts["contoso"].entities.queue("q").counts.active

    for _ in range(2_000):
        if broker.call(count) == 900:
            break
    assert broker.call(count) == 900


def test_requests_in_one_write_take_several_turns(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(broker)
    monkeypatch.setattr(Request, "answer_management", turns.counting(Request.answer_management))
    count = 60
    with Peer(broker) as peer:
        replies = peer.session.attach_receiver("replies", source=Source("q/$management"), target=Target("replies"))
        peer.wait(Attached)
        replies.flow(count)
        link = peer.sender("q/$management")
        for number in range(count):
            request = AmqpMessage()
            request.message_id, request.reply_to = str(number), "replies"
            request.application_properties = {"operation": "com.microsoft:peek-message"}
            request.value, request.has_value = {"from-sequence-number": 0, "message-count": Int(1)}, True
            link.send(request.encode(), tag=str(number).encode(), settled=True)
        peer.flush()
        answers = [AmqpMessage.decode(peer.receive(replies).payload or b"") for _ in range(count)]
    assert [answer.correlation_id for answer in answers] == [str(number) for number in range(count)]
    assert len(turns.done) == count
    # The time is looked at after each request, so a slice has as many as it has milliseconds.
    assert turns.most <= STEPS


def test_rules_with_much_to_search_take_several_turns(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(broker)
    rules = 60

    def create(server: Server) -> None:
        host = server.hosts["contoso"]
        host.create_topic(TopicSettings(path="judged"))
        host.create_subscription(SubscriptionSettings(topic="judged", name="s"))
        for number in range(rules):
            condition = SqlFilter(f"p LIKE '%{'a_' * 20}{number}%' AND '{'x' * 800}' = '{'x' * 100}'")
            host.add_rule("judged", "s", Rule(str(number), condition, None, 0))
        host.remove_rule("judged", "s", "$Default")

    broker.call(create)
    monkeypatch.setattr(SqlFilter, "matches", turns.counting(SqlFilter.matches))
    with Peer(broker) as peer:
        message = text("x")
        message.application_properties = {"p": "ab" * 15_000}
        payload = encode_batch([message.encode()] * 3)
        link = peer.sender("judged")
        link.send(payload, tag=b"batch", settled=False, message_format=BATCH_FORMAT)
        peer.wait(Disposed)
    assert len(turns.done) == 3 * rules
    assert turns.most <= STEPS + 1


def test_sends_to_a_wide_topic_take_several_turns(broker: Broker) -> None:
    def create(server: Server) -> None:
        host = server.hosts["contoso"]
        host.create_topic(TopicSettings(path="wide"))
        for number in range(40):
            host.create_subscription(SubscriptionSettings(topic="wide", name=str(number)))

    def numbered(server: Server) -> int:
        return server.hosts["contoso"].entities.topic("wide").numbers.last

    broker.call(create)
    turns = Turns(broker, numbered)
    with Peer(broker) as peer:
        link = peer.sender("wide")
        count = 60
        for number in range(count):
            link.send(text("x").encode(), tag=str(number).encode(), settled=False)
        peer.flush()
        while count:
            count -= len(peer.wait(Disposed).deliveries)
    turns.look()
    assert len(turns.done) == 60
    assert turns.most <= STEPS


def test_a_large_batch_is_read_in_several_turns(broker: Broker) -> None:
    turns = Turns(broker)

    def count_ids(server: Server) -> None:
        host = server.hosts["contoso"]
        host.intake = Intake(turns.counting(host.new_id))

    broker.call(count_ids)
    # Without ids: each message gets one when it is read.
    payload = encode_batch([Message(b"x") for _ in range(2_000)])
    with Peer(broker) as peer:
        link = peer.sender("q")
        link.send(payload, tag=b"batch", settled=False, message_format=BATCH_FORMAT)
        link.send(text("last", message_id=None).encode(), tag=b"last", settled=False)
        ids = 2
        while ids:
            ids -= len(peer.wait(Disposed).deliveries)
    assert len(turns.done) == 2_001
    assert turns.most <= (STEPS + 1) * SLICE_EVENTS

    def last(server: Server) -> int:
        return server.hosts["contoso"].entities.queue("q").messages.available.fresh[-1].seq

    assert broker.call(last) == 2_001, "what came behind the batch is behind it in the queue"


def test_a_large_batch_is_accepted_in_several_turns(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(broker)
    monkeypatch.setattr(Slices, "_step", turns.counting(Slices._step))
    payload = encode_batch([Message(b"x", message_id=str(number)) for number in range(2_000)])
    with Peer(broker) as peer, Peer(broker) as other:
        link = peer.sender("q")
        link.send(payload, tag=b"batch", settled=False, message_format=BATCH_FORMAT)
        peer.flush()
        while not turns.done:
            pass
        other.send(other.sender("q"), text("meanwhile"))
        peer.wait(Disposed)
    assert len(turns.done) >= 2_000 // SLICE_EVENTS + 2_000 // 50, "it is read in steps, and accepted in steps"
    assert turns.most <= STEPS + 1


def test_a_receiver_that_vanishes_gives_back_in_several_turns(broker: Broker) -> None:
    with Peer(broker) as filler:
        link = filler.sender("q")
        payload = encode_batch([Message(b"x") for _ in range(2_000)])
        link.send(payload, tag=b"batch", settled=False, message_format=BATCH_FORMAT)
        filler.wait(Disposed)
    turns = Turns(broker, lambda server: -len(server.hosts["contoso"].entities.queue("q").messages.locks))
    with Peer(broker) as peer:
        peer.receiver("q", credit=2_000)
        for _ in range(2_000):
            peer.wait(Transfer)

    def free(server: Server) -> int:
        return len(server.hosts["contoso"].entities.queue("q").messages.available)

    for _ in range(2_000):
        if broker.call(free) == 2_000:
            break
    assert broker.call(free) == 2_000
    turns.look()
    assert len(turns.done) == 2_000
    assert turns.most <= (STEPS + 1) * 50


# --- commits and time -----------------------------------------------------------------------------------------------


async def test_long_work_waits_while_many_answers_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it makes more of them than go out, and everybody behind them waits longer and longer."""
    host = opened(tmp_path)
    host.start()
    await host.commits.drain()
    monkeypatch.setattr(commits.time, "perf_counter", ticking())
    answered = 0
    seen: list[int] = []

    def answer(_: None) -> None:
        nonlocal answered
        answered += 1

    def work() -> Work:
        for _ in range(10):
            seen.append(answered)
            yield None

    for _ in range(2 * ANSWERS_WAITING_MAX):
        host.commits.facts.then.append((answer, None))
    host.create_queue(QueueSettings(path="q"))
    while not answered:
        await asyncio.sleep(0)
    host.slices.start(work())
    while len(seen) < 10:
        await asyncio.sleep(0)
    assert seen[0] > ANSWERS_WAITING_MAX
    await host.stop()


async def test_answers_go_out_in_order_over_several_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = opened(tmp_path)
    host.start()
    await host.commits.drain()
    monkeypatch.setattr(commits.time, "perf_counter", ticking())
    seen: list[int] = []
    turn = 0
    turns: list[int] = []

    def answer(number: int) -> None:
        seen.append(number)
        turns.append(turn)

    for number in range(2_000):
        host.commits.facts.then.append((answer, number))
    host.create_queue(QueueSettings(path="q"))
    while len(seen) < 2_000:
        turn += 1
        await asyncio.sleep(0)
    assert seen == list(range(2_000))
    assert max(Counter(turns).values()) < 1_000
    await host.stop()


async def test_what_waits_behind_a_commit_is_called_after_it(tmp_path: Path) -> None:
    host = opened(tmp_path)
    host.start()
    await host.commits.drain()
    seen: list[str] = []
    host.create_queue(QueueSettings(path="q"))
    host.commits.facts.then.append((seen.append, "first"))
    while host.commits._running is None:
        await asyncio.sleep(0)
    host.commits.facts.then.append((seen.append, "second"))
    host.commits.request()
    await host.commits.drain()
    assert seen == ["first", "second"]
    await host.stop()


async def test_time_does_no_more_while_a_commit_has_enough_rows(tmp_path: Path) -> None:
    host = opened(tmp_path)
    host.start()
    queue = host.create_queue(QueueSettings(path="q"))
    message = NewMessage("m", b"body", 4, ttl_ms=1_000)
    queue.send([message], host.clock.now_ms(), host.commits.facts)
    await host.commits.drain()
    host.clock.step(seconds=5)  # type: ignore[attr-defined]
    for number in range(COMMIT_ROWS_MAX):
        host.commits.facts.rows[Table.META, b"test:%d" % number] = b""
    host.timers.run()
    assert queue.counts.active == 1
    host.commits.request()
    while queue.counts.active:
        await asyncio.sleep(0.001)
    await host.stop()


def test_a_commit_is_full_by_rows_of_every_kind() -> None:
    loop = CommitLoop.__new__(CommitLoop)
    loop.facts = Facts()
    loop._answers = deque()
    for number in range(COMMIT_ROWS_MAX // 2):
        loop.facts.delete(Table.INDEX, number.to_bytes(12, "big"))
    assert not loop.full
    for number in range(COMMIT_ROWS_MAX // 2):
        loop.facts.index[number.to_bytes(12, "big")] = b""
    assert loop.full
