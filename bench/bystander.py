"""How long one client waits while others do their worst.

    python bench/bystander.py [--only NAME ...] [--scale 1.0] [--turns] [--json FILE]

A bystander in its own process sends one message after the other and waits for each answer. The script measures its
longest wait while nothing else happens, and while other clients do each of the deeds below; it reads the broker's CPU
seconds and anonymous memory from the system, and prints one line per deed. With `--turns`, the broker runs on
asyncio's own loop, and the line also shows the CPU time of its longest callback, which a busy machine does not change.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from costly_deeds import COSTLY
from measure import machine
from twinbus_peer import NAMESPACE, TwinbusPeer

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import Attached, Begun, Disposed, Opened, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.states import STATE_ACCEPTED
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Symbol
from twinbus.client import BusClient, Message

HOOKS = Path(__file__).with_name("loop_hooks")
IDLE_S = 3.0
BAR_MS = 50.0

# The one client that may have several links to $cbs.
AS_JAVASCRIPT = {Symbol("product"): "MSJSClient"}


class Peer:
    """A connection over a blocking socket."""

    def __init__(self, port: int, login: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.engine = Connection(Role.CLIENT, container_id="bench", properties=AS_JAVASCRIPT)
        self.events: list[Any] = []
        self.engine.start(sasl=("PLAIN", login))
        self.wait(Opened)
        self.session = self.engine.begin()
        self.wait(Begun)

    def flush(self) -> None:
        while output := self.engine.take_output():
            self.socket.sendall(output)
            self.engine.pump()

    def wait(self, kind: type) -> Any:
        while True:
            for event in self.events:
                if isinstance(event, kind):
                    self.events.remove(event)
                    return event
            self.flush()
            data = self.socket.recv(1 << 20)
            if not data:
                raise RuntimeError("the broker hung up")
            self.events += self.engine.receive(data)

    def sender(self, queue: str) -> Link:
        link = self.session.attach_sender(f"s-{time.monotonic_ns()}", source=Source("b"), target=Target(queue))
        self.wait(Attached)
        return link

    def receiver(self, queue: str, credit: int) -> Link:
        link = self.session.attach_receiver(
            f"r-{time.monotonic_ns()}", source=Source(queue), target=Target("b"), rcv_settle_mode=1
        )
        self.wait(Attached)
        link.flow(credit)
        self.flush()
        return link


def bystand(port: int, login: bytes, pipe: Pipe) -> None:
    """The bystander's process: `reset` starts a new measurement, `report` ends it, `end` the process."""
    peer = Peer(port, login)
    link = peer.sender("bystander")
    waits: list[float] = []
    payload = Message(b"x" * 1024).encode()
    number = 0
    while True:
        while pipe.poll():
            word = pipe.recv()
            if word == "end":
                return
            if word == "report":
                pipe.send((max(waits, default=0.0), len(waits)))
            waits = []
        started = time.perf_counter()
        number += 1
        link.send(payload, tag=number.to_bytes(4, "big"), settled=False)
        peer.wait(Disposed)
        waits.append(time.perf_counter() - started)
        time.sleep(0.002)


# --- the deeds ------------------------------------------------------------------------------------------------------


class Stage:
    """The broker, and how to reach it."""

    def __init__(self, peer: TwinbusPeer, scale: float) -> None:
        self.peer = peer
        self.scale = scale
        # The longest wait for a peek; 0 if there was none.
        self.peek_s = 0.0
        self.login = b"\0" + peer.user.encode() + b"\0" + peer.password.encode()
        self.string = (
            f"Endpoint=sb://127.0.0.1:{peer.port};SharedAccessKeyName={peer.user};SharedAccessKey={peer.password};"
            "UseDevelopmentEmulator=true;"
        )

    def count(self, full: int) -> int:
        return max(int(full * self.scale), 1)

    def connect(self) -> Peer:
        return Peer(self.peer.port, self.login)

    async def fill(self, queue: str, count: int, **fields: Any) -> None:
        async with BusClient.from_connection_string(self.string) as client:
            sender = await client.sender(queue, window=2_000)
            messages = [Message(b"x" * 100, **fields) for _ in range(min(count, 100))]
            step = messages * (-(-count // len(messages)))
            for outcome in await sender.send_batches(step[:count]):
                if outcome is not None:
                    raise outcome

    def ask(self, method: str, path: str, body: str = "") -> tuple[int, bytes]:
        from twinbus.auth.sas import sign

        token = sign(f"http://127.0.0.1:{self.peer.port}/", self.peer.user, self.peer.password, int(time.time()) + 3600)
        client = http.client.HTTPConnection("127.0.0.1", self.peer.port, timeout=300)
        client.request(method, path, body or None, {"Authorization": token, "Content-Type": "application/atom+xml"})
        answer = client.getresponse()
        found = answer.status, answer.read()
        client.close()
        return found

    def create(self, path: str, description: str) -> None:
        status, text = self.ask("PUT", f"/{path}?api-version=2021-05", _entry(description))
        if status not in (200, 201):
            raise RuntimeError(f"{path}: {status} {text[:200]!r}")


def _entry(description: str) -> str:
    name, _, inner = description.partition(" ")
    service = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<{name} xmlns="{service}">{inner}</{name}></content></entry>'
    )


Deed = Callable[[Stage], Awaitable[Callable[[], Awaitable[Any] | Any]]]


async def dispositions(stage: Stage) -> Any:
    await stage.fill("deep", stage.count(10_000))
    peer = stage.connect()
    peer.receiver("deep", stage.count(10_000))
    for _ in range(stage.count(9_900)):
        peer.wait(Transfer)
    peer.session.dispose(70_001, 70_001 + stage.count(4_500), STATE_ACCEPTED, True)
    peer.flush()

    def deed() -> None:
        for step in range(4_000):
            peer.session.dispose(70_001 + step % 7, 70_000 + stage.count(4_500) - step % 5, STATE_ACCEPTED, True)
        peer.flush()
        # Any answer shows that the broker is done.
        peer.sender("deep")
        peer.socket.close()

    return deed


async def fan_out(stage: Stage) -> Any:
    stage.create("wide", "TopicDescription ")
    for number in range(stage.count(1_000)):
        stage.create(f"wide/subscriptions/s{number}", "SubscriptionDescription ")

    async def deed() -> None:
        async with BusClient.from_connection_string(stage.string) as client:
            sender = await client.sender("wide")
            await sender.send_batch([Message(b"x" * 50) for _ in range(stage.count(1_500))])

    return deed


async def listing(stage: Stage) -> Any:
    # The namespace has three others, and takes 10,000 in all.
    for number in range(stage.count(9_997)):
        stage.create(f"many/{number}", "QueueDescription ")

    def deed() -> None:
        skip = 0
        while True:
            _, text = stage.ask("GET", f"/$Resources/queues?api-version=2021-05&$skip={skip}&$top=1000")
            found = text.count(b"<entry")
            skip += found
            if found == 0:
                return

    return deed


async def expiry(stage: Stage) -> Any:
    stage.create(
        "short",
        "QueueDescription <DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>",
    )
    # All become due at once, however long sending takes.
    count = stage.count(1_000_000)
    end = time.monotonic() + 10 + count / 5_000
    for start in range(0, count, 20_000):
        left_ms = int((end - time.monotonic()) * 1000)
        await stage.fill("short", min(count - start, 20_000), ttl_ms=left_ms)
    # The deed begins shortly before they expire: the figures contain nothing else.
    await asyncio.sleep(max(end - time.monotonic() - IDLE_S - 2, 0))

    async def deed() -> None:
        await asyncio.sleep(max(end - time.monotonic(), 0))
        async with BusClient.from_connection_string(stage.string) as client:
            node = await client.management("short")
            while True:
                started = time.perf_counter()
                await node.peek(1)
                stage.peek_s = max(stage.peek_s, time.perf_counter() - started)
                _, text = await asyncio.to_thread(stage.ask, "GET", "/short?api-version=2021-05")
                if b"ActiveMessageCount>0<" in text:
                    return
                await asyncio.sleep(0.1)

    return deed


async def vanishing(stage: Stage) -> Any:
    count = stage.count(10_000)
    peers = []
    for number in range(20):
        stage.create(f"held/{number}", "QueueDescription ")
        await stage.fill(f"held/{number}", count)
        peer = stage.connect()
        peer.receiver(f"held/{number}", count)
        for _ in range(count - 100):
            peer.wait(Transfer)
        peers.append(peer)

    def deed() -> None:
        for peer in peers:
            peer.socket.close()
        time.sleep(2)

    return deed


async def sessions(stage: Stage) -> Any:
    stage.create("sessions", "QueueDescription <RequiresSession>true</RequiresSession>")

    async def deed() -> None:
        async with BusClient.from_connection_string(stage.string) as client:
            sender = await client.sender("sessions")
            messages = (Message(b"x", session_id=str(number)) for number in range(stage.count(200_000)))
            for outcome in await sender.send_batches(messages):
                if outcome is not None:
                    raise outcome

    return deed


async def many_links(stage: Stage) -> Any:
    def deed() -> None:
        peer = stage.connect()
        for number in range(stage.count(4_900)):
            peer.session.attach_sender(str(number), source=Source("b"), target=Target("deep"))
        peer.flush()
        for _ in range(stage.count(4_900)):
            peer.wait(Attached)
        peer.socket.close()
        time.sleep(1)

    return deed


async def begins(stage: Stage) -> Any:
    def deed() -> None:
        peer = stage.connect()
        for _ in range(stage.count(50_000) // 100):
            opened = [peer.engine.begin() for _ in range(100)]
            peer.flush()
            for _ in opened:
                peer.wait(Begun)
            for session in opened:
                session.end()
            peer.flush()
            while len(peer.engine.own_channels) > 1:
                peer.events += peer.engine.receive(peer.socket.recv(1 << 20))
                peer.events.clear()
        peer.socket.close()

    return deed


async def hang_up(stage: Stage) -> Any:
    peers = [stage.connect() for _ in range(stage.count(4_500))]

    def deed() -> None:
        for peer in peers:
            peer.socket.close()
        time.sleep(2)

    return deed


async def flood(stage: Stage) -> Any:
    def deed() -> None:
        streams = []
        for _ in range(stage.count(5_000)):
            stream = socket.create_connection(("127.0.0.1", stage.peer.port), timeout=30)
            stream.sendall(b"AMQP\x03\x01\x00\x00")
            streams.append(stream)
        time.sleep(1)
        for stream in streams:
            stream.close()

    return deed


async def large_rest(stage: Stage) -> Any:
    async with BusClient.from_connection_string(stage.string) as client:
        sender = await client.sender("large")
        await sender.send(Message(b"\xff" * 10_000_000))

    def deed() -> None:
        status, text = stage.ask("DELETE", "/large/messages/head?timeout=5")
        if status != 200 or len(text) != 10_000_000:
            raise RuntimeError(f"{status}, {len(text)} bytes")

    return deed


DEEDS: dict[str, tuple[str, Deed]] = {
    "dispositions": ("4,000 ranges of settled deliveries, 5,500 unsettled", dispositions),
    "fan-out": ("a batch of 1,500 to 1,000 subscriptions", fan_out),
    "listing": ("list 10,000 queues", listing),
    "expiry": ("1,000,000 messages expire into the dead-letter queue", expiry),
    "vanishing": ("20 receivers with 10,000 locks each vanish", vanishing),
    "sessions": ("200,000 new sessions", sessions),
    "links": ("4,900 links on one connection", many_links),
    "begins": ("50,000 sessions begun and ended", begins),
    "hang-up": ("4,500 connections hang up at once", hang_up),
    "flood": ("5,000 sockets without a key", flood),
    "large-rest": ("10 MB received over HTTP", large_rest),
    **COSTLY,
}


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def longest_turns(file: Path, skip_bytes: int) -> list[tuple[float, str]]:
    """The longest callbacks of the loop, from what the hook wrote after the first `skip_bytes` bytes."""
    longest: dict[str, float] = {}
    for line in file.read_bytes()[skip_bytes:].decode().splitlines():
        used_ms, _, callback = line.partition(" ")
        longest[callback] = max(float(used_ms), longest.get(callback, 0.0))
    return sorted(((used_ms, callback) for callback, used_ms in longest.items()), reverse=True)


async def measured(name: str, folder: Path, scale: float, turns: bool) -> dict[str, Any]:
    what, prepare = DEEDS[name]
    turns_file = folder / "turns"
    environment = {}
    if turns:
        environment["PYTHONPATH"] = os.pathsep.join([str(HOOKS), os.environ.get("PYTHONPATH", "")])
        environment["LOOP_TURNS"] = str(turns_file)
    turns_file.touch()
    with TwinbusPeer(folder, queues=("bystander", "deep", "large"), environment=environment) as peer:
        stage = Stage(peer, scale)
        here, there = multiprocessing.Pipe()
        other = multiprocessing.Process(target=bystand, args=(peer.port, stage.login, there), daemon=True)
        deed = await prepare(stage)
        other.start()
        here.send("reset")
        await asyncio.sleep(IDLE_S)
        here.send("report")
        idle_s, _ = await asyncio.to_thread(here.recv)
        cpu, memory = cpu_s(peer.pid), anonymous_mib(peer.pid)
        skip_bytes = turns_file.stat().st_size
        started = time.perf_counter()
        result = deed()
        if result is not None:
            await result
        seconds = time.perf_counter() - started
        here.send("report")
        worst_s, sends = await asyncio.to_thread(here.recv)
        here.send("end")
        return {
            "name": name,
            "deed": what,
            "idle_ms": round(idle_s * 1000, 1),
            "longest_ms": round(worst_s * 1000, 1),
            "sends": sends,
            "seconds": round(seconds, 2),
            "cpu_s": round(cpu_s(peer.pid) - cpu, 2),
            "peek_ms": round(stage.peek_s * 1000, 1),
            "memory_mib": round(anonymous_mib(peer.pid) - memory, 1),
            "turns": longest_turns(turns_file, skip_bytes)[:5],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="+", choices=list(DEEDS), default=list(DEEDS), help="run these deeds")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply every count by this")
    parser.add_argument("--turns", action="store_true", help="show the longest callbacks of the broker's loop")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    rows = []
    print(f"{'deed':<52} {'idle ms':>8} {'longest ms':>11} {'CPU s':>7} {'MiB':>7}")
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            row = asyncio.run(measured(name, Path(folder), arguments.scale, arguments.turns))
        rows.append(row)
        over = "  over" if row["longest_ms"] > row["idle_ms"] + BAR_MS else ""
        figures = f"{row['idle_ms']:>8} {row['longest_ms']:>11} {row['cpu_s']:>7} {row['memory_mib']:>7}"
        print(f"{row['deed']:<52} {figures}{over}", flush=True)
        if row["peek_ms"]:
            print(f"    {row['peek_ms']:>8} ms for a peek of one message", flush=True)
        for used_ms, callback in row["turns"]:
            print(f"    {used_ms:>8} ms of CPU at a time in {callback}", flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), "namespace": NAMESPACE, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
