"""Connections, depths and rates in the answers to an administrator's requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.peer import Peer, text
from twinbus.amqp.events import Closed
from twinbus.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(queues=["a", "b"], sync=False) as running:
        yield running


def ask(peer: Peer, operation: str, **arguments: Any) -> tuple[int, Any]:
    status, _, body = peer.call("$management", f"twinbus:{operation}", arguments)[:3]
    return status, body


def count(broker: Broker) -> None:
    """End the meter's interval now."""
    broker.call(lambda server: server.hosts["contoso"].meter.flush())


def test_pages_of_connections_go_on_behind_a_number(broker: Broker) -> None:
    with Peer(broker), Peer(broker) as admin:
        first = ask(admin, "list-connections")[1]["connections"][0]["number"]
        rest = ask(admin, "list-connections", after=first)[1]
        assert [each["own"] for each in rest["connections"]] == [True]


def test_a_closed_connection_is_told_why(broker: Broker) -> None:
    with Peer(broker) as worker, Peer(broker) as admin:
        worker.sender("a")
        number = ask(admin, "list-connections")[1]["connections"][0]["number"]
        assert ask(admin, "close-connection", number=number) == (200, {"closed": number})
        closed = worker.wait(Closed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:connection:forced"
        assert "closed by an administrator" in str(closed.error.description)
        assert ask(admin, "close-connection", number=number)[0] == 400
        assert ask(admin, "list-connections")[1]["total"] == 1


def test_nobody_closes_the_connection_that_asks(broker: Broker) -> None:
    with Peer(broker) as admin:
        own = ask(admin, "list-connections")[1]["connections"][0]["number"]
        assert ask(admin, "close-connection", number=own)[0] == 400
        assert ask(admin, "list-connections")[1]["total"] == 1


def test_rates_are_those_of_the_last_seconds(broker: Broker) -> None:
    with Peer(broker) as peer:
        sender = peer.sender("a")
        for number in range(20):
            peer.send(sender, text(str(number)))
        count(broker)
        status, found = ask(peer, "overview")
    assert status == 200
    assert [each["path"] for each in found["entities"]] == ["a", "b"], "the busiest first"
    busy, idle = found["entities"]
    assert busy["active_messages"] == 20
    assert busy["sent"] > 0 == busy["received"]
    assert idle["sent"] == 0
    assert found["rates"]["sent"] == busy["sent"]
