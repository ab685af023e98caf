"""Sums over ledger files, for `twinbus ledger show`.

Rules:
- Files are read one after the other, line by line; memory grows with the number of groups, which is bounded.
- Sources are counted separately: a send that both the client and the broker recorded is in both ledgers.
- Invalid lines are counted, and the first ones are reported with their position; they never stop the reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from twinbus.errors import LedgerError
from twinbus.ledger import files
from twinbus.ledger.records import Operations, decode
from twinbus.limits import LEDGER_GROUPS_MAX, LEDGER_LINE_BYTES_MAX

if TYPE_CHECKING:
    from pathlib import Path

_FINDINGS_MAX: Final = 10
OTHERS: Final = "$others"


class TotalsKey(NamedTuple):
    """The fields by which operations are grouped."""

    source: str
    namespace: str
    entity: str
    kind: str
    stage: str
    outcome: str


class Sums:
    """The sums of one group."""

    __slots__ = ("bytes", "count", "units")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.units = 0


class Totals:
    """The sums of a whole ledger."""

    def __init__(self, groups_max: int = LEDGER_GROUPS_MAX) -> None:
        # Beyond the limit, new groups are summed as one per source.
        self.groups: dict[TotalsKey, Sums] = {}
        self._groups_max = groups_max
        self.records = 0
        self.files = 0
        self.bad_lines = 0
        # The first invalid lines: file, line and reason.
        self.findings: list[str] = []
        # The period covered; 0 if empty.
        self.start_ms = 0
        self.end_ms = 0

    def read(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self.files += 1
            for number, line in enumerate(files.lines(path, LEDGER_LINE_BYTES_MAX), 1):
                try:
                    record = decode(line)
                except LedgerError as error:
                    self.bad_lines += 1
                    if len(self.findings) < _FINDINGS_MAX:
                        self.findings.append(f"{path.name}:{number}: {error}")
                    continue
                self.records += 1
                self.start_ms = min(self.start_ms or record.start_ms, record.start_ms)
                self.end_ms = max(self.end_ms, record.end_ms)
                if isinstance(record, Operations):
                    self._add(record)

    def _add(self, record: Operations) -> None:
        key = TotalsKey(record.source, record.namespace, record.entity, record.kind, record.stage, record.outcome)
        sums = self.groups.get(key)
        if sums is None:
            if len(self.groups) >= self._groups_max:
                key = TotalsKey(record.source, OTHERS, OTHERS, OTHERS, OTHERS, OTHERS)
            sums = self.groups.setdefault(key, Sums())
        sums.count += record.count
        sums.bytes += record.bytes
        sums.units += record.units
