"""Sums a ledger's files in plain Python, in another way than the pipeline and the report."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

import numpy

from twinbus.ledger.files import complete_files
from twinbus.ledger.prices import Sheet, Tiers
from twinbus.ledger.records import (
    LATENCY_BOUNDS_MS,
    Backlog,
    ConnectionsRecord,
    FailoverEvent,
    Latency,
    LedgerRecord,
    Operations,
    decode,
)

HOUR_MS = 3_600_000


@dataclass
class Amount:
    """Billed operations, their units, and their amount on the bill."""

    count: int = 0
    units: int = 0
    bill: Fraction = Fraction(0)


@dataclass
class Spell:
    """One entity's failover, with the messages reported until the entity's next one."""

    entity: str
    start_ms: int
    cause: str
    end_ms: int = 0
    messages: Counter[str] = field(default_factory=Counter)


class Recount:
    """A ledger of one day with two namespaces, both with a broker's ledger."""

    def __init__(self, folder: Path, sheet: Sheet) -> None:
        self.sheet = sheet
        records = [decode(line) for path in complete_files(folder) for line in path.read_bytes().splitlines()]
        self.first_s = min(each.start_ms for each in records) // 1000
        self.last_s = max(each.start_ms for each in records) // 1000
        told = {each.namespace for each in records if isinstance(each, Operations) and each.source == "broker"}
        # Every operation once: when, where, what, how many.
        self.operations: list[tuple[Operations, str, int]] = []
        for each in records:
            if isinstance(each, Operations):
                assert each.namespace in told
                self._take(each)
        self.looks = [each for each in records if isinstance(each, Backlog)]
        self.times = [each for each in records if isinstance(each, Latency)]
        self.spells = self._spells([each for each in records if isinstance(each, FailoverEvent)])
        self.events: Counter[str] = Counter()
        for spell in self.spells:
            self.events += spell.messages
        self.charges = self._charges(records)

    def _take(self, each: Operations) -> None:
        """A broker saw every operation of its namespace except pings that never came; the syphon knows its own
        sends."""
        home = each.source == "syphon" and each.stage == "to-primary"
        if each.source == "broker" or home or (each.stage == "ping" and each.outcome != "ok"):
            self.operations.append((each, str(each.stage), each.count))
        if home:
            # The broker recorded the same send as direct.
            self.operations.append((each, "direct", -each.count))

    # --- operations ---------------------------------------------------------------------------------------------------

    def counts(self, *, billed: bool = False, since_s: int = 0, until_s: int = 2**40) -> Counter[str]:
        """Operations by stage."""
        found: Counter[str] = Counter()
        for each, stage, count in self.operations:
            if since_s <= each.start_ms // 1000 < until_s and not (billed and self._free(each)):
                found[stage] += count
        return found

    def by_piece(self, width_s: int) -> dict[str, Counter[int]]:
        found: dict[str, Counter[int]] = defaultdict(Counter)
        for each, stage, count in self.operations:
            found[stage][each.start_ms // 1000 // width_s] += count
        return found

    def flow(self, kind: str, *stages: str) -> int:
        return sum(n for each, stage, n in self.operations if each.kind == kind and stage in stages)

    def _free(self, each: Operations) -> bool:
        return each.kind in self.sheet.free_kinds or each.outcome != "ok"

    # --- the bill -----------------------------------------------------------------------------------------------------

    def _charges(self, records: list[LedgerRecord]) -> dict[tuple[str, str, str], Amount]:
        """Namespace, stage and entity -> amount on the bill, one unit after the other through the month's tiers."""
        rows: Counter[tuple[str, str, str, str]] = Counter()
        units: Counter[tuple[str, str, str, str]] = Counter()
        sizes: Counter[tuple[str, str, str]] = Counter()
        carried: Counter[tuple[str, str, str]] = Counter()
        for each, stage, count in self.operations:
            if self._free(each):
                continue
            key = (each.namespace, stage, each.entity, each.kind)
            rows[key] += count
            units[key] += each.units if count > 0 else -each.units
            if each.source == "broker" and each.bytes:
                sizes[each.namespace, each.entity, str(each.stage)] += each.bytes
                carried[each.namespace, each.entity, str(each.stage)] += each.count
        found: dict[tuple[str, str, str], Amount] = defaultdict(Amount)
        used: Counter[str] = Counter()
        for key in sorted(rows):
            namespace, stage, entity, _ = key
            amount = found[namespace, stage, entity]
            amount.count += rows[key]
            amount.units += units[key]
            amount.bill += price(self.sheet.operations, used[namespace], units[key])
            used[namespace] += units[key]
        used.clear()
        for namespace, entity, stage in sorted(sizes):
            size = sizes[namespace, entity, stage]
            amount = found[namespace, "bandwidth", entity]
            amount.bill += price(self.sheet.bandwidth, used[namespace], size)
            used[namespace] += size
        self._fixed(records, found)
        return dict(found)

    def _fixed(self, records: list[LedgerRecord], found: dict[tuple[str, str, str], Amount]) -> None:
        """By the hour: the base charge, and the peak of connections."""
        hours: dict[str, set[int]] = defaultdict(set)
        peaks: Counter[tuple[str, int]] = Counter()
        for each in records:
            if isinstance(each, Operations | ConnectionsRecord):
                hours[each.namespace].add(each.start_ms // HOUR_MS)
            if isinstance(each, ConnectionsRecord):
                at = (each.namespace, each.start_ms // HOUR_MS)
                peaks[at] = max(peaks[at], each.peak)
        for namespace, some in hours.items():
            length = max(some) - min(some) + 1
            found[namespace, "base", ""].bill += length * Fraction(self.sheet.base_per_hour)
            together = sum(peak for (where, _), peak in peaks.items() if where == namespace)
            if together:
                found[namespace, "connections", ""].bill += price(self.sheet.connections, 0, together)

    def charged(self, *, stage: str | None = None, entity: tuple[str, str] | None = None) -> Amount:
        total = Amount()
        for (namespace, which, name), each in self.charges.items():
            if stage not in (None, which) or entity not in (None, (namespace, name)):
                continue
            total.count += each.count
            total.units += each.units
            total.bill += each.bill
        return total

    # --- failovers ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _spells(events: list[FailoverEvent]) -> list[Spell]:
        spells: list[Spell] = []
        for each in sorted(events, key=lambda event: event.start_ms):
            own = [spell for spell in spells if spell.entity == each.entity]
            if each.event == "failed-over":
                spells.append(Spell(each.entity, each.start_ms, each.cause or "-"))
            elif each.event == "failed-back":
                own[-1].end_ms = each.start_ms
            else:
                own[-1].messages[str(each.event)] += each.count
        return spells

    def outages(self) -> list[list[Spell]]:
        """Groups of overlapping spells."""
        found: list[list[Spell]] = []
        for spell in sorted(self.spells, key=lambda each: each.start_ms):
            if found and spell.start_ms <= max(each.end_ms for each in found[-1]):
                found[-1].append(spell)
            else:
                found.append([spell])
        return found

    # --- the backlog --------------------------------------------------------------------------------------------------

    def deepest_by_minute(self) -> int:
        """The maximum measured in all queues together within a minute."""
        seen: Counter[tuple[int, str]] = Counter()
        for look in self.looks:
            at = (look.start_ms // 60_000, look.entity)
            seen[at] = max(seen[at], look.depth)
        minutes: Counter[int] = Counter()
        for (minute, _), depth in seen.items():
            minutes[minute] += depth
        return max(minutes.values())

    def _so_far(self, stage: str, kind: str, what: str, queue: str | None) -> list[int]:
        """Messages or bytes of a queue, or of all, up to the end of each second."""
        change: Counter[int] = Counter()
        for each, own, _ in self.operations:
            if (own, each.kind) == (stage, kind) and queue in (None, each.entity):
                change[each.start_ms // 1000] += getattr(each, what)
        return list(accumulate(change[at] for at in range(self.first_s, self.last_s + 1)))

    def held(self, queue: str | None = None) -> list[int]:
        """Messages in the backlog at the end of each second: all that went in so far minus all that left."""
        into = self._so_far("to-backlog", "send", "count", queue)
        return [a - b for a, b in zip(into, self._so_far("from-backlog", "complete", "count", queue), strict=True)]

    def oldest_s(self, queue: str) -> int:
        """The greatest age, measured from the second in which the first remaining message came."""
        into = self._so_far("to-backlog", "send", "count", queue)
        left = self._so_far("from-backlog", "complete", "count", queue)
        ages = [at + 1 - bisect_right(into, gone) for at, gone in enumerate(left) if into[at] > gone]
        return max(ages, default=0)

    def held_bytes(self, queue: str) -> int:
        """The maximum of the bytes that went in with the messages that have not left."""
        into = self._so_far("to-backlog", "send", "count", queue)
        sizes = self._so_far("to-backlog", "send", "bytes", queue)
        left = self._so_far("from-backlog", "complete", "count", queue)
        gone = numpy.interp(left, [0, *into], [0, *sizes])
        return round(max(size - out for size, out in zip(sizes, gone, strict=True)))

    # --- times --------------------------------------------------------------------------------------------------------

    def latency(self, entity: str | None = None) -> LatencyFigures:
        return LatencyFigures([each for each in self.times if entity in (None, each.entity)])


class LatencyFigures:
    """Times through the backlog as a function of the count: messages are evenly spread within each bucket."""

    def __init__(self, records: list[Latency]) -> None:
        self.count = sum(each.count for each in records)
        self.mean_ms = Fraction(sum(each.sum_ms for each in records), self.count)
        self.max_ms = max(each.max_ms for each in records)
        self._counts, self._times = [Fraction(0)], [Fraction(0)]
        for at, bound in enumerate((*LATENCY_BOUNDS_MS, self.max_ms)):
            inside = sum(each.buckets[at] for each in records if at < len(each.buckets))
            low = Fraction(LATENCY_BOUNDS_MS[at - 1] if at else 0)
            if inside:
                self._counts += [self._counts[-1], self._counts[-1] + inside]
                self._times += [low, Fraction(max(min(bound, self.max_ms), low))]

    def within_ms(self, part: Fraction) -> Fraction:
        wanted = part * self.count
        at = bisect_left(self._counts, wanted)
        low, high = self._counts[at - 1], self._counts[at]
        way = (wanted - low) / (high - low) if high > low else Fraction(1)
        return self._times[at - 1] + way * (self._times[at] - self._times[at - 1])


def price(tiers: Tiers, used: int, units: int) -> Fraction:
    """The cost of units that follow `used` ones in the same month: the part in each tier at its price."""
    total, low = Fraction(0), 0
    for tier in tiers.steps:
        high = max(used + units, used) if tier.up_to is None else tier.up_to
        inside = max(min(high, used + units) - max(low, used), 0)
        total += inside * Fraction(tier.price) / tiers.per
        low = high
    return total
