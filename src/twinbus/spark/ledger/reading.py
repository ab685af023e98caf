"""Reads ledger files in Spark tasks: each task decodes and sums some files.

- `records.decode` alone decides what a line is, and what is wrong with one that is not a record.
- Operations are summed by file and minute, and ids are ranges, so a task's output does not grow with the number of
  lines.
- A task counts an id once per file. Whether another file has it, too, is for the driver to find out: it reads such a
  file again and says which numbers count.
- A file that was deleted meanwhile counts as empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from twinbus.errors import LedgerError
from twinbus.ledger.files import lines
from twinbus.ledger.records import LedgerRecord, OperationReader, Operations, decode, run_and_number
from twinbus.limits import LEDGER_LINE_BYTES_MAX
from twinbus.spark.ledger import schemas
from twinbus.spark.ledger.number_set import NumberSet
from twinbus.spark.store_path import AnyPath, path_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MINUTE_MS: Final = 60_000
FILES: Final = "files"
IDS: Final = "ids"
QUARANTINE: Final = "quarantine"
TEXT_CHARS_MAX: Final = 500
_TASK_BYTES: Final = 64 * 1024 * 1024
_ROWS: Final = 20_000
_SECRET: Final = re.compile(r"((?:SharedAccessKey|SharedAccessSignature|sig)\s*=\s*)[^;&\s'\")]+", re.IGNORECASE)
_KEYS: Final = ("source", "namespace", "entity", "kind", "stage", "outcome")

# The numbers of a file that count, by run.
Allowed = Mapping[str, NumberSet]


def read(spark: SparkSession, files: Mapping[str, int], allowed: Mapping[int, Allowed] | None = None) -> DataFrame:
    """The rows of these files, numbered in their order; with `allowed`, only of the files in it."""
    numbers = list(range(len(files))) if allowed is None else sorted(allowed)
    tasks = max(sum(files.values()) // _TASK_BYTES, spark.sparkContext.defaultParallelism)
    given = spark.range(0, len(numbers), 1, min(len(numbers), tasks))
    return given.mapInArrow(_Reading(list(files), numbers, allowed), schemas.ROWS)


class _Reading:
    """The task: numbers of files in, rows out."""

    def __init__(self, paths: Sequence[str], numbers: Sequence[int], allowed: Mapping[int, Allowed] | None) -> None:
        self._paths = paths
        self._numbers = numbers
        self._allowed = allowed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        # Workers have no session that could parse the schema string.
        kinds = {"string": pyarrow.string(), "bigint": pyarrow.int64(), "array<bigint>": pyarrow.list_(pyarrow.int64())}
        columns = [each.split(" ") for each in schemas.ROWS.split(", ")]
        schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns])
        reader = OperationReader()
        rows: list[dict[str, Any]] = []
        for batch in batches:
            for at in batch.column(0).to_pylist():
                number = self._numbers[at]
                allowed = None if self._allowed is None else self._allowed[number]
                rows += file_rows(path_of(self._paths[number]), number, reader, allowed)
                if len(rows) >= _ROWS:
                    yield pyarrow.RecordBatch.from_pylist(rows, schema=schema)
                    rows = []
        yield pyarrow.RecordBatch.from_pylist(rows, schema=schema)


def file_rows(
    path: AnyPath, number: int, reader: OperationReader, allowed: Allowed | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of one file; with `allowed`, only those records, because the others are known."""
    sums: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    ids: dict[str, NumberSet] = {}
    others: list[dict[str, Any]] = []
    total = bad = 0

    def is_new(run: str, at: int) -> bool:
        if allowed is not None and (run not in allowed or at not in allowed[run]):
            return False
        known = ids.get(run)
        if known is None:
            known = ids[run] = NumberSet()
        return known.add(at)

    for line in _lines(path):
        total += 1
        found = reader.read(line)
        if found is None:
            try:
                record = decode(line)
            except LedgerError as error:
                bad += 1
                if allowed is None:
                    others.append(_bad(path, line, error))
                continue
            if not isinstance(record, Operations):
                if is_new(*run_and_number(record.id)):
                    others.append(_record(record))
                continue
            found = reader.fields(record)
        run, at, start_ms, names, count, size, units = found
        if not is_new(run, at):
            continue
        key = (start_ms - start_ms % MINUTE_MS, names)
        sum_ = sums.get(key)
        if sum_ is None:
            sums[key] = [count, size, units]
        else:
            sum_[0] += count
            sum_[1] += size
            sum_[2] += units
    for (minute, names), (count, size, units) in sums.items():
        yield {
            "part": Operations.type,
            "day": day_of(minute),
            "file": number,
            "start_ms": minute,
            **dict(zip(_KEYS, names, strict=True)),
            "count": count,
            "bytes": size,
            "units": units,
        }
    for row in others:
        yield {**row, "file": number}
    if allowed is None:
        for run, numbers in ids.items():
            for low, high in numbers:
                yield {"part": IDS, "day": "-", "file": number, "run": run, "low": low, "high": high}
        yield {"part": FILES, "day": "-", "file": number, "lines": total, "count": bad}


@lru_cache(1024)
def day_of(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d}"


def _lines(path: AnyPath) -> Iterator[bytes]:
    try:
        yield from lines(path, LEDGER_LINE_BYTES_MAX)
    except FileNotFoundError:
        return


def _bad(path: AnyPath, line: bytes, error: LedgerError) -> dict[str, Any]:
    text = _SECRET.sub(r"\1***", line.decode(errors="replace"))[:TEXT_CHARS_MAX]
    return {"part": QUARANTINE, "day": "-", "run": str(path), "reason": str(error), "text": text}


def _record(record: LedgerRecord) -> dict[str, Any]:
    found: dict[str, Any] = {each.name: getattr(record, each.name) for each in fields(record)}
    found = {name: str(value) if isinstance(value, str) else value for name, value in found.items()}
    return {"part": record.type, "day": day_of(record.start_ms - record.start_ms % MINUTE_MS), **found}
