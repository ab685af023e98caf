"""Credit permits but does not oblige: a receiver gets what its socket accepts, and nothing leaves the queue earlier."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.broker.connections.test_listener import encrypted
from tests.broker.connections.test_websocket import WebSocketStream
from tests.broker.loops import LOOPS, broker_on
from tests.broker.peer import Peer, connected, decoded, text
from twinbus.amqp.events import Attached, Detached, Disposed, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import Accepted, state_modified
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import ARRAY_OF_LONG, Array, Int, UInt
from twinbus.broker.connections.patience import unsent_bytes
from twinbus.broker.server import Server
from twinbus.entities.settings import QueueSettings
from twinbus.limits import MESSAGE_BYTES_MAX, WRITE_BUFFER_BYTES_HIGH
from twinbus.testing import Broker

MIB = 1024 * 1024


def fill(broker: Broker, count: int, size: int, **fields: str) -> None:
    """Put messages into the queue q, with ids numbered from 0."""
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
    return broker.call(lambda server: server.hosts["contoso"].entities.queue("q").counts.active)


def numbers(peer: Peer, link: Link, count: int) -> list[int]:
    """The ids of the next messages, as numbers."""
    found = []
    while len(found) < count:
        found.append(int(str(AmqpMessage.decode(peer.receive(link, 60).payload or b"").message_id)))
    return found


def held_bytes(broker: Broker) -> int:
    """What the broker holds for a peer that does not read."""

    def look(server: Server) -> int:
        found = 0
        for each in server.hosts["contoso"]._connections:
            if each._transport is not None:
                found = max(found, each.engine.output_bytes + unsent_bytes(each._transport))
        return found

    return broker.call(look)


def stalled(broker: Broker) -> int:
    """Wait until the broker holds a stable amount for a peer that does not read; returns the amount."""
    before = 0
    while (held := held_bytes(broker)) != before or not held:
        before = held
        time.sleep(0.2)
    return held


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["plain", "TLS", "WebSocket", "WebSocket and TLS"])
def stream(request: pytest.FixtureRequest) -> Callable[[Broker], Any]:
    """How a peer connects to the broker."""
    streams: dict[str, Callable[[Broker], Any]] = {
        "plain": connected,
        "TLS": encrypted,
        "WebSocket": WebSocketStream,
        "WebSocket and TLS": lambda broker: WebSocketStream(broker, tls=True),
    }
    return streams[request.param]


def test_receive_and_delete_gives_a_reader_more_than_the_socket_takes_at_once(
    loop: str, stream: Callable[[Broker], Any]
) -> None:
    with broker_on(loop, queues=["q"]) as broker:
        fill(broker, 120, 250_000)
        with Peer(broker, over=stream(broker)) as peer:
            link = peer.receiver("q", 500, settled=True)
            assert numbers(peer, link, 120) == list(range(120))
            # It leaves at once: what it received is gone, and nobody gets it a second time.
            peer.close()
        assert left(broker) == 0


@pytest.mark.parametrize("sessions", [False, True])
def test_receive_and_delete_keeps_what_a_stalled_reader_was_not_sent(
    sessions: bool, loop: str, stream: Callable[[Broker], Any]
) -> None:
    with broker_on(loop, queues=[QueueSettings(path="q", requires_session=sessions)]) as broker:
        fill(broker, 120, 250_000, **({"group_id": "s"} if sessions else {}))
        with Peer(broker, over=stream(broker)) as peer:
            chosen = {"session_filter": "s"} if sessions else {}
            peer.receiver("q", 500, settled=True, **chosen)
            stalled(broker)
            # What was not removed is still there for others when this one leaves.
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
            assert held_bytes(broker) < 2 * WRITE_BUFFER_BYTES_HIGH + 300_000


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


def test_a_large_message_does_not_hold_up_other_connections() -> None:
    queues = [QueueSettings(path="q", max_message_bytes=MESSAGE_BYTES_MAX), QueueSettings(path="small")]
    with Broker(queues=queues) as broker, Peer(broker) as large, Peer(broker) as small:
        message = text("x" * 50_000_000)
        assert isinstance(large.send(large.sender("q"), message), Accepted)
        # It has credit but does not read: the rest of the message waits for it, and only for it.
        link = large.receiver("q", 1)
        stalled(broker)
        assert isinstance(small.send(small.sender("small"), text("quick")), Accepted)
        assert small.receive(small.receiver("small", 1)).payload
        assert held_bytes(broker) < 2 * WRITE_BUFFER_BYTES_HIGH
        assert len(large.receive(link, 60).payload or b"") > 50_000_000


def test_a_receiver_that_leaves_in_the_middle_of_a_large_message_does_not_get_the_rest() -> None:
    with Broker(queues=[QueueSettings(path="q", max_message_bytes=MESSAGE_BYTES_MAX)]) as broker, Peer(broker) as peer:
        assert isinstance(peer.send(peer.sender("q"), text("x" * 50_000_000)), Accepted)
        link = peer.receiver("q", 1, settled=True)
        stalled(broker)
        link.detach()
        peer.wait(Detached, lambda event: event.link is link, 60)
        # What was not completely written is still there, and the session continues with other links.
        again = peer.receiver("q", 1, settled=True)
        assert len(peer.receive(again, 60).payload or b"") > 50_000_000
        assert peer.quiet(Transfer)
    assert broker.server is None or not broker.server.failure


def test_a_deleted_queue_does_not_remember_what_a_stalled_reader_was_not_sent() -> None:
    with Broker(queues=["q"]) as broker, Peer(broker) as peer:
        fill(broker, 40, 250_000)
        link = peer.receiver("q", 500, settled=True)
        stalled(broker)
        broker.delete_queue("q")
        peer.wait(Detached, lambda event: event.link is link, 60)
        broker.create_queue("q")
        assert peer.receiver("q", 5, settled=True)
        peer.events.clear()
        assert peer.quiet(Transfer)


@pytest.mark.parametrize("leaves", ["link", "connection"])
def test_a_deferred_message_is_removed_when_its_answer_is_written(leaves: str) -> None:
    with Broker(queues=["q"]) as broker, Peer(broker) as peer:
        fill(broker, 1, 10)
        delivery = peer.receive(peer.receiver("q", 1))
        peer.settle(delivery, state_modified(None, True))
        numbers = {"sequence-numbers": Array([1], ARRAY_OF_LONG), "receiver-settle-mode": UInt(0)}
        with Peer(broker) as asking:
            # Its reply link has no credit, so the answer cannot be sent.
            link = asking.session.attach_receiver("r", source=Source("q/$management"), target=Target("r"))
            asking.flush()
            asking.wait(Attached, lambda event: event.link is link)
            request = AmqpMessage()
            request.message_id, request.reply_to = "1", "r"
            request.application_properties = {"operation": "com.microsoft:receive-by-sequence-number"}
            request.value, request.has_value = numbers, True
            assert isinstance(asking.send(asking.sender("q/$management"), request), Accepted)
            if leaves == "link":
                link.detach()
                asking.flush()
                asking.wait(Detached, lambda event: event.link is link)
        broker.restart()
        with Peer(broker) as again:
            status, _, body = again.call("q/$management", "com.microsoft:receive-by-sequence-number", numbers)
            assert status == 200
            assert len(body["messages"]) == 1
            again.close()
        broker.restart()
        with Peer(broker) as last:
            assert last.call("q/$management", "com.microsoft:receive-by-sequence-number", numbers)[0] == 404


def test_answers_behind_a_large_one_follow_it() -> None:
    """Of several large answers on one link, each goes out when the previous one is written, without new credit."""
    with Broker(queues=["q"]) as broker:
        fill(broker, 4, 200_000)
        with Peer(broker) as peer:
            receiver = peer.session.attach_receiver("r", source=Source("q/$management"), target=Target("r"))
            peer.flush()
            peer.wait(Attached, lambda event: event.link is receiver)
            receiver.flow(100)
            sender = peer.sender("q/$management")
            for number in range(20):
                request = AmqpMessage()
                request.message_id, request.reply_to = str(number), "r"
                request.application_properties = {"operation": "com.microsoft:peek-message"}
                request.value, request.has_value = {"message-count": Int(4), "from-sequence-number": 0}, True
                sender.send(request.encode(), tag=str(number).encode(), settled=True)
            answers = [decoded(peer.receive(receiver, 60)) for _ in range(20)]
            assert [answer.correlation_id for answer in answers] == [str(number) for number in range(20)]


class Waiting:
    """A consumer that waits for room."""

    resumed = False

    def resume(self) -> None:
        self.resumed = True


def test_input_that_is_not_answered_lets_waiting_consumers_try_again() -> None:
    """A detach can make room without any output: its answer may have to wait behind frames of a closed window."""
    with Broker(queues=["q"]) as broker, Peer(broker) as peer:
        link = peer.receiver("q")
        waiting = Waiting()

        def wait(server: Server) -> None:
            [connection] = server.hosts["contoso"]._connections
            connection.choked.add(cast(Any, waiting))

        broker.call(wait)
        link.flow(1)
        peer.flush()
        end = time.monotonic() + 60
        while not waiting.resumed and time.monotonic() < end:
            time.sleep(0.01)
        assert waiting.resumed
