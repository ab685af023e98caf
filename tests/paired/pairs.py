"""Two real brokers and a sync or async paired client; every call is awaited, the sync client's calls run in threads."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from twinbus import paired
from twinbus.client import BusClient, ReceivedMessage
from twinbus.clock import SystemClock
from twinbus.paired import PairedEvent, aio
from twinbus.testing import Broker

COLOURS = ("sync", "aio")
# Fast enough for a test, slow enough for a busy machine.
FAST: dict[str, Any] = {
    "primary_name": "contoso",
    "backlog_queue_count": 3,
    "failover_interval": 1,
    "ping_primary_interval": 1,
    "try_timeout": 2,
    "retry_total": 0,
}


async def call(method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Await a sync or async call."""
    if inspect.iscoroutinefunction(method):
        return await method(*arguments, **options)
    return await asyncio.to_thread(method, *arguments, **options)


@asynccontextmanager
async def opened(handler: Any) -> AsyncIterator[Any]:
    """`async with` for sync and async handlers."""
    if hasattr(handler, "__aenter__"):
        async with handler:
            yield handler
    else:
        await asyncio.to_thread(handler.__enter__)
        try:
            yield handler
        finally:
            await asyncio.to_thread(handler.__exit__, None, None, None)


class SkewedClock:
    """A clock that is set wrong."""

    def __init__(self, ahead_ms: int) -> None:
        self._right = SystemClock()
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._right.now_ms() + self._ahead_ms

    def steady_ms(self) -> int:
        return self._right.steady_ms()

    def follow(self) -> int:
        return self._right.follow()


class Pair:
    """A primary that can have faults, a secondary, and sync or async paired clients."""

    def __init__(self, colour: str, primary: Broker, secondary: Broker, bundle: Path) -> None:
        # Which client to create.
        self.package: Any = paired if colour == "sync" else aio
        self.primary = primary
        self.secondary = secondary
        # The CAs of both brokers.
        self.bundle = bundle
        # The clients' events.
        self.events: list[PairedEvent] = []
        # The clients created so far.
        self._clients: list[Any] = []

    def make(self, primary: str | None = None, secondary: str | None = None, **options: Any) -> Any:
        """A paired client, not entered yet."""
        client = self.package.PairedServiceBusClient.from_connection_strings(
            primary or self.primary.connection_string(),
            secondary or self.secondary.connection_string(),
            **{**FAST, "on_event": self.events.append, **options},
        )
        self._clients.append(client)
        return client

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Any]:
        async with opened(self.make(**options)) as client:
            yield client

    @asynccontextmanager
    async def sender(self, queue: str = "orders", **options: Any) -> AsyncIterator[Any]:
        async with self.client(**options) as client, opened(client.get_queue_sender(queue)) as sender:
            sender.paired_client = client
            yield sender

    def connections(self) -> int:
        """Connections to both brokers."""
        return sum(
            broker.call(lambda server: sum(len(host._connections) for host in server.hosts.values()))
            for broker in (self.primary, self.secondary)
        )

    def told(self, kind: str) -> list[PairedEvent]:
        for client in self._clients:
            client._pair.events.flush(5)
        return [event for event in self.events if event.kind == kind]

    async def until(self, kind: str, seconds: float = 45) -> float:
        """Wait for an event; returns how long it took."""
        return await self.until_count(kind, 1, seconds)

    async def until_count(self, kind: str, count: int, seconds: float = 45) -> float:
        """Wait for `count` events; returns how long it took."""
        started = time.monotonic()
        while len(self.told(kind)) < count:
            assert time.monotonic() - started < seconds, f"no {kind} within {seconds} s: {self.events}"
            await asyncio.sleep(0.01)
        return time.monotonic() - started

    async def in_backlog(self, count: int, names: int = 3) -> dict[str, list[ReceivedMessage]]:
        """Receive all messages from the backlog queues."""
        found: dict[str, list[ReceivedMessage]] = {}
        async with BusClient.from_connection_string(self.secondary.connection_string()) as client:
            for index in range(names):
                name = f"contoso/x-servicebus-transfer/{index}"
                receiver = await client.receiver(name, delete=True)
                while batch := await receiver.receive_batch(100, wait_s=0.05):
                    found.setdefault(name, []).extend(batch)
                await receiver.close()
        assert sum(map(len, found.values())) == count, found
        return found

    async def in_primary(self, count: int, queue: str = "orders", wait_s: float = 5) -> list[ReceivedMessage]:
        """Receive messages from a queue of the primary: `count`, and no more."""
        found: list[ReceivedMessage] = []
        async with BusClient.from_connection_string(self.primary.connection_string()) as client:
            receiver = await client.receiver(queue, delete=True)
            while len(found) < count:
                batch = await receiver.receive_batch(100, wait_s=wait_s)
                assert batch, f"{len(found)} messages instead of {count}"
                found += batch
            found += await receiver.receive_batch(100, wait_s=0.05)
        assert len(found) == count
        return found
