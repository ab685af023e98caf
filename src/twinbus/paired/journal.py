"""The paired client's ledger: every operation with its stage, and the events of the pair.

- Callers only add to sums; a thread writes the sums once a second, and the rest on closing.
- Operations with the same entity, kind, stage and outcome are one record per interval, and so are diverted or syphoned
  messages. Every other event is a record of its own, with its time.
- Nothing is written before the namespaces were asked for their names, so that each has one name in the ledger.
- The bytes of a direct send are those of its body: the SDK does not tell more, and encoding twice would be too slow.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from twinbus.clock import Clock
from twinbus.ledger.records import LATENCY_BOUNDS_MS, Backlog, FailoverEvent, Latency, Operations, encode, units_of
from twinbus.ledger.words import OK, Event, Kind, LedgerSource, Stage
from twinbus.ledger.writer import LedgerWriter
from twinbus.limits import METER_INTERVAL_MS

_FREQUENT = frozenset({Event.DIVERTED, Event.SYPHONED})


class _Operation(NamedTuple):
    namespace: str
    entity: str
    kind: Kind
    stage: Stage
    outcome: str


class _Occasion(NamedTuple):
    namespace: str
    entity: str
    event: Event
    target: str | None
    queue: str | None
    cause: str | None


class Journal:
    """The sums, and the thread that writes them."""

    def __init__(self, folder: Path, run_id: str, clock: Clock, source: LedgerSource = LedgerSource.CLIENT) -> None:
        self._source = source
        self._clock = clock
        # Used by the journal's thread, and by `close` after it.
        self._writer = LedgerWriter(folder, source, run_id, clock)
        # Operations, bytes and units of this interval.
        self._sums: dict[_Operation, list[int]] = {}
        # Messages of the frequent events in this interval.
        self._occasions: dict[_Occasion, int] = {}
        # Other events, with their times.
        self._moments: list[tuple[_Occasion, int, int]] = []
        # Times through the backlog in this interval, by namespace, entity and backlog queue: counts by bucket, and the
        # sum and maximum.
        self._latencies: dict[tuple[str, str, str], tuple[list[int], list[int]]] = {}
        # Measurements of backlog queues, with their times.
        self._looks: list[tuple[str, str, int, dict[str, int]]] = []
        # Old name -> new name of namespaces that were counted before they reported their name.
        self._names: dict[str, str] = {}
        # Whether writing waits because a namespace may still report its name.
        self.waits_for_names = False
        self._start_ms = clock.now_ms()
        # Guards the sums.
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        # Writes once a second; None before the first count.
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        """Whether anything has been counted."""
        return self._thread is not None

    def renew(self) -> None:
        """Called in a forked child before anything was counted: its records need their own ids."""
        self._writer = LedgerWriter(self._writer.folder, self._source, uuid4().hex, self._clock)

    def beside(self, run_id: str, source: LedgerSource) -> Journal:
        """Another journal in the same folder, for another source."""
        return Journal(self._writer.folder, run_id, self._clock, source)

    def rename(self, old: str, new: str) -> None:
        """Attribute to `new` what was counted for the namespace `old` and is not written yet."""
        self._names[old] = new

    def operation(
        self,
        namespace: str,
        entity: str,
        kind: Kind,
        stage: Stage,
        *,
        outcome: str = OK,
        count: int = 1,
        size_bytes: int = 0,
    ) -> None:
        """Count the messages of one call, which share its bytes."""
        key = _Operation(namespace, entity, kind, stage, outcome)
        units = max(count, units_of(size_bytes))
        with self._lock:
            sums = self._sums.get(key)
            if sums is None:
                self._sums[key] = [count, size_bytes, units]
            else:
                sums[0] += count
                sums[1] += size_bytes
                sums[2] += units
        if self._thread is None:
            self._start()

    def event(
        self,
        event: Event,
        namespace: str,
        entity: str,
        *,
        target: str | None = None,
        queue: str | None = None,
        cause: str | None = None,
        count: int = 0,
    ) -> None:
        key = _Occasion(namespace, entity, event, target, queue, cause)
        with self._lock:
            if event in _FREQUENT:
                self._occasions[key] = self._occasions.get(key, 0) + count
            else:
                self._moments.append((key, self._clock.now_ms(), count))
        if self._thread is None:
            self._start()

    def latency(self, namespace: str, entity: str, queue: str, times_ms: Iterable[int]) -> None:
        """Record how long messages for the entity took through a backlog queue."""
        with self._lock:
            buckets, (total, longest) = self._latencies.setdefault(
                (namespace, entity, queue), ([0] * (len(LATENCY_BOUNDS_MS) + 1), [0, 0])
            )
            for time_ms in times_ms:
                # The bounds are powers of two, so this is the first that is not less.
                buckets[min(max(time_ms - 1, 0).bit_length(), len(LATENCY_BOUNDS_MS))] += 1
                total += time_ms
                longest = max(longest, time_ms)
            self._latencies[namespace, entity, queue] = (buckets, [total, longest])
        if self._thread is None:
            self._start()

    def backlog(self, namespace: str, queue: str, **numbers: int) -> None:
        """Record the state of a backlog queue: `depth`, `depth_bytes`, `oldest_ms`, `dead`."""
        with self._lock:
            self._looks.append((namespace, queue, self._clock.now_ms(), numbers))
        if self._thread is None:
            self._start()

    def flush(self) -> None:
        """Write what was counted so far; called by one thread at a time."""
        with self._lock:
            sums, self._sums = self._sums, {}
            occasions, self._occasions = self._occasions, {}
            moments, self._moments = self._moments, []
            latencies, self._latencies = self._latencies, {}
            looks, self._looks = self._looks, []
            start_ms, end_ms = self._start_ms, self._clock.now_ms()
            self._start_ms = end_ms
        start_ms = min(start_ms, end_ms)
        lines = [
            encode(
                Operations(
                    id=self._writer.next_id(),
                    start_ms=start_ms,
                    end_ms=end_ms,
                    source=self._source,
                    namespace=self._called(key.namespace),
                    entity=key.entity,
                    kind=key.kind,
                    stage=key.stage,
                    outcome=key.outcome,
                    count=count,
                    bytes=size_bytes,
                    units=units,
                )
            )
            for key, (count, size_bytes, units) in sums.items()
        ]
        lines += [self._failover(key, start_ms, end_ms, count) for key, count in occasions.items()]
        lines += [self._failover(key, at_ms, at_ms, count) for key, at_ms, count in moments]
        lines += [
            encode(
                Latency(
                    id=self._writer.next_id(),
                    start_ms=start_ms,
                    end_ms=end_ms,
                    source=self._source,
                    namespace=namespace,
                    entity=entity,
                    queue=queue,
                    count=sum(buckets),
                    sum_ms=total,
                    max_ms=longest,
                    buckets=tuple(buckets),
                )
            )
            for (namespace, entity, queue), (buckets, (total, longest)) in latencies.items()
        ]
        lines += [
            encode(
                Backlog(
                    id=self._writer.next_id(),
                    start_ms=at_ms,
                    end_ms=at_ms,
                    source=self._source,
                    namespace=namespace,
                    entity=queue,
                    **numbers,
                )
            )
            for namespace, queue, at_ms, numbers in looks
        ]
        if lines:
            self._writer.write("".join(lines), len(lines))
        else:
            self._writer.complete_if_due()

    def close(self) -> None:
        """Write the rest."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()
        self._writer.close()

    def _failover(self, key: _Occasion, start_ms: int, end_ms: int, count: int) -> str:
        return encode(
            FailoverEvent(
                id=self._writer.next_id(),
                start_ms=start_ms,
                end_ms=end_ms,
                source=self._source,
                namespace=self._called(key.namespace),
                entity=key.entity,
                event=key.event,
                target=key.target and self._called(key.target),
                queue=key.queue,
                cause=key.cause,
                count=count,
            )
        )

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None or self._stopping.is_set():
                return
            self._thread = threading.Thread(target=self._run, name="twinbus-journal", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        self._writer.start()
        while not self._stopping.wait(METER_INTERVAL_MS / 1000):
            if not self.waits_for_names:
                self.flush()

    def _called(self, namespace: str) -> str:
        return self._names.get(namespace, namespace)
