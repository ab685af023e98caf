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
    from pyspark.sql import Column, DataFrame

_ALL: Final = -1  # 64 bits


def looked_up(words: DataFrame, seen: DataFrame | None) -> DataFrame:
    """The words of all files together, with the bits of them that were seen before: run, word, bits, lines, taken."""
    nought = F.lit(0).cast("bigint")
    rows = words.select("run", "word", "bits", "lines", nought.alias("taken"))
    if seen is not None:
        before = seen.select(F.col("run").alias("run_"), "low", "high", F.col("bits").alias("taken"))
        here = (F.col("run") == F.col("run_")) & F.col("word").between(F.col("low"), F.col("high"))
        known = words.select("run", "word").join(before, here)
        rows = rows.unionByName(known.select("run", "word", nought.alias("bits"), nought.alias("lines"), "taken"))
    return rows.groupBy("run", "word").agg(
        F.bit_or("bits").alias("bits"), F.sum("lines").alias("lines"), F.bit_or("taken").alias("taken")
    )


def is_repeated() -> Column:
    """Whether some number of a word that was looked up is there twice, here or before."""
    return (F.col("lines") > F.bit_count("bits")) | (F.col("bits").bitwiseAND(F.col("taken")) != 0)


def ranges(words: DataFrame) -> DataFrame:
    """Words that were looked up, as ranges of one; `repeated` is 1 where some number is there twice."""
    word = F.col("word")
    return words.select(
        "run", word.alias("low"), word.alias("high"), "bits", is_repeated().cast("bigint").alias("repeated")
    )


def joined(seen: DataFrame) -> DataFrame:
    """The same numbers in as few ranges as there can be. They are few: one task does it, without an exchange."""
    rows = seen.groupBy("run", "low", "high").agg(F.bit_or("bits").alias("bits"), F.sum("repeated").alias("repeated"))
    by_run = Window.partitionBy("run").orderBy("low", "high")
    whole = F.col("bits") == _ALL
    before = F.max("high").over(by_run.rowsBetween(Window.unboundedPreceding, -1))
    follows = whole & F.lag(whole).over(by_run) & (F.col("low") <= before + 1)
    starts = rows.coalesce(1).withColumn("start", F.when(follows, 0).otherwise(1))
    numbered = starts.withColumn("range", F.sum("start").over(by_run.rowsBetween(Window.unboundedPreceding, 0)))
    found = numbered.groupBy("run", "range").agg(
        F.min("low").alias("low"),
        F.max("high").alias("high"),
        F.bit_or("bits").alias("bits"),
        F.sum("repeated").alias("repeated"),
    )
    return found.drop("range")


def once(records: DataFrame, words: DataFrame) -> DataFrame:
    """Records (with run, number, word, bit) that were not taken, each id once. `words` are looked up."""
    found = records.join(words.select("run", "word", "taken"), ["run", "word"], "left")
    free = F.col("bit").bitwiseAND(F.coalesce("taken", F.lit(0).cast("bigint"))) == 0
    return found.where(free).drop("taken").dropDuplicates(["run", "number"])
