"""The columns of the pipeline's tables, and of the rows that its tasks hand over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OPERATIONS: Final = (
    "minute timestamp, source string, namespace string, entity string, kind string, stage string, outcome string, "
    "count bigint, bytes bigint, units bigint"
)
CHARGES: Final = (
    "date date, sheet string, currency string, namespace string, stage string, entity string, kind string, "
    "count bigint, units bigint, amount decimal(38,12)"
)
FAILOVERS: Final = (
    "namespace string, entity string, started timestamp, ended timestamp, target string, cause string, "
    "diverted bigint, syphoned bigint, dead_lettered bigint"
)
BACKLOG: Final = (
    "minute timestamp, namespace string, queue string, depth bigint, depth_bytes bigint, oldest_ms bigint, dead bigint"
)
LATENCY: Final = (
    "minute timestamp, namespace string, entity string, queue string, count bigint, sum_ms bigint, max_ms bigint, "
    "buckets array<bigint>"
)
QUARANTINE: Final = "file string, line bigint, reason string, text string, at timestamp"
# Sums of a day, and the first and the last minute they are of, in ms: what charges are made of, whatever the sheet.
DAYS: Final = (
    "date date, source string, namespace string, entity string, kind string, stage string, outcome string, "
    "count bigint, units bigint, first bigint, last bigint, bytes bigint"
)
CONNECTIONS: Final = "hour timestamp, namespace string, peak bigint, first bigint, last bigint"
# Every field of every type of record, in the order of docs/ledger.md.
RECORD: Final = (
    "id string, start_ms bigint, end_ms bigint, source string, namespace string, entity string, kind string, "
    "stage string, outcome string, count bigint, bytes bigint, units bigint, event string, target string, "
    "queue string, cause string, depth bigint, depth_bytes bigint, oldest_ms bigint, dead bigint, sum_ms bigint, "
    "max_ms bigint, buckets array<bigint>, peak bigint"
)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A Delta table: its columns, and the one of `day` and `month` that it is partitioned by, if any."""

    columns: str
    partition: str = ""

    @property
    def all_columns(self) -> str:
        return f"{self.columns}, {self.partition} string" if self.partition else self.columns


TABLES: Final = {
    "operations": TableSpec(OPERATIONS, "day"),
    "charges": TableSpec(CHARGES, "month"),
    "failovers": TableSpec(FAILOVERS),
    "backlog": TableSpec(BACKLOG, "day"),
    "latency": TableSpec(LATENCY, "day"),
    "quarantine": TableSpec(QUARANTINE, "month"),
    "days": TableSpec(DAYS, "month"),
    "connections": TableSpec(CONNECTIONS, "month"),
    "events": TableSpec(RECORD, "month"),
    # Which ledger files were read, by which batch, and which ids of each run were in them.
    "files": TableSpec("path string, size bigint, batch bigint"),
    "seen": TableSpec("run string, low bigint, high bigint"),
}

# What a task hands over, by `part` and `day`: records (operations summed by file and minute), lines in quarantine, how
# many lines each file has (`lines`) and how many of them are in quarantine (`count`), and ranges of ids.
ROWS: Final = (
    f"part string, day string, file bigint, lines bigint, run string, low bigint, high bigint, reason string, "
    f"text string, {RECORD}"
)
