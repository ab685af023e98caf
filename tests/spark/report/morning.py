"""A ledger of one morning, as brokers, clients and a syphon would have written it: two hours with two outages.

`python -m tests.spark.report.morning FOLDER` writes it, to look at its report and for the pictures in `docs`. The
primary is down from 09:07 to 09:18, and refuses one entity from 09:41 to 09:44. Messages are diverted until a ping
succeeds, and brought home by a syphon as fast as a Standard namespace allows. With a step of a second instead of a
minute, the same takes two minutes.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from twinbus.clock import SteppedClock
from twinbus.ledger.records import Backlog, FailoverEvent, Latency, Operations, encode, units_of
from twinbus.ledger.words import OK, Event, Kind, LedgerSource, stage_of
from twinbus.ledger.writer import LedgerWriter

START_MS = int(datetime(2026, 11, 16, 8, 0, tzinfo=UTC).timestamp() * 1000)
MINUTE_MS = 60_000
MINUTES = 120
# Messages per minute, and their size in bytes.
ENTITIES = {
    "orders": (1_500, 2_000),
    "orders/priority": (180, 2_000),
    "payments": (640, 1_200),
    "invoices": (220, 90_000),
    "shipments": (410, 3_000),
    "stock-changes": (900, 600),
    "customer-events": (1_250, 800),
    "audit": (300, 1_500),
    "emails": (130, 12_000),
}
QUEUES = 10
DRAIN_A_MINUTE = 24_000
# First and last minute of each outage, and its entities.
OUTAGES = ((67, 78, tuple(ENTITIES)), (101, 104, ("payments",)))


@dataclass
class Book:
    """One ledger's writer, and its current time."""

    writer: LedgerWriter
    source: LedgerSource
    clock: SteppedClock
    counts: Counter[str] = field(default_factory=Counter)

    def operations(self, namespace: str, entity: str, kind: Kind, count: int, size: int = 0, **other: Any) -> None:
        if count <= 0:
            return
        now = self.clock.now_ms()
        self.add(
            Operations,
            namespace,
            entity,
            start_ms=now,
            end_ms=now + 1_000,
            kind=kind,
            stage=other.get("stage", stage_of(entity, kind)),
            outcome=other.get("outcome", OK),
            count=count,
            bytes=count * size,
            units=count * units_of(size),
        )
        self.counts[kind] += count

    def add(self, form: Any, namespace: str, entity: str, **fields: Any) -> None:
        now = self.clock.now_ms()
        times = {"start_ms": fields.pop("start_ms", now), "end_ms": fields.pop("end_ms", now)}
        names = {"source": self.source, "namespace": namespace, "entity": entity}
        self.writer.write(encode(form(id=self.writer.next_id(), **times, **names, **fields)), 1)


def write_morning(folder: Path, seed: int = 1, step_ms: int = MINUTE_MS) -> dict[str, int]:
    """Write it; returns how many messages were diverted, and brought home."""
    folder.mkdir(parents=True, exist_ok=True)
    return _Morning(folder, Random(seed), step_ms).write()


class _Morning:
    def __init__(self, folder: Path, rng: Random, step_ms: int) -> None:
        self._rng = rng
        # The length of a simulated minute.
        self._step_ms = step_ms
        self._clock = SteppedClock(START_MS)
        self._primary, self._secondary = (
            self._book(folder, LedgerSource.BROKER, run) for run in ("contoso", "contosodr")
        )
        self._client = self._book(folder, LedgerSource.CLIENT, "shop1")
        self._syphon = self._book(folder, LedgerSource.SYPHON, "syphon1")
        # For each backlog queue: when messages came, for which entity, and how many.
        self._backlog: list[list[tuple[int, str, int]]] = [[] for _ in range(QUEUES)]
        self._picks = {(entity, sender): rng.randrange(QUEUES) for entity in ENTITIES for sender in range(3)}
        self._totals: Counter[str] = Counter()

    def _book(self, folder: Path, source: LedgerSource, run: str) -> Book:
        writer = LedgerWriter(folder, source, run, self._clock, file_ms_max=30 * self._step_ms)
        writer.start()
        return Book(writer, source, self._clock)

    def write(self) -> dict[str, int]:
        for minute in range(MINUTES):
            self._minute(minute)
            self._clock.step(ms=self._step_ms)
        for book in (self._primary, self._secondary, self._client, self._syphon):
            book.writer.close()
        return dict(self._totals)

    def _minute(self, minute: int) -> None:
        for number, (entity, (rate, size)) in enumerate(ENTITIES.items()):
            count = round(rate * (0.8 + 0.3 * minute / MINUTES) * self._rng.uniform(0.9, 1.1))
            away = next(
                ((first, last) for first, last, whom in OUTAGES if first <= minute <= last and entity in whom), None
            )
            if away is None:
                self._direct(entity, count, size)
                continue
            first, last = away
            lag = 700 * number
            if minute == first:
                cause = "amqp:connection:forced" if last - first > 5 else "com.microsoft:server-busy"
                self._event(Event.FAILED_OVER, entity, lag + 4_000, target="contoso-dr", cause=cause)
            self._divert(minute, entity, count, size)
            reached = minute == last
            outcome = OK if reached else "amqp:socket-error"
            self._client.operations("contoso", entity, Kind.PING, 1, outcome=outcome)
            if reached:
                self._primary.operations("contoso", entity, Kind.PING, 1)
                self._event(Event.FAILED_BACK, entity, lag + 45_000)
        self._look()
        if not any(first <= minute <= last for first, last, _ in OUTAGES):
            self._drain(minute)
        if minute % 15 == 0:
            for queue in range(QUEUES):
                self._secondary.operations("contoso-dr", _queue(queue), Kind.EMPTY_POLL, 1)

    def _direct(self, entity: str, count: int, size: int) -> None:
        self._primary.operations("contoso", entity, Kind.SEND, count, size)
        self._primary.operations("contoso", entity, Kind.RECEIVE, count, size)
        self._primary.operations("contoso", entity, Kind.COMPLETE, count)

    def _divert(self, minute: int, entity: str, count: int, size: int) -> None:
        parts = (count // 2, count // 3, count - count // 2 - count // 3)
        for sender, part in enumerate(parts):
            queue = self._picks[entity, sender]
            self._backlog[queue].append((minute, entity, part))
            self._secondary.operations("contoso-dr", _queue(queue), Kind.SEND, part, size + 120)
            self._event(Event.DIVERTED, entity, 50_000, queue=_queue(queue), count=part)
        self._totals["diverted"] += count

    def _event(self, event: Event, entity: str, after_ms: int, **fields: Any) -> None:
        at = self._clock.now_ms() + after_ms * self._step_ms // MINUTE_MS
        book = self._syphon if event is Event.SYPHONED else self._client
        book.add(FailoverEvent, "contoso", entity, start_ms=at, end_ms=at, event=event, **fields)

    def _look(self) -> None:
        now = self._clock.now_ms()
        for queue, lots in enumerate(self._backlog):
            depth = sum(count for _, _, count in lots)
            size = sum(count * ENTITIES[entity][1] for _, entity, count in lots)
            oldest = now + self._step_ms - (START_MS + lots[0][0] * self._step_ms) if lots else 0
            self._syphon.add(Backlog, "contoso-dr", _queue(queue), depth=depth, depth_bytes=size, oldest_ms=oldest)

    def _drain(self, minute: int) -> None:
        room = DRAIN_A_MINUTE
        home: dict[tuple[str, int], list[tuple[int, int]]] = {}
        while room > 0 and any(self._backlog):
            for queue, lots in enumerate(self._backlog):
                if not lots or room <= 0:
                    continue
                came, entity, count = lots[0]
                taken = min(count, room, 600)
                lots[0] = (came, entity, count - taken)
                if count == taken:
                    lots.pop(0)
                waited = round((minute - came + 1 - room / DRAIN_A_MINUTE) * self._step_ms)
                home.setdefault((entity, queue), []).append((taken, waited))
                room -= taken
        for (entity, queue), parts in home.items():
            self._home(entity, queue, parts)

    def _home(self, entity: str, queue: int, parts: list[tuple[int, int]]) -> None:
        count, size = sum(taken for taken, _ in parts), ENTITIES[entity][1]
        self._secondary.operations("contoso-dr", _queue(queue), Kind.RECEIVE, count, size + 120)
        self._secondary.operations("contoso-dr", _queue(queue), Kind.COMPLETE, count)
        for kind in (Kind.SEND, Kind.RECEIVE):
            self._primary.operations("contoso", entity, kind, count, size)
        self._primary.operations("contoso", entity, Kind.COMPLETE, count)
        self._syphon.operations("contoso", entity, Kind.SEND, count, size, stage="to-primary")
        self._event(Event.SYPHONED, entity, 1_000, queue=_queue(queue), count=count)
        buckets: Counter[int] = Counter()
        longest = total = 0
        for taken, waited in parts:
            for tenth in range(10):
                part = taken * (tenth + 1) // 10 - taken * tenth // 10
                time_ms = waited + round(self._step_ms * (1 - tenth / 10) * 0.9)
                buckets[(time_ms - 1).bit_length()] += part
                longest, total = max(longest, time_ms if part else 0), total + part * time_ms
        self._syphon.add(
            Latency,
            "contoso",
            entity,
            queue=_queue(queue),
            count=count,
            sum_ms=total,
            max_ms=longest,
            buckets=tuple(buckets[at] for at in range(33)),
        )
        self._totals["home"] += count


def _queue(number: int) -> str:
    return f"contoso/x-servicebus-transfer/{number}"


if __name__ == "__main__":
    print(write_morning(Path(sys.argv[1])))
