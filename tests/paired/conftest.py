"""A pair of brokers for all tests; each test gets them empty and healthy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paired.pairs import COLOURS, Pair
from twinbus.testing import Broker


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker, Path]]:
    with (
        Broker(["contoso"], sync=False, allow_faults=True) as primary,
        Broker(["fabrikam"], sync=False, allow_faults=True) as secondary,
    ):
        bundle = tmp_path_factory.mktemp("ca") / "both.pem"
        bundle.write_text(primary.ca_file.read_text() + secondary.ca_file.read_text())
        yield primary, secondary, bundle


@pytest.fixture(params=COLOURS)
def pair(request: pytest.FixtureRequest, brokers: tuple[Broker, Broker, Path]) -> Iterator[Pair]:
    primary, secondary, bundle = brokers
    primary.create_queue("orders")
    yield Pair(request.param, primary, secondary, bundle)
    for broker in (primary, secondary):
        name = next(iter(broker.endpoints))
        for path in broker.call(lambda server, name=name: [each.path for each in server.hosts[name].entities.queues()]):
            broker.delete_queue(path)
