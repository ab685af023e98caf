"""The load: one process that sends, receives or both over AMQP 1.0, on our own engine, and prints its figures as JSON.

The same code loads every broker, so that only the broker differs. The broker confirms every send and every receive:
settlements are sent unsettled and their answers awaited. It authenticates with SASL PLAIN, which every peer has.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import struct
import sys
import time
from array import array
from typing import TypeVar

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import Attached, Closed, Credit, Detached, Disposed, Ended, Event, Opened, Outcome, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.session import Session
from twinbus.amqp.states import ACCEPTED, STATE_ACCEPTED
from twinbus.amqp.terminus import Source, Target

P = TypeVar("P", bound="Peer")
PHASES = ("send", "receive", "both", "latency")


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Payloads:
    """Encoded messages: durable, a message id of their own, a body of the given size."""

    def __init__(self, body_bytes: int) -> None:
        header = b"\x00\x53\x70\xc0\x02\x01\x41"
        # Properties with the message id alone: a text of 24 characters.
        self.before = header + b"\x00\x53\x73\xc0\x1b\x01\xa1\x18"
        self.after = b"\x00\x53\x75\xb0" + struct.pack(">I", body_bytes) + b"x" * body_bytes

    def make(self, number: int) -> bytes:
        return self.before + b"%024d" % number + self.after


class Peer(asyncio.Protocol):
    """One connection with one session and one link."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.connection = Connection(Role.CLIENT, container_id="twinbus-load", hostname=options.host)
        self.transport: asyncio.Transport | None = None
        self.session: Session | None = None
        self.link: Link | None = None
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        secret = f"\0{self.options.user}\0{self.options.password}".encode()
        self.connection.start(sasl=("PLAIN", secret))
        self.flush()

    def data_received(self, data: bytes) -> None:
        for event in self.connection.receive(data):
            self.handle(event)
        self.flush()

    def flush(self) -> None:
        output = self.connection.take_output()
        if output and self.transport is not None:
            self.transport.write(output)

    def handle(self, event: Event) -> None:
        if isinstance(event, Opened):
            self.session = self.connection.begin()
            self.link = self.attach(self.session)
        elif isinstance(event, Attached):
            if not self.up.done():
                self.up.set_result(None)
        elif isinstance(event, Ended | Detached | Closed):
            self.fail(RuntimeError(f"The broker ended it: {event.error}"))

    def attach(self, session: Session) -> Link:
        raise NotImplementedError

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(ConnectionError(f"The connection is gone: {error}"))

    def fail(self, error: Exception) -> None:
        for future in (self.up, self.done):
            if not future.done():
                future.set_exception(error)

    def close(self) -> None:
        for future in (self.up, self.done):
            future.cancel()
        self.connection.close()
        self.flush()
        if self.transport is not None:
            self.transport.close()


class Sender(Peer):
    """Keeps `window` messages under way until `count` are accepted."""

    def __init__(self, options: argparse.Namespace, window: int) -> None:
        super().__init__(options)
        self.window = window
        self.payloads = Payloads(options.bytes)
        self.sent = 0
        self.accepted = 0
        self.running = False
        # Moment each message was sent, and how long its answer took.
        self.sent_at = array("d")
        self.waits = array("d")

    def attach(self, session: Session) -> Link:
        return session.attach_sender("load-send", source=Source("load"), target=Target(self.options.address))

    def start(self) -> None:
        self.running = True
        self.pump()
        self.flush()

    def pump(self) -> None:
        link = self.link
        if not self.running or link is None:
            return
        options, make, sent_at = self.options, self.payloads.make, self.sent_at
        room = min(self.window - (self.sent - self.accepted), options.count - self.sent, link.sendable())
        now = time.perf_counter()
        for number in range(self.sent, self.sent + room):
            # The tag finds the message's place again when its answer comes.
            link.send(make(options.first + number), tag=number.to_bytes(4, "big"), settled=False)
            sent_at.append(now)
        self.sent += max(room, 0)

    def handle(self, event: Event) -> None:
        if isinstance(event, Disposed):
            if event.state is not ACCEPTED:
                self.fail(RuntimeError(f"Not accepted: {event.state}"))
                return
            now = time.perf_counter()
            for _, _, tag in event.deliveries:
                self.waits.append(now - self.sent_at[int.from_bytes(tag, "big")])
            self.accepted += len(event.deliveries)
            if self.accepted >= self.options.count and not self.done.done():
                self.done.set_result(None)
            self.pump()
        elif isinstance(event, Credit):
            self.pump()
        else:
            super().handle(event)


class Receiver(Peer):
    """Takes `count` messages and has each settlement confirmed."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.received = 0
        self.confirmed = 0
        self.last_at = 0.0

    def attach(self, session: Session) -> Link:
        return session.attach_receiver(
            "load-receive",
            source=Source(self.options.address),
            target=Target("load"),
            credit=self.options.prefetch,
        )

    def handle(self, event: Event) -> None:
        if isinstance(event, Transfer):
            self.received += 1
            event.link.session.dispose(event.delivery_id, event.delivery_id, STATE_ACCEPTED, False)
        elif isinstance(event, Outcome):
            if event.state is not ACCEPTED:
                self.fail(RuntimeError(f"Settlement refused: {event.state}"))
                return
            self.confirmed += event.last - event.first + 1
            if self.confirmed >= self.options.count and not self.done.done():
                self.last_at = time.perf_counter()
                self.done.set_result(None)
        else:
            super().handle(event)


async def connect(peer: P) -> P:
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: peer, peer.options.host, peer.options.port)
    await peer.up
    return peer


async def run(options: argparse.Namespace) -> dict[str, float | int | str]:
    figures: dict[str, float | int | str] = {"phase": options.phase, "messages": options.count}
    senders: list[Sender] = []
    peers: list[Peer] = []
    if options.phase != "receive":
        senders = [await connect(Sender(options, 1 if options.phase == "latency" else options.window))]
        peers += senders
    started = time.perf_counter()
    if options.phase in ("receive", "both"):
        peers.append(await connect(Receiver(options)))
    for sender in senders:
        sender.start()
    await asyncio.gather(*(peer.done for peer in peers))
    figures["seconds"] = time.perf_counter() - started
    for sender in senders:
        waits = sorted(sender.waits)
        for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0)):
            figures[name] = 1000 * percentile(waits, share)
    for peer in peers:
        peer.close()
    await asyncio.sleep(0)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--password", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--phase", choices=PHASES, required=True)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first message id")
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--window", type=int, default=500)
    parser.add_argument("--prefetch", type=int, default=500)
    options = parser.parse_args()
    # The load must not pause in the middle of measuring the broker's pauses.
    gc.disable()
    print(json.dumps(asyncio.run(run(options))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
