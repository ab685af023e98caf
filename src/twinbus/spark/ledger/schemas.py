"""The columns of the pipeline's tables, as readers see them."""

from __future__ import annotations

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
