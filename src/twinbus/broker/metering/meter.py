"""Counts operations on a namespace's entities.

- A link gets its counters once, when it attaches; an operation then costs a few additions.
- Counters only grow: the metrics show their values, the ledger gets their growth since the last interval.
- An interval is written once everything counted in it is durable, so the ledger never records a send that was lost.
- Counting never fails and never blocks: a thread writes the ledger (`scribe.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from twinbus.broker.metering.rates import OTHERS, Rates
from twinbus.entities.message import NewMessage
from twinbus.ledger.records import ConnectionLines, OperationLines
from twinbus.ledger.words import OK, Kind, LedgerSource
from twinbus.limits import CONNECTIONS_RECORD_MS, METER_INTERVAL_MS, METRICS_ENTITIES_MAX, OPERATION_STEP_BYTES

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.metering.scribe import Scribe

# The kind of each `$management` operation; all others count as MANAGE.
REQUEST_KINDS = {
    "com.microsoft:peek-message": Kind.PEEK,
    "com.microsoft:renew-lock": Kind.RENEW,
    "com.microsoft:renew-session-lock": Kind.RENEW_SESSION,
    "com.microsoft:get-session-state": Kind.GET_SESSION_STATE,
    "com.microsoft:set-session-state": Kind.SET_SESSION_STATE,
    "com.microsoft:schedule-message": Kind.SCHEDULE,
    "com.microsoft:cancel-scheduled-message": Kind.CANCEL,
    "com.microsoft:receive-by-sequence-number": Kind.RECEIVE_DEFERRED,
    "com.microsoft:update-disposition": Kind.SETTLE,
    "com.microsoft:get-message-sessions": Kind.LIST_SESSIONS,
    "com.microsoft:batch-delete-messages": Kind.DELETE,
    "twinbus:resubmit": Kind.RECEIVE,
}


# The growth of one counter in one interval: line writer, start and end in ms, operations, bytes, units. For connections
# the number of operations is the peak.
Interval = tuple[OperationLines | ConnectionLines, int, int, int, int, int]


class Counter:
    """Operations of one kind with one outcome on one entity. Callers may add to `count`, `bytes` and `steps`."""

    __slots__ = ("_bytes", "_count", "_steps", "bytes", "count", "kind", "lines", "outcome", "steps")

    def __init__(self, kind: Kind, outcome: str, lines: OperationLines) -> None:
        self.kind = kind
        self.outcome = outcome
        self.lines = lines
        self.count = 0
        self.bytes = 0
        # 64 KB steps beyond the first of each operation.
        self.steps = 0
        # The same at the end of the last interval.
        self._count = 0
        self._bytes = 0
        self._steps = 0

    @property
    def units(self) -> int:
        return self.count + self.steps

    def add(self, size_bytes: int) -> None:
        """Count one operation on a message."""
        self.count += 1
        self.bytes += size_bytes
        if size_bytes > OPERATION_STEP_BYTES:
            self.steps += (size_bytes - 1) // OPERATION_STEP_BYTES

    def add_many(self, sizes: Iterable[int]) -> None:
        """Count an operation for each size; one operation if there are none."""
        before = self.count
        for size in sizes:
            self.add(size)
        if self.count == before:
            self.count += 1

    def merge(self, other: Counter) -> None:
        self.count += other.count
        self.bytes += other.bytes
        self.steps += other.steps

    def take(self, start_ms: int, end_ms: int) -> Interval | None:
        """The growth since the last call; None if there is none."""
        count = self.count - self._count
        if count == 0:
            return None
        size = self.bytes - self._bytes
        steps = self.steps - self._steps
        self._count += count
        self._bytes += size
        self._steps += steps
        return self.lines, start_ms, end_ms, count, size, count + steps


class EntityMeter:
    """The counters of one entity."""

    __slots__ = ("_counters", "_namespace", "leaving", "path")

    def __init__(self, namespace: str, path: str) -> None:
        self._namespace = namespace
        # Empty for the namespace itself.
        self.path = path
        # By kind and outcome; few, because we define the conditions.
        self._counters: dict[tuple[Kind, str], Counter] = {}
        # The entity was deleted: drop its counters after the next interval.
        self.leaving = False

    def counter(self, kind: Kind, outcome: str = OK) -> Counter:
        found = self._counters.get((kind, outcome))
        if found is None:
            lines = OperationLines(LedgerSource.BROKER, self._namespace, self.path, kind, outcome)
            found = self._counters[kind, outcome] = Counter(kind, outcome, lines)
        return found

    def __iter__(self) -> Iterator[Counter]:
        return iter(self._counters.values())

    def add_sends(self, messages: Iterable[NewMessage]) -> None:
        """Count accepted messages: each is one operation, even in a batch."""
        for message in messages:
            self.counter(Kind.PING if message.ping else Kind.SEND).add(message.size)


class ConnectionPeak:
    """The peak number of connections, recorded when it changes and once a minute while there are any: an hour with
    steady connections shows in the ledger, and a namespace without connections writes nothing."""

    __slots__ = ("_lines", "_peak", "_told", "_told_ms")

    def __init__(self, namespace: str) -> None:
        self._lines = ConnectionLines(LedgerSource.BROKER, namespace)
        self._peak = 0
        # The last recorded peak, and when.
        self._told = 0
        self._told_ms = 0

    def see(self, count: int) -> None:
        """A connection was opened."""
        self._peak = max(self._peak, count)

    def take(self, count: int, start_ms: int, end_ms: int) -> Interval | None:
        """The record for the interval that ends with `count` connections; None if there is nothing to record."""
        peak, self._peak = max(self._peak, count), count
        lately = 0 <= end_ms - self._told_ms < CONNECTIONS_RECORD_MS
        if peak == self._told and (lately or not peak):
            return None
        self._told, self._told_ms = peak, end_ms
        return self._lines, start_ms, end_ms, peak, 0, 0


class Meter:
    """The counters of one namespace. Without a scribe there is no ledger, only metrics."""

    def __init__(self, host: NamespaceHost, scribe: Scribe | None) -> None:
        self._host = host
        # Writes the ledger, if there is one.
        self.scribe = scribe
        self._entities: dict[str, EntityMeter] = {}
        # Counts of deleted entities, so that totals never shrink.
        self.gone = EntityMeter(host.name, OTHERS)
        self.connections = ConnectionPeak(host.name)
        # Messages per second over the last minute.
        self.rates = Rates()
        self._start_ms = host.clock.now_ms()
        # None while stopped.
        self._timer: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[EntityMeter]:
        return iter(self._entities.values())

    def entity(self, path: str) -> EntityMeter:
        """The counters of an entity, by its own spelling of the path; '' for the namespace."""
        found = self._entities.get(path)
        if found is None:
            found = self._entities[path] = EntityMeter(self._host.name, path)
        found.leaving = False
        return found

    def forget(self, path: str) -> None:
        """The entity was deleted."""
        found = self._entities.get(path)
        if found is not None:
            found.leaving = True

    def labelled(self) -> Iterator[tuple[str, Counter]]:
        """Every counter with its entity label; only a bounded number of entities have their own."""
        rest = EntityMeter(self._host.name, OTHERS)
        for number, entity in enumerate([*self._entities.values(), self.gone]):
            for counter in entity:
                if number < METRICS_ENTITIES_MAX and entity is not self.gone:
                    yield entity.path, counter
                else:
                    rest.counter(counter.kind, counter.outcome).merge(counter)
        for counter in rest:
            yield OTHERS, counter

    # --- the ledger -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._timer = self._host.loop.call_later(METER_INTERVAL_MS / 1000, self._tick)

    def stop(self) -> None:
        """Write the last interval. Everything is durable by now, unless the store has failed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        intervals = self._take()
        if not self._host.commits.failed:
            self._write(intervals)

    def flush(self) -> None:
        """End the interval; it is written after the commit that makes it durable."""
        intervals = self._take()
        if intervals and self.scribe is not None:
            commits = self._host.commits
            commits.facts.then.append((self._write, intervals))
            commits.request()

    def clock_set(self, step_ms: int) -> None:
        """The clock was set: shift the start, so that the interval keeps its length."""
        self._start_ms += step_ms

    def _tick(self) -> None:
        self.flush()
        self.start()

    def _take(self) -> list[Interval]:
        start_ms, end_ms = self._start_ms, self._host.clock.now_ms()
        self._start_ms = end_ms
        start_ms = min(start_ms, end_ms)
        self.rates.begin(end_ms - start_ms)
        found: list[Interval] = []
        for entity in self._entities.values():
            for counter in entity:
                interval = counter.take(start_ms, end_ms)
                if interval is not None:
                    found.append(interval)
                    self.rates.add(entity.path, counter.kind, counter.outcome, interval[3])
        if (peak := self.connections.take(self._host.connection_count, start_ms, end_ms)) is not None:
            found.append(peak)
        self._drop_gone()
        return found

    def _drop_gone(self) -> None:
        for entity in [each for each in self._entities.values() if each.leaving]:
            for counter in entity:
                self.gone.counter(counter.kind, counter.outcome).merge(counter)
            del self._entities[entity.path]

    def _write(self, intervals: list[Interval]) -> None:
        if self.scribe is not None and intervals:
            self.scribe.put(intervals)
