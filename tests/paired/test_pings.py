"""What a ping is, and how often one goes out: observed where the SDK sends it, with a real primary behind; and its pace
on a stepped clock."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import azure.servicebus as sdk
import azure.servicebus.aio as sdk_aio
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from tests.paired.pairs import Pair, call
from tests.paired.scripted import Recorder, Script, ScriptedChannel, SteppedSignal
from twinbus.clock import SteppedClock
from twinbus.limits import PING_BYTES
from twinbus.paired import EntityState, PairingOptions
from twinbus.paired._async.pings import AsyncWatcher
from twinbus.paired.classify import availability_failure
from twinbus.paired.entity import PairedEntity
from twinbus.paired.receiving import PING_CONTENT_TYPE
from twinbus.paired.retries import Retries
from twinbus.paired.sdk_internals import encoded

PINGS = list[tuple[float, ServiceBusMessage]]
AWAY = ServiceBusConnectionError(message="away")
BUSY = ServiceBusServerBusyError(message="busy")
GONE = MessagingEntityNotFoundError(message="gone")


@pytest.fixture
def pings(monkeypatch: pytest.MonkeyPatch) -> PINGS:
    """Every ping that is sent, with its time."""
    found: PINGS = []

    def note(message: Any) -> None:
        if isinstance(message, ServiceBusMessage) and message.content_type == PING_CONTENT_TYPE:
            found.append((time.monotonic(), message))

    send, send_aio = sdk.ServiceBusSender.send_messages, sdk_aio.ServiceBusSender.send_messages

    def noted(self: Any, message: Any, **options: Any) -> None:
        note(message)
        send(self, message, **options)

    async def noted_aio(self: Any, message: Any, **options: Any) -> None:
        note(message)
        await send_aio(self, message, **options)

    monkeypatch.setattr(sdk.ServiceBusSender, "send_messages", noted)
    monkeypatch.setattr(sdk_aio.ServiceBusSender, "send_messages", noted_aio)
    return found


async def test_pings_are_empty_and_short_lived_and_keep_their_pace(pair: Pair, pings: PINGS) -> None:
    async with pair.sender(failover_interval=0) as sender:
        before = time.monotonic()
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("x"))
            while len(pings) < 3:
                await asyncio.sleep(0.02)
            assert sender.paired_client.entity_states == {"orders": EntityState.FAILED_OVER}
        await pair.until("failed-back")
        count = len(pings)
        await asyncio.sleep(1.2)
        assert len(pings) == count, "they stop with the fail-back"
    for number, (moment, _) in enumerate(pings, 1):
        assert moment - before > number - 0.05, "one a second, from the failover on"
    messages = [message for _, message in pings]
    assert {b"".join(message.body) for message in messages} == {b""}
    assert {message.time_to_live for message in messages} == {timedelta(seconds=1)}
    assert len({message.session_id for message in messages}) == len(messages), "the entity may need one"
    assert len({message.message_id for message in messages}) == len(messages)
    await pair.in_backlog(1)


async def test_an_entity_with_sessions_can_be_pinged(pair: Pair) -> None:
    pair.primary.delete_queue("orders")
    pair.primary.create_queue("orders", requires_session=True)
    async with pair.sender(failover_interval=0) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("x", session_id="s"))
        await pair.until("failed-back")
        assert pair.told("ping-refused") == []
    await pair.in_backlog(1)


async def test_a_ping_has_the_bytes_that_plans_count(pair: Pair, pings: PINGS) -> None:
    async with pair.sender(failover_interval=0) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("x"))
        await pair.until("failed-back")
    (payload,) = encoded(pings[-1][1])
    assert PING_BYTES - 30 < len(payload) <= PING_BYTES + 30
    await pair.in_backlog(1)


@pytest.mark.parametrize("where", ["for both", "for the primary"])
async def test_a_ping_is_retried_as_a_send_is(pair: Pair, pings: PINGS, where: str) -> None:
    retry = {"retry_total": 2, "retry_backoff_factor": 0.01}
    options: dict[str, Any] = retry if where == "for both" else {"primary_options": retry}
    async with pair.sender(failover_interval=0, try_timeout=30, **options) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("x"))
            while len({message.message_id for _, message in pings}) < 2:
                await asyncio.sleep(0.02)
        await pair.until("failed-back")
    tries = Counter(message.message_id for _, message in pings)
    assert tries[pings[0][1].message_id] == 3, "the same ping, twice again"
    await pair.in_backlog(1)


class Watch:
    """An entity in trouble and its watcher, on a stepped clock."""

    def __init__(self, retry_total: int = 0, **options: Any) -> None:
        self.clock = SteppedClock()
        self.script = Script(self.clock)
        self.told = Recorder()
        self.on_wait = lambda: None
        self.changed = SteppedSignal(self.clock, lambda: self.on_wait())
        settings = PairingOptions(**{"failover_interval": 0, **options})
        self.entity: PairedEntity[Any] = PairedEntity(
            "orders",
            changed=self.changed,  # type: ignore[type-var]
            interval_s=settings.failover_interval,
            clock=self.clock,
            events=self.told,  # type: ignore[arg-type]
            on_trouble=lambda entity: None,
        )
        self._watcher = AsyncWatcher(
            settings,
            Retries(settings, retry_total=retry_total),
            self.clock,
            self.told,  # type: ignore[arg-type]
            availability_failure,
            lambda path: ScriptedChannel(path, self.script),  # type: ignore[arg-type, return-value]
        )

    async def run(self) -> list[float]:
        """When the pings began, in seconds since the failure."""
        self.entity.failed(AWAY)
        await self._watcher.watch(self.entity)
        opened = zip(self.script.moments, self.script.calls, strict=True)
        return [round(moment, 2) for moment, (_, call, _) in opened if call == "open"]


async def test_the_pace_holds_whatever_a_ping_takes() -> None:
    watch = Watch()
    watch.script.plan("orders", "open", (7, AWAY), (100, AWAY), (0.5, None))
    assert await watch.run() == [60, 120, 180]
    assert watch.entity.state is EntityState.HEALTHY
    assert watch.script.made("open") == [("orders", 10)] * 3
    assert watch.script.made("send") == [("orders", 9.5)]
    assert len(watch.script.made("leave")) == 3, "each connection is closed"


async def test_a_ping_that_hangs_delays_the_next_by_little() -> None:
    watch = Watch(ping_primary_interval=1, try_timeout=10)
    watch.script.plan("orders", "open", (100, AWAY), (0, None))
    assert await watch.run() == [1, 4]
    assert watch.script.made("open") == [("orders", 3), ("orders", 3)]
    late = Watch(ping_primary_interval=1, try_timeout=2)
    late.script.plan("orders", "open", (100, AWAY), (0, AWAY), (0, None))
    assert await late.run() == [1, 3, 4]


async def test_the_send_of_a_ping_always_has_a_moment() -> None:
    watch = Watch()
    watch.script.plan("orders", "open", (100, None))
    await watch.run()
    assert watch.script.made("send") == [("orders", 0.1)]


async def test_the_retries_of_a_ping_fit_into_its_time() -> None:
    watch = Watch(retry_total=2, try_timeout=10)
    watch.script.plan("orders", "send", (0, BUSY), (0, BUSY), (0, BUSY), (0, None))
    assert await watch.run() == [60, 61.6, 64.8, 120]
    assert [seconds for _, seconds in watch.script.made("open")] == [10, 8.4, 5.2, 10]
    short = Watch(retry_total=2, try_timeout=4)
    short.script.plan("orders", "send", (0, BUSY), (0, BUSY), (0, None))
    assert await short.run() == [60, 61.6, 120], "64.8 would be too late"
    exact = Watch(retry_total=1, try_timeout=2)
    exact.script.plan("orders", "send", (0.4, BUSY), (0, None))
    assert await exact.run() == [60, 120], "no try begins when the time is up"


async def test_closing_ends_the_retries() -> None:
    watch = Watch(retry_total=3)
    watch.script.plan("orders", "send", (0, BUSY))
    watch.on_wait = lambda: watch.entity.close() if watch.script.calls else None
    assert await watch.run() == [60]
    idle = Watch()
    idle.on_wait = lambda: idle.entity.close()
    assert await idle.run() == []


async def test_a_watcher_waits_for_the_interval_first() -> None:
    watch = Watch(failover_interval=5)
    assert await watch.run() == [65]
    assert watch.changed.waits == [5, 60]
    assert [kind for kind, _ in watch.told.events] == ["failed-over", "failed-back"]
    soon = Watch(failover_interval=5)
    soon.on_wait = soon.entity.succeeded
    assert await soon.run() == []


async def test_refusals_in_a_row_are_told_and_end_the_failover() -> None:
    watch = Watch(ping_refusals=2)
    watch.script.plan("orders", "open", (0, GONE), (0, AWAY), (0, GONE), (0, GONE), (0, None))
    assert await watch.run() == [60, 120, 180, 240]
    refused = [fields for kind, fields in watch.told.events if kind == "ping-refused"]
    assert [fields["count"] for fields in refused] == [1, 1, 2]
    kind, fields = watch.told.events[-1]
    assert (kind, fields["cause"]) == ("failed-back", refused[-1]["cause"])


async def test_pings_are_counted() -> None:
    watch = Watch()
    watch.script.plan("orders", "open", (0, AWAY), (0, None))
    await watch.run()
    assert [(entity, stage) for entity, stage, _ in watch.told.operations] == [("orders", "ping")] * 2
    outcomes = [fields["outcome"] for _, _, fields in watch.told.operations]
    assert outcomes == ["ServiceBusConnectionError", "ok"]
    assert {fields["size_bytes"] for _, _, fields in watch.told.operations} == {PING_BYTES}
