"""Counts a short period by the second, from the ledger's files, because the tables have only minutes.

- The same records count as in the tables, each once, with the stage from the best source (see `queries`).
- Time and bytes read are bounded; longer periods must use the tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from twinbus.errors import LedgerError
from twinbus.ledger.files import lines
from twinbus.ledger.records import Backlog, LedgerRecord, OperationReader, Operations, decode, run_and_number
from twinbus.ledger.words import OK, Kind, LedgerSource, Stage
from twinbus.limits import LEDGER_LINE_BYTES_MAX, REPORT_FINE_BYTES_MAX
from twinbus.spark.ledger.number_set import NumberSet
from twinbus.spark.report.period import Period, moment
from twinbus.spark.store_path import AnyPath, ledger_files

_OUT_OF: Final = (Kind.COMPLETE, Kind.DEAD_LETTER)

# A file covers a minute of a busy ledger, and more of an idle one.
_FILE_S: Final = 3_600

# A namespace and a backlog queue in it.
QueueName = tuple[str, str]


@dataclass(slots=True)
class QueueMoves:
    """One backlog queue by the second: messages and bytes that went in, messages that left, and its measurements."""

    into: Counter[int] = field(default_factory=Counter)
    into_bytes: Counter[int] = field(default_factory=Counter)
    out_of: Counter[int] = field(default_factory=Counter)
    looks: dict[int, Backlog] = field(default_factory=dict)


@dataclass(slots=True)
class SecondCounts:
    """The counts of a period. `stages`: stage -> second -> operations, which may be negative for a moment."""

    stages: dict[str, Counter[int]] = field(default_factory=dict)
    queues: dict[QueueName, QueueMoves] = field(default_factory=dict)
    first_s: int | None = None
    last_s: int | None = None

    def seen(self, at_s: int) -> None:
        self.first_s = at_s if self.first_s is None else min(self.first_s, at_s)
        self.last_s = at_s if self.last_s is None else max(self.last_s, at_s)

    def queue(self, namespace: str, name: str) -> QueueMoves:
        return self.queues.setdefault((namespace, name), QueueMoves())


def count(folders: Sequence[AnyPath], period: Period, namespace: str | None) -> SecondCounts | None:
    """Read the files of a period; None if they are too large."""
    found = [path for folder in folders for path in ledger_files(folder) if _touches(path, period)]
    if sum(path.stat().st_size for path in found) > REPORT_FINE_BYTES_MAX:
        return None
    counts = SecondCounts()
    operations: Counter[tuple[int, tuple[str, ...]]] = Counter()
    sizes: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for entry in _records(found):
        at_s = (entry.start_ms if isinstance(entry, LedgerRecord) else entry[0]) // 1000
        if not period.start_s <= at_s < period.end_s:
            continue
        if isinstance(entry, LedgerRecord):
            counts.seen(at_s)
            if isinstance(entry, Backlog) and namespace in (None, entry.namespace):
                looks = counts.queue(entry.namespace, entry.entity).looks
                looks[at_s] = max(looks.get(at_s, entry), entry, key=lambda look: look.depth)
        elif namespace in (None, entry[1][1]):
            counts.seen(at_s)
            operations[at_s, entry[1]] += entry[2]
            sizes[at_s, entry[1]] += entry[3]
    told = {_month(at_s, names) for at_s, names in operations if names[0] == LedgerSource.BROKER}
    for (at_s, names), number in operations.items():
        for stage, sign in _stages(names, _month(at_s, names) in told):
            counts.stages.setdefault(stage, Counter())[at_s] += sign * number
            if sign > 0:
                _move(counts, at_s, stage, names, number, sizes[at_s, names])
    return counts


def _touches(path: AnyPath, period: Period) -> bool:
    """Whether a file may cover the period, by the time in its name: `broker-20261116T080000Z-...`."""
    opened = path.name.split("-")[1:2]
    first, last = (f"{moment(at_s):%Y%m%dT%H%M%SZ}" for at_s in (period.start_s - _FILE_S, period.end_s + _FILE_S))
    return not opened or first <= opened[0] <= last


def _records(paths: Sequence[AnyPath]) -> Iterator[LedgerRecord | tuple[int, tuple[str, ...], int, int]]:
    """Every record once. Operations, the most frequent, as a tuple of start, names, count and bytes."""
    reader = OperationReader()
    ids: dict[str, NumberSet] = {}
    for path in paths:
        for line in lines(path, LEDGER_LINE_BYTES_MAX):
            fields = reader.read(line)
            if fields is None:
                try:
                    record = decode(line)
                except LedgerError:
                    continue  # it is in the quarantine table
                if not isinstance(record, Operations):
                    run, number = run_and_number(record.id)
                    if ids.setdefault(run, NumberSet()).add(number):
                        yield record
                    continue
                fields = reader.fields(record)
            run, number, start_ms, names, total, size, _ = fields
            if ids.setdefault(run, NumberSet()).add(number):
                yield start_ms, names, total, size


def _month(at_s: int, names: tuple[str, ...]) -> tuple[str, str]:
    return names[1], f"{moment(at_s):%Y-%m}"


def _stages(names: tuple[str, ...], told: bool) -> Iterator[tuple[str, int]]:
    """The stages that an operation counts for, with a sign; `told`: its namespace has a broker's ledger."""
    source, _, _, _, stage, outcome = names
    broker = source == LedgerSource.BROKER
    # A failed ping never reached the broker: only the client knows of it.
    lost = stage == Stage.PING and outcome != OK
    if (broker or lost) if told else not broker:
        yield stage, 1
    if told and source == LedgerSource.SYPHON and stage == Stage.TO_PRIMARY:
        # The broker recorded the same send as direct.
        yield stage, 1
        yield str(Stage.DIRECT), -1


def _move(counts: SecondCounts, at_s: int, stage: str, names: tuple[str, ...], number: int, size: int) -> None:
    _, namespace, entity, kind, _, outcome = names
    if outcome != OK:
        return
    if stage == Stage.TO_BACKLOG and kind == Kind.SEND:
        queue = counts.queue(namespace, entity)
        queue.into[at_s] += number
        queue.into_bytes[at_s] += size
    elif stage == Stage.FROM_BACKLOG and kind in _OUT_OF:
        counts.queue(namespace, entity).out_of[at_s] += number


def settled(values: Sequence[int]) -> tuple[int, ...]:
    """Counts without negative ones and with the same sum: if two clocks differ, a moved send may be subtracted
    early."""
    found, owed = list(values), 0
    for places in (range(len(found)), range(len(found) - 1, -1, -1)):
        for at in places:
            value = found[at] - owed
            found[at], owed = max(value, 0), max(-value, 0)
    return tuple(found)
