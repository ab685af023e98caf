"""The columns of the pipeline's tables and of the rows that tasks return."""

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
# Sums of a day, with its first and last minute in ms: the input of the charges, for any sheet.
DAYS: Final = (
    "date date, source string, namespace string, entity string, kind string, stage string, outcome string, "
    "count bigint, units bigint, first bigint, last bigint, bytes bigint"
)
CONNECTIONS: Final = "hour timestamp, namespace string, peak bigint, first bigint, last bigint"
# All fields of all record types, in the order of docs/ledger.md.
RECORD: Final = (
    "id string, start_ms bigint, end_ms bigint, source string, namespace string, entity string, kind string, "
    "stage string, outcome string, count bigint, bytes bigint, units bigint, event string, target string, "
    "queue string, cause string, depth bigint, depth_bytes bigint, oldest_ms bigint, dead bigint, sum_ms bigint, "
    "max_ms bigint, buckets array<bigint>, peak bigint"
)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A Delta table: its columns, and its partition column, `day` or `month`, if any."""

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
    # The ledger files processed, with their batch, and the known ids of each run.
    "files": TableSpec("path string, size bigint, batch bigint"),
    "seen": TableSpec("run string, low bigint, high bigint"),
}

# What a task returns, by `part` and `day`: records (operations summed by file and minute), quarantined lines, each
# file's
# number of lines (`lines`) and of quarantined lines (`count`), and ranges of ids.
ROWS: Final = (
    f"part string, day string, file bigint, lines bigint, run string, low bigint, high bigint, reason string, "
    f"text string, {RECORD}"
)
