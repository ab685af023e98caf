"""One broker for all client tests; each test has its own queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from twinbus.client import BusClient
from twinbus.testing import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(sync=False) as running:
        yield running


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[BusClient]:
    async with BusClient.from_connection_string(broker.connection_string()) as made:
        yield made


@pytest.fixture
def queue(broker: Broker) -> str:
    name = f"q-{uuid4()}"
    broker.create_queue(name)
    return name


@pytest.fixture
def session_queue(broker: Broker) -> str:
    name = f"s-{uuid4()}"
    broker.create_queue(name, requires_session=True)
    return name
