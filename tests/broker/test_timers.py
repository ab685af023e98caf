"""One timer is set to the earliest deadline, whoever moved it, and to none once the namespace closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.order_tale import opened
from twinbus.broker.host import NamespaceHost
from twinbus.broker.timers import Timers
from twinbus.clock import SteppedClock
from twinbus.entities.message import NewMessage
from twinbus.entities.queue import Queue
from twinbus.entities.settings import QueueSettings


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[NamespaceHost]:
    made = opened(tmp_path)
    made.start()
    made.create_queue(QueueSettings(path="orders", default_ttl_ms=3_600_000))
    await made.commits.drain()
    yield made
    await made.stop()


# A message expires when its whole second has passed.
SECOND_MS = 1_000


def sent(host: NamespaceHost, ttl_ms: int) -> Queue:
    queue = host.entities.queue("orders")
    new = NewMessage(message_id="m", ttl_ms=ttl_ms, size=1, body=b"x")
    queue.send([new], host.clock.now_ms(), host.commits.facts)
    return queue


async def test_an_earlier_deadline_moves_it_and_a_later_one_does_not(host: NamespaceHost) -> None:
    now_ms = host.clock.now_ms()
    for ttl_ms, expected_ms in ((60_000, 60_000), (90_000, 60_000), (30_000, 30_000)):
        sent(host, ttl_ms)
        await host.commits.drain()
        await asyncio.sleep(0)
        assert host.timers._at_ms == now_ms + expected_ms + SECOND_MS
        assert host.timers._handle is not None


async def test_a_lock_moves_it_too(host: NamespaceHost) -> None:
    queue = sent(host, 3_600_000)
    await host.commits.drain()
    now_ms = host.clock.now_ms()
    assert queue.acquire(1, now_ms, host.commits.facts)
    await asyncio.sleep(0)
    assert host.timers._at_ms == now_ms + queue.settings.lock_duration_ms


async def test_many_deadlines_in_one_turn_set_it_once(host: NamespaceHost, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Timers] = []
    reschedule = Timers.reschedule

    def counted(timers: Timers) -> None:
        calls.append(timers)
        reschedule(timers)

    monkeypatch.setattr(Timers, "reschedule", counted)
    for ttl_ms in range(60_000, 50_000, -1_000):
        sent(host, ttl_ms)
    await host.commits.drain()
    await asyncio.sleep(0)
    assert calls == [host.timers]
    assert host.timers._at_ms == host.clock.now_ms() + 51_000 + SECOND_MS


async def test_nothing_sets_it_once_it_is_stopped(host: NamespaceHost) -> None:
    host.timers.stop()
    sent(host, 1_000)
    await host.commits.drain()
    await asyncio.sleep(0)
    assert host.timers._handle is None


async def test_a_tick_that_fails_does_not_stop_the_deadlines_of_the_others(
    host: NamespaceHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.create_queue(QueueSettings(path="idle", auto_delete_on_idle_ms=300_000))
    sent(host, 400_000)
    await host.commits.drain()

    def fail(path: str) -> None:
        raise RuntimeError(f"planted for {path}")

    monkeypatch.setattr(host, "drop_policies", fail)
    assert isinstance(host.clock, SteppedClock)
    began_ms = host.clock.now_ms()
    host.clock.step(seconds=301)
    with pytest.raises(RuntimeError, match="planted for idle"):
        host.timers.run()
    assert host.timers._handle is not None
    assert host.timers._at_ms == began_ms + 400_000 + SECOND_MS
