"""`$cbs` over raw AMQP: a connection has one link to it in each direction, as in the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.broker.peer import Peer
from twinbus.amqp.link import Link
from twinbus.amqp.session import Session
from twinbus.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(queues=["orders"]) as running:
        yield running


@pytest.fixture
def peer(broker: Broker) -> Iterator[Peer]:
    with Peer(broker) as connected:
        yield connected


def attach(peer: Peer, way: str, session: Session | None = None) -> Link:
    if session is not None:
        peer.session = session
    return peer.sender("$cbs") if way == "sender" else peer.receiver("$cbs")


WAYS = pytest.mark.parametrize("way", ["sender", "receiver"])


@WAYS
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same session", "another session"])
def test_a_second_link_is_refused(peer: Peer, way: str, elsewhere: bool) -> None:
    first = attach(peer, way)
    session = peer.begin() if elsewhere else None
    error = peer.refusal(lambda: attach(peer, way, session))
    assert error.condition == "amqp:not-allowed"
    assert "$cbs node has already been opened" in error.description
    assert first.attached
    # Only that link is refused: the pair can still be completed.
    assert attach(peer, "receiver" if way == "sender" else "sender").attached


@WAYS
@pytest.mark.parametrize(
    "leave",
    [lambda link: link.detach(), lambda link: link.detach(closed=False), lambda link: link.session.end()],
    ids=["closed", "detached", "session ended"],
)
def test_a_link_that_is_gone_does_not_count(peer: Peer, way: str, leave: Callable[[Link], None]) -> None:
    first, session = attach(peer, way), peer.begin()
    leave(first)
    # Not answered yet: the broker reads both at once.
    assert attach(peer, way, session).attached
    error = peer.refusal(lambda: attach(peer, way))
    assert error.condition == "amqp:not-allowed"


def test_a_refused_link_does_not_count(peer: Peer) -> None:
    first = attach(peer, "sender")
    peer.refusal(lambda: attach(peer, "sender"))
    first.detach()
    assert attach(peer, "sender").attached


def test_each_connection_has_its_own(broker: Broker, peer: Peer) -> None:
    with Peer(broker) as other:
        for connected in (peer, other):
            assert attach(connected, "sender").attached
            assert attach(connected, "receiver").attached


def test_tokens_are_put_again_and_again_by_pairs_that_are_closed(peer: Peer) -> None:
    for _ in range(3):
        assert peer.put_token("sb://localhost/orders", "token") == 202
