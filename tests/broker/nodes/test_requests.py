"""Requests and answers over raw AMQP: an answer goes to the reply link in the session of the request."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.broker.peer import Peer
from twinbus.amqp.events import Attached, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.session import Session
from twinbus.amqp.terminus import Source, Target
from twinbus.broker.nodes.requests import ReplyLink
from twinbus.testing import Broker

NODES = {"$cbs": ("put-token", "token"), "orders/$management": ("com.microsoft:peek-message", {})}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(queues=["orders"]) as running:
        yield running


class Pair:
    """A request link and a reply link for one node."""

    def __init__(self, peer: Peer, node: str, name: str, address: str | None, reply_in: Session | None = None) -> None:
        self.peer = peer
        self.node = node
        asking = peer.session
        peer.session = asking if reply_in is None else reply_in
        self.reply: Link = peer.session.attach_receiver(name, source=Source(node), target=Target(address))
        peer.flush()
        peer.wait(Attached, lambda event: event.link is self.reply)
        self.reply.flow(10)
        peer.session = asking
        self.asks = peer.sender(node)

    def ask(self, reply_to: str | None) -> str:
        """Send a request and return its id."""
        operation, body = NODES[self.node]
        request = AmqpMessage()
        request.message_id = str(uuid.uuid4())
        request.reply_to = reply_to
        request.application_properties = {"operation": operation, "type": "jwt", "name": "sb://localhost/orders"}
        request.value, request.has_value = body, True
        self.peer.send(self.asks, request)
        return request.message_id

    def hears(self, message_id: str) -> bool:
        """Whether the next answer, on any link, is this one on this link."""
        delivery = self.peer.wait(Transfer)
        answer = AmqpMessage.decode(delivery.payload or b"")
        assert answer.correlation_id == message_id
        return delivery.link is self.reply


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize(
    ("name", "address", "reply_to"),
    [("same", None, "same"), ("same", "same", "same"), ("same", "client", "client"), ("same", "client", None)],
    ids=["by link name", "by both", "by target address", "by nothing"],
)
def test_an_answer_goes_to_the_session_that_asked(
    broker: Broker, node: str, name: str, address: str | None, reply_to: str | None
) -> None:
    with Peer(broker, product="MSJSClient") as peer:
        pairs = []
        for _ in range(3):
            pairs.append(Pair(peer, node, name, address))
            peer.session = peer.begin()
        for pair in (*pairs, *reversed(pairs)):
            assert pair.hears(pair.ask(reply_to))


@pytest.mark.parametrize(("address", "reply_to"), [(None, "mine"), ("client", "client")])
def test_a_reply_link_in_another_session_is_found_when_the_asking_one_has_none(
    broker: Broker, address: str | None, reply_to: str
) -> None:
    with Peer(broker) as peer:
        other = peer.begin()
        pair = Pair(peer, "$cbs", "mine", address, reply_in=other)
        assert pair.hears(pair.ask(reply_to))


def test_links_of_one_name_for_two_nodes_get_the_answers_of_their_own_node(broker: Broker) -> None:
    with Peer(broker) as peer:
        first, other = peer.session, peer.begin()
        pairs = []
        for node in NODES:
            # The reply links are in a session without requests, so that neither is closer.
            pairs.append(Pair(peer, node, f"to-{node}", "client", reply_in=other))
        assert peer.session is first
        for pair in pairs:
            assert pair.hears(pair.ask("client"))


def test_an_answer_is_not_looked_for_among_all_links(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    # The only client that may have several.
    with Peer(broker, product="MSJSClient") as peer:
        for number in range(200):
            peer.session.attach_receiver(f"other-{number}", source=Source("$cbs"), target=Target(f"other-{number}"))
        peer.flush()
        for _ in range(200):
            peer.wait(Attached)
        looks = 0
        sound = ReplyLink.address.fget
        assert sound is not None

        def counted(self: ReplyLink) -> str | None:
            nonlocal looks
            looks += 1
            return sound(self)

        monkeypatch.setattr(ReplyLink, "address", property(counted))
        assert peer.put_token("sb://x", "token") == 202
        assert looks < 10
