"""The syphon from end to end, with two brokers and real sockets; and how a run ends, with a scripted bus."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.amqp import AmqpMessage, Symbol, Timestamp
from twinbus.client import BusClient, Message, read_enqueued_ms, tls_context
from twinbus.client.envelope import pack
from twinbus.clock import SteppedClock, SystemClock
from twinbus.errors import EntityNotFoundError, UnauthorizedError
from twinbus.ledger.files import complete_files
from twinbus.ledger.records import Latency, decode
from twinbus.ledger.totals import Totals
from twinbus.ledger.words import Event
from twinbus.paired.syphon import Bounds, Syphon, lane
from twinbus.paired.syphon.bus_port import BusDestination
from twinbus.testing import Broker

from .conftest import Pair, until
from .scripted_port import ScriptedDestination, ScriptedSource, Stage


def numbered(count: int, prefix: str = "m") -> list[Message]:
    return [Message(f"{prefix}{number}".encode(), message_id=f"{prefix}{number}") for number in range(count)]


async def test_everything_comes_home(pair: Pair) -> None:
    first, second = pair.destination(), pair.destination()
    await pair.divert(first, numbered(300, "a"), queue=0)
    await pair.divert(second, numbered(200, "b"), queue=0)
    await pair.divert(second, numbered(100, "c"), queue=1)
    report = await pair.syphon().run(once=True)
    assert report.total.syphoned == 600
    assert report.drained == tuple(pair.queues)
    assert [m.message_id for m in await pair.taken(first, 300)] == [f"a{n}" for n in range(300)]
    assert {m.message_id for m in await pair.taken(second, 300)} == {f"b{n}" for n in range(200)} | {
        f"c{n}" for n in range(100)
    }
    assert await pair.left(0) == await pair.left(1) == 0
    assert sum(event.count for event in pair.events if event.kind is Event.SYPHONED) == 600


async def test_what_was_moved_aside_is_back(pair: Pair) -> None:
    sessions = pair.destination(requires_session=True)
    plain = pair.destination()
    later_ms = SystemClock().now_ms() + 3_600_000
    await pair.divert(sessions, [Message(b"s", message_id="s", session_id="red")])
    await pair.divert(plain, [Message(b"t", message_id="t", ttl_ms=600_000)])
    await pair.divert(plain, [Message(b"u", message_id="u", scheduled_ms=later_ms)])
    report = await pair.syphon().run(once=True)
    assert report.total.syphoned == 3
    async with BusClient.from_connection_string(pair.primary.connection_string()) as client:
        receiver = await client.accept_session(sessions)
        assert receiver.session_id == "red"
        (message,) = await receiver.receive_batch(1, 5)
        assert (message.message_id, message.session_id) == ("s", "red")
        assert "x-ms-path" not in message.application_properties
        live, scheduled = await (await client.management(plain)).peek(10)
        assert (live.message_id, live.amqp.ttl) == ("t", 600_000)
        assert (scheduled.message_id, scheduled.scheduled_ms, scheduled.state) == ("u", later_ms, 2)


async def test_a_packed_batch_comes_out_as_one(pair: Pair) -> None:
    path = pair.destination()
    messages = numbered(30)
    await pair.put([pack([message.encode() for message in messages], path)])
    report = await pair.syphon().run(once=True)
    assert report.total.received == 1
    assert report.total.syphoned == 30
    assert [m.message_id for m in await pair.taken(path, 30)] == [f"m{n}" for n in range(30)]


async def test_a_topic_is_a_destination(pair: Pair) -> None:
    topic = f"{pair.name}-news"
    pair.primary.create_topic(topic)
    pair.primary.create_subscription(topic, "all")
    await pair.divert(topic, numbered(5))
    await pair.syphon().run(once=True)
    assert len(await pair.taken(f"{topic}/subscriptions/all", 5)) == 5


async def test_poison_is_set_apart_while_others_flow(pair: Pair) -> None:
    good = pair.destination()
    small = pair.destination(max_message_bytes=1_024)
    disabled = pair.destination(status="Disabled")
    await pair.put([Message(b"no path", message_id="no-path").encode()])
    await pair.put([Message(b"x", message_id="bad-alias", application_properties={"x-ms-path": 7}).encode()])
    await pair.divert("nowhere", [Message(b"x", message_id="not-found")])
    await pair.divert("$management", [Message(b"x", message_id="a-node")])
    await pair.divert(small, [Message(b"x" * 5_000, message_id="too-large"), Message(b"x", message_id="small")])
    await pair.divert(disabled, [Message(b"x", message_id="disabled")])
    await pair.divert(good, numbered(50))
    report = await pair.syphon().run(once=True)
    assert report.total.dead_lettered == 6
    assert report.drained == tuple(pair.queues)
    assert len(await pair.taken(good, 50)) == 50
    assert [m.message_id for m in await pair.taken(small, 1)] == ["small"]
    found = {m.message_id: m.application_properties for m in await pair.dead(6)}
    reasons = {name: own["DeadLetterReason"] for name, own in found.items()}
    assert reasons == {
        "no-path": "CannotBeRestored",
        "bad-alias": "CannotBeRestored",
        "a-node": "CannotBeRestored",
        "not-found": "DestinationNotFound",
        "too-large": "MessageTooLarge",
        "disabled": "DestinationDisabled",
    }
    assert "nowhere" in found["not-found"]["DeadLetterErrorDescription"]
    assert "amqp:not-found" in found["not-found"]["DeadLetterErrorDescription"]
    assert found["not-found"]["x-ms-path"] == "nowhere"
    causes = [event.cause for event in pair.events if event.kind is Event.DEAD_LETTERED]
    assert len(causes) == 6
    assert "amqp:not-found" in causes


async def test_several_share_the_work(pair: Pair) -> None:
    path = pair.destination()
    await pair.divert(path, numbered(2_000), queue=0)
    await pair.divert(path, numbered(2_000, "n"), queue=1)
    reports = await asyncio.gather(*(pair.syphon().run(once=True) for _ in range(3)))
    assert sum(report.total.syphoned for report in reports) == 4_000
    assert sum(report.total.syphoned > 0 for report in reports) > 1
    found = [m.message_id for m in await pair.taken(path, 4_001, wait_s=0.5)]
    assert len(found) == len(set(found)) == 4_000


async def test_it_waits_for_messages_and_stops_in_good_order(pair: Pair) -> None:
    path = pair.destination()
    async with pair.running() as syphon:
        await asyncio.sleep(0.1)
        await pair.divert(path, numbered(10))
        await until(lambda: syphon.tally.total().syphoned == 10)
        await pair.divert(path, numbered(10, "n"), queue=1)
        await until(lambda: syphon.tally.total().syphoned == 20)
    assert syphon.in_hand == 0
    assert len(await pair.taken(path, 20)) == 20


async def test_a_queue_that_is_not_there_is_no_obstacle(pair: Pair) -> None:
    path = pair.destination()
    pair.secondary.delete_queue(pair.queues[1])
    await pair.divert(path, numbered(10))
    report = await pair.syphon().run(once=True)
    assert report.total.syphoned == 10
    assert report.missing == (pair.queues[1],)
    assert report.undrained == ()


async def test_memory_is_bounded_by_bytes(pair: Pair) -> None:
    path = pair.destination()
    body = b"x" * 200_000
    await pair.divert(path, [Message(body, message_id=str(number)) for number in range(60)])
    syphon = pair.syphon()
    report = await syphon.run(once=True)
    assert report.total.syphoned == 60


async def test_the_ledger_has_every_stage(pair: Pair, tmp_path: Path) -> None:
    path = pair.destination()
    await pair.divert(path, numbered(20))
    await pair.put([Message(b"poison").encode()])
    await pair.syphon(ledger=tmp_path).run(once=True)
    totals = Totals()
    totals.read(complete_files(tmp_path))
    counts = {(g.namespace, g.entity, g.kind, g.stage): sums.count for g, sums in totals.groups.items()}
    assert totals.bad_lines == 0
    queue = pair.queues[0]
    assert counts["second", queue, "receive", "from-backlog"] == 21
    assert counts[pair.name, path, "send", "to-primary"] == 20
    assert counts["second", queue, "complete", "from-backlog"] == 20
    assert counts["second", queue, "dead-letter", "from-backlog"] == 1
    assert counts["second", pair.queues[1], "empty-poll", "poll"] >= 1
    assert {group.source for group in totals.groups} == {"syphon"}
    records = [decode(line) for file in complete_files(tmp_path) for line in file.read_bytes().splitlines()]
    latencies = [record for record in records if isinstance(record, Latency)]
    assert sum(record.count for record in latencies) == 20
    assert {(record.namespace, record.entity, record.queue) for record in latencies} == {(pair.name, path, queue)}
    assert all(0 <= record.max_ms < 10_000 for record in latencies)


async def test_locks_are_renewed_while_work_goes_on(primary_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The locks' time is stepped: on a busy machine they would expire before their turn."""
    clock = SteppedClock()
    may_send = asyncio.Event()
    send = BusDestination.send

    async def send_late(self: BusDestination, *arguments: Any) -> Any:
        await may_send.wait()
        return await send(self, *arguments)

    monkeypatch.setattr(BusDestination, "send", send_late)
    with Broker(["second"], sync=False, clock=clock) as secondary:
        pair = Pair(primary_broker, secondary)
        path = pair.destination()
        secondary.delete_queue(pair.queues[0])
        secondary.create_queue(pair.queues[0], lock_duration_ms=5_000)
        await pair.divert(path, numbered(5))
        async with pair.running(clock=clock) as syphon:
            await until(lambda: syphon.tally.total().received == 5)
            for turn in range(1, 4):
                clock.step(ms=2_600)
                await until(lambda turn=turn: syphon.tally.total().renewed == 5 * turn)  # type: ignore[misc]
            may_send.set()
            await until(lambda: syphon.tally.total().syphoned + syphon.tally.total().repeated == 5)
            assert syphon.tally.total().repeated == 0
        assert len(await pair.taken(path, 6, wait_s=0.5)) == 5


async def test_what_was_set_aside_for_a_slow_destination_comes_when_it_is_fast_again(pair: Pair) -> None:
    path = pair.destination()
    async with pair.running() as syphon:
        with pair.primary.fault("slow", path, delay_ms=4_000):
            await pair.divert(path, numbered(5))
            await until(lambda: any(lane.stalled for lane in syphon._shared.lanes.values()), 15)
            await pair.divert(path, numbered(100))
            await until(lambda: any(intake.aside_count for intake in syphon._shared.intakes), 15)
        # Long before their locks expire.
        await until(lambda: syphon.tally.total().syphoned == 105, 30)
    assert len(await pair.taken(path, 106, wait_s=0.5)) == 105


async def test_a_secondary_that_restarts(tmp_path: Path, primary_broker: Broker) -> None:
    with Broker(["second"], sync=False) as secondary:
        pair = Pair(primary_broker, secondary)
        path = pair.destination(requires_duplicate_detection=True)
        await pair.divert(path, numbered(2_000))
        async with pair.running() as syphon:
            await until(lambda: syphon.tally.total().syphoned > 100)
            await asyncio.to_thread(secondary.restart)
            async with asyncio.timeout(120):
                while await pair.left():
                    await asyncio.sleep(0.05)
        assert len(await pair.taken(path, 2_001, wait_s=0.5)) == 2_000


def test_when_a_message_came_to_the_backlog() -> None:
    message = AmqpMessage.of_value("x")
    message.message_annotations = {Symbol("x-opt-enqueued-time"): Timestamp(1_700_000_000_123)}
    payload = message.encode()
    assert read_enqueued_ms(payload) == 1_700_000_000_123
    assert read_enqueued_ms(payload[: payload.index(b"time") + 7]) is None
    assert read_enqueued_ms(Message(b"x").encode()) is None


@pytest.mark.parametrize("websocket", [False, True], ids=["tls", "wss"])
async def test_over_tls_and_websocket(pair: Pair, websocket: bool) -> None:
    path = pair.destination()
    await pair.divert(path, numbered(50))
    # Without the emulator's flag a connection string means TLS.
    brokers = (pair.primary, pair.secondary)
    texts = [each.connection_string().replace("UseDevelopmentEmulator=true", "") for each in brokers]
    syphon = Syphon.from_connection_strings(
        *texts,
        primary_name=pair.name,
        backlog_queue_count=2,
        primary_tls=tls_context(pair.primary.ca_file),
        secondary_tls=tls_context(pair.secondary.ca_file),
        websocket=websocket,
    )
    report = await syphon.run(once=True, patience_s=10)
    assert report.total.syphoned == 50
    assert len(await pair.taken(path, 50)) == 50


# --- with a scripted bus ----------------------------------------------------------------------------------------------


def scripted(stage: Stage, *queues: str) -> Syphon:
    return Syphon(stage.primary, stage.secondary, queues or ["q"], events=stage.told, pauses=stage.pauses)  # type: ignore[arg-type]


async def test_the_report_of_a_run() -> None:
    stage = Stage()
    stage.put("orders", "a", "b")
    stage.put("news", "c", queue="r")
    syphon = scripted(stage, "q", "r")
    report = await syphon.run(once=True)
    assert (report.total.syphoned, report.drained, report.undrained) == (3, ("q", "r"), ())
    assert (report.missing, report.failing, report.outage) == ((), (), "")
    assert report.queues["q"]["syphoned"] == 2
    shown = report.as_dict()
    assert (shown["syphoned"], shown["drained"], "total" in shown) == (3, ("q", "r"), False)
    assert syphon._shared.stopping.is_set(), "its parts end"
    for port in (stage.primary, stage.secondary):
        assert port.done[-1][0] == "close port"
    with pytest.raises(RuntimeError, match="runs once"):
        await syphon.run()


async def test_a_missing_queue_is_reported() -> None:
    stage = Stage()
    stage.secondary.errors["source"] = [EntityNotFoundError("no")]
    report = await scripted(stage).run(once=True)
    assert (report.drained, report.undrained, report.missing) == ((), (), ("q",))


async def test_at_a_bound_what_is_held_is_finished_and_nothing_more_received(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "SYPHON_BATCH_MESSAGES", 1)
    stage = Stage()
    stage.put("orders", "a", "b", "c")
    send = ScriptedDestination.send

    async def slow(self: Any, parcels: Any, on_accepted: Any) -> Any:
        await asyncio.sleep(0.15)
        if len(stage.primary.accepted.get("orders", ())) == 2:
            stage.put("orders", "d")
        return await send(self, parcels, on_accepted)

    monkeypatch.setattr(ScriptedDestination, "send", slow)
    report = await scripted(stage).run(bounds=Bounds(seconds_max=0.01))
    assert stage.secondary.handles("complete") == ["a", "b", "c"]
    assert [held.handle for held in stage.secondary.waiting["q"]] == ["d"]
    assert report.undrained == ("q",)


async def test_a_full_run_does_not_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.put("orders", "a")
    receive = ScriptedSource.receive

    async def long(self: Any, max_count: int, wait_s: float) -> Any:
        found = await receive(self, max_count, wait_s)
        if not found:
            await asyncio.sleep(1000)
        return found

    monkeypatch.setattr(ScriptedSource, "receive", long)
    report = await scripted(stage).run(bounds=Bounds(messages_max=1))
    assert report.total.syphoned == 1


async def test_patience_ends_a_run_and_so_does_stop() -> None:
    stage = Stage()
    stage.secondary.locked_elsewhere = True
    report = await scripted(stage).run(once=True, patience_s=0.01)
    assert report.undrained == ("q",)
    other = Stage()
    other.secondary.locked_elsewhere = True
    syphon = scripted(other)
    running = asyncio.create_task(syphon.run(once=True, patience_s=1000))
    await asyncio.sleep(0.6)
    assert not running.done(), "it has patience"
    syphon.stop()
    assert (await running).undrained == ("q",)


async def test_a_brief_run_receives_nothing_that_it_cannot_send() -> None:
    stage = Stage()
    stage.put("orders", "a")
    stage.primary.errors["connect"] = [UnauthorizedError("key")]
    report = await scripted(stage).run(bounds=Bounds(brief=True))
    assert report.outage == UnauthorizedError.condition
    assert stage.secondary.asked == []


async def test_which_queue_waits() -> None:
    syphon = scripted(Stage())
    for name, waits in (("q", True), ("r", False)):
        syphon._shared.intakes.append(SimpleNamespace(queue=name, waits=waits))  # type: ignore[arg-type]
    assert [syphon.waits(name) for name in "qrs"] == [True, False, False]


async def test_a_loop_that_fails_is_raised() -> None:
    stage = Stage()

    async def broken(path: str) -> Any:
        raise LookupError("bug")

    stage.secondary.source = broken  # type: ignore[method-assign]
    with pytest.raises(LookupError, match="bug"):
        await scripted(stage).run(once=True)
    with pytest.raises(ValueError, match="at least one"):
        Syphon(stage.primary, stage.secondary, [], events=stage.told)  # type: ignore[arg-type]
