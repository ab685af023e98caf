"""One batch of ledger files: from their lines to a part of the tables.

Rules:
- One pass over the lines (`lines.summed`), whose result is small and lies in `staging`; all else is made of that.
- Nearly always no id was seen before and every line is sound: then what is staged is the part, as it is. Otherwise the
  files that hold repeats are read once more, record by record, and odd lines go through the decoder.
- A small batch in a session that has just begun is the rule, and there a query costs what it takes to make and compile
  it, not what its rows take. So there are few queries, with few exchanges.
- The driver gets a handful of numbers, and the names of files that hold repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from twinbus.ledger.records import TYPES, ConnectionPeak, Operations
from twinbus.spark.ledger import ids, lines, odd, schemas
from twinbus.spark.ledger.catalog import Catalog, Part

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from twinbus.spark.ledger.tables import Tables


# Types of records that are not summed.
_OTHERS: Final = tuple(kind for kind in TYPES.values() if kind is not Operations)
# Where lines are staged that look like records of these types and are none.
_ODD: Final = "odd"


@dataclass(frozen=True, slots=True)
class Counted:
    """How many lines there are, and the first and last moment that costs anything; None without any."""

    lines: int
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch's lines, and the first and last moment that costs anything; None without any."""

    part: Part
    lines: int
    records: int
    quarantined: int
    first_ms: int | None
    last_ms: int | None

    @property
    def repeated(self) -> int:
        return self.lines - self.records - self.quarantined


class Batch:
    """The work on one batch."""

    def __init__(self, spark: SparkSession, catalog: Catalog, before: Tables, name: str, now_ms: int) -> None:
        self._spark = spark
        self._catalog = catalog
        self._name = name
        self._folder = catalog.part(name)
        self._staging = self._folder / "staging"
        self._before = before
        self._files: dict[str, int] = {}
        # When lines went into quarantine.
        self._at = datetime.fromtimestamp(now_ms / 1000, UTC)

    def stage(self, files: Mapping[str, int]) -> None:
        """Read the files (paths and sizes). What is staged then is the part, if nothing turns out odd or repeated."""
        self._files = dict(files)
        lines.summed(lines.read(self._spark, list(files))).write.partitionBy("part").parquet(str(self._staging))
        self._parse()

    def count(self) -> Counted:
        """What is staged."""
        none = F.lit(None).cast("bigint")
        rows = self.sums.select("lines", "minute")
        for folder in [*self._types, *self._odd]:
            moment = F.col("start_ms") if folder.name == f"type={ConnectionPeak.type}" else none
            found = self._read("lines bigint, start_ms bigint", folder)
            rows = rows.unionByName(found.select("lines", moment.alias("minute")))
        row = rows.agg(
            F.coalesce(F.sum("lines"), F.lit(0)).alias("lines"),
            F.min("minute").alias("first"),
            F.max("minute").alias("last"),
        ).first()
        assert row is not None
        return Counted(row["lines"], row["first"], row["last"])

    def look_up(self) -> bool:
        """Write which ids are here, and say whether any of them was there before, or is here twice."""
        folder = self._folder / "seen"
        ids.joined(ids.ranges(self._looked_up())).write.parquet(str(folder))
        return bool(self._read(schemas.SEEN, folder).where("repeated > 0").take(1))

    @property
    def is_odd(self) -> bool:
        """Whether there are lines that only the decoder can tell about."""
        return bool(self._odd)

    @property
    def sums(self) -> DataFrame:
        """Staged sums of operations."""
        return self._read(schemas.SUMS, self._part(Operations.type))

    @property
    def connections(self) -> DataFrame:
        """Staged records of connections."""
        return self._read(schemas.RECORDS, self._staging / "records" / f"type={ConnectionPeak.type}").drop("type")

    def accept(self, counted: Counted) -> Outcome:
        """The part, of what is staged as it is; not yet committed."""
        for staged, name in ((self._part(Operations.type), "operations"), (self._staging / "records", "records")):
            if staged.exists():
                staged.rename(self._folder / name)
        part = self._catalog.complete(self._name, 0, self._files)
        return Outcome(part, counted.lines, counted.lines, 0, counted.first_ms, counted.last_ms)

    def sort_out(self, counted: Counted, *, repeated: bool) -> Outcome:
        """The part where ids are `repeated`, or lines are odd; not yet committed."""
        sums, records, words = self.sums, self._records() if self._types else None, self._looked_up()
        if repeated:
            again = self._files_with(words.where(ids.is_repeated()))
            if again:  # else the repeats are records of other types
                sums = _without(sums, again).unionByName(self._sums_of(again, words))
            records = None if records is None else ids.once(records, words)
        if self._odd:
            found = self._decoded()
            free = found.where(F.col("reason").isNull())
            here = free.groupBy("run", "word").agg(F.bit_or("bit").alias("bits"), F.count(F.lit(1)).alias("lines"))
            known = self._read(schemas.SEEN, self._folder / "seen").unionByName(self._before.seen)
            here = ids.looked_up(here, known)
            free = ids.once(free, here)
            sums = sums.unionByName(_summed(free.where(F.col("type") == Operations.type)))
            kept = free.where(F.col("type") != Operations.type).unionByName(found.where(F.col("reason").isNotNull()))
            records = kept if records is None else records.unionByName(kept, allowMissingColumns=True)
            ids.joined(ids.ranges(here)).write.parquet(str(self._staging / "seen"))
        sums.write.parquet(str(self._folder / "operations"))
        if records is not None:
            self._write(records)
        for path in self._staging.glob("seen/*.parquet"):
            path.rename(self._folder / "seen" / path.name)
        return self._outcome(self._catalog.complete(self._name, 0, self._files), counted.lines)

    # --- what is staged ---------------------------------------------------------------------------------------------

    def _part(self, name: str) -> Path:
        return self._staging / f"part={name}"

    def _parse(self) -> None:
        """Stage the records of other types, as they go into the part; what is no record after all is `odd`. Only for
        the types that are there: code for all of them takes Spark seconds to compile."""
        kinds = [kind for kind in _OTHERS if self._part(kind.type).exists()]
        if not kinds:
            return
        found = lines.parsed(self._read(schemas.LINES, *(self._part(kind.type) for kind in kinds)), kinds)
        kind = F.when(F.col("sound"), F.col("type")).otherwise(_ODD)
        line = F.when(~F.col("sound"), F.col("line"))
        nothing = {
            name: F.lit(None).cast(to) for name, to in (("reason", "string"), ("text", "string"), ("at", "timestamp"))
        }
        found = found.withColumns({"type": kind, "line": line, **nothing}).drop("v", "sound")
        found.coalesce(1).write.partitionBy("type").parquet(str(self._staging / "records"))

    @property
    def _odd(self) -> list[Path]:
        """Folders of lines that only the decoder can tell about."""
        return [each for each in (self._part("lines"), self._staging / "records" / f"type={_ODD}") if each.exists()]

    @property
    def _types(self) -> list[Path]:
        """Folders of records of other types."""
        return sorted(each for each in self._staging.glob("records/type=*") if each not in self._odd)

    def _words(self) -> DataFrame:
        """Where the ids of all records are, by file."""
        found = self._read(schemas.WORDS, self._part("words"))
        if self._types:
            found = found.unionByName(_words(self._records()))
        return found

    def _records(self) -> DataFrame:
        """The records of other types, with the places of their ids, and how many lines each is of."""
        found = self._read(f"{schemas.RECORDS}, lines bigint", *self._types, base=self._staging / "records")
        return lines.numbered(found.withColumn("sound", F.lit(True))).drop("sound")

    def _looked_up(self) -> DataFrame:
        return ids.looked_up(self._words(), self._before.seen if self._before.has_seen else None)

    # --- what is not as it nearly always is -------------------------------------------------------------------------

    def _files_with(self, repeated: DataFrame) -> list[str]:
        """The files that hold repeats: at most as many as were listed."""
        words = self._read(schemas.WORDS, self._part("words"))
        return [
            row["file"]
            for row in words.join(repeated, ["run", "word"], "left_semi").select("file").distinct().collect()
        ]

    def _sums_of(self, files: list[str], words: DataFrame) -> DataFrame:
        """Sums of these files, record by record: each id once, and not if it was seen before."""
        found = lines.parsed(lines.read(self._spark, [odd.path_of(each) for each in files]), [Operations])
        return _summed(ids.once(lines.numbered(found.where("sound")), words))

    def _decoded(self) -> DataFrame:
        folder = str(self._staging / "decoded")
        odd.decoded(self._read(schemas.LINES, *self._odd)).write.parquet(folder)
        return self._spark.read.schema(odd.DECODED).parquet(folder)

    def _write(self, records: DataFrame) -> None:
        columns = self._spark.createDataFrame([], schemas.RECORDS).columns
        at = F.when(F.col("type") == odd.QUARANTINE, F.lit(self._at))
        found = records.withColumn("at", at)
        found.select(*columns).coalesce(1).write.partitionBy("type").parquet(str(self._folder / "records"))

    def _outcome(self, part: Part, total: int) -> Outcome:
        """What is in the part."""
        none = F.lit(None).cast("bigint")
        sums = self._spark.createDataFrame([], schemas.SUMS)
        if "operations" in part.tables:
            sums = self._spark.read.schema(schemas.SUMS).parquet(str(self._folder / "operations"))
        parts = [sums.select("lines", F.col("minute").alias("ms"), F.lit(0).alias("bad"))]
        others = set(part.tables) - {"operations", "seen"}
        if others:
            records = self._spark.read.schema(schemas.RECORDS).parquet(str(self._folder / "records"))
            ms = F.when(F.col("type") == "connections", F.col("start_ms")).otherwise(none)
            bad = (F.col("type") == odd.QUARANTINE).cast("int")
            parts.append(records.select((1 - bad).cast("bigint").alias("lines"), ms.alias("ms"), bad.alias("bad")))
        rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        row = rows.agg(
            F.coalesce(F.sum("lines"), F.lit(0)).alias("records"),
            F.coalesce(F.sum("bad"), F.lit(0)).alias("bad"),
            F.min("ms").alias("first"),
            F.max("ms").alias("last"),
        ).first()
        assert row is not None
        return Outcome(part, total, row["records"], row["bad"], row["first"], row["last"])

    def _read(self, schema: str, *folders: Path, base: Path | None = None) -> DataFrame:
        """The rows of those folders that there are; `base` is what they are partitions of."""
        there = [str(each) for each in folders if each.exists()]
        if not there:
            return self._spark.createDataFrame([], schema)
        reader = self._spark.read.schema(schema)
        return (reader if base is None else reader.option("basePath", str(base))).parquet(*there)


def _words(records: DataFrame) -> DataFrame:
    """Where the ids of records are."""
    return records.groupBy("file", "run", "word").agg(F.bit_or("bit").alias("bits"), F.sum("lines").alias("lines"))


def _summed(records: DataFrame) -> DataFrame:
    """Sums of single records."""
    minute = F.expr(f"start_ms - start_ms % {lines.MINUTE_MS}").alias("minute")
    found = records.groupBy(minute, *lines.KEYS).agg(
        *(F.sum(name).alias(name) for name in ("count", "bytes", "units")), F.count(F.lit(1)).alias("lines")
    )
    return found.withColumn("file", F.lit(None).cast("string"))


def _without(sums: DataFrame, files: list[str]) -> DataFrame:
    return sums.where(~F.col("file").isin(files))
