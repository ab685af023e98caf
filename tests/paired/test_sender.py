"""How a sender spends its caller's time, on a stepped clock: attempts, pauses, the interval, the backlog."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from tests.paired.scripted import Script, ScriptedChannel, SteppedSignal
from twinbus.clock import SteppedClock
from twinbus.paired._async.diverter import AsyncDiverter
from twinbus.paired._async.sender import PairedServiceBusSender
from twinbus.paired.classify import availability_failure
from twinbus.paired.entity import PairedEntity
from twinbus.paired.events import Events
from twinbus.paired.options import PairingOptions
from twinbus.paired.retries import Retries
from twinbus.paired.rotation import Rotation
from twinbus.paired.state import EntityState
from twinbus.paired.synchronization import AsyncPool

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
        self.rotation = Rotation(["q0"], pause_ms=1000, clock=self.clock, rng=Random(1))
        self.in_background: list[Callable[[], Awaitable[None]]] = []
        pair = SimpleNamespace(
            clock=self.clock,
            retries=Retries(self.options, retry_total=retry_total),
            events=events,
            options=self.options,
            classify=availability_failure,
            start=lambda: None,
            forked=False,
            tasks=SimpleNamespace(within=self._within),
        )
        search = SimpleNamespace(usable=lambda left_s, hold: self.rotation, changed=self.changed)
        diverter = AsyncDiverter(
            "orders",
            pairing=search,  # type: ignore[arg-type]
            channel=self._channel,  # type: ignore[arg-type]
            options=self.options,
            clock=self.clock,
            events=events,
            closing=self.changed,  # type: ignore[arg-type]
        )
        self.channels: AsyncPool[Any] = AsyncPool(lambda: self._channel("orders"), 1)
        self.sender = PairedServiceBusSender(pair, self.entity, self.channels, diverter)  # type: ignore[arg-type]

    def _channel(self, queue: str) -> ScriptedChannel:
        return ScriptedChannel(queue, self.script)

    async def _within(self, seconds: float, work: Callable[[], Awaitable[None]]) -> bool:
        self.clock.step(seconds=seconds)
        self.in_background.append(work)
        return False

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
    assert world.entity.state is EntityState.SUSPECT


async def test_the_wait_for_a_connection_counts() -> None:
    world = World(failover_interval=60, try_timeout=5)
    take = world.channels.take

    async def late(seconds: float) -> Any:
        world.clock.step(seconds=2.5)
        return await take(seconds)

    world.channels.take = late  # type: ignore[method-assign]
    world.script.plan("orders", "open", (100, SLOW))
    with pytest.raises(OperationTimeoutError):
        await world.send(timeout=3)
    assert world.passed_s == pytest.approx(3, abs=0.02)


async def test_a_caller_in_a_hurry_leaves_the_opening_to_the_next() -> None:
    """The SDK takes a second to report that an entity does not exist: a shorter open would fail for that alone."""
    world = World()
    with pytest.raises(OperationTimeoutError, match="No time was left"):
        await world.send(timeout=1.9)
    assert world.script.made("open") == [], "not in the caller's time"
    assert world.passed_s == pytest.approx(1.9, abs=0.01)
    assert world.entity.state is EntityState.HEALTHY
    await world.in_background[0]()
    assert world.script.made("open") == [("orders", 2)]
    await world.send(timeout=0.5)
    assert world.script.made("send") == [("orders", 0.5)]


async def test_an_opening_in_the_background_that_fails_counts() -> None:
    world = World()
    world.script.plan("orders", "open", (0, AWAY))
    with pytest.raises(OperationTimeoutError):
        await world.send(timeout=1)
    with pytest.raises(ServiceBusConnectionError):
        await world.in_background[0]()
    assert world.entity.state is EntityState.SUSPECT
    other = World()
    other.script.plan("orders", "open", (0, MessagingEntityNotFoundError(message="no")))
    with pytest.raises(OperationTimeoutError):
        await other.send(timeout=1)
    with pytest.raises(MessagingEntityNotFoundError):
        await other.in_background[0]()
    assert other.entity.state is EntityState.HEALTHY, "the caller's own"


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
