"""Two real brokers, and for each test a pair with its own names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from twinbus.client import BusClient, Message, ReceivedMessage
from twinbus.client.envelope import wrap
from twinbus.clock import MonotonicClock, SteppedClock
from twinbus.paired.events import PairedEvent
from twinbus.paired.options import backlog_names
from twinbus.paired.syphon import Syphon
from twinbus.paired.syphon.bus_port import BusPort
from twinbus.paired.syphon.pauses import Pauses
from twinbus.paired.syphon.syphon import syphon_events
from twinbus.testing import Broker


@pytest.fixture(scope="session")
def primary_broker() -> Iterator[Broker]:
    with Broker(["first"], sync=False, allow_faults=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def secondary_broker() -> Iterator[Broker]:
    with Broker(["second"], sync=False, allow_faults=True) as broker:
        yield broker


class Pair:
    """A primary, a secondary and some backlog queues."""

    def __init__(self, primary: Broker, secondary: Broker, count: int = 2) -> None:
        self.primary = primary
        self.secondary = secondary
        self.name = f"p{uuid4().hex[:8]}"
        self.queues = backlog_names(self.name, count)
        self.events: list[PairedEvent] = []
        for queue in self.queues:
            secondary.create_queue(queue)

    def destination(self, **settings: Any) -> str:
        name = f"d{uuid4().hex[:8]}"
        self.primary.create_queue(name, **settings)
        return name

    async def put(self, wrapped: Sequence[bytes], queue: int = 0) -> None:
        async with BusClient.from_connection_string(self.secondary.connection_string()) as client:
            outcomes = await (await client.sender(self.queues[queue])).send_many(wrapped)
            assert outcomes == [None] * len(wrapped)

    async def divert(self, path: str, messages: Sequence[Message], queue: int = 0) -> None:
        await self.put([wrap(message.encode(), path) for message in messages], queue)

    def syphon(self, *, longest_ms: int = 200, clock: SteppedClock | None = None, **options: Any) -> Syphon:
        """With a clock, that is also the time of day."""
        steps = clock or MonotonicClock()
        ports = [
            BusPort(
                BusClient.from_connection_string(broker.connection_string(), timeout_ms=3_000), clock=steps, wall=clock
            )
            for broker in (self.primary, self.secondary)
        ]
        return Syphon(
            *ports,
            self.queues,
            events=syphon_events(
                self.name, "second", listeners=[self.events.append], ledger=options.pop("ledger", None)
            ),
            pauses=Pauses(steps, first_ms=20, longest_ms=longest_ms),
            clock=steps,
            **options,
        )

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[Syphon]:
        syphon = self.syphon(**options)
        task = asyncio.create_task(syphon.run())
        try:
            yield syphon
        finally:
            syphon.stop()
            async with asyncio.timeout(120):
                await task

    async def taken(self, path: str, count: int, wait_s: float = 5.0) -> list[ReceivedMessage]:
        """Receive messages from a queue of the primary, until there are `count` or none comes."""
        return await _taken(self.primary, path, count, wait_s)

    async def dead(self, count: int, queue: int = 0, wait_s: float = 5.0) -> list[ReceivedMessage]:
        return await _taken(self.secondary, f"{self.queues[queue]}/$DeadLetterQueue", count, wait_s)

    async def left(self, queue: int = 0) -> int:
        async with BusClient.from_connection_string(self.secondary.connection_string()) as client:
            return len(await (await client.management(self.queues[queue])).peek(250))


async def _taken(broker: Broker, path: str, count: int, wait_s: float) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    async with BusClient.from_connection_string(broker.connection_string()) as client:
        receiver = await client.receiver(path, delete=True)
        while len(found) < count:
            some = await receiver.receive_batch(count - len(found), wait_s)
            if not some:
                break
            found += some
    return found


async def until(condition: Any, timeout_s: float = 120.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def pair(primary_broker: Broker, secondary_broker: Broker) -> Pair:
    return Pair(primary_broker, secondary_broker)
