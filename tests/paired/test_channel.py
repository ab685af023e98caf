"""One SDK sender that is kept usable: what is open, what replaces it, and what counts as a failure."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from tests.paired.pairs import Pair, call
from tests.paired.test_classify import refused_token
from twinbus.clock import MonotonicClock, SteppedClock
from twinbus.limits import OPENING_S_MAX, OPENINGS_START
from twinbus.paired import PairFaultedError
from twinbus.paired._async.channel import AsyncChannel, close_all
from twinbus.paired.gates import AsyncOpeningGate
from twinbus.paired.synchronization import AsyncTasks, Attention, async_attended


async def test_a_channel_is_opened_used_and_closed(pair: Pair) -> None:
    async with pair.client() as client:
        channel = client._pair.primary_channel("orders")
        assert channel.opened is False
        await call(channel.open, 20)
        assert channel.opened is True
        await call(channel.sdk.send_messages, ServiceBusMessage("x"))
        channel.check()
        assert channel.opened is True, "the link is up"
        await call(channel.close)
        assert channel.opened is False
        error = channel.seen(ValueError("shut down"))
        assert isinstance(error, ServiceBusConnectionError)
        assert isinstance(error.inner_exception, ValueError)
    await pair.in_primary(1)


async def test_what_is_discarded_is_replaced(pair: Pair) -> None:
    async with pair.client() as client:
        channel = client._pair.primary_channel("orders")
        await call(channel.open, 20)
        broken = channel.sdk
        await call(channel.discard)
        assert channel.opened is False
        assert channel.sdk is not broken
        for _ in range(12_000):
            if broken._shutdown.is_set():
                break
            await asyncio.sleep(0.01)
        assert broken._shutdown.is_set(), "closed in the background"
        await call(channel.open, 20)
        await call(channel.sdk.send_messages, ServiceBusMessage("x"))
        await call(channel.leave)
        assert channel.opened is False
    await pair.in_primary(1)


async def test_an_opening_that_fails_leaves_a_new_sender(pair: Pair) -> None:
    async with pair.client() as client:
        channel = client._pair.primary_channel("nowhere")
        first = channel.sdk
        with pytest.raises(MessagingEntityNotFoundError):
            await call(channel.open, 20)
        assert channel.opened is False
        assert channel.sdk is not first


async def test_an_opening_that_hangs_is_a_timeout(pair: Pair) -> None:
    async with pair.client() as client:
        channel = client._pair.primary_channel("orders")
        first = channel.sdk
        with (
            pair.primary.fault("silent"),
            pytest.raises(OperationTimeoutError, match=r"'orders' did not open: .* within 0.5"),
        ):
            await call(channel.open, 0.5)
        assert channel.opened is False
        assert channel.sdk is not first


def sockets() -> int:
    """Sockets of this process, including the brokers', which close theirs with the peer's."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(link.startswith("socket:") for link in links)


@pytest.mark.parametrize("how", ["rest", "leave", "close", "discard", "send"])
async def test_a_connection_that_broke_is_not_left_to_the_collector(pair: Pair, how: str) -> None:
    client = pair.make()
    channel = client._pair.primary_channel("orders")
    gc.collect()
    gc.disable()
    try:
        before = sockets()
        await call(channel.open, 20)
        pair.primary.call(lambda server: server.hosts["contoso"].cut_connections())
        await asyncio.sleep(0.1)
        if how == "send":
            # It fails, and the SDK closes the connection by itself.
            with pytest.raises(ServiceBusError):
                await call(channel.sdk.send_messages, ServiceBusMessage("x"), timeout=5)
            await call(channel.discard)
        else:
            await call(getattr(channel, how))
        for _ in range(12_000):
            if sockets() <= before:
                break
            await asyncio.sleep(0.01)
        assert sockets() <= before
    finally:
        gc.enable()
        await call(client.close)


async def test_a_pair_that_was_given_up_tells_its_first_reason(pair: Pair) -> None:
    async with pair.client() as client:
        await call(client.fault, "first reason")
        await call(client.fault, "second reason")
        with pytest.raises(PairFaultedError, match="first reason"):
            client.get_queue_sender("orders")


async def test_a_cancellation_is_use_of_a_client(pair: Pair) -> None:
    client = pair.make()
    assert not client._pair.used
    with pytest.raises(ServiceBusError):
        await call(client.get_queue_sender("orders").cancel_scheduled_messages, 999)
    assert client._pair.used, "a forked child must not go on with it"
    await call(client.close)


async def test_what_was_cut_is_closed_with_its_sender() -> None:
    closed: list[str] = []

    class Part:
        def __init__(self, name: str, error: Exception | None = None) -> None:
            self._name = name
            self._error = error

        async def close(self) -> None:
            closed.append(self._name)
            if self._error is not None:
                raise self._error

    connections: Any = SimpleNamespace(transports=[Part("first", OSError("broken")), Part("second")])
    sender: Any = Part("sender", ServiceBusError("broken"))
    with pytest.raises(ServiceBusError):
        await close_all(sender, connections)
    assert closed == ["sender", "first", "second"]


class _Sender:
    """An SDK sender whose opening does what it is told."""

    entity_name = "orders"

    def __init__(self, opening: Any) -> None:
        self._opening = opening
        self._shutdown = asyncio.Event()
        self._running = True

    def _create_handler(self, auth: Any) -> None:
        pass

    async def __aenter__(self) -> None:
        await self._opening()

    async def close(self) -> None:
        self._shutdown.set()


@pytest.mark.parametrize("how", ["hangs", "fails", "is cancelled"])
async def test_an_opening_that_comes_to_nothing_leaves_a_new_sender(how: str) -> None:
    async def opening() -> None:
        if how == "fails":
            raise refused_token(404)
        await asyncio.sleep(60)

    tasks = AsyncTasks()
    channel = AsyncChannel(lambda: _Sender(opening), tasks, MonotonicClock())  # type: ignore[arg-type, return-value]
    first: Any = channel.sdk
    if how == "is cancelled":
        task = asyncio.create_task(channel.open(60))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        kind = OperationTimeoutError if how == "hangs" else MessagingEntityNotFoundError
        with pytest.raises(kind) as raised:
            await channel.open(0.01)
        assert raised.value.__cause__ is not None
    assert channel.sdk is not first
    assert not channel.opened
    await tasks.finish()
    assert first._shutdown.is_set()


async def test_an_opening_that_gets_on_is_not_cut() -> None:
    """Twenty steps of 0.4 s each are slow, but a peer that is silent for 0.5 s is not there."""
    clock = SteppedClock()
    progress = iter(range(1000))
    slow: list[float] = []
    done = asyncio.Event()

    async def opening() -> None:
        await done.wait()

    attention = Attention(0.5, lambda: next(progress), clock, lambda: slow.append(clock.steady_ms() / 1000))
    task = asyncio.create_task(async_attended(attention, opening, lambda: None))
    for _ in range(20):
        clock.step(seconds=0.4)
        assert 0 < attention.look() <= 0.5
    assert slow == [1.2], "it gives up its place once"
    done.set()
    await task


def test_an_opening_that_stands_still_is_cut() -> None:
    clock = SteppedClock()
    steps = [1, 2, 2, 2]
    attention = Attention(0.5, lambda: steps.pop(0), clock, lambda: None)
    clock.step(seconds=0.4)
    assert attention.look() == 0.5
    clock.step(seconds=0.3)
    assert attention.look() == pytest.approx(0.2)
    clock.step(seconds=0.2)
    with pytest.raises(TimeoutError):
        attention.look()


def test_an_opening_does_not_take_for_ever() -> None:
    clock = SteppedClock()
    progress = iter(range(10_000))
    attention = Attention(10, lambda: next(progress), clock, lambda: None)
    for _ in range(int(OPENING_S_MAX) - 1):
        clock.step(seconds=1)
        attention.look()
    clock.step(seconds=1)
    with pytest.raises(TimeoutError):
        attention.look()


@pytest.mark.parametrize("how", ["well", "badly", "starved"])
async def test_a_gate_learns_how_an_opening_ends(how: str) -> None:
    clock: Any = SimpleNamespace(now_ms=lambda: 0, steady_s=lambda: seconds)
    seconds = 0.0

    async def opening() -> None:
        nonlocal seconds
        assert gate.running == 1
        if how == "badly":
            raise refused_token(404)
        if how == "starved":
            seconds = 5.0

    gate, tasks = AsyncOpeningGate(), AsyncTasks()
    channel = AsyncChannel(lambda: _Sender(opening), tasks, clock, gate)  # type: ignore[arg-type, return-value]
    with suppress(MessagingEntityNotFoundError):
        await channel.open(10)
    assert gate.running == 0
    assert gate.limit == (OPENINGS_START + 1 if how == "well" else OPENINGS_START // 2)
    await tasks.finish()


async def test_an_open_link_is_checked_rested_and_left() -> None:
    async def opening() -> None:
        pass

    tasks = AsyncTasks()
    channel = AsyncChannel(lambda: _Sender(opening), tasks, MonotonicClock())  # type: ignore[arg-type, return-value]
    first: Any = channel.sdk
    channel.check()
    assert not channel.opened
    await channel.open(1)
    channel.check()
    assert channel.opened
    first._running = False
    channel.check()
    assert not channel.opened
    await channel.rest()
    second: Any = channel.sdk
    assert second is not first
    await channel.open(1)
    await channel.leave()
    assert not channel.opened
    await tasks.finish()
    assert first._shutdown.is_set()
    assert second._shutdown.is_set()
    closed = channel.seen(ValueError("shut"))
    assert isinstance(closed, ServiceBusConnectionError)
