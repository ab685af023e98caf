"""Slow and bursting peers: bytes that trickle in or come all at once, readers with a small window that pause.

Promise: at any pace each message arrives whole and once, in order, in both receive modes; a neighbour's messages keep
flowing; and when the peer is gone, the broker holds no bytes for it.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.broker.peer import PATIENCE_S, Peer
from tests.proof.suite import Budget, Suite
from twinbus.amqp.connection import Connection
from twinbus.amqp.events import AmqpEvent
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import Accepted
from twinbus.broker.memory import MemoryKind
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

SIZES = (0, 1, 100, 1_000, 1_000, 20_000, 70_000, 250_000)


class Paced:
    """A socket that writes and reads in pieces of odd sizes."""

    def __init__(self, stream: socket.socket, chance: random.Random) -> None:
        self._stream = stream
        self._chance = chance
        # Sizes of writes: single bytes for a while, then bursts.
        self._dribble = chance.choice((0, 0, 64, 512))
        # Sizes of reads.
        self._sip = chance.choice((1, 7, 512, 4_096, 1 << 20, 1 << 20))

    def sendall(self, data: bytes) -> None:
        offset = min(self._dribble, len(data))
        for position in range(offset):
            self._stream.sendall(data[position : position + 1])
        self._dribble -= offset
        while offset < len(data):
            step = self._chance.choice((1_000, 40_000, 1 << 20))
            self._stream.sendall(data[offset : offset + step])
            offset += step

    def recv(self, count: int) -> bytes:
        # Small reads for a while, then everything: a large message byte by byte proves no more than its start.
        if self._sip < 512 and self._chance.random() < 0.01:
            self._sip = 4_096
        return self._stream.recv(min(count, self._sip))

    def settimeout(self, timeout_s: float) -> None:
        self._stream.settimeout(timeout_s)

    def close(self) -> None:
        self._stream.close()


def content(chance: random.Random, number: int) -> bytes:
    made = AmqpMessage()
    made.message_id = str(number)
    made.data = [chance.randbytes(chance.choice(SIZES))]
    return made.encode()


def small_window(broker: Broker, chance: random.Random) -> socket.socket:
    """A socket that sometimes buffers only a few kilobytes, so that the broker can write little at a time."""
    endpoint = broker.endpoint()
    stream = socket.socket()
    stream.settimeout(PATIENCE_S)
    if chance.random() < 0.5:
        # Segments that fit the window; otherwise the kernel waits before each.
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1_000)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
    stream.connect((endpoint.host, endpoint.port))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def exchange(broker: Broker, chance: random.Random) -> tuple[int, int]:
    """One peer sends and receives at its pace; returns messages and bytes."""
    settled = chance.random() < 0.5
    sent: list[bytes] = []
    with Peer(broker, over=Paced(small_window(broker, chance), chance)) as peer:
        sender = peer.sender("paced")
        for number in range(chance.randrange(1, 8)):
            sent.append(content(chance, number))
            assert isinstance(peer.send(sender, sent[-1]), Accepted)
        receiver = peer.receiver("paced", len(sent), settled=settled)
        for payload in sent:
            delivery = peer.receive(receiver, 6 * PATIENCE_S)
            wanted = AmqpMessage.decode(payload)
            assert bytes(delivery.payload).endswith(wanted.data[0]), "a message changed on its way"
            assert AmqpMessage.decode(bytes(delivery.payload)).message_id == wanted.message_id
            if not settled:
                peer.settle(delivery)
        peer.close()
    return len(sent), sum(map(len, sent))


def run(budget: Budget) -> str:
    """Send and receive at odd paces: every message whole and once, neighbours undisturbed, no bytes held afterwards."""
    messages = size = 0
    with Broker(queues=[QueueSettings(path="paced"), QueueSettings(path="calm")], sync=False) as broker:
        with Peer(broker) as neighbour:
            sender, receiver = neighbour.sender("calm"), neighbour.receiver("calm", 1)
            for chance in budget:
                count, count_bytes = exchange(broker, chance)
                messages += count
                size += count_bytes
                neighbour.send(sender, b"\x00\x53\x75\xa0\x01x")
                neighbour.settle(neighbour.receive(receiver))
                receiver.flow(1)
                neighbour.events.clear()
        host = broker.call(lambda server: server.hosts["contoso"])
        assert host.entities.queue("paced").counts.active == 0, "messages were not received"
        for kind in MemoryKind:
            assert host.memory[kind].held_bytes == 0, f"{kind.value}: bytes are held for nobody"
    return f"{budget.tried:,} peers, {messages:,} messages, {size / 1e6:,.0f} MB, each whole and once"


@contextmanager
def planted() -> Iterator[None]:
    """The last byte of a long input is changed."""
    sound = Connection.receive

    def lossy(self: Connection, data: bytes) -> list[AmqpEvent]:
        return sound(self, data[:-1] + b"\0" if len(data) > 10_000 else data)

    Connection.receive = lossy
    try:
        yield
    finally:
        Connection.receive = sound


SUITE = Suite("peers", 60, 5_000, run, planted)
