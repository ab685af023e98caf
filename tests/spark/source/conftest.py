"""One broker for all tests of the source and the sink; each test has its own queue."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.spark.source.desk import Desk
from twinbus.testing import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(sync=False) as running:
        yield running


@pytest.fixture
def desk(broker: Broker) -> Iterator[Desk]:
    with Desk(broker) as made:
        yield made


@pytest.fixture
def queue(broker: Broker) -> str:
    name = f"q-{uuid4()}"
    broker.create_queue(name)
    return name
