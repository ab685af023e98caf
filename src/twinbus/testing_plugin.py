"""The pytest plugin, loaded in every pytest run where Twinbus is installed.

    def test_orders(twinbus_broker):
        twinbus_broker.create_queue("orders")
        ServiceBusClient.from_connection_string(twinbus_broker.connection_string())

    @pytest.mark.twinbus(namespaces=["contoso", "fabrikam"], queues=["orders"])
    def test_two_namespaces(twinbus_broker): ...

Rules:
- `twinbus_broker` is new for each test, because tests that share queues depend on each other. The marker takes the
  arguments of `twinbus.testing.Broker`; without it there is one namespace, `contoso`, and no queue.
- `twinbus_brokers` is for tests that do share: a function with the same arguments that returns a running broker, which
  is stopped at the end of the session.
- Only pytest is imported until a test requests a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from twinbus.testing import Broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "twinbus(**options): how the fixture twinbus_broker starts its broker")


@pytest.fixture
def twinbus_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running broker for this test."""
    from twinbus.testing import Broker

    options: dict[str, Any] = {}
    # The nearest marker wins, option by option.
    for marker in reversed(list(request.node.iter_markers("twinbus"))):
        if marker.args:
            raise pytest.UsageError("The marker twinbus takes options by name only: twinbus(queues=[...]).")
        options.update(marker.kwargs)
    with Broker(**options) as broker:
        yield broker


@pytest.fixture(scope="session")
def twinbus_brokers() -> Iterator[Callable[..., Broker]]:
    """Start brokers that run until the end of the session."""
    from twinbus.testing import Broker

    with ExitStack() as stack:

        def start(*args: Any, **options: Any) -> Broker:
            return stack.enter_context(Broker(*args, **options))

        yield start
