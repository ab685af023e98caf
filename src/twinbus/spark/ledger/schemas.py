"""The columns of the pipeline's tables: as readers see them, and as they lie in the parts of a tables folder."""

from __future__ import annotations

from typing import Final

# --- what readers see -------------------------------------------------------------------------------------------------

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

# --- a line of a ledger -----------------------------------------------------------------------------------------------

# Every field of every type of record, in the order of docs/ledger.md.
RECORD: Final = (
    "id string, start_ms bigint, end_ms bigint, source string, namespace string, entity string, kind string, "
    "stage string, outcome string, count bigint, bytes bigint, units bigint, event string, target string, "
    "queue string, cause string, depth bigint, depth_bytes bigint, oldest_ms bigint, dead bigint, sum_ms bigint, "
    "max_ms bigint, buckets array<bigint>, peak bigint"
)
LINE: Final = f"v bigint, type string, {RECORD}"

# --- the parts --------------------------------------------------------------------------------------------------------

# Sums of operations. `file` is where they come from, `lines` how many records they are of; minutes are numbers here.
SUMS: Final = (
    "file string, minute bigint, source string, namespace string, entity string, kind string, stage string, "
    "outcome string, count bigint, bytes bigint, units bigint, lines bigint"
)
# Sums of operations by day, and the first and the last minute they are of (no bytes in tables of
# before they were charged); `month` is the folder's name.
DAYS: Final = (
    "date date, source string, namespace string, entity string, kind string, stage string, outcome string, "
    "count bigint, units bigint, first bigint, last bigint, bytes bigint"
)
# Lines that are not summed: records of other types, and what is no record at first sight.
LINES: Final = "file string, line string, lines bigint"
# Which of 64 consecutive numbers of a run a file has, as bits, and how many lines they are of.
WORDS: Final = "file string, run string, word bigint, bits bigint, lines bigint"
# The numbers of a run that were seen: whole words from `low` to `high` (all bits), or one word with some of its bits.
# `repeated`: how many of these words had numbers that were there already.
SEEN: Final = "run string, low bigint, high bigint, bits bigint, repeated bigint"
# Records of other types and lines in quarantine; `type` is the folder's name.
RECORDS: Final = f"file string, reason string, text string, at timestamp, {RECORD}, type string"
