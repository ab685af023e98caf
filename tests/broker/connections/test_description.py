"""How a connection is described to an administrator."""

from __future__ import annotations

from tests.broker.nodes.test_activity import ask, broker
from tests.broker.peer import Peer
from twinbus.limits import CONNECTION_LINKS_SHOWN
from twinbus.testing import Broker

__all__ = ["broker"]


def test_connections_are_listed_with_their_links(broker: Broker) -> None:
    with Peer(broker) as worker, Peer(broker) as admin:
        worker.sender("a")
        worker.receiver("b", 7)
        status, found = ask(admin, "list-connections")
        assert (status, found["total"], found["more"]) == (200, 2, False)
        theirs, own = found["connections"]
        assert [theirs["own"], own["own"]] == [False, True]
        assert (theirs["senders"], theirs["receivers"], theirs["transport"]) == (1, 1, "amqp")
        assert theirs["address"].startswith("127.0.0.1:")
        assert {(each["role"], each["address"], each["credit"]) for each in theirs["links"]} >= {("receiver", "b", 7)}
        assert (own["senders"], own["receivers"]) == (0, 0), "requests are no messages"


def test_links_shown_are_bounded_and_counted(broker: Broker) -> None:
    with Peer(broker) as worker, Peer(broker) as admin:
        for _ in range(CONNECTION_LINKS_SHOWN + 2):
            worker.sender("a")
        theirs = ask(admin, "list-connections")[1]["connections"][0]
        assert len(theirs["links"]) == CONNECTION_LINKS_SHOWN
        assert theirs["links_total"] >= theirs["senders"] == CONNECTION_LINKS_SHOWN + 2
