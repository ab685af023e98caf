"""What idle clients cost, and what slow clients do to the others.

    python bench/clients.py [--idle 1000] [--slow 200] [--check]

Idle: each client has a connection with a link; the figure is the memory that the broker needs for them. Slow: a quarter
of the clients each send nothing after the header, drip the open frame, drip another frame, or read too little of a full
queue. The script sees on the socket when the broker disconnects each. Meanwhile a bystander in its own process sends
one message after the other; its p99 is compared with that of the same sends before. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import load, machine, rss_bytes
from twinbus_peer import TwinbusPeer

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import AmqpEvent, Attached, Begun, Opened
from twinbus.amqp.terminus import Source, Target
from twinbus.limits import HANDSHAKE_TIMEOUT_MS, PEER_STALL_TIMEOUT_MS

PATIENCE_S = 20.0
HEADER = b"AMQP\x03\x01\x00\x00"
# First bytes of frames of 4 KB: a SASL frame and an AMQP frame.
SASL_HEAD = b"\x00\x00\x10\x00\x02\x01\x00\x00"
FRAME_HEAD = b"\x00\x00\x10\x00\x02\x00\x00\x00"
# What waits for each slow reader: more than its socket buffers.
BACKLOG_MESSAGES = 100
BACKLOG_BYTES = 32 * 1024
SINGLES = 500
LATE_S = 3.0
# Targets.
BARS = {"idle_mib": 64.0, "p99_ratio": 2.0}


class Client:
    """One connection over a blocking socket, with the engine's client side."""

    def __init__(self, peer: TwinbusPeer, small: bool = False) -> None:
        self.socket = socket.socket()
        if small:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", peer.port))
        self.engine = Connection(Role.CLIENT, container_id="crowd")
        self.login = b"\0" + peer.user.encode() + b"\0" + peer.password.encode()

    def open(self) -> None:
        self.engine.start(sasl=("PLAIN", self.login))
        self.wait(Opened)
        self.session = self.engine.begin()
        self.wait(Begun)

    def receiver(self, queue: str, credit: int) -> None:
        link = self.session.attach_receiver("r", source=Source(queue), target=Target("crowd"), rcv_settle_mode=1)
        self.wait(Attached)
        link.flow(credit)
        self.flush()

    def sender(self, queue: str) -> None:
        self.session.attach_sender("s", source=Source("crowd"), target=Target(queue))
        self.wait(Attached)

    def flush(self) -> None:
        self.socket.sendall(self.engine.take_output())

    def wait(self, kind: type[AmqpEvent]) -> None:
        while True:
            self.flush()
            data = self.socket.recv(1 << 16)
            if not data:
                raise RuntimeError("the broker hung up")
            if any(isinstance(event, kind) for event in self.engine.receive(data)):
                return


# --- idle -------------------------------------------------------------------------------------------------------------


def idle(peer: TwinbusPeer, count: int) -> dict[str, Any]:
    """The broker's memory before and with `count` idle connections."""
    warm = [Client(peer) for _ in range(10)]
    for client in warm:
        client.open()
        client.receiver("idle", 10)
    time.sleep(1)
    before = rss_bytes(peer.pid)
    started = time.perf_counter()
    clients = []
    for _ in range(count):
        client = Client(peer)
        client.open()
        client.receiver("idle", 10)
        clients.append(client)
    seconds = time.perf_counter() - started
    time.sleep(2)
    added = rss_bytes(peer.pid) - before
    for client in (*clients, *warm):
        client.socket.close()
    return {
        "connections": count,
        "added_mib": round(added / 2**20, 2),
        "bytes_a_connection": round(added / count),
        "connections_a_second": round(count / seconds),
    }


# --- slow -------------------------------------------------------------------------------------------------------------


@dataclass
class Slow:
    """One slow client: what it does each second, and when the broker disconnected it."""

    kind: str
    client: Client
    limit_s: float
    started: float = field(default_factory=time.perf_counter)
    cut_s: float | None = None

    def act(self) -> None:
        try:
            self.client.socket.settimeout(0)
            if self.kind == "reading":
                self.client.socket.recv(64)
            elif self.kind != "silent":
                self.client.socket.send(b"\0")
        except OSError:
            pass  # the hang-up is seen elsewhere


def slow_clients(peer: TwinbusPeer, count: int) -> list[Slow]:
    made = []
    opening_s, stalling_s = HANDSHAKE_TIMEOUT_MS / 1000, 1.25 * PEER_STALL_TIMEOUT_MS / 1000
    for number in range(count):
        kind = ("silent", "opening", "writing", "reading")[number % 4]
        client = Client(peer, small=kind == "reading")
        if kind == "silent":
            client.socket.sendall(HEADER)
        elif kind == "opening":
            client.socket.sendall(HEADER + SASL_HEAD)
        elif kind == "writing":
            client.open()
            client.sender("bench")
            client.socket.sendall(FRAME_HEAD)
        else:
            client.open()
            client.receiver("backlog", BACKLOG_MESSAGES)
        made.append(Slow(kind, client, opening_s if kind in ("silent", "opening") else stalling_s))
    return made


def watch(clients: list[Slow]) -> None:
    """Run them until all are disconnected, or until it is much too late."""
    poll = select.epoll()
    by_number = {each.client.socket.fileno(): each for each in clients}
    for number in by_number:
        poll.register(number, select.EPOLLRDHUP)
    deadline = time.perf_counter() + max(each.limit_s for each in clients) + 20
    next_act = 0.0
    while by_number and time.perf_counter() < deadline:
        for number, _ in poll.poll(0.2):
            each = by_number.pop(number)
            each.cut_s = time.perf_counter() - each.started
            poll.unregister(number)
            each.client.socket.close()
        if time.perf_counter() >= next_act:
            next_act = time.perf_counter() + 1
            for each in by_number.values():
                each.act()


class Bystander:
    """Sends one message after the other until it is stopped."""

    def __init__(self, peer: TwinbusPeer) -> None:
        self.peer = peer
        self.rounds: list[dict[str, Any]] = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.done.is_set():
            self.rounds.append(load(self.peer, "latency", SINGLES))

    def p99_ms(self) -> float:
        return statistics.median(each["p99_ms"] for each in self.rounds)


def alone(peer: TwinbusPeer, seconds: float) -> Bystander:
    bystander = Bystander(peer)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(bystander.rounds) < 5:
        bystander.rounds.append(load(peer, "latency", SINGLES))
    return bystander


def slow(peer: TwinbusPeer, count: int) -> dict[str, Any]:
    load(peer, "send", BACKLOG_MESSAGES * (count // 4 + 1), queue="backlog", bytes=BACKLOG_BYTES)
    before = alone(peer, 15)
    memory = rss_bytes(peer.pid)
    during = Bystander(peer)
    during.thread.start()
    clients = slow_clients(peer, count)
    watch(clients)
    during.done.set()
    during.thread.join()
    after = alone(peer, 15)
    base = statistics.median([before.p99_ms(), after.p99_ms()])
    kinds = {}
    for kind in dict.fromkeys(each.kind for each in clients):
        same = [each for each in clients if each.kind == kind]
        cuts = [each.cut_s for each in same if each.cut_s is not None]
        kinds[kind] = {
            "clients": len(same),
            "cut": len(cuts),
            "limit_s": same[0].limit_s,
            "earliest_s": round(min(cuts), 1) if cuts else None,
            "latest_s": round(max(cuts), 1) if cuts else None,
            "on_time": len([cut for cut in cuts if cut <= same[0].limit_s + LATE_S]),
        }
    return {
        "clients": kinds,
        "on_time": sum(kind["on_time"] for kind in kinds.values()),
        "p99_alone_ms": round(base, 2),
        "p99_beside_ms": round(during.p99_ms(), 2),
        "p99_ratio": round(during.p99_ms() / base, 2),
        "rounds": [len(before.rounds), len(during.rounds), len(after.rounds)],
        "left_over_mib": round((rss_bytes(peer.pid) - memory) / 2**20, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=1_000)
    parser.add_argument("--slow", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    figures: dict[str, Any] = {"machine": machine(), "bars": BARS}
    with TwinbusPeer(options.folder, ("bench", "idle", "backlog")) as peer:
        if options.idle:
            figures["idle"] = idle(peer, options.idle)
        if options.slow:
            figures["slow"] = slow(peer, options.slow)
    print(json.dumps(figures, indent=2))
    good = (not options.idle or figures["idle"]["added_mib"] < BARS["idle_mib"]) and (
        not options.slow
        or (figures["slow"]["on_time"] == options.slow and figures["slow"]["p99_ratio"] <= BARS["p99_ratio"])
    )
    return 0 if good or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
