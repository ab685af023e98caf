"""Senders without an address: the destination of each message decides, and so do the rights on it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.connections.test_jms_attachment import broker, relay, subscribe, taken
from tests.broker.peer import Peer, text
from twinbus.amqp.states import Accepted, Rejected
from twinbus.broker.links import relay as module
from twinbus.testing import Broker

__all__ = ["broker"]


def test_the_relay_sends_where_each_message_says(broker: Broker) -> None:
    with Peer(broker) as peer:
        topic = subscribe(peer, "s")
        link = relay(peer)
        for to in ("q", "other", "t", "sb://localhost/q"):
            assert isinstance(peer.send(link, text(f"to {to}", to=to)), Accepted)
        assert taken(peer, peer.receiver("q", 5), 2) == ["to q", "to sb://localhost/q"]
        assert taken(peer, peer.receiver("other", 5), 1) == ["to other"]
        assert taken(peer, topic, 1) == ["to t"]
        wrong = {
            None: "needs one in each message",
            "none": "could not be found",
            "$cbs": "cannot be relayed",
            "q/$management": "cannot be relayed",
            "q/$DeadLetterQueue": "cannot be sent",
            "t/Subscriptions/s$peer$D": "cannot be sent",
        }
        for to, words in wrong.items():
            state = peer.send(link, text("x", to=to))
            assert isinstance(state, Rejected), to
            assert state.error is not None
            assert words in (state.error.description or ""), to
        broker.delete_queue("q")
        assert isinstance(peer.send(link, text("x", to="q")), Rejected)
        broker.create_queue("q")
        assert isinstance(peer.send(link, text("x", to="q")), Accepted)


def test_the_relay_forgets_old_destinations(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RELAY_DESTINATIONS_MAX", 1)
    with Peer(broker) as peer:
        link = relay(peer)
        for to in ("q", "other", "q", "other"):
            assert isinstance(peer.send(link, text("x", to=to)), Accepted)
        held = broker.call(
            lambda server: [len(each.context._publishers) for each in _links(server) if each.name == "relay"]
        )
        assert held == [1]


def _links(server: Any) -> list[Any]:
    return [link for each in server.hosts["contoso"].connections() for link in each._links]
