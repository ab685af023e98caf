"""What one client can do to the others: attacks with and without a key.

    python bench/adversary.py [--only NAME ...] [--scale 1.0] [--json FILE]

Each attack has its own broker and runs while a bystander sends one message after the other. For each attack a line
shows the bystander's longest wait before and during the attack, the broker's CPU seconds, and its anonymous memory at
the peak and 3 s after the attacker has hung up, both as an increase.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import multiprocessing
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bystander import AS_JAVASCRIPT, IDLE_S, Peer, Stage, anonymous_mib, bystand, cpu_s
from measure import machine
from twinbus_peer import TwinbusPeer

from twinbus.amqp.codec import encode
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import Attached, Begun, Disposed, Opened, Transfer
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import STATE_ACCEPTED, Declared, state_transactional
from twinbus.amqp.terminus import Coordinator, Source, Target
from twinbus.amqp.types import Described, Symbol, UInt, ULong
from twinbus.client import BusClient, Message

REST_S = 3.0
MIB = 1 << 20


class Stranger(Peer):
    """A connection without a token. Being disconnected counts as an answer."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.engine = Connection(Role.CLIENT, container_id="stranger", properties=AS_JAVASCRIPT)
        self.events = []
        self.engine.start(sasl=("ANONYMOUS", None))
        self.wait(Opened)
        self.session = self.engine.begin()
        self.wait(Begun)


@contextmanager
def cut() -> Iterator[None]:
    """The broker may disconnect in the middle: that is how it defends itself."""
    with contextlib.suppress(OSError, RuntimeError):
        yield


def empty_lists(size: int) -> bytes:
    """A message whose value is a list of `size` empty lists."""
    inner = b"\x45" * size
    return b"\x00\x53\x77\xd0" + (len(inner) + 4).to_bytes(4, "big") + len(inner).to_bytes(4, "big") + inner


def token_request(peer: Peer, payload: bytes) -> None:
    link = peer.sender("$cbs")
    link.max_message_size = 0
    link.send(payload, tag=b"1", settled=False)
    peer.wait(Disposed)


# --- without a key ----------------------------------------------------------------------------------------------------


def cbs_lists(stage: Stage, megabytes: int) -> Callable[[], Any]:
    def attack() -> None:
        with cut():
            token_request(Stranger(stage.peer.port), empty_lists(int(megabytes * stage.scale * MIB)))

    return attack


def unfinished(stage: Stage) -> Callable[[], Any]:
    """16 sockets send a large message without its last frame."""
    kept: list[Peer] = []

    def attack() -> None:
        for _ in range(16):
            with cut():
                peer = Stranger(stage.peer.port)
                kept.append(peer)
                link = peer.sender("$cbs")
                link.send(b"x" * int(96 * stage.scale * MIB), tag=b"1", settled=False)
                output = peer.engine.take_output()
                peer.socket.sendall(output[: -(1 << 17)])
        time.sleep(1)

    return attack


def unread(stage: Stage) -> Callable[[], Any]:
    """Requests whose answers nobody reads."""
    kept: list[Peer] = []

    def attack() -> None:
        for _ in range(8):
            with cut():
                peer = Stranger(stage.peer.port)
                kept.append(peer)
                peer.session.attach_receiver("answers", source=Source("$cbs"), target=Target("answers"))
                peer.wait(Attached)
                link = peer.sender("$cbs")
                request = AmqpMessage()
                request.message_id, request.reply_to = "m" * 100, "answers"
                request.application_properties = {"operation": "put-token", "type": "x", "name": "n" * 1_000}
                request.value, request.has_value = "t", True
                payload = request.encode()
                for number in range(stage.count(20_000)):
                    link.credit = 10
                    link.send(payload, tag=number.to_bytes(4, "big"), settled=True)
                    if number % 100 == 0:
                        peer.flush()
        time.sleep(1)

    return attack


def fat_attaches(stage: Stage) -> Callable[[], Any]:
    def attack() -> None:
        for _ in range(4):
            with cut():
                attach_fat(Stranger(stage.peer.port), "$cbs", stage.count(107))

    return attack


def attach_fat(peer: Peer, address: str, count: int) -> None:
    properties = {Symbol("x"): [[] for _ in range(60_000)]}
    for number in range(count):
        peer.session.attach_sender(str(number), source=Source("a"), target=Target(address), properties=properties)
        peer.flush()
    for _ in range(count):
        peer.wait(Attached)


def sockets(stage: Stage) -> Callable[[], Any]:
    def attack() -> None:
        streams = []
        for _ in range(stage.count(5_000)):
            with cut():
                stream = socket.create_connection(("127.0.0.1", stage.peer.port), timeout=30)
                stream.sendall(b"AMQP\x03\x01\x00\x00")
                streams.append(stream)
        # A client with a key must get in meanwhile.
        stage.connect().socket.close()
        time.sleep(1)
        for stream in streams:
            stream.close()

    return attack


def answer_links(stage: Stage) -> Callable[[], Any]:
    """5,000 answer links, then requests."""

    def attack() -> None:
        with cut():
            asked(Stranger(stage.peer.port), "$cbs", stage.count(5_000), stage.count(1_000))

    return attack


def asked(peer: Peer, node: str, links: int, requests: int) -> None:
    for number in range(links):
        name = f"answers-{number}"
        peer.session.attach_receiver(name, source=Source(node), target=Target(name))
        if number % 100 == 99:
            peer.flush()
            for _ in range(100):
                peer.wait(Attached)
    sender = peer.sender(node)
    request = AmqpMessage()
    request.message_id, request.reply_to = "1", "answers-1"
    request.application_properties = {"operation": "put-token", "type": "x", "name": "n"}
    request.value, request.has_value = "t", True
    payload = request.encode()
    for number in range(requests):
        sender.credit = 10
        sender.send(payload, tag=number.to_bytes(4, "big"), settled=False)
        peer.wait(Disposed)


def handshakes(stage: Stage) -> Callable[[], Any]:
    """TLS handshakes, one after the other, that never finish."""

    def attack() -> None:
        import ssl

        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for _ in range(stage.count(300)):
            with cut():
                plain = socket.create_connection(("127.0.0.1", stage.peer.port), timeout=30)
                context.wrap_socket(plain).close()

    return attack


def slow_headers(stage: Stage) -> Callable[[], Any]:
    """HTTP requests that never finish, with as many headers as the broker accepts."""

    def attack() -> None:
        streams = []
        for _ in range(stage.count(1_000)):
            with cut():
                stream = socket.create_connection(("127.0.0.1", stage.peer.port), timeout=30)
                stream.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(90)))
                streams.append(stream)
        time.sleep(1)
        for stream in streams:
            stream.close()

    return attack


# --- with a key -------------------------------------------------------------------------------------------------------


def open_transactions(stage: Stage) -> Callable[[], Any]:
    """50 transactions of 100 messages each, none of them discharged."""

    def attack() -> None:
        peer = stage.connect()
        peer.session.attach_sender("control", source=Source("c"), target=Coordinator())
        control = peer.wait(Attached).link
        link = peer.sender("large")
        body = Message(b"x" * 250_000).encode()
        for number in range(stage.count(50)):
            declare = AmqpMessage.of_value(Described(ULong(0x31), [None])).encode()
            control.send(declare, tag=number.to_bytes(4, "big"), settled=False)
            state = peer.wait(Disposed).state
            if not isinstance(state, Declared):
                return
            for each in range(100):
                work = state_transactional(state.txn_id, None)
                link.send(body, tag=each.to_bytes(4, "big"), settled=False, state=work)
                peer.wait(Disposed)
        peer.socket.close()

    return attack


def header_sections(stage: Stage) -> Callable[[], Any]:
    """5,000 messages with 60 KB of properties each, in receive-and-delete mode."""

    async def attack() -> None:
        properties = {str(number): "x" * 3_000 for number in range(20)}
        count = stage.count(5_000)
        async with BusClient.from_connection_string(stage.string) as client:
            sender = await client.sender("large", window=100)
            await sender.send_many(Message(b"x", application_properties=properties) for _ in range(count))
            receiver = await client.receiver("large", delete=True, prefetch=200)
            while count > 0:
                count -= len(await receiver.receive_batch(200, 5.0)) or count

    return attack


def list_message(stage: Stage) -> Callable[[], Any]:
    """A message of 10 MB of empty lists, sent and received."""

    def attack() -> None:
        peer = stage.connect()
        link = peer.sender("large")
        link.send(empty_lists(int(10_000_000 * stage.scale)), tag=b"1", settled=False)
        peer.wait(Disposed)
        peer.receiver("large", 1)
        peer.wait(Transfer)

    return attack


def idle_line(stage: Stage) -> Callable[[], Any]:
    """40,000 receivers attach and detach behind one that waits."""

    def attack() -> None:
        first, peer = stage.connect(), stage.connect()
        first.receiver("deep", 1)
        for _ in range(stage.count(40_000) // 200):
            links = [
                peer.session.attach_receiver(str(number), source=Source("deep"), target=Target("b"), credit=1)
                for number in range(200)
            ]
            peer.flush()
            for _ in links:
                peer.wait(Attached)
            for link in links:
                link.detach()
            peer.flush()
            while peer.session.own_links:
                peer.engine.receive(peer.socket.recv(1 << 20))
            peer.events.clear()

    return attack


def begins(stage: Stage) -> Callable[[], Any]:
    """50,000 sessions are begun and ended on a connection that also has a session with many links."""

    def attack() -> None:
        peer = stage.connect()
        for number in range(2_000):
            peer.session.attach_sender(str(number), source=Source("b"), target=Target("deep"))
        peer.flush()
        for _ in range(2_000):
            peer.wait(Attached)
        for _ in range(stage.count(50_000) // 500):
            opened = [peer.engine.begin() for _ in range(500)]
            for session in opened:
                session.end()
            peer.flush()
            while len(peer.engine.own_channels) > 1:
                peer.engine.receive(peer.socket.recv(1 << 20))
            peer.events.clear()

    return attack


def ranges(stage: Stage) -> Callable[[], Any]:
    """121 KiB of dispositions for unknown ids, with 10,000 unsettled deliveries."""

    async def attack() -> None:
        count = stage.count(10_000)
        await stage.fill("deep", count)
        peer = stage.connect()
        peer.receiver("deep", count)
        for _ in range(count):
            peer.wait(Transfer)
        for step in range(4_000):
            peer.session.dispose(1_000_000 + 2 * step, 0x7FFFFFFF, STATE_ACCEPTED, True)
        peer.flush()
        peer.sender("deep")

    return attack


def patterns(stage: Stage) -> Callable[[], Any]:
    """50 rules with LIKE, and messages of 32 KB of text that almost match."""

    async def attack() -> None:
        stage.create("patterns", "TopicDescription ")
        pattern = "%".join(["_b"] * 20)
        for number in range(50):
            place = f"patterns/subscriptions/s{number}"
            rule = (
                '<DefaultRuleDescription><Filter i:type="SqlFilter" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">'
                f"<SqlExpression>a LIKE '%{pattern}%c'</SqlExpression></Filter></DefaultRuleDescription>"
            )
            stage.create(place, f"SubscriptionDescription {rule}")
        async with BusClient.from_connection_string(stage.string) as client:
            sender = await client.sender("patterns")
            for _ in range(stage.count(10)):
                await sender.send(Message(b"", application_properties={"a": "ab" * 16_000}))

    return attack


def nested(stage: Stage) -> Callable[[], Any]:
    """JSON and XML, 200,000 levels deep."""

    def attack() -> None:
        depth = stage.count(200_000)
        for _ in range(5):
            stage.ask("PUT", "/nested?api-version=2021-05", "<a>" * depth)
            with cut():
                send_batch(stage, "[" * depth)

    return attack


def send_batch(stage: Stage, body: str) -> None:
    from twinbus.auth.sas import sign

    token = sign(f"http://127.0.0.1:{stage.peer.port}/", stage.peer.user, stage.peer.password, int(time.time()) + 600)
    client = http.client.HTTPConnection("127.0.0.1", stage.peer.port, timeout=300)
    headers = {"Authorization": token, "Content-Type": "application/vnd.microsoft.servicebus.json"}
    client.request("POST", "/deep/messages", body, headers)
    client.getresponse().read()
    client.close()


def keyed_attaches(stage: Stage) -> Callable[[], Any]:
    """Links with 60 KB of properties each, on one connection with a key."""

    def attack() -> None:
        with cut():
            attach_fat(stage.connect(), "deep", stage.count(500))

    return attack


def keyed_answer_links(stage: Stage) -> Callable[[], Any]:
    def attack() -> None:
        peer = stage.connect()
        with cut():
            asked(peer, "$cbs", stage.count(4_900), stage.count(1_000))
        peer.socket.close()

    return attack


def flow(session: int, window: int, handle: int | None = None, credit: int = 5, *, echo: bool = False) -> bytes:
    """A flow frame encoded by hand, because an engine merges its own."""
    link = [UInt(handle), UInt(0), UInt(credit), UInt(0), False, echo] if handle is not None else [None] * 5 + [echo]
    body = encode(Described(ULong(0x13), [UInt(1), UInt(window), UInt(1), UInt(5_000), *link]))
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00" + session.to_bytes(2, "big") + body


def receivers(peer: Peer, count: int) -> None:
    for number in range(count):
        peer.session.attach_receiver(f"{number}", source=Source("deep"), target=Target("b"), credit=5)
        if number % 100 == 99:
            peer.flush()
            for _ in range(100):
                peer.wait(Attached)
    peer.flush()


def echoes(stage: Stage) -> Callable[[], Any]:
    """Flows that ask for an echo, while a delivery waits for a window that stays closed."""

    async def attack() -> None:
        peer = stage.connect()
        receivers(peer, 1_000)
        peer.socket.sendall(flow(0, 1))
        async with BusClient.from_connection_string(stage.string) as client:
            await (await client.sender("deep")).send(Message(b"x" * 5_000_000))
        with cut():
            for _ in range(stage.count(400)):
                peer.socket.sendall(b"".join(flow(0, 0, handle, echo=True) for handle in range(1_000)))
            peer.socket.sendall(flow(0, 0))
            time.sleep(1)
        peer.socket.close()

    return attack


def windows(stage: Stage) -> Callable[[], Any]:
    """A window that is closed and opened again and again, with 4,900 receivers that have credit."""

    def attack() -> None:
        peer = stage.connect()
        receivers(peer, 4_900)
        with cut():
            peer.socket.sendall((flow(0, 0) + flow(0, 10)) * stage.count(2_000))
            peer.sender("deep")
        peer.socket.close()

    return attack


ATTACKS: dict[str, tuple[str, Callable[[Stage], Callable[[], Any]]]] = {
    "cbs-8": ("no key: $cbs message of 8 MiB of empty lists", lambda stage: cbs_lists(stage, 8)),
    "cbs-32": ("no key: $cbs message of 32 MiB of empty lists", lambda stage: cbs_lists(stage, 32)),
    "unfinished": ("no key: 16 sockets with unfinished deliveries", unfinished),
    "unread": ("no key: 8 sockets that read no answer", unread),
    "attaches": ("no key: 427 attaches of 60 KB", fat_attaches),
    "sockets": ("no key: 5,000 sockets", sockets),
    "answers": ("no key: 5,000 answer links, 1,000 requests", answer_links),
    "handshakes": ("no key: 300 TLS handshakes", handshakes),
    "headers": ("no key: 1,000 unfinished HTTP requests", slow_headers),
    "transactions": ("50 open transactions of 100 messages of 250 KB", open_transactions),
    "sections": ("5,000 messages with 60 KB of properties, deleted", header_sections),
    "lists": ("a message of 10 MB of empty lists", list_message),
    "line": ("40,000 receivers behind an idle one", idle_line),
    "begins": ("50,000 begins and ends beside 2,000 links", begins),
    "ranges": ("4,000 dispositions of foreign ids, 10,000 unsettled", ranges),
    "patterns": ("50 LIKE rules, 10 messages of 32 KB", patterns),
    "nested": ("JSON and XML 200,000 deep, 5 of each", nested),
    "keyed-attaches": ("500 attaches of 60 KB with a key", keyed_attaches),
    "keyed-answers": ("4,900 answer links with a key, 1,000 requests", keyed_answer_links),
    "echoes": ("400,000 flows that want an echo behind a closed window", echoes),
    "windows": ("2,000 times a closed and an open window, 4,900 links", windows),
}


class Highest:
    """The peak anonymous memory of a process while it is watched."""

    def __init__(self, pid: int) -> None:
        self.mib = 0.0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.mib = max(self.mib, anonymous_mib(self._pid))

    def stop(self) -> float:
        self._over.set()
        self._thread.join()
        return self.mib


async def measured(name: str, folder: Path, scale: float) -> dict[str, Any]:
    what, prepare = ATTACKS[name]
    with TwinbusPeer(folder, queues=("bystander", "deep", "large")) as peer:
        stage = Stage(peer, scale)
        here, there = multiprocessing.Pipe()
        other = multiprocessing.Process(target=bystand, args=(peer.port, stage.login, there), daemon=True)
        attack = prepare(stage)
        other.start()
        here.send("reset")
        await asyncio.sleep(IDLE_S)
        here.send("report")
        idle_s, _ = await asyncio.to_thread(here.recv)
        cpu, memory = cpu_s(peer.pid), anonymous_mib(peer.pid)
        highest = Highest(peer.pid)
        result = attack()
        if result is not None:
            await result
        here.send("report")
        worst_s, _ = await asyncio.to_thread(here.recv)
        spent_s = cpu_s(peer.pid) - cpu
        del attack
        await asyncio.sleep(REST_S)
        here.send("end")
        return {
            "name": name,
            "attack": what,
            "idle_ms": round(idle_s * 1000, 1),
            "longest_ms": round(worst_s * 1000, 1),
            "cpu_s": round(spent_s, 2),
            "highest_mib": round(highest.stop() - memory, 1),
            "left_mib": round(anonymous_mib(peer.pid) - memory, 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="+", choices=list(ATTACKS), default=list(ATTACKS), help="run these attacks")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply every count by this")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    rows = []
    print(f"{'attack':<56} {'idle ms':>8} {'longest ms':>11} {'CPU s':>7} {'MiB':>7} {'left':>6}")
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            row = asyncio.run(measured(name, Path(folder), arguments.scale))
        rows.append(row)
        figures = f"{row['idle_ms']:>8} {row['longest_ms']:>11} {row['cpu_s']:>7} {row['highest_mib']:>7}"
        print(f"{row['attack']:<56} {figures} {row['left_mib']:>6}", flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), "attacks": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
