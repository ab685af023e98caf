"""Writes ledger files as brokers do: with the broker's own writer and lines, on a clock stepped second by second.

Each process is one broker with its own namespace and run: a dozen entities that are sent to, received from and settled,
two backlog queues, occasionally an empty poll, a refused send or a large message; and once a minute its connections.
"""

from __future__ import annotations

import multiprocessing
import random
from itertools import cycle
from pathlib import Path

from twinbus.clock import SteppedClock
from twinbus.ledger.records import ConnectionLines, OperationLines
from twinbus.ledger.words import Kind, LedgerSource
from twinbus.ledger.writer import LedgerWriter

START_MS = 1_790_812_800_000  # 1 October 2026
_BROKERS = ("contoso", "fabrikam")
_QUEUES = ("orders", "invoices", "payments", "shipments", "returns", "audit", "mail", "stock")
_SUBSCRIPTIONS = ("events/subscriptions/search", "events/subscriptions/billing", "events/subscriptions/archive")
_BACKLOGS = ("tailspin/x-servicebus-transfer/0", "tailspin/x-servicebus-transfer/1")


def _mix(namespace: str) -> list[tuple[OperationLines, int, float]]:
    """The lines of a busy second: each line, the usual size of its messages, and how often it occurs."""
    made: list[tuple[OperationLines, int, float]] = []

    def add(entity: str, kind: Kind, size: int, often: float, outcome: str = "ok") -> None:
        made.append((OperationLines(LedgerSource.BROKER, namespace, entity, kind, outcome), size, often))

    for number, queue in enumerate((*_QUEUES, *_BACKLOGS)):
        size = 600 + 450 * number
        add(queue, Kind.SEND, size, 1.0)
        add(queue, Kind.RECEIVE, size, 1.0)
        add(queue, Kind.COMPLETE, 0, 1.0)
        add(queue, Kind.EMPTY_POLL, 0, 0.05)
        add(queue, Kind.ABANDON, 0, 0.02)
        add(queue, Kind.SEND, size, 0.01, "com.microsoft:server-busy")
    add("events", Kind.SEND, 90_000, 1.0)
    for subscription in _SUBSCRIPTIONS:
        add(subscription, Kind.RECEIVE, 90_000, 1.0)
        add(subscription, Kind.COMPLETE, 0, 1.0)
    add("", Kind.MANAGE, 0, 0.02)
    return made


def write(folder: Path, namespace: str, run_id: str, start_ms: int, records: int) -> None:
    """One broker's ledger with that many records."""
    draw = random.Random(run_id)
    clock = SteppedClock(start_ms)
    writer = LedgerWriter(folder, LedgerSource.BROKER, run_id, clock, total_bytes_max=0)
    writer.start()
    mix = _mix(namespace)
    connections = ConnectionLines(LedgerSource.BROKER, namespace)
    # Random numbers are slow: a few thousand are used again and again.
    chances = cycle([draw.random() for _ in range(9_973)])
    counts = cycle([1 + int(draw.expovariate(0.02)) for _ in range(7_919)])
    left = records
    while left > 0:
        begun = clock.now_ms()
        now = clock.step(seconds=1)
        lines = []
        for each, size, often in mix:
            if often == 1.0 or next(chances) < often:
                count = next(counts)
                steps = max(1, -(-size // 65_536))
                lines.append(each.line(writer.next_id(), begun, now, count, count * size, count * steps))
        if now % 60_000 == 0 and len(lines) < left:
            lines.append(connections.line(writer.next_id(), begun, now, 40, 0, 0))
        lines = lines[:left]
        writer.write("".join(lines), len(lines))
        left -= len(lines)
    writer.close()


def generate(folder: Path, records: int, start_ms: int = START_MS, name: str = "a") -> None:
    """`records` records by two brokers, each in its own process."""
    share = records // len(_BROKERS)
    parts = [share] * (len(_BROKERS) - 1)
    parts.append(records - sum(parts))
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=write, args=(folder, namespace, f"{number:x}{name:0>15}", start_ms, part))
        for number, (namespace, part) in enumerate(zip(_BROKERS, parts, strict=True), 1)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        if writer.exitcode != 0:
            raise RuntimeError(f"The generator ended with {writer.exitcode}.")
