"""Credit is permission, not a duty: a receiver gets what its socket takes, and nothing leaves the queue before that."""

from __future__ import annotations

import time

import pytest

from tests.broker.peer import Peer, text
from twinbus.amqp.events import Disposed, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import Accepted
from twinbus.broker.server import Server
from twinbus.entities.settings import QueueSettings
from twinbus.limits import MESSAGE_BYTES_MAX, WRITE_BUFFER_BYTES_HIGH
from twinbus.testing import Broker

MIB = 1024 * 1024


def fill(broker: Broker, count: int, size: int, **fields: str) -> None:
    """Put messages into the queue q, numbered from 0 in their ids."""
    with Peer(broker) as peer:
        link = peer.sender("q")
        ids = set()
        for number in range(count):
            message = text("x" * size, **fields)
            message.message_id = str(number)
            ids.add(link.send(message.encode(), tag=str(number).encode(), settled=False))
        while ids:
            disposed = peer.wait(Disposed, patience_s=60)
            assert isinstance(disposed.state, Accepted)
            ids -= {each[0] for each in disposed.deliveries}


def left(broker: Broker) -> int:
    return broker.call(lambda server: server.hosts["contoso"].namespace.queue("q").counts.active)


def numbers(peer: Peer, link: Link, count: int) -> list[int]:
    """The ids of the next messages, as numbers."""
    found = []
    while len(found) < count:
        found.append(int(str(AmqpMessage.decode(peer.receive(link, 60).payload or b"").message_id)))
    return found


def held_bytes(broker: Broker) -> int:
    """What the broker holds for the peer that reads nothing."""

    def look(server: Server) -> int:
        found = 0
        for each in server.hosts["contoso"]._connections:
            if each._transport is not None:
                found = max(found, each.engine.output_bytes + each._transport.get_write_buffer_size())
        return found

    return broker.call(look)


def stalled(broker: Broker) -> int:
    """Wait until the broker holds something for a peer that reads nothing and adds no more to it; what it holds."""
    before = 0
    while (held := held_bytes(broker)) != before or not held:
        before = held
        time.sleep(0.2)
    return held


def test_receive_and_delete_gives_a_reader_more_than_the_socket_takes_at_once() -> None:
    with Broker(queues=["q"]) as broker:
        fill(broker, 120, 250_000)
        with Peer(broker) as peer:
            link = peer.receiver("q", 500, settled=True)
            assert numbers(peer, link, 120) == list(range(120))
        assert left(broker) == 0


@pytest.mark.parametrize("sessions", [False, True])
def test_receive_and_delete_keeps_what_a_stalled_reader_was_not_sent(sessions: bool) -> None:
    with Broker(queues=[QueueSettings(path="q", requires_session=sessions)]) as broker:
        fill(broker, 120, 250_000, **({"group_id": "s"} if sessions else {}))
        with Peer(broker) as peer:
            chosen = {"session_filter": "s"} if sessions else {}
            peer.receiver("q", 500, settled=True, **chosen)
            stalled(broker)
            # What is not removed is still there for others when this one leaves.
            kept = left(broker)
            assert kept > 0
        with Peer(broker) as peer:
            link = peer.receiver("q", 500, settled=True, **chosen)
            found = numbers(peer, link, 1)
            found += numbers(peer, link, 119 - found[0])
            assert found == list(range(found[0], 120))
            assert 120 - found[0] >= kept
            assert peer.quiet(Transfer)
        assert left(broker) == 0


@pytest.mark.parametrize("settled", [False, True])
def test_unsent_bytes_of_a_stalled_reader_are_bounded(settled: bool) -> None:
    with Broker(queues=["q"]) as broker:
        fill(broker, 120, 250_000)
        with Peer(broker) as peer:
            peer.receiver("q", 500, settled=settled)
            stalled(broker)
            assert held_bytes(broker) < WRITE_BUFFER_BYTES_HIGH + 2 * 300_000


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("size", [15 * MIB, 16 * MIB, 17 * MIB, 24 * MIB, 64_000_000, MESSAGE_BYTES_MAX - 1024])
def test_every_size_arrives_whole(size: int, settled: bool) -> None:
    with Broker(queues=[QueueSettings(path="q", max_message_bytes=MESSAGE_BYTES_MAX)]) as broker, Peer(broker) as peer:
        body = bytes(range(256)) * (size // 256)
        message = AmqpMessage()
        message.data = [body]
        assert isinstance(peer.send(peer.sender("q"), message), Accepted)
        delivery = peer.receive(peer.receiver("q", 5, settled=settled), 60)
        received = AmqpMessage.decode(delivery.payload or b"")
        assert received.data == [body]
