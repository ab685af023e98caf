"""The expected tables, computed in plain Python from the lines: slow, short, and independent of Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from twinbus.errors import LedgerError
from twinbus.ledger.prices import Sheet
from twinbus.ledger.records import Backlog, ConnectionsRecord, FailoverEvent, Latency, LedgerRecord, Operations, decode
from twinbus.ledger.words import Event, LedgerSource, Stage

MINUTE_MS = 60_000
BUCKETS = 33


def moment(ms: int) -> datetime:
    """A timestamp as Spark returns it to Python, in a UTC session."""
    return datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None)


def minute(record: LedgerRecord) -> datetime:
    return moment(record.start_ms - record.start_ms % MINUTE_MS)


class Model:
    """The tables of these files. `records` are those that count, each id once."""

    def __init__(self, files: Iterable[Path], sheet: Sheet) -> None:
        self.sheet = sheet
        self.records: dict[str, LedgerRecord] = {}
        self.quarantine: list[tuple[str, str]] = []
        self.lines = 0
        for path in files:
            for line in path.read_bytes().split(b"\n")[:-1]:
                self.lines += 1
                try:
                    record = decode(line)
                except LedgerError as error:
                    self.quarantine.append((str(path), str(error)))
                    continue
                self.records.setdefault(record.id, record)

    def _of(self, kind: type[Any]) -> list[Any]:
        return [each for each in self.records.values() if isinstance(each, kind)]

    def operations(self) -> dict[tuple[Any, ...], tuple[int, ...]]:
        found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
        for each in self._of(Operations):
            key = (
                minute(each),
                *map(str, (each.source, each.namespace, each.entity, each.kind, each.stage, each.outcome)),
            )
            for at, value in enumerate((each.count, each.bytes, each.units)):
                found[key][at] += value
        return {key: tuple(values) for key, values in found.items()}

    def backlog(self) -> dict[tuple[Any, ...], tuple[int, ...]]:
        looks: dict[tuple[Any, ...], list[Backlog]] = defaultdict(list)
        for each in self._of(Backlog):
            looks[minute(each), each.namespace, each.entity].append(each)
        found = {}
        for key, many in looks.items():
            most = max(many, key=lambda each: (each.depth, each.depth_bytes, each.dead))
            found[key] = (most.depth, most.depth_bytes, max(each.oldest_ms for each in many), most.dead)
        return found

    def latency(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        found: dict[tuple[Any, ...], list[Any]] = defaultdict(lambda: [0, 0, 0, [0] * BUCKETS])
        for each in self._of(Latency):
            row = found[minute(each), each.namespace, each.entity, each.queue or ""]
            row[0] += each.count
            row[1] += each.sum_ms
            row[2] = max(row[2], each.max_ms)
            for at, value in enumerate(each.buckets):
                row[3][at] += value
        return {key: (*row[:3], tuple(row[3])) for key, row in found.items()}

    def failovers(self) -> list[tuple[Any, ...]]:
        by_entity: dict[tuple[str, str], list[FailoverEvent]] = defaultdict(list)
        for each in self._of(FailoverEvent):
            by_entity[each.namespace, each.entity].append(each)
        return [row for key, events in by_entity.items() for row in self._episodes(key, events)]

    def _episodes(self, key: tuple[str, str], events: list[FailoverEvent]) -> list[tuple[Any, ...]]:
        backs = sorted(each.start_ms for each in events if each.event is Event.FAILED_BACK)
        spells = []
        for run in {each.id.rpartition("-")[0] for each in events}:
            own = [each for each in events if each.id.rpartition("-")[0] == run]
            own.sort(key=lambda each: (each.start_ms, int(each.id.rpartition("-")[2], 16)))
            told = (Event.FAILED_OVER, Event.FAILED_BACK, Event.DIVERTED)
            heard = max((each.end_ms for each in own if each.event in told), default=0)
            begun: FailoverEvent | None = None
            for each in own:
                if each.event is Event.FAILED_OVER and begun is None:
                    begun = each
                elif each.event is Event.FAILED_BACK and begun is not None:
                    spells.append((begun.start_ms, begun.id, begun, each.start_ms))
                    begun = None
            if begun is not None:
                later = [at for at in backs if at > heard]
                spells.append((begun.start_ms, begun.id, begun, later[0] if later else None))
        episodes: list[list[Any]] = []
        for start, _, begun, end in sorted(spells, key=lambda each: each[:2]):
            if episodes and (episodes[-1][2] is None or start <= episodes[-1][2]):
                episodes[-1][2] = None if end is None or episodes[-1][2] is None else max(end, episodes[-1][2])
            else:
                episodes.append([begun, start, end])
        found = []
        for at, (begun, start, end) in enumerate(episodes):
            after = episodes[at + 1][1] if at + 1 < len(episodes) else 2**62
            sums = [
                sum(each.count for each in events if each.event is event and start <= each.end_ms < after)
                for event in (Event.DIVERTED, Event.SYPHONED, Event.DEAD_LETTERED)
            ]
            ended = None if end is None else moment(end)
            found.append((*key, moment(start), ended, begun.target, begun.cause, *sums))
        return found

    # --- money --------------------------------------------------------------------------------------------------------

    def charges(self) -> dict[tuple[Any, ...], tuple[int, int, Decimal]]:
        """By date, namespace, stage, entity and kind: operations, units, amount."""
        months: dict[tuple[str, str], list[Operations]] = defaultdict(list)
        for each in self._of(Operations):
            months[each.namespace, f"{minute(each):%Y-%m}"].append(each)
        found: dict[tuple[Any, ...], tuple[int, int, Decimal]] = {}
        for (namespace, _), records in months.items():
            found |= self._of_operations(namespace, records)
            found |= self._of_bandwidth(namespace, records)
        peaks: dict[tuple[str, datetime], int] = defaultdict(int)
        times: dict[tuple[str, str], list[datetime]] = defaultdict(list)
        for each in self._of(ConnectionsRecord):
            hour = minute(each).replace(minute=0)
            peaks[each.namespace, hour] = max(peaks[each.namespace, hour], each.peak)
        for each in (*self._of(Operations), *self._of(ConnectionsRecord)):
            times[each.namespace, f"{minute(each):%Y-%m}"].append(minute(each).replace(minute=0))
        for (namespace, month), hours in times.items():
            found |= self._of_base(namespace, min(hours), max(hours))
            found |= self._of_connections(
                namespace, {h: p for (n, h), p in peaks.items() if n == namespace and f"{h:%Y-%m}" == month}
            )
        return found

    def _of_operations(
        self, namespace: str, records: list[Operations]
    ) -> dict[tuple[Any, ...], tuple[int, int, Decimal]]:
        has_broker = any(each.source is LedgerSource.BROKER for each in records)
        sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
        home: dict[tuple[date, str], list[int]] = defaultdict(lambda: [0, 0])
        for each in records:
            if not self.sheet.billed(each.kind, each.outcome):
                continue
            day, numbers = minute(each).date(), (each.count, self.sheet.units(each.count, each.units))
            if has_broker and each.source is not LedgerSource.BROKER:
                if (each.kind, each.stage) == ("send", Stage.TO_PRIMARY):
                    home[day, each.entity.lower()] = [
                        a + b for a, b in zip(home[day, each.entity.lower()], numbers, strict=True)
                    ]
                continue
            key = (day, namespace, str(each.stage), each.entity, each.kind)
            sums[key] = [a + b for a, b in zip(sums[key], numbers, strict=True)]
        for key in list(sums):
            day, _, stage, entity, kind = key
            if has_broker and (stage, kind) == ("direct", "send") and (day, entity.lower()) in home:
                count, units = sums[key]
                moved_count = min(count, home[day, entity.lower()][0])
                moved_units = units if moved_count == count else min(units, home[day, entity.lower()][1])
                sums[key] = [count - moved_count, units - moved_units]
                there = (day, namespace, "to-primary", entity, kind)
                sums[there] = [sums[there][0] + moved_count, sums[there][1] + moved_units]
        found = {}
        so_far = 0
        for key in sorted(key for key, (count, _) in sums.items() if count):
            count, units = sums[key]
            found[key] = (count, units, self.sheet.operations_cost(so_far, units))
            so_far += units
        return found

    def _of_bandwidth(
        self, namespace: str, records: list[Operations]
    ) -> dict[tuple[Any, ...], tuple[int, int, Decimal]]:
        if not any(tier.price for tier in self.sheet.bandwidth.steps):
            return {}
        has_broker = any(each.source is LedgerSource.BROKER for each in records)
        sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
        for each in records:
            own = each.source is LedgerSource.BROKER or not has_broker
            # A stage without traffic on a day has no row; the tables see sums of days, not records.
            if own and each.bytes and self.sheet.billed(each.kind, each.outcome):
                key = (minute(each).date(), namespace, "bandwidth", each.entity, str(each.stage))
                sums[key] = [sums[key][0] + each.count, sums[key][1] + each.bytes]
        found = {}
        so_far = 0
        for key in sorted(sums):
            count, units = sums[key]
            found[key] = (count, units, self.sheet.bandwidth_cost(so_far, units))
            so_far += units
        return found

    def _of_base(
        self, namespace: str, first: datetime, last: datetime
    ) -> dict[tuple[Any, ...], tuple[int, int, Decimal]]:
        hours: dict[date, int] = defaultdict(int)
        while first <= last:
            hours[first.date()] += 1
            first += timedelta(hours=1)
        return {
            (day, namespace, "base", "", "base"): (count, count, self.sheet.base_cost(count))
            for day, count in hours.items()
        }

    def _of_connections(
        self, namespace: str, peaks: dict[datetime, int]
    ) -> dict[tuple[Any, ...], tuple[int, int, Decimal]]:
        found = {}
        so_far = 0
        for day in sorted({hour.date() for hour in peaks}):
            of_day = [peak for hour, peak in peaks.items() if hour.date() == day]
            if not sum(of_day):
                continue
            amount = self.sheet.connections.cost(so_far, sum(of_day))
            found[day, namespace, "connections", "", "connections"] = (max(of_day), sum(of_day), amount)
            so_far += sum(of_day)
        return found
