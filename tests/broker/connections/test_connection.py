"""Bad input ends its own link, session or connection with the right error, and nobody else's."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.broker.peer import PATIENCE_S, Peer, body_of, text
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import Closed, Ended
from twinbus.amqp.states import Accepted
from twinbus.amqp.terminus import Source, Target
from twinbus.testing import Broker

SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(queues=["q"]) as broker:
        yield broker


@pytest.fixture(autouse=True)
def bystander(broker: Broker) -> Iterator[None]:
    """Whatever one peer does, another works before and after it on the same connection."""
    with Peer(broker) as peer:
        link = peer.sender("q")
        receiver = peer.receiver("q", 10)
        yield
        assert isinstance(peer.send(link, text("still here")), Accepted)
        delivery = peer.receive(receiver)
        assert body_of(delivery) == "still here"
        peer.settle(delivery)


def frame(body: bytes, *, channel: int = 0, kind: int = 0, offset: int = 2, size: int | None = None) -> bytes:
    return struct.pack(">IBBH", size if size is not None else len(body) + 8, offset, kind, channel) + body


def opened(broker: Broker) -> Peer:
    return Peer(broker)


def ends_with(peer: Peer, data: bytes) -> str:
    """Write raw bytes; returns the condition with which the broker closes."""
    peer.flush()
    peer.socket.sendall(data)
    closed = peer.wait(Closed)
    assert closed.error is not None
    assert closed.error.description
    return closed.error.condition


def read_to_end(sock: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 64,
        b"HELO there this is not amqp",
        b"AMQP\x09\x09\x09\x09",
        SASL + b"\x00\x00\x00\x03",
        SASL + frame(b"\x00\x53\x41\xc0\x01\x00", kind=1),
        SASL + frame(b"\xff" * 32, kind=1),
        AMQP + frame(b"\x00\x53\x11\xc0\x01\x00"),
    ],
    ids=["zeros", "text", "version", "short frame", "empty sasl-init", "sasl nonsense", "begin before open"],
)
def test_broken_handshake_ends_the_connection(broker: Broker, data: bytes) -> None:
    endpoint = broker.endpoint()
    with socket.create_connection((endpoint.host, endpoint.port), timeout=PATIENCE_S) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = read_to_end(sock)
    assert len(answer) < 1_000


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (frame(b"\x00\x53\x11\xff\xff\xff"), "amqp:decode-error"),
        (frame(b"", size=7, offset=2), "amqp:connection:framing-error"),
        (frame(b"\x00\x53\x11\xc0\x01\x00", offset=1), "amqp:connection:framing-error"),
        (frame(b"\x00\x53\x11\xc0\x01\x00", size=70_000), "amqp:connection:framing-error"),
        (frame(b"\x00\x53\x11\xc0\x01\x00", size=0xFFFFFFFF), "amqp:connection:framing-error"),
        (frame(b"\x00\x53\x10\xc0\x04\x02\xa1\x00\x40"), "amqp:illegal-state"),
        (frame(b"\x00\x53\x99\xc0\x01\x00"), None),
        (frame(b"\x00" * 200), None),
        (frame(b"\x00\x53\x12\x45", channel=77), None),
        (frame(b"\x00\x53\x11\xc0\x01\x00", channel=5000), None),
        (frame(b"\x00\x53\x14" + b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff"), None),
        (frame(b"\x00\x53\x12" + b"\xc0\xff\x01" * 60), None),
    ],
    ids=[
        "cut value",
        "frame shorter than its head",
        "data offset inside the head",
        "frame over the limit",
        "frame of 4 GiB",
        "second open",
        "unknown performative",
        "zeros",
        "channel never begun",
        "channel over the limit",
        "list longer than the frame",
        "nested rubbish",
    ],
)
def test_bad_frame_closes_with_the_right_error(broker: Broker, data: bytes, condition: str | None) -> None:
    with opened(broker) as peer:
        got = ends_with(peer, data)
        assert got.startswith("amqp:")
        if condition is not None:
            assert got == condition


def test_unattached_handle_ends_the_session(broker: Broker) -> None:
    with opened(broker) as peer:
        peer.flush()
        # transfer on handle 9
        peer.socket.sendall(
            frame(b"\x00\x53\x14\xc0\x09\x05\x52\x09\x43\xa0\x01\x31\x43\x41", channel=peer.session.channel)
        )
        ended = peer.wait(Ended)
        assert ended.error is not None
        assert ended.error.condition == "amqp:session:unattached-handle"


def test_cut_connection_in_the_middle_of_a_frame(broker: Broker) -> None:
    with opened(broker) as peer:
        peer.sender("q")
        peer.socket.sendall(struct.pack(">IBBH", 5000, 2, 0, 0) + b"\x00\x53\x14")
    assert broker.call(lambda server: server.hosts["contoso"].entities.queue("q").counts.active) == 0


def test_silent_half_open_peer_is_nobodys_problem(broker: Broker) -> None:
    endpoint = broker.endpoint()
    socks = [socket.create_connection((endpoint.host, endpoint.port)) for _ in range(50)]
    for sock in socks:
        sock.sendall(SASL[:3])
    for sock in socks:
        sock.close()
    with opened(broker) as peer:
        assert peer.sender("q").name


def test_mutated_conversations(broker: Broker) -> None:
    """A real conversation with random bytes changed: it ends or continues, and nothing breaks."""
    client = Connection(Role.CLIENT, container_id="fuzz")
    client.start(sasl=("ANONYMOUS", b""), pipelined=True)
    session = client.begin()
    session.attach_sender("s", source=Source("x"), target=Target("nowhere"))
    session.attach_receiver("r", source=Source("q"), target=Target("x"))
    good = client.take_output()
    endpoint = broker.endpoint()
    rng = random.Random(20_26)
    answered = 0
    for _ in range(150):
        data = bytearray(good)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data))]
        with socket.create_connection((endpoint.host, endpoint.port), timeout=PATIENCE_S) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            answered += bool(read_to_end(sock))
    assert answered > 0
