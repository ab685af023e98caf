"""The last hour of the ledger: operations by kind and minute, and the events of pairs.

- A thread reads the files, each complete one only once: its sums are kept while it belongs to the last hour.
- The file being written is read, too; if its last line is incomplete, it is left for the next time.
- Without a ledger the meter's counters are shown, which count from the broker's start.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus.auth.policies import Right
from twinbus.errors import LedgerError
from twinbus.ledger import files
from twinbus.ledger.records import FailoverEvent, Operations, decode
from twinbus.ledger.words import OK, Kind, LedgerSource
from twinbus.limits import (
    CONSOLE_EVENTS_MAX,
    CONSOLE_LEDGER_BYTES_MAX,
    CONSOLE_LEDGER_MS,
    LEDGER_FILE_MS_MAX,
    LEDGER_LINE_BYTES_MAX,
)

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.visitor import Visitor

_MINUTE_MS = 60_000
_STAMP = re.compile(r"-(\d{8}T\d{6}Z)-")

# Lower-case namespace, source, kind, success, minute.
_Group = tuple[str, str, str, bool, int]


class FileSums:
    """The sums of one file."""

    __slots__ = ("bytes", "events", "groups")

    def __init__(self) -> None:
        self.bytes = 0
        self.groups: dict[_Group, tuple[int, int]] = {}
        self.events: list[FailoverEvent] = []

    def read(self, path: Path) -> None:
        for line in files.lines(path, LEDGER_LINE_BYTES_MAX):
            self.bytes += len(line) + 1
            try:
                record = decode(line)
            except LedgerError:
                continue
            if isinstance(record, Operations):
                ok = record.outcome == OK
                group = (record.namespace.lower(), record.source, record.kind, ok, record.end_ms // _MINUTE_MS)
                count, units = self.groups.get(group, (0, 0))
                self.groups[group] = (count + record.count, units + record.units)
            elif isinstance(record, FailoverEvent):
                self.events.append(record)
        del self.events[: -2 * CONSOLE_EVENTS_MAX]


class Hour:
    """Reads the ledger's last hour on demand."""

    def __init__(self) -> None:
        # Complete files of the last hour, by name.
        self._known: dict[str, FileSums] = {}
        # One read at a time.
        self._lock = asyncio.Lock()

    async def ledger(self, visitor: Visitor, namespace: str) -> dict[str, Any]:
        """The operations of one namespace."""
        host = visitor.host(namespace)
        visitor.need(host, "", Right.LISTEN)
        now_ms = host.clock.now_ms()
        scribe = host.meter.scribe
        if scribe is None:
            return _since_start(host)
        sums, partial = await self._read(scribe.folder, now_ms)
        return {"namespace": host.name, "since": "hour", "partial": partial, **_added(sums, host.name.lower(), now_ms)}

    async def events(self, visitor: Visitor, namespace: str) -> dict[str, Any]:
        """The events of pairs whose ledger is in the same folder, latest first."""
        host = visitor.host(namespace)
        visitor.need(host, "", Right.LISTEN)
        scribe = host.meter.scribe
        if scribe is None:
            return {"ledger": False, "events": []}
        now_ms = host.clock.now_ms()
        sums, _ = await self._read(scribe.folder, now_ms)
        open_names = {each.name.lower() for each in visitor.hosts if visitor.may(each, "", Right.LISTEN)}
        all_open = len(open_names) == len(visitor.hosts)
        found = [
            event
            for each in sums
            for event in each.events
            if event.end_ms > now_ms - CONSOLE_LEDGER_MS and (all_open or event.namespace.lower() in open_names)
        ]
        found.sort(key=_end, reverse=True)
        return {"ledger": True, "events": [_event(each) for each in found[:CONSOLE_EVENTS_MAX]]}

    async def _read(self, folder: Path, now_ms: int) -> tuple[list[FileSums], bool]:
        async with self._lock:
            return await asyncio.get_running_loop().run_in_executor(None, self._sum, folder, now_ms)

    def _sum(self, folder: Path, now_ms: int) -> tuple[list[FileSums], bool]:
        """The sums of every file of the last hour, latest first; True if there was too much to read."""
        since_ms = now_ms - CONSOLE_LEDGER_MS - 2 * LEDGER_FILE_MS_MAX
        known, self._known = self._known, {}
        found: list[FileSums] = []
        size = 0
        # Open files first: one that is completed meanwhile is then missing for a moment, but never counted twice.
        for path in (*files.open_files(folder), *reversed(files.complete_files(folder))):
            if _stamp_ms(path) < since_ms:
                continue
            if size > CONSOLE_LEDGER_BYTES_MAX:
                return found, True
            sums = known.get(path.name) or FileSums()
            if path.name not in known:
                with suppress(FileNotFoundError):
                    sums.read(path)
            if path.suffix == files.COMPLETE:
                self._known[path.name] = sums
            size += sums.bytes
            found.append(sums)
        return found, False


def _added(sums: Iterable[FileSums], name: str, now_ms: int) -> dict[str, Any]:
    last = now_ms // _MINUTE_MS
    first = last - CONSOLE_LEDGER_MS // _MINUTE_MS + 1
    kinds: dict[str, list[int]] = {}
    minutes = [0] * (last - first + 1)
    others: dict[str, int] = {}
    for each in sums:
        for (namespace, source, kind, ok, minute), (count, units) in each.groups.items():
            if namespace != name or not first <= minute <= last:
                continue
            if source != LedgerSource.BROKER:
                others[source] = others.get(source, 0) + count
                continue
            _add(kinds, kind, count, units, ok)
            minutes[minute - first] += count
    return {**_totals(kinds), "minutes": minutes, "first_ms": first * _MINUTE_MS, "others": others}


def _since_start(host: NamespaceHost) -> dict[str, Any]:
    kinds: dict[str, list[int]] = {}
    for _, counter in host.meter.labelled():
        if counter.count:
            _add(kinds, counter.kind, counter.count, counter.units, counter.outcome == OK)
    return {"namespace": host.name, "since": "start", "partial": False, **_totals(kinds), "minutes": [], "others": {}}


def _add(kinds: dict[str, list[int]], kind: str, count: int, units: int, ok: bool) -> None:
    numbers = kinds.setdefault(str(kind), [0, 0, 0])
    numbers[0] += count
    numbers[1] += units
    numbers[2] += 0 if ok else count


def _totals(kinds: dict[str, list[int]]) -> dict[str, Any]:
    rows = sorted(kinds.items(), key=lambda item: -item[1][0])
    return {
        "kinds": [{"kind": kind, "count": n[0], "units": n[1], "failed": n[2]} for kind, n in rows],
        "operations": sum(n[0] for n in kinds.values()),
        "units": sum(n[1] for n in kinds.values()),
        "failed": sum(n[2] for n in kinds.values()),
        "pings": kinds.get(Kind.PING, [0])[0],
        "empty_polls": kinds.get(Kind.EMPTY_POLL, [0])[0],
    }


def _event(record: FailoverEvent) -> dict[str, Any]:
    return {
        "at_ms": record.end_ms,
        "event": record.event,
        "source": record.source,
        "namespace": record.namespace,
        "entity": record.entity,
        "target": record.target,
        "queue": record.queue,
        "cause": record.cause,
        "count": record.count,
    }


def _end(record: FailoverEvent) -> int:
    return record.end_ms


def _stamp_ms(path: Path) -> int:
    """When a file was started, according to its name; 0 if the name is not ours."""
    found = _STAMP.search(path.name)
    if found is None:
        return 0
    try:
        return round(datetime.strptime(found[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return 0
