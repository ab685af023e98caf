"""What clients without a key cost: frames and requests of every kind, by rate.

    python bench/strangers.py [--only NAME ...] [--rate MIB ...] [--seconds 4] [--turns] [--json FILE]

For each kind of frame a broker is started, a bystander with a key sends one message after the other, and one client
without a key sends such frames at each rate (MiB per second; 0 is as fast as it can), and connects again whenever the
broker disconnects it. A line shows the bystander's wait at the median and at 99 %, idle and under attack, the share of
a CPU that the broker used beyond what it used for the bystander alone, and how often the client was disconnected. With
`--turns` the broker runs on asyncio's own loop, and the next lines show the CPU time of its longest callbacks.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import struct
import tempfile
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from bystander import HOOKS, Peer, cpu_s, longest_turns
from measure import machine
from twinbus_peer import TwinbusPeer

from twinbus.amqp.events import Disposed
from twinbus.client import Message

IDLE_S = 2.0
BAR_MS = 10.0
MIB = 1 << 20
_MASK = bytes(4)
_UPGRADE = (
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
)
_AMQP = b"AMQP\x00\x01\x00\x00"
_SASL = b"AMQP\x03\x01\x00\x00"
_EMPTY = bytes.fromhex("0000000802000000")


def _framed(kind: int, body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + bytes((2, kind, 0, 0)) + body


def _web(opcode: int, *, final: bool = True, masked: bool = True) -> bytes:
    head = bytes(((0x80 if final else 0) | opcode, 0x80 if masked else 0))
    return head + (_MASK if masked else b"")


_OPEN = _framed(0, b"\x00\x53\x10\xc0\x04\x01\xa1\x01x")
_BEGIN = _framed(0, b"\x00\x53\x11\xc0\x0b\x04\x40\x52\x01\x70\x00\x00\x00\x64\x52\x64")
_INIT = _framed(1, b"\x00\x53\x41\xc0\x0c\x01\xa3\x09ANONYMOUS")
_GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"

# What comes first on a connection, and what is repeated.
KINDS: dict[str, tuple[str, bytes, bytes]] = {
    "amqp-empty": ("AMQP empty frames", _AMQP + _OPEN, _EMPTY),
    "amqp-begin": ("AMQP begin frames", _AMQP + _OPEN, _BEGIN),
    "amqp-header": ("AMQP headers, a connection each", b"", b""),
    "sasl": ("SASL init frames", _SASL, _INIT),
    "ws-empty": ("WebSocket empty messages", _UPGRADE, _web(2)),
    "ws-unmasked": ("WebSocket empty messages, unmasked", _UPGRADE, _web(2, masked=False)),
    "ws-ping": ("WebSocket pings", _UPGRADE, _web(9)),
    "ws-pong": ("WebSocket pongs", _UPGRADE, _web(10)),
    "ws-continuation": ("WebSocket empty continuations", _UPGRADE + _web(2, final=False), _web(0, final=False)),
    "http-health": ("HTTP requests, /health", b"", _GET % b"health"),
    "http-admin": ("HTTP requests, refused with 401", b"", _GET % b"q"),
    "http-console": ("HTTP requests, console's view", b"", _GET % b"console/$api/entities"),
    "http-bad": ("HTTP requests that are none", b"", b"GET / HTTP/1.1\r\n\x00\r\n\r\n"),
    "http-chunks": (
        "HTTP chunks of one byte",
        b"PUT /q HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\nx\r\n",
    ),
}


def bystand(port: int, login: bytes, pipe: Pipe) -> None:
    """The bystander's process: `report` ends a measurement and starts the next."""
    peer = Peer(port, login)
    link = peer.sender("bystander")
    waits: list[float] = []
    payload = Message(b"x" * 1024).encode()
    number = 0
    while True:
        if pipe.poll():
            if pipe.recv() == "end":
                return
            pipe.send(waits)
            waits = []
        started = time.perf_counter()
        number += 1
        link.send(payload, tag=number.to_bytes(4, "big"), settled=False)
        peer.wait(Disposed)
        waits.append(time.perf_counter() - started)
        time.sleep(0.002)


def attack(port: int, name: str, rate_mib: float, seconds: float, pipe: Pipe) -> None:
    """The stranger's process: sends for so long and reports the bytes it sent and how often it had to connect again."""
    _, start, again = KINDS[name]
    piece = again * max(4_096 // max(len(again), 1), 1)
    sent = connects = 0
    began = time.monotonic()
    end = began + seconds
    while time.monotonic() < end:
        connects += 1
        try:
            stream = socket.create_connection(("127.0.0.1", port), timeout=10)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not piece:
                stream.sendall(_AMQP)
                stream.close()
                sent += len(_AMQP)
            else:
                sent += _flood(stream, start, piece, end, began, sent, rate_mib)
        except OSError:
            pass
        if rate_mib:
            _pace(began, sent, rate_mib, end)
    pipe.send((sent, connects))


def _flood(
    stream: socket.socket, start: bytes, piece: bytes, end: float, began: float, before: int, rate_mib: float
) -> int:
    sent = 0
    with stream:
        stream.sendall(start)
        stream.setblocking(False)
        waiting = piece
        while time.monotonic() < end:
            try:
                done = stream.send(waiting)
                sent += done
                waiting = waiting[done:] or piece
            except BlockingIOError:
                time.sleep(0.001)
            try:
                # Read the answers, or the broker would stop reading.
                if not stream.recv(1 << 20):
                    return sent
            except BlockingIOError:
                pass
            except OSError:
                return sent
            if rate_mib:
                _pace(began, before + sent, rate_mib, end)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return sent


def _pace(began: float, sent: int, rate_mib: float, end: float) -> None:
    due = began + sent / (rate_mib * MIB)
    time.sleep(max(min(due, end) - time.monotonic(), 0))


def percentiles_ms(waits: list[float]) -> tuple[float, float]:
    if len(waits) < 2:
        return 0.0, 0.0
    return statistics.median(waits) * 1000, statistics.quantiles(waits, n=100)[98] * 1000


def measured(name: str, rates: list[float], seconds: float, turns: bool, folder: Path) -> list[dict[str, Any]]:
    turns_file = folder / "turns"
    turns_file.touch()
    environment = {}
    if turns:
        environment["PYTHONPATH"] = os.pathsep.join([str(HOOKS), os.environ.get("PYTHONPATH", "")])
        environment["LOOP_TURNS"] = str(turns_file)
    rows = []
    with TwinbusPeer(folder, queues=("bystander",), environment=environment) as peer:
        login = b"\0" + peer.user.encode() + b"\0" + peer.password.encode()
        here, there = multiprocessing.Pipe()
        other = multiprocessing.Process(target=bystand, args=(peer.port, login, there), daemon=True)
        other.start()
        # The HTTP server is loaded with its first client.
        attack_for(peer.port, name, 0.01, 0.3)
        for rate in rates:
            here.send("report")
            here.recv()
            cpu = cpu_s(peer.pid)
            time.sleep(IDLE_S)
            idle_share = (cpu_s(peer.pid) - cpu) / IDLE_S
            here.send("report")
            idle = percentiles_ms(here.recv())
            skip, cpu = turns_file.stat().st_size, cpu_s(peer.pid)
            sent, connects = attack_for(peer.port, name, rate, seconds)
            share = (cpu_s(peer.pid) - cpu) / seconds
            here.send("report")
            waits = here.recv()
            under = percentiles_ms(waits)
            longest = longest_turns(turns_file, skip)
            rows.append(
                {
                    "name": name,
                    "frames": KINDS[name][0],
                    "rate_mib_s": rate,
                    "sent_mib_s": round(sent / MIB / seconds, 3),
                    "connections_s": round(connects / seconds, 1),
                    "idle_p50_ms": round(idle[0], 2),
                    "idle_p99_ms": round(idle[1], 2),
                    "p50_ms": round(under[0], 2),
                    "p99_ms": round(under[1], 2),
                    "sends": len(waits),
                    "cpu_share": round(share - idle_share, 3),
                    "turns": longest[:4],
                }
            )
        here.send("end")
        other.join(5)
    return rows


def attack_for(port: int, name: str, rate: float, seconds: float) -> tuple[int, int]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=attack, args=(port, name, rate, seconds, there), daemon=True)
    process.start()
    told: tuple[int, int] = here.recv()
    process.join()
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS), help="send these frames")
    parser.add_argument("--rate", nargs="+", type=float, default=[0.25, 4.0, 0.0], help="MiB per second; 0: no limit")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long at each rate")
    parser.add_argument("--turns", action="store_true", help="show the longest turn of the broker's loop")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    rows = []
    titles = f"{'MiB/s':>6} {'sent':>6} {'conn/s':>7} {'idle p50':>9} {'p99':>6} {'now p50':>8} {'p99':>7} {'CPU':>5}"
    print(f"{'frames':<36} {titles}")
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(name, arguments.rate, arguments.seconds, arguments.turns, Path(folder))
        for row in found:
            figures = (
                f"{row['rate_mib_s'] or 'max':>6} {row['sent_mib_s']:>6.2f} {row['connections_s']:>7} "
                f"{row['idle_p50_ms']:>9} {row['idle_p99_ms']:>6} {row['p50_ms']:>8} {row['p99_ms']:>7} "
                f"{row['cpu_share']:>5.2f}"
            )
            over = "  over" if row["p99_ms"] > row["idle_p99_ms"] + BAR_MS else ""
            print(f"{row['frames']:<36} {figures}{over}", flush=True)
            for used_ms, callback in row["turns"]:
                print(f"    {used_ms:>8} ms of CPU at a time in {callback}", flush=True)
        rows += found
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
