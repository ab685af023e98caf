"""Lines that no writer of ours wrote like that: the decoder says what they are, or what is wrong with them.

They are few: what a sound line is, expressions tell (`lines.py`). This runs in Spark's Python workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as F

from twinbus.errors import LedgerError
from twinbus.ledger.records import LedgerRecord, decode
from twinbus.spark.ledger import schemas
from twinbus.spark.ledger.lines import ID, bound

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

QUARANTINE: Final = "quarantine"
TEXT_CHARS_MAX: Final = 500
_SECRET: Final = re.compile(r"((?:SharedAccessKey|SharedAccessSignature|sig)\s*=\s*)[^;&\s'\")]+", re.IGNORECASE)

# A decoded line: the record with its id's run and number, or the reason why it is none.
DECODED: Final = (
    f"type string, file string, reason string, text string, {schemas.RECORD}, run string, number bigint, word bigint, "
    "bit bigint"
)


def decoded(lines: DataFrame) -> DataFrame:
    """The records of lines (file, line, lines), and of those that are none one row of quarantine for each time."""
    given = lines.select("file", F.col("line").cast("binary").alias("line"), "lines")
    return given.mapInArrow(_decode, DECODED)


def path_of(uri: str) -> str:
    """A file's path, of the address that Spark has for it."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


def _decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow

    # Workers have no session that could read the columns' text.
    kinds = {"string": pyarrow.string(), "bigint": pyarrow.int64(), "array<bigint>": pyarrow.list_(pyarrow.int64())}
    columns = [each.split(" ") for each in DECODED.split(", ")]
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns])
    for batch in batches:
        rows: list[dict[str, Any]] = []
        for file, line, times in zip(*(batch.column(name).to_pylist() for name in batch.schema.names), strict=True):
            rows += _rows(path_of(file), line, times)
        yield pyarrow.RecordBatch.from_pylist(rows, schema=schema)


def _check(record: LedgerRecord) -> None:
    for each in fields(record):
        value = getattr(record, each.name)
        if isinstance(value, int) and value > bound(each.name):
            raise LedgerError(f"'{each.name}' is too large to be true: it is at most {bound(each.name)}")


def _rows(file: str, line: bytes, times: int) -> list[dict[str, Any]]:
    try:
        record = decode(line)
        _check(record)
    except LedgerError as error:
        text = _SECRET.sub(r"\1***", line.decode(errors="replace"))[:TEXT_CHARS_MAX]
        return [{"type": QUARANTINE, "file": file, "reason": str(error), "text": text}] * times
    found: dict[str, Any] = {each.name: getattr(record, each.name) for each in fields(record)}
    found = {name: str(value) if isinstance(value, str) else value for name, value in found.items()}
    if "buckets" in found:
        found["buckets"] = list(found["buckets"])
    if re.fullmatch(ID, record.id):
        run, _, digits = record.id.rpartition("-")
        number = int(digits, 16)
    else:
        # Not one of a writer's numbers: a run of its own. No run has this sign.
        run, number = f"={record.id}", 0
    bit = 1 << (number & 63)
    found |= {"run": run, "number": number, "word": number >> 6, "bit": bit - (1 << 64) if bit >> 63 else bit}
    return [{"type": record.type, "file": file, **found}]
