"""From the rows of the parts to the tables that readers see: one function a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from twinbus.ledger.records import LATENCY_BOUNDS_MS
from twinbus.spark.ledger.lines import KEYS, MINUTE_MS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BUCKETS = len(LATENCY_BOUNDS_MS) + 1


def _minute() -> Column:
    return F.timestamp_millis(F.expr(f"start_ms - start_ms % {MINUTE_MS}"))


def operations(sums: DataFrame) -> DataFrame:
    """Sums of all files together, one row for each key."""
    found = sums.groupBy("minute", *KEYS).agg(
        *(F.sum(name).cast("bigint").alias(name) for name in ("count", "bytes", "units"))
    )
    return found.select(F.timestamp_millis("minute").alias("minute"), *KEYS, "count", "bytes", "units")


def backlog(records: DataFrame) -> DataFrame:
    """Of each minute the look that saw most in a queue, the last of several, and the greatest age.

    Not the last look: a backlog that came and went within a minute would not be seen.
    """
    look = F.struct("depth", "end_ms", "id", "depth_bytes", "dead")
    found = records.groupBy(_minute().alias("minute"), "namespace", F.col("entity").alias("queue")).agg(
        F.max(look).alias("look"), F.max("oldest_ms").alias("oldest_ms")
    )
    return found.select(
        "minute",
        "namespace",
        "queue",
        "look.depth",
        "look.depth_bytes",
        "oldest_ms",
        F.coalesce("look.dead", F.lit(0)).cast("bigint").alias("dead"),
    )


def latency(records: DataFrame) -> DataFrame:
    """Times through the backlog, added up by minute, entity and backlog queue."""
    queue = F.coalesce("queue", F.lit("")).alias("queue")
    bucket = [F.sum(F.coalesce(F.get("buckets", F.lit(at)), F.lit(0))).cast("bigint") for at in range(_BUCKETS)]
    found = records.groupBy(_minute().alias("minute"), "namespace", "entity", queue).agg(
        F.sum("count").cast("bigint").alias("count"),
        F.sum("sum_ms").cast("bigint").alias("sum_ms"),
        F.max("max_ms").alias("max_ms"),
        F.array(*bucket).alias("buckets"),
    )
    return found.select("minute", "namespace", "entity", "queue", "count", "sum_ms", "max_ms", "buckets")


def quarantine(records: DataFrame) -> DataFrame:
    """Lines that are no records. Where in their file they are is not known: the file was read in pieces."""
    return records.select("file", F.lit(None).cast("bigint").alias("line"), "reason", "text", "at")
