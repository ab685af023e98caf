"""From lines of ledger files to sums: the one pass over everything.

Rules:
- A line is *sound* when it is, byte for byte, what `records.encode` writes for the fields found in it, and the fields
  are what `records.decode` asks for. That is checked by expressions; whatever is not sound is left to the decoder.
- Operations are summed by file and minute in the same pass that notes which ids were there, as bits: nothing is
  parsed twice, and neither result grows with the number of lines.
- Files are read as they are listed; one that is gone meanwhile is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from twinbus.ledger.records import FORMAT, LATENCY_BOUNDS_MS, TYPES, LedgerRecord, Operations
from twinbus.ledger.words import OK, Event, Kind, LedgerSource, Stage
from twinbus.limits import LEDGER_LINE_BYTES_MAX, TIME_MS_MAX
from twinbus.spark.ledger import schemas

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MINUTE_MS: Final = 60_000
# Numbers beyond these are not what anybody counted, and sums of them would overflow.
TIMES_MAX: Final = 2**53
COUNTS_MAX: Final = 2**40
_TIMES: Final = frozenset({"sum_ms", "max_ms", "oldest_ms"})
_MOMENTS: Final = frozenset({"start_ms", "end_ms"})

_NAMES: Final = frozenset({"namespace", "entity", "target", "queue"})
_WORDS: Final = {
    "source": [str(each) for each in LedgerSource],
    "stage": [str(each) for each in Stage],
    "event": [str(each) for each in Event],
    # Others are left to the decoder, which takes every word.
    "kind": [str(each) for each in Kind],
}
_TEXTS: Final = _NAMES | _WORDS.keys() | {"id", "outcome", "cause"}
_OPTIONAL: Final = frozenset({"target", "queue", "cause"})
_WORD: Final = r"^[A-Za-z][A-Za-z0-9:._-]{0,127}$"
# A run and a number without zeros before it, so that one number has one id.
ID: Final = r"^[A-Za-z0-9._-]{1,111}-[1-9a-f][0-9a-f]{0,14}$"

KEYS: Final = ("source", "namespace", "entity", "kind", "stage", "outcome")


def bound(field: str) -> int:
    """The largest value that a field of numbers may have."""
    if field in _MOMENTS:
        return TIME_MS_MAX
    return TIMES_MAX if field in _TIMES else COUNTS_MAX


def read(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Lines with the file that each is in."""
    return spark.read.text(list(paths), lineSep="\n").select(
        F.col("value").alias("line"), F.col("_metadata.file_path").alias("file")
    )


def parsed(lines: DataFrame, kinds: Iterable[type[LedgerRecord]] = tuple(TYPES.values())) -> DataFrame:
    """Lines with their fields, and whether each is a `sound` record of one of these types; the fields of others mean
    nothing. Each type makes the code that Spark compiles longer, and code that is too long is slow."""
    options = {"mode": "PERMISSIVE", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
    found = lines.select("*", F.from_json("line", schemas.LINE, options).alias("found"))
    return found.select(*lines.columns, "found.*").withColumn("sound", F.coalesce(_sound(kinds), F.lit(False)))


def numbered(records: DataFrame) -> DataFrame:
    """Sound records with the run of their id, its number, and the number's place: a word of 64, and a bit in it."""
    digits = F.substring_index("id", "-", -1)
    number = F.conv(digits, 16, 10).cast("bigint")
    return (
        records.withColumn("number", F.when(F.col("sound"), number))
        .withColumn(
            "run", F.when(F.col("sound"), F.expr("left(id, length(id) - length(substring_index(id, '-', -1)) - 1)"))
        )
        .withColumn("word", F.shiftright("number", 6))
        .withColumn("bit", F.expr("shiftleft(1L, cast(number & 63 as int))"))
    )


def summed(lines: DataFrame) -> DataFrame:
    """Everything that the rest of the pipeline needs of the lines, in kinds of rows by `part`: sums of `operations`,
    `words` of ids, and other lines, under the type of record that they begin like or else as `lines`; see schemas."""
    sound = F.col("sound")
    rows = numbered(parsed(lines, [Operations])).select(
        "file",
        F.when(~sound, F.substring("line", 1, LEDGER_LINE_BYTES_MAX + 1)).alias("line"),
        F.when(sound, _minute()).alias("minute"),
        *(F.when(sound, F.col(name)).alias(name) for name in KEYS),
        *(F.when(sound, F.col(name)).alias(name) for name in ("count", "bytes", "units")),
        "run",
        "word",
        "bit",
    )
    of_sums = ["file", "line", "minute", *KEYS]
    of_words = ["file", "run", "word"]
    columns = list(dict.fromkeys(of_sums + of_words))
    grouped = rows.groupingSets([of_sums, of_words], *columns).agg(
        *(F.sum(name).alias(name) for name in ("count", "bytes", "units")),
        F.bit_or("bit").alias("bits"),
        F.count(F.lit(1)).alias("lines"),
        F.grouping("word").alias("of_sums"),
    )
    part = F.when(F.col("of_sums") == 0, "words").when(F.col("line").isNull(), Operations.type)
    for kind in TYPES:
        if kind != Operations.type:
            part = part.when(F.col("line").startswith(_beginning(kind)), kind)
    # Other lines have no id yet.
    return grouped.where("of_sums = 1 or run is not null").withColumn("part", part.otherwise("lines")).drop("of_sums")


def _minute() -> Column:
    return F.expr(f"start_ms - start_ms % {MINUTE_MS}")


# --- what is sound ----------------------------------------------------------------------------------------------------


def _sound(kinds: Iterable[type[LedgerRecord]]) -> Column:
    """Whether the line is what a writer writes. Null counts as no."""
    chosen = None
    for kind in kinds:
        same = (F.col("line") == _written(kind)) & reduce(and_, _checks(kind))
        is_it = F.col("type") == kind.type
        chosen = F.when(is_it, same) if chosen is None else chosen.when(is_it, same)
    assert chosen is not None
    return chosen & (F.octet_length("line") <= LEDGER_LINE_BYTES_MAX)


def _beginning(kind: str) -> str:
    return f'{{"v":{FORMAT},"type":"{kind}"'


def _written(kind: type[LedgerRecord]) -> Column:
    """The line of a record with these fields, as `records.encode` makes it where no character needs an escape."""
    pieces = [F.lit(_beginning(kind.type))]
    for field in fields(kind):
        piece = F.concat(F.lit(f',"{field.name}":'), _value(field.name))
        pieces.append(F.coalesce(piece, F.lit("")) if field.name in _OPTIONAL else piece)
    return F.concat(*pieces, F.lit("}"))


def _value(name: str) -> Column:
    if name in _TEXTS:
        return F.concat(F.lit('"'), F.col(name), F.lit('"'))
    if name == "buckets":
        return F.concat(F.lit("["), F.concat_ws(",", F.col(name).cast("array<string>")), F.lit("]"))
    return F.col(name).cast("string")


def _checks(kind: type[LedgerRecord]) -> list[Column]:
    """What `records.decode` asks of the fields beyond their types."""
    names = [field.name for field in fields(kind)]
    checks = [F.col("id").rlike(ID), F.col("start_ms") <= F.col("end_ms")]
    for name in names:
        column = F.col(name)
        if name in _WORDS:
            checks.append(column.isin(_WORDS[name]))
        elif name == "outcome":
            checks.append((column == OK) | column.rlike(_WORD))
        elif name == "cause":
            checks.append(column.isNull() | column.rlike(_WORD))
        elif name in _NAMES:
            checks.append((column.isNull() if name in _OPTIONAL else F.lit(False)) | (F.length(column) <= 1_024))
        elif name == "buckets":
            total = F.aggregate(column, F.lit(0).cast("bigint"), lambda total, each: F.try_add(total, each))
            checks += [
                F.size(column) <= len(LATENCY_BOUNDS_MS) + 1,
                F.forall(column, lambda each: each >= 0),
                total == F.col("count"),
            ]
        elif name not in _TEXTS:
            checks.append(column.between(0, bound(name)))
    if kind is Operations:
        checks += [F.col("count") >= 1, F.col("units") >= F.col("count")]
    return checks
