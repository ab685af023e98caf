"""Two namespaces with backlog queues between them, and the Spark syphon on the session that all Spark tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from twinbus.client import BusClient, Message, ReceivedMessage
from twinbus.client.envelope import wrap
from twinbus.limits import MAX_DELIVERY_COUNT_MAX
from twinbus.paired.options import backlog_names
from twinbus.paired.syphon import Pairing
from twinbus.testing import Broker


class House:
    """A pair with its own names, and blocking methods to fill and empty it."""

    def __init__(self, primary: Broker, secondary: Broker, count: int = 3) -> None:
        self.primary = primary
        self.secondary = secondary
        # The primary's name in the names of the backlog queues.
        self.name = f"p{uuid4().hex[:8]}"
        self.queues = backlog_names(self.name, count)
        for queue in self.queues:
            secondary.create_queue(queue, max_delivery_count=MAX_DELIVERY_COUNT_MAX)

    def pairing(self, ledger: Path | None = None) -> Pairing:
        return Pairing(
            self.primary.connection_string(),
            self.secondary.connection_string(),
            self.name,
            ledger=None if ledger is None else str(ledger),
        )

    def destination(self, **settings: Any) -> str:
        name = f"d{uuid4().hex[:8]}"
        self.primary.create_queue(name, **settings)
        return name

    def divert(self, path: str, names: Sequence[str], queue: int = 0) -> None:
        self.put([wrap(Message(b"x" * 100, message_id=name).encode(), path) for name in names], queue)

    def put(self, payloads: Sequence[bytes], queue: int = 0) -> None:
        async def work() -> None:
            async with BusClient.from_connection_string(self.secondary.connection_string()) as client:
                assert not any(await (await client.sender(self.queues[queue])).send_many(payloads))

        asyncio.run(work())

    def taken(self, path: str, count: int, wait_s: float = 5.0) -> list[str]:
        """Receives from a queue of the primary; returns the ids."""
        return [str(message.message_id) for message in _taken(self.primary, path, count, wait_s)]

    def dead(self, queue: int, count: int) -> list[ReceivedMessage]:
        return _taken(self.secondary, f"{self.queues[queue]}/$DeadLetterQueue", count, 5.0)


def _taken(broker: Broker, path: str, count: int, wait_s: float) -> list[ReceivedMessage]:
    async def work() -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        async with BusClient.from_connection_string(broker.connection_string()) as client:
            receiver = await client.receiver(path, delete=True)
            while len(found) < count and (some := await receiver.receive_batch(count - len(found), wait_s)):
                found += some
        return found

    return asyncio.run(work())


@pytest.fixture(scope="session")
def primary_broker() -> Iterator[Broker]:
    with Broker(["first"], sync=False, allow_faults=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def secondary_broker() -> Iterator[Broker]:
    with Broker(["second"], sync=False, allow_faults=True) as broker:
        yield broker


@pytest.fixture
def house(primary_broker: Broker, secondary_broker: Broker) -> House:
    return House(primary_broker, secondary_broker)
