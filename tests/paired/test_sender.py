"""How a sender spends its caller's time, on a stepped clock: attempts, pauses, the interval, the backlog."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from tests.paired.scripted import NoJitter, Recorder, Script, ScriptedLinks, SteppedSignal
from twinbus.clock import SteppedClock
from twinbus.paired._async.diverter import AsyncDiverter
from twinbus.paired._async.sender import PairedServiceBusSender
from twinbus.paired.classify import availability_failure
from twinbus.paired.entity import PairedEntity
from twinbus.paired.errors import MessageInBacklogError
from twinbus.paired.events import Events
from twinbus.paired.options import PairingOptions
from twinbus.paired.retries import Retries
from twinbus.paired.rotation import Rotation
from twinbus.paired.state import EntityState
from twinbus.paired.synchronization import AsyncPool, NoLinkYet

AWAY = ServiceBusConnectionError(message="away")
BUSY = ServiceBusServerBusyError(message="busy")
SLOW = OperationTimeoutError(message="slow")


class World:
    """A primary `orders`, a backlog queue `q0`, and a sender."""

    def __init__(self, retry_total: int = 0, **options: Any) -> None:
        self.clock = SteppedClock()
        self.script = Script(self.clock)
        self.on_wait: Callable[[], None] = lambda: None
        self.changed = SteppedSignal(self.clock, lambda: self.on_wait())
        self.options = PairingOptions(**{"max_in_flight": 1, **options})
        events = Events("a", "b", clock=self.clock, listeners=[], journal=None)
        self.entity: PairedEntity[Any] = PairedEntity(
            "orders",
            changed=self.changed,  # type: ignore[type-var]
            interval_s=self.options.failover_interval,
            clock=self.clock,
            events=events,
            on_trouble=lambda entity: None,
        )
        self.rotation = Rotation(["q0"], pause_ms=1000, clock=self.clock, rng=NoJitter(1))
        self.starts: list[int] = []
        # Looks at the backlog queue of a session: for how long; and what is left to be there.
        self.looks: list[float] = []
        self.drained = False
        pair = SimpleNamespace(
            clock=self.clock,
            retries=Retries(self.options, retry_total=retry_total),
            events=events,
            options=self.options,
            classify=availability_failure,
            start=lambda: self.starts.append(self.clock.now_ms()),
            forked=False,
            rng=NoJitter(),
            leave=self._leave,
            look=self._look,
            hidden_numbers=lambda count: [-1 - number for number in range(count)],
        )
        search = SimpleNamespace(usable=lambda left_s, hold: self.rotation, changed=self.changed)
        diverter = AsyncDiverter(
            "orders",
            pairing=search,  # type: ignore[arg-type]
            links=lambda name: ScriptedLinks(name, self.script, self.options),  # type: ignore[arg-type, return-value]
            leave=self._leave,
            options=self.options,
            clock=self.clock,
            events=events,
            closing=self.changed,  # type: ignore[arg-type]
        )
        self.links: Any = ScriptedLinks("orders", self.script, self.options)
        self.channels: AsyncPool[Any] = self.links.pool
        template: Any = self.channels.all[0]
        self.sender = PairedServiceBusSender(pair, self.entity, self.links, diverter, template)  # type: ignore[arg-type]

    async def _leave(self, links: Any) -> None:
        links.left += 1

    async def _look(self, entity: PairedEntity[Any], queue: str, seconds: float) -> bool:
        self.looks.append(seconds)
        if self.drained:
            entity.trail.drained(entity.trail.in_queue(queue), None)
            entity.refresh()
        return self.drained

    async def send(self, timeout: float | None = None) -> None:
        await self.sender.send_messages(ServiceBusMessage("x"), timeout=timeout)

    @property
    def passed_s(self) -> float:
        return self.clock.steady_ms() / 1000


async def test_a_link_that_broke_is_tried_again_at_once_and_then_with_growing_pauses() -> None:
    world = World(retry_total=3, try_timeout=60)
    world.script.plan("orders", "send", (0, AWAY), (0, AWAY), (0, AWAY), (0, None))
    await world.send()
    assert len(world.script.made("send")) == 4
    assert world.changed.waits == [0, 3.2, 6.4]
    assert world.entity.state is EntityState.HEALTHY, "retries inside one attempt count for nothing"


async def test_no_retry_begins_that_the_attempt_has_no_time_for() -> None:
    world = World(retry_total=3, try_timeout=4, failover_interval=60)
    world.script.plan("orders", "send", (0, BUSY), (0, BUSY), (0, None))
    await world.send()
    # A pause of 1.6 s fits, another of 3.2 s does not: the attempt is over, and the send is held.
    assert world.changed.waits == [1.6, 0.1]
    assert world.script.made("send") == [("orders", 4), ("orders", 4), ("orders", 4)]


async def test_a_held_send_is_tried_with_growing_pauses_until_the_interval_ends() -> None:
    world = World(failover_interval=6)
    world.script.plan("orders", "send", (0, SLOW))
    await world.send(timeout=20)
    assert world.changed.waits[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    assert world.entity.state is EntityState.FAILED_OVER
    assert world.passed_s == pytest.approx(6, abs=0.01), "not a moment later"
    assert [queue for queue, _ in world.script.made("send")][-1] == "q0"
    tries = [seconds for queue, seconds in world.script.made("send") if queue == "orders"]
    assert tries[-1] <= 1.0, "no try outlasts the interval"


async def test_a_callers_time_that_ends_before_the_interval_ends_the_send() -> None:
    world = World(failover_interval=60, try_timeout=2)
    world.script.plan("orders", "send", (0.3, SLOW))
    with pytest.raises(OperationTimeoutError, match="slow"):
        await world.send(timeout=5)
    assert world.passed_s == pytest.approx(5, abs=0.02)
    assert world.changed.waits == [0.1, 0.2, 0.4, 0.8, 1.6, 0.1]
    assert world.entity.state is EntityState.SUSPECT


async def test_the_wait_for_a_connection_counts() -> None:
    world = World(failover_interval=60, try_timeout=5)
    take = world.links.take

    async def late(seconds: float) -> Any:
        world.clock.step(seconds=2.5)
        return await take(seconds - 2.5)

    world.links.take = late
    world.script.plan("orders", "open", (100, SLOW))
    with pytest.raises(OperationTimeoutError):
        await world.send(timeout=3)
    assert world.passed_s == pytest.approx(3, abs=0.02)


async def test_a_link_that_is_not_open_yet_is_nobodys_failure() -> None:
    """The SDK takes a second to report that an entity does not exist: a shorter open would fail for that alone."""
    world = World()
    take = world.links.take

    async def opening(seconds: float) -> Any:
        world.clock.step(seconds=seconds)
        raise NoLinkYet

    world.links.take = opening
    with pytest.raises(OperationTimeoutError, match="No time was left"):
        await world.send(timeout=1.9)
    assert world.passed_s == pytest.approx(1.9, abs=0.01)
    assert world.entity.state is EntityState.HEALTHY
    world.links.take = take
    await world.send(timeout=0.5)
    assert world.script.made("send") == [("orders", 0.5)]


async def test_opening_a_link_does_not_count_against_sending() -> None:
    world = World(try_timeout=3, failover_interval=5)
    world.script.plan("orders", "open", (2.9, None))
    await world.send()
    assert world.script.made("send") == [("orders", 3)]


@pytest.mark.parametrize(("timeout", "tries"), [(20, 2), (None, 4)])
async def test_a_timeout_that_the_caller_has_set_goes_on_while_the_process_starves(
    timeout: float | None, tries: int
) -> None:
    world = World(failover_interval=30, try_timeout=10)
    # Every wait takes 15 s longer than the fair clock says.
    world.sender._steady_s = lambda: world.passed_s + 15 * len(world.changed.waits)
    world.script.plan("orders", "send", (0, AWAY), (0, AWAY), (0, AWAY), (0, None))
    if timeout is None:
        await world.send()
    else:
        with pytest.raises(ServiceBusConnectionError):
            await world.send(timeout=timeout)
    assert len(world.script.made("send")) == tries


async def test_pauses_have_jitter() -> None:
    world = World(failover_interval=60)
    world.sender._pair.rng = Random(1)
    world.script.plan("orders", "send", *[(0, AWAY)] * 8, (0, None))
    await world.send()
    full = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    assert len(world.changed.waits) == len(full)
    for wait_s, longest_s in zip(world.changed.waits, full, strict=True):
        assert 0.75 * longest_s <= wait_s < longest_s
    assert len(set(world.changed.waits[-3:])) == 3


async def test_a_success_on_the_entity_ends_the_hold() -> None:
    world = World(failover_interval=60)
    world.script.plan("orders", "send", (0, AWAY), (0, None))
    await world.send()
    assert world.entity.state is EntityState.HEALTHY
    assert world.entity.direct
    assert world.changed.waits == [0.1]


async def test_a_primary_that_comes_back_takes_a_send_that_waits_for_the_backlog() -> None:
    world = World(failover_interval=0)
    world.script.plan("orders", "send", (0, AWAY), (0, None))
    world.script.plan("q0", "open", (0, AWAY))
    world.on_wait = lambda: world.entity.pinged() if len(world.changed.waits) == 3 else None
    await world.send()
    assert [queue for queue, _ in world.script.made("send")] == ["orders", "orders"]
    assert world.entity.state is EntityState.HEALTHY


async def test_raising_while_the_timer_runs() -> None:
    world = World(failover_interval=6, hold_sends=False)
    world.script.plan("orders", "send", (0, AWAY))
    with pytest.raises(ServiceBusConnectionError):
        await world.send()
    assert world.changed.waits == []
    world.clock.step(seconds=6)
    await world.send()
    assert [queue for queue, _ in world.script.made("send")] == ["orders", "q0"]


async def test_a_closed_sender_says_so_and_an_empty_list_is_nothing() -> None:
    world = World()
    await world.sender.send_messages([])
    assert world.script.calls == []
    world.entity.close()
    with pytest.raises(ValueError, match="shutdown"):
        await world.send()
    assert world.script.calls == []
    assert world.starts == [], "a closed pair is not started again"


# --- who uses a connection when ---------------------------------------------------------------------------------------


class HeldSend:
    """A send on the open connection that does not end before it is let go."""

    def __init__(self, world: World) -> None:
        channel = world.channels.all[0]
        sent = channel.send_messages
        self._begun, self._go = asyncio.Event(), asyncio.Event()

        async def held(message: Any, *, timeout: float) -> None:
            channel.send_messages = sent
            self._begun.set()
            await self._go.wait()
            await sent(message, timeout=timeout)

        channel.send_messages = held
        self._task = asyncio.create_task(world.send())

    async def begin(self) -> None:
        await self._begun.wait()

    async def end(self) -> None:
        self._go.set()
        await self._task


async def test_a_send_that_ends_hands_its_connection_to_the_next() -> None:
    world = World()
    await world.send()
    first = HeldSend(world)
    await first.begin()
    second = asyncio.create_task(world.send())
    while not world.channels.waiting:
        await asyncio.sleep(0)
    await first.end()
    assert not world.channels.waiting
    await second
    assert len(world.script.made("send")) == 3
    assert len(world.script.made("open")) == 1


async def test_a_send_that_ends_well_ends_the_suspicion() -> None:
    world = World()
    await world.send()
    send = HeldSend(world)
    await send.begin()
    world.entity.failed(AWAY)
    await send.end()
    assert world.entity.state is EntityState.HEALTHY


async def test_a_broken_connection_is_not_used() -> None:
    world = World(max_in_flight=2)
    for channel in (world.channels.take_cold(), world.channels.take_cold()):
        channel.opened = True
        world.channels.give(channel)
    world.script.plan("orders", "send", (0, AWAY), (0, None))
    await world.send()
    assert world.script.made("open") == [], "the other one is open"
    assert [channel.opened for channel in world.channels.free] == [True]
    assert [channel.opened for channel in world.channels._cold] == [False]


@pytest.mark.parametrize(("took_s", "waits"), [(0.95, [0.05]), (0.9, [])])
async def test_all_connections_in_use_until_the_interval_ends(took_s: float, waits: list[float]) -> None:
    world = World(failover_interval=1)
    world.entity.failed(AWAY)

    async def busy(seconds: float) -> Any:
        world.clock.step(seconds=took_s)
        raise NoLinkYet

    world.links.take = busy
    await world.send()
    assert world.changed.waits == waits, "what was left of it, and no try in less than 0.1 s"
    assert world.script.made("send")[-1][0] == "q0"


async def test_the_backlogs_connection_stays_open_until_the_primary_is_back() -> None:
    world = World(failover_interval=0)
    world.script.plan("orders", "send", (0, AWAY))
    for _ in range(3):
        await world.send()
    assert [queue for queue, _ in world.script.made("open")] == ["orders", "q0"]
    (channel,) = world.sender._diverter._links_to("q0").pool.all
    assert channel.opened
    world.script.on_call = lambda queue, call: world.entity.pinged() if (queue, call) == ("q0", "send") else None
    await world.send()
    assert not channel.opened


async def test_the_last_error_is_raised_when_the_primary_is_back_too_late() -> None:
    world = World(failover_interval=0)
    world.script.plan("orders", "send", (0, AWAY))
    world.script.plan("q0", "open", (0, BUSY))

    def back() -> None:
        world.clock.step(seconds=100)
        world.entity.pinged()

    world.on_wait = back
    with pytest.raises(ServiceBusConnectionError, match="away"):
        await world.send(timeout=20)


async def test_an_error_is_its_own_and_has_its_cause() -> None:
    world = World()
    missing = MessagingEntityNotFoundError(message="no")
    world.script.plan("orders", "open", (0, missing))
    with pytest.raises(MessagingEntityNotFoundError) as raised:
        await world.send()
    assert raised.value is missing
    assert raised.value.__cause__ is None
    world.script.plan("orders", "open", (0, None))
    world.script.plan("orders", "send", (0, missing))
    with pytest.raises(MessagingEntityNotFoundError):
        await world.send()
    assert world.channels.all[0].checks == 1, "the SDK may have closed the link"
    vague = ServiceBusConnectionError(message="vague")
    world.script.plan("orders", "send", (0, vague))
    world.channels.all[0].seen = lambda error: missing if error is vague else error
    world.channels.free.clear()
    world.channels.give(world.channels.all[0], good=False)
    with pytest.raises(MessagingEntityNotFoundError) as raised:
        await world.send()
    assert raised.value.__cause__ is vague


# --- the rest of the SDK's methods ------------------------------------------------------------------------------------


async def test_a_sender_is_called_what_the_sdks_is_called() -> None:
    sender = World().sender
    assert (sender.entity_name, sender.fully_qualified_namespace, sender.client_identifier) == (
        "orders",
        "contoso",
        "me",
    )
    assert str(sender) == "Paired sender client id: me, entity: orders"


async def test_a_sender_that_was_closed_sends_nothing_more() -> None:
    world = World()
    closed: list[Any] = []
    world.sender._on_close = closed.append
    await world.send()
    await world.sender.close()
    await world.sender.close()
    assert world.links.left == 1
    assert closed == [world.sender]
    with pytest.raises(ValueError, match="shutdown"):
        await world.send()
    with pytest.raises(ValueError, match="shutdown"):
        await world.sender.cancel_scheduled_messages(1)
    assert len(world.script.made("send")) == 1


async def test_entering_opens_the_link_and_starts_the_search() -> None:
    world = World()
    async with world.sender as sender:
        assert sender is world.sender
        assert world.script.made("open") == [("orders", 10)]
    assert len(world.starts) == 1
    with pytest.raises(ValueError, match="shutdown"):
        await world.send()
    with pytest.raises(ValueError, match="shutdown"):
        await world.sender.__aenter__()
    down = World()
    down.script.plan("orders", "open", (0, AWAY))
    async with down.sender:
        assert down.entity.state is EntityState.SUSPECT, "nothing is sent yet, so nothing is raised"
    missing = World()
    missing.script.plan("orders", "open", (0, MessagingEntityNotFoundError(message="no")))
    with pytest.raises(MessagingEntityNotFoundError):
        await missing.sender.__aenter__()
    assert missing.entity.state is EntityState.HEALTHY
    over = World(failover_interval=0)
    over.entity.failed(AWAY)
    async with over.sender:
        assert over.script.calls == [], "failed over: the primary is not tried"


async def test_the_first_send_starts_the_search() -> None:
    world = World()
    await world.send()
    assert len(world.starts) == 1
    await world.send()
    assert len(world.starts) == 1, "a healthy send has nothing to do with it"


async def test_scheduling_goes_to_the_primary_or_gets_numbers_of_its_own() -> None:
    world = World(failover_interval=0)
    when = datetime.now(UTC) + timedelta(hours=1)
    seen: list[tuple[Any, float]] = []

    async def schedule(messages: Any, moment: datetime, *, timeout: float) -> list[int]:
        seen.append((moment, timeout))
        return [7]

    world.channels.all[0].schedule_messages = schedule
    assert await world.sender.schedule_messages([], when) == []
    assert world.script.calls == []
    assert await world.sender.schedule_messages(ServiceBusMessage("x"), when, timeout=4) == [7]
    assert seen == [(when, 2)]
    world.entity.failed(AWAY)
    assert await world.sender.schedule_messages([ServiceBusMessage("x"), ServiceBusMessage("y")], when) == [-1, -2]


async def test_cancelling_asks_the_primary_only() -> None:
    world = World(try_timeout=5)
    seen: list[tuple[list[int], float]] = []

    async def cancel(numbers: list[int], *, timeout: float) -> None:
        seen.append((numbers, timeout))

    world.channels.all[0].cancel_scheduled_messages = cancel
    await world.sender.cancel_scheduled_messages(3)
    assert len(world.starts) == 1
    await world.sender.cancel_scheduled_messages([0, 4], timeout=3)
    assert seen == [([3], 5), ([0, 4], 3)]
    with pytest.raises(MessageInBacklogError, match="message -1, -2 was sent"):
        await world.sender.cancel_scheduled_messages([5, -1, -2])
    assert len(seen) == 2

    async def busy(seconds: float) -> Any:
        world.clock.step(seconds=seconds)
        raise NoLinkYet

    world.links.take = busy
    with pytest.raises(OperationTimeoutError, match="No time was left"):
        await world.sender.cancel_scheduled_messages(3)


async def test_a_batch_is_the_primarys_or_the_backlogs() -> None:
    world = World(failover_interval=0)
    assert (await world.sender.create_message_batch()).max_size_in_bytes == 1000
    assert (await world.sender.create_message_batch(500)).max_size_in_bytes == 500
    world.entity.failed(AWAY)
    world.script.plan("orders", "batch", (0, AWAY))
    assert (await world.sender.create_message_batch(400)).max_size_in_bytes == 400
    assert [queue for queue, _ in world.script.made("batch")] == ["orders", "orders", "q0"]


async def test_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(failover_interval=60)
    recorder = Recorder()
    world.sender._journal = recorder  # type: ignore[assignment]
    monkeypatch.setattr(world.sender._pair, "events", recorder)
    await world.send()
    await world.send()
    world.script.plan("orders", "send", (0, SLOW), (0, None))
    await world.sender.send_messages([ServiceBusMessage("abc"), ServiceBusMessage("de")])
    assert [(each["outcome"], each["count"], each["size_bytes"]) for _, _, each in recorder.operations] == [
        ("ok", 1, 1),
        ("ok", 1, 1),
        ("OperationTimeoutError", 1, 0),
        ("ok", 2, 5),
    ]
    recorder.operations.clear()

    async def done(*arguments: Any, timeout: float) -> list[int]:
        return [7]

    world.channels.all[0].schedule_messages = world.channels.all[0].cancel_scheduled_messages = done
    await world.sender.schedule_messages(ServiceBusMessage("abc"), datetime.now(UTC))
    await world.sender.cancel_scheduled_messages(7)
    assert [(stage, fields.get("size_bytes")) for _, stage, fields in recorder.operations] == [
        ("direct", 3),
        ("direct", None),
    ]
    recorder.operations.clear()
    world.entity.failed(AWAY)
    world.clock.step(seconds=61)
    await world.send()
    await world.sender.schedule_messages(ServiceBusMessage("abc"), datetime.now(UTC))
    assert recorder.operations == [], "what goes to the backlog is counted there"


async def test_a_message_is_prepared_and_options_are_refused_as_by_the_sdk() -> None:
    world = World()
    ready = ServiceBusMessage("x")
    for _ in range(2):
        with pytest.warns(UserWarning, match="Unsupported keyword args: {'colour': 'red'}"):
            await world.sender.send_messages(ready, colour="red")
        sent, options = world.script.sent[-1]
        # A copy: what the caller changes while it is held does not arrive.
        assert (sent.message_id, str(sent), options) == (ready.message_id, str(ready), {})
    await world.sender.send_messages(AmqpAnnotatedMessage(data_body=b"x"))
    message, options = world.script.sent[-1]
    assert message.properties.message_id
    assert options == {}


async def test_a_send_that_is_cancelled_leaves_no_open_connection() -> None:
    world = World()
    await world.send()
    channel = world.channels.all[0]
    send = HeldSend(world)
    await send.begin()
    send._task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await send._task
    assert not channel.opened
    assert list(world.channels.free) == []


async def test_the_first_try_counts_against_the_callers_time() -> None:
    world = World(failover_interval=60, try_timeout=4)
    await world.send()
    world.script.plan("orders", "send", (3, SLOW))
    with pytest.raises(OperationTimeoutError, match="slow"):
        await world.send(timeout=5)
    assert world.passed_s == pytest.approx(5, abs=0.02)


async def test_a_session_follows_its_messages_into_the_backlog() -> None:
    world = World(failover_interval=0, session_order=True)
    world.script.plan("orders", "send", (0, AWAY), (0, None))

    async def send(session: str | None, timeout: float | None = None) -> str:
        await world.sender.send_messages(ServiceBusMessage("x", session_id=session), timeout=timeout)
        return world.script.made("send")[-1][0]

    assert await send("s") == "q0"
    assert world.looks == [], "failed over: all go there"
    world.entity.pinged()
    assert not world.entity.direct
    assert await send("s", 30) == "q0"
    assert world.looks == [30]
    assert await send("t") == "orders"
    assert await send(None) == "orders"
    assert world.looks == [30]
    world.drained = True
    assert await send("s") == "orders"
    assert world.entity.direct


async def test_without_session_order_sessions_go_where_the_others_go() -> None:
    world = World(failover_interval=0)
    world.script.plan("orders", "send", (0, AWAY), (0, None))
    await world.sender.send_messages(ServiceBusMessage("x", session_id="s"))
    world.entity.pinged()
    assert world.entity.direct


def cancelling(world: World, outcomes: list[Exception | None]) -> list[tuple[list[int], float]]:
    """The primary's answers to `cancel_scheduled_messages`, and what it is asked."""
    asked: list[tuple[list[int], float]] = []

    async def cancel(self: Any, numbers: list[int], *, timeout: float) -> None:
        asked.append((numbers, round(timeout, 3)))
        answer = outcomes.pop(0)
        if answer is not None:
            raise answer

    for channel in world.channels.all:
        channel.cancel_scheduled_messages = partial(cancel, channel)
    return asked


async def test_a_cancelling_has_the_sdks_retries() -> None:
    broken, busy = ServiceBusConnectionError(message="cut"), ServiceBusServerBusyError(message="busy")
    world = World(retry_total=3)
    asked = cancelling(world, [broken, busy, None])
    await world.sender.cancel_scheduled_messages([5, 7])
    assert [numbers for numbers, _ in asked] == [[5, 7]] * 3
    assert world.changed.waits == [0.0, 3.2], "at once after a broken link, then the SDK's second pause"
    assert world.entity.state is EntityState.HEALTHY


async def test_a_cancelling_ends_with_its_retries_its_time_or_the_callers_error() -> None:
    broken = ServiceBusConnectionError(message="cut")
    world = World(retry_total=1)
    asked = cancelling(world, [broken] * 5)
    with pytest.raises(ServiceBusConnectionError):
        await world.sender.cancel_scheduled_messages(5)
    assert len(asked) == 2
    world = World(retry_total=3)
    asked = cancelling(world, [MessageNotFoundError(message="gone")])
    with pytest.raises(MessageNotFoundError):
        await world.sender.cancel_scheduled_messages(5)
    assert len(asked) == 1
    world = World(retry_total=100)
    asked = cancelling(world, [ServiceBusServerBusyError(message="busy")] * 100)
    with pytest.raises(ServiceBusServerBusyError):
        await world.sender.cancel_scheduled_messages(5, timeout=10)
    assert len(asked) < 6
    assert world.clock.steady_s() <= 10.1


async def test_nothing_to_cancel_needs_no_primary() -> None:
    world = World()
    await world.sender.cancel_scheduled_messages([])
    assert world.script.calls == []
