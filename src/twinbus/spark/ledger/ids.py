"""Which records were seen: the numbers of a run's ids, as bits and as ranges of whole words.

Rules:
- An id is a run and a number; a writer counts up, so a file's numbers are a range, and what was seen of a run is a few
  ranges, however many records they are of.
- This is exact: a bit is one number. Only words that were seen twice make anybody look at single records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ALL: Final = -1  # 64 bits


def merged(words: DataFrame) -> DataFrame:
    """The words of all files together: run, word, bits, lines."""
    return words.groupBy("run", "word").agg(F.bit_or("bits").alias("bits"), F.sum("lines").alias("lines"))


def ranges(words: DataFrame) -> DataFrame:
    """Words as ranges of one."""
    return words.select("run", F.col("word").alias("low"), F.col("word").alias("high"), "bits")


def joined(seen: DataFrame) -> DataFrame:
    """The same numbers in as few ranges as there can be."""
    bits = seen.groupBy("run", "low", "high").agg(F.bit_or("bits").alias("bits"))
    by_run = Window.partitionBy("run").orderBy("low", "high")
    before = F.max("high").over(by_run.rowsBetween(Window.unboundedPreceding, -1))
    whole = bits.where(F.col("bits") == _ALL)
    starts = whole.withColumn("start", F.when(before.isNull() | (F.col("low") > before + 1), 1).otherwise(0))
    numbered = starts.withColumn("range", F.sum("start").over(by_run.rowsBetween(Window.unboundedPreceding, 0)))
    wide = numbered.groupBy("run", "range").agg(F.min("low").alias("low"), F.max("high").alias("high"))
    return wide.select("run", "low", "high", F.lit(_ALL).cast("bigint").alias("bits")).unionByName(
        bits.where(F.col("bits") != _ALL)
    )


def taken(words: DataFrame, seen: DataFrame) -> DataFrame:
    """Of the words, the bits that were seen before: run, word, taken."""
    before = seen.select(F.col("run").alias("run_"), "low", "high", F.col("bits").alias("taken"))
    here = (F.col("run") == F.col("run_")) & F.col("word").between(F.col("low"), F.col("high"))
    found = words.select("run", "word").join(before, here)
    return found.groupBy("run", "word").agg(F.bit_or("taken").alias("taken"))


def repeated(words: DataFrame, taken: DataFrame | None) -> DataFrame:
    """The words of which some number is there twice, here or before: run, word. `words` are merged ones."""
    twice = F.col("lines") > F.bit_count("bits")
    if taken is None:
        return words.where(twice).select("run", "word")
    both = words.join(taken, ["run", "word"], "left")
    again = F.col("bits").bitwiseAND(F.coalesce("taken", F.lit(0).cast("bigint"))) != 0
    return both.where(twice | again).select("run", "word")


def once(records: DataFrame, taken: DataFrame | None) -> DataFrame:
    """Records (with run, number, word, bit) that were not taken, each id once."""
    if taken is not None:
        free = F.col("bit").bitwiseAND(F.coalesce("taken", F.lit(0).cast("bigint"))) == 0
        records = records.join(taken, ["run", "word"], "left").where(free).drop("taken")
    return records.dropDuplicates(["run", "number"])
