"""One batch of ledger files: from their lines to a part of the tables.

Rules:
- One pass over the lines (`lines.summed`), whose result is small; everything else is made of that.
- Nearly always no id was seen before and every line is sound: then the sums are the part as they are. Otherwise the
  files that hold repeats are read once more, record by record, and odd lines go through the decoder.
- The driver gets a handful of numbers, and the names of files that hold repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from twinbus.ledger.records import TYPES, Connections, Operations
from twinbus.spark.ledger import ids, lines, odd, schemas
from twinbus.spark.ledger.catalog import Catalog, Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from twinbus.spark.ledger.tables import Tables


# Types of records that are not summed.
_OTHERS: Final = tuple(kind for kind in TYPES.values() if kind is not Operations)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch's lines. `first` and `last` are the minutes (ms) its charges are of; None without any."""

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
        # Does it.
        self._spark = spark
        # Where the part goes, and its name.
        self._catalog = catalog
        self._name = name
        self._folder = catalog.part(name)
        self._staging = self._folder / "staging"
        # What was committed so far.
        self._before = before
        # When lines went into quarantine.
        self._at = datetime.fromtimestamp(now_ms / 1000, UTC)

    def run(self, files: Mapping[str, int]) -> Outcome:
        """The part of these files (paths and sizes), written and not yet committed."""
        lines.summed(lines.read(self._spark, list(files))).write.partitionBy("part").parquet(str(self._staging))
        words = self._staged("words", schemas.WORDS)
        rest = others = None
        if self._has("lines"):
            # Looked at several times, and what it takes to parse all types takes Spark longest to compile.
            rest = lines.parsed(self._staged("lines", schemas.LINES), _OTHERS).persist()
            others = _records(rest.where("sound"))
            words = words.unionByName(_words(others))
        words = ids.merged(words)
        taken = ids.taken(words, self._before.seen) if self._before.has_seen else None
        repeated = ids.repeated(words, taken)
        seen_here = self._look(rest, repeated)
        twice, unsound = seen_here["twice"], seen_here["unsound"]
        sums = self._staged("operations", schemas.SUMS)
        records = others if seen_here["others"] else None
        seen = ids.ranges(words)
        if twice:
            again = self._files_with(repeated)
            if again:  # else the repeats are records of other types
                sums = _without(sums, again).unionByName(self._sums_of(again, taken))
            records = None if records is None else ids.once(records, taken)
        if unsound and rest is not None:
            found = self._decoded(rest.where("not sound"))
            free = found.where(F.col("reason").isNull())
            odd_words = free.groupBy("run", "word").agg(F.bit_or("bit").alias("bits"))
            known = ids.ranges(words).unionByName(self._before.seen)
            free = ids.once(free, ids.taken(odd_words, known))
            sums = sums.unionByName(_summed(free.where(F.col("type") == Operations.type)))
            kept = free.where(F.col("type") != Operations.type).unionByName(found.where(F.col("reason").isNotNull()))
            records = kept if records is None else records.unionByName(kept, allowMissingColumns=True)
            seen = seen.unionByName(ids.ranges(odd_words))
        if twice or unsound:
            sums.write.parquet(str(self._folder / "operations"))
        elif self._has("operations"):
            (self._staging / "part=operations").rename(self._folder / "operations")
        ids.joined(seen).coalesce(1).write.parquet(str(self._folder / "seen"))
        if records is not None:
            self._write(records)
        if rest is not None:
            rest.unpersist()
        part = self._catalog.complete(self._name, 0, dict(files))
        total = seen_here["sums"] + seen_here["others"] + unsound
        if twice or unsound:
            return self._outcome(part, total)
        return Outcome(part, total, total, 0, seen_here["first"], seen_here["last"])

    def _look(self, rest: DataFrame | None, repeated: DataFrame) -> dict[str, Any]:
        """What there is: lines that are summed, sound `others` and `unsound` ones; words with a number `twice`; and the
        `first` and `last` moment that costs anything, as far as it is known yet."""
        none = F.lit(None).cast("bigint")
        nought = F.lit(0).cast("bigint")
        sums = self._staged("operations", schemas.SUMS)
        rows = sums.select(
            F.col("lines").alias("sums"),
            nought.alias("others"),
            nought.alias("unsound"),
            nought.alias("twice"),
            "minute",
        )
        if rest is not None:
            minute = F.when(F.col("sound") & (F.col("type") == Connections.type), F.col("start_ms"))
            rows = rows.unionByName(
                rest.select(
                    nought.alias("sums"),
                    F.when(F.col("sound"), F.col("lines")).alias("others"),
                    F.when(~F.col("sound"), F.col("lines")).alias("unsound"),
                    nought.alias("twice"),
                    minute.alias("minute"),
                )
            )
        one = F.lit(1).cast("bigint").alias("twice")
        rows = rows.unionByName(
            repeated.select(
                nought.alias("sums"), nought.alias("others"), nought.alias("unsound"), one, none.alias("minute")
            )
        )
        counts = ("sums", "others", "unsound", "twice")
        row = rows.agg(
            *(F.coalesce(F.sum(name), nought).alias(name) for name in counts),
            F.min("minute").alias("first"),
            F.max("minute").alias("last"),
        ).first()
        assert row is not None
        return row.asDict()

    def _has(self, part: str) -> bool:
        return (self._staging / f"part={part}").exists()

    def _files_with(self, repeated: DataFrame) -> list[str]:
        """The files that hold repeats: at most as many as were listed."""
        words = self._staged("words", schemas.WORDS)
        return [
            row["file"]
            for row in words.join(repeated, ["run", "word"], "left_semi").select("file").distinct().collect()
        ]

    def _sums_of(self, files: list[str], taken: DataFrame | None) -> DataFrame:
        """Sums of these files, record by record: each id once, and not if it was seen before."""
        found = lines.parsed(lines.read(self._spark, [odd.path_of(each) for each in files]))
        found = found.where(F.col("sound") & (F.col("type") == Operations.type))
        return _summed(ids.once(lines.numbered(found), taken))

    def _decoded(self, rows: DataFrame) -> DataFrame:
        folder = str(self._staging / "odd")
        odd.decoded(rows).write.parquet(folder)
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

    def _staged(self, part: str, schema: str) -> DataFrame:
        if not self._has(part):
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(str(self._staging / f"part={part}"))


def _records(sound: DataFrame) -> DataFrame:
    """Sound records of other types, with the place of their id, and how many lines each is of."""
    nothing = F.lit(None).cast("string")
    return lines.numbered(sound).drop("line", "v", "sound").withColumns({"reason": nothing, "text": nothing})


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
