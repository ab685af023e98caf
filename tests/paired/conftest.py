"""A pair of brokers for all tests; each test gets them empty and healthy."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.paired.pairs import COLOURS, Pair
from twinbus.testing import Broker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The SDK leaves sockets open when a connection fails; that is not tested here."""
    for item in items:
        if "pair" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


class _Hurried:
    """A module whose `sleep` is short."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def sleep(self, seconds: float) -> Any:
        return self._module.sleep(min(seconds, 0.005))


@pytest.fixture(scope="session", autouse=True)
def _hurried() -> Iterator[None]:
    """The SDK sleeps while a link opens or closes, for half a second in all: shorter here."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in (
            ("_servicebus_sender.time", time),
            ("aio._servicebus_sender_async.asyncio", asyncio),
            ("_servicebus_receiver.time", time),
            ("aio._servicebus_receiver_async.asyncio", asyncio),
            ("_pyamqp.client.time", time),
            ("_pyamqp.aio._client_async.asyncio", asyncio),
        ):
            patch.setattr(f"azure.servicebus.{name}", _Hurried(module))
        yield


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
    # Collect what the SDK left behind now, not in another test.
    gc.collect()
