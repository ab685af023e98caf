"""Legal frames in illegal order: links used before they are attached, sessions ended twice, deliveries never finished.

Promise: whatever frames a client sends in whatever order, it gets well-formed frames with documented errors, the broker
logs no failure of its own, its neighbour's messages keep flowing, it leaves nothing behind, and the store is intact.
"""

from __future__ import annotations

import random
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.broker.peer import PATIENCE_S, Peer, connected
from tests.proof.suite import Budget, Suite
from tests.proof.web import listening
from twinbus import errors
from twinbus.amqp import frames
from twinbus.amqp.events import Outcome
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import (
    STATE_ACCEPTED,
    STATE_REJECTED_NO_ERROR,
    STATE_RELEASED,
    AmqpError,
    composite,
    composite_of,
    decode_error,
    state_modified,
    state_transactional,
)
from twinbus.amqp.terminus import Coordinator, Source, Target
from twinbus.amqp.types import Described, Symbol, UByte, UInt, ULong
from twinbus.broker.connections.connection import BrokerConnection
from twinbus.cli.check import body_of
from twinbus.entities.audit import audit
from twinbus.entities.settings import QueueSettings
from twinbus.store import check
from twinbus.testing import Broker


def message(size: int, message_id: str | None, session_id: str | None) -> bytes:
    made = AmqpMessage()
    made.data = [b"x" * size]
    made.message_id = message_id
    made.group_id = session_id
    return made.encode()


HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
ADDRESSES = ("plain", "sessions", "news", "news/subscriptions/all", "plain/$deadletterqueue", "missing", "", "$x")
NODES = ("$cbs", "$management", "plain/$management", "sessions/$management", "missing/$management")
STATES = (
    b"",
    STATE_ACCEPTED,
    STATE_RELEASED,
    STATE_REJECTED_NO_ERROR,
    state_modified(True, False, None),
    state_modified(False, True, None),
    state_transactional(b"nothing", STATE_ACCEPTED),
)
MESSAGES = tuple(message(size, *ids) for size in (4, 2_000) for ids in ((None, None), ("m", None), (None, "s")))
CONDITIONS = {
    kind.condition
    for kind in vars(errors).values()
    if isinstance(kind, type) and hasattr(kind, "condition") and kind.condition != "amqp:internal-error"
}
# After how many cases the neighbour sends, receives and settles a message.
NEIGHBOUR_EVERY = 25


class Disorder:
    """Draws frames from small ranges, mostly about open sessions and links, so that wrong ones meet much open state."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        # Channels with a session, and handles by channel, as the client sees them.
        self.channels: list[int] = []
        self.handles: list[tuple[int, int]] = []
        # The next delivery on each channel.
        self.deliveries: Counter[int] = Counter()
        # How often a frame refers to something else.
        self.oddness = chance.choice((0.0, 0.02, 0.02, 0.1, 0.5))

    def case(self) -> bytes:
        """The bytes that one connection sends."""
        chance = self.chance
        opening = [HEADER, frames.open_frame("disorder", "localhost", 4_096, 15, 0, None)]
        for channel in range(chance.randrange(3)):
            self.channels.append(channel)
            opening.append(frames.begin_frame(channel, None, 0, 100, 100, 31))
        if chance.random() < self.oddness:
            chance.shuffle(opening)
        if chance.random() < 0.1:
            opening = [SASL_HEADER, frames.sasl_init_frame("ANONYMOUS", b"", "localhost"), *opening]
        kinds = (
            self.attach,
            self.transfer,
            self.flow,
            self.disposition,
            self.detach,
            self.begin,
            self.end,
            self.others,
        )
        weights = (8, 8, 6, 4, 3, 1, 1, 1)
        return b"".join(opening + [each() for each in chance.choices(kinds, weights, k=chance.randrange(1, 40))])

    def odd(self) -> bool:
        return self.chance.random() < self.oddness

    def channel(self) -> int:
        if self.channels and not self.odd():
            return self.chance.choice(self.channels)
        return self.chance.choice((0, 0, 0, 1, 1, 2, 9, 15, 16))

    def link(self) -> tuple[int, int]:
        """A channel and a handle on it."""
        if self.handles and not self.odd():
            return self.chance.choice(self.handles)
        return self.channel(), self.handle()

    def handle(self) -> int:
        return self.chance.choice((0, 0, 1, 1, 2, 3, 4, 31, 32, 2**32 - 1))

    def number(self) -> int:
        return self.chance.choice((0, 0, 1, 2, 3, 5, 100, 2**31, 2**32 - 1))

    def attach(self) -> bytes:
        chance = self.chance
        receiver = chance.random() < 0.5
        address = chance.choice(ADDRESSES + NODES)
        filters = None
        if chance.random() < 0.3:
            wanted = chance.choice((None, "s", "other", "x" * 200))
            filters = {
                Symbol("com.microsoft:session-filter"): Described(Symbol("com.microsoft:session-filter"), wanted)
            }
        source = Source(address if receiver else chance.choice(("here", "plain")), filters).raw
        target = Target(chance.choice(("there", "plain")) if receiver else address).raw
        if not receiver and chance.random() < 0.15:
            target = Coordinator().raw
        name = chance.choice(("one", "two", "three", ""))
        modes = chance.randrange(3), chance.randrange(2)
        channel, handle = self.channel(), self.handle()
        if not self.odd():
            free = [each for each in range(32) if (channel, each) not in self.handles]
            handle, name = free[0], f"{name} {free[0]}"
        self.handles.append((channel, handle))
        return frames.attach_frame(channel, name, handle, receiver, *modes, source, target, self.number(), None)

    def transfer(self) -> bytes:
        chance = self.chance
        payload = chance.choice(MESSAGES)
        channel, handle = self.link()
        delivery_id = self.number() if self.odd() else self.deliveries[channel]
        self.deliveries[channel] += 1
        fields = [
            UInt(handle),
            None if self.odd() else UInt(delivery_id),
            None if self.odd() else bytes([chance.randrange(3)]) * chance.choice((0, 1, 16, 32)),
            UInt(chance.choice((0, 0, 0, 0x80013700, 7))),
            chance.choice((None, True, False)),
            chance.random() < 0.2,
            None,
            chance.choice((None, None, None, Described(ULong(0x34), [b"nothing", None]))),
            None,
            chance.random() < 0.1,
        ]
        return frames.frame(
            self.channel(), composite(frames.TRANSFER, fields) + payload[: chance.choice((0, 9, 9_999))]
        )

    def flow(self) -> bytes:
        chance = self.chance
        link = frames.FLOW_NO_LINK
        channel, handle = self.link()
        if chance.random() < 0.8:
            link = frames.flow_link(handle, self.number(), self.number(), chance.random() < 0.3)
        window = chance.choice((0, 1, 100, 2**32 - 1))
        outgoing = self.number() if self.odd() else self.deliveries[channel]
        return frames.flow_frame(channel, self.number() if self.odd() else 0, window, outgoing, window, link)

    def disposition(self) -> bytes:
        chance = self.chance
        first, last = self.number(), self.number()
        return frames.disposition_frame(
            self.channel(), chance.random() < 0.7, first, last, chance.random() < 0.5, chance.choice(STATES)
        )

    def detach(self) -> bytes:
        error = AmqpError("amqp:not-found", "gone", None) if self.chance.random() < 0.3 else None
        link = self.link()
        if link in self.handles:
            self.handles.remove(link)
        return frames.detach_frame(*link, self.chance.random() < 0.5, error)

    def begin(self) -> bytes:
        remote = self.channel() if self.odd() else None
        channel = self.channel() if self.odd() else next(each for each in range(64) if each not in self.channels)
        self.channels.append(channel)
        return frames.begin_frame(channel, remote, self.number(), self.number(), self.number(), self.number())

    def end(self) -> bytes:
        channel = self.channel()
        if channel in self.channels:
            self.channels.remove(channel)
        self.handles = [link for link in self.handles if link[0] != channel]
        return frames.end_frame(channel, None)

    def others(self) -> bytes:
        chance = self.chance
        if not self.odd():
            return frames.frame(0, b"")
        return chance.choice(
            (
                frames.open_frame("again", None, 512, 0, 0, None),
                frames.close_frame(None),
                frames.sasl_init_frame("ANONYMOUS", b"", None),
                frames.sasl_outcome_frame(0),
                frames.sasl_mechanisms_frame(["PLAIN"]),
                frames.frame(self.channel(), composite_of(frames.ATTACH, 0, b"")),
                frames.frame(0, composite(frames.BEGIN, [None, UInt(0)])),
                frames.frame(0, composite(0x99, [UByte(1)])),
                HEADER,
            )
        )


def answers(stream: socket.socket, sent: bytes) -> bytes:
    """Everything that the broker answers until it disconnects."""
    said = b""
    try:
        stream.sendall(sent)
        stream.shutdown(socket.SHUT_WR)
        while data := stream.recv(1 << 16):
            said += data
    except ConnectionError:
        pass
    return said


def conditions(said: bytes) -> Iterator[str]:
    """The errors in its answer, which must consist of frames to the last byte."""
    while said:
        if said.startswith(b"AMQP"):
            said = said[8:]
            continue
        size = int.from_bytes(said[:4], "big")
        if len(said) < 8 or len(said) < size:
            return  # truncated when the broker disconnected
        assert 8 <= size <= 4_096, f"a frame of {size} bytes"
        body, said = said[4 * said[4] : size], said[size:]
        if not body or said[5:6] == b"\x01":
            continue
        code, offset = frames.descriptor(body, 0, len(body))
        place = {frames.CLOSE: 0, frames.END: 0, frames.DETACH: 2}.get(code)
        if place is not None:
            fields, _ = frames.fields_of(body, offset, len(body))
            error = decode_error(fields[place]) if len(fields) > place else None
            if error is not None:
                yield error.condition


def run(budget: Budget) -> str:
    """Send legal frames in any order: documented errors, no failure in the log, no neighbour disturbed."""
    queues = [QueueSettings(path="plain"), QueueSettings(path="sessions", requires_session=True)]
    queues += [QueueSettings(path="calm"), QueueSettings(path="missing-not")]
    seen: Counter[str] = Counter()
    frames_sent = 0
    with tempfile.TemporaryDirectory(prefix="twinbus-order-") as name:
        with listening() as complaints, Broker(queues=queues, sync=False, data=Path(name)) as broker:
            broker.create_topic("news")
            broker.create_subscription("news", "all")
            with Peer(broker) as neighbour:
                sender, receiver = neighbour.sender("calm"), neighbour.receiver("calm", 100)
                for chance in budget:
                    sent = Disorder(chance).case()
                    with closing(connected(broker)) as stream:
                        stream.settimeout(PATIENCE_S)
                        said = answers(stream, sent)
                    found = list(conditions(said))
                    seen.update(found)
                    frames_sent += sent.count(b"\x00\x53")
                    told = f"case {budget.tried}"
                    assert not complaints.lines, f"{complaints.lines[0][-3000:]}\n{told}"
                    assert set(found) <= CONDITIONS, f"{set(found) - CONDITIONS} in {told}"
                    if budget.tried % NEIGHBOUR_EVERY == 0:
                        neighbour.send(sender, b"\x00\x53\x75\xa0\x01x")
                        neighbour.settle(neighbour.receive(receiver))
                        receiver.flow(100)
                left = broker.call(lambda server: len(server.hosts["contoso"]._connections))
                assert left == 1, f"{left - 1} connections are left"
        report = check.verify(Path(name) / "contoso", body_of, audit=audit)
        assert report.ok, check.left_out(report)
    told = ", ".join(f"{count:,} x {condition}" for condition, count in seen.most_common(6))
    return f"{budget.tried:,} connections, about {frames_sent:,} frames: {told}; no failure in the log"


@contextmanager
def planted() -> Iterator[None]:
    """The broker does not expect a sender to settle its own delivery."""
    sound = BrokerConnection._on_outcome

    def unexpected(self: BrokerConnection, event: Outcome) -> None:
        raise KeyError(event)

    BrokerConnection._on_outcome = unexpected
    try:
        yield
    finally:
        BrokerConnection._on_outcome = sound


SUITE = Suite("connections", 300, 100_000, run, planted)
