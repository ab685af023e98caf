"""Turns rows of ledger files into rows of the tables, and adds up rows with the same key: one function per table.

A fold gets new rows together with the table's existing rows of the same days, so every table has one row per key,
however often batches add to a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from twinbus.ledger.records import LATENCY_BOUNDS_MS
from twinbus.spark.ledger.reading import MINUTE_MS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS: Final = ("source", "namespace", "entity", "kind", "stage", "outcome")
_BUCKETS: Final = len(LATENCY_BOUNDS_MS) + 1


def _moment(unit_ms: int) -> Column:
    return F.timestamp_millis(F.expr(f"start_ms - start_ms % {unit_ms}"))


def _sums(*names: str) -> list[Column]:
    return [F.sum(name).cast("bigint").alias(name) for name in names]


def _month() -> Column:
    return F.substring("day", 1, 7).alias("month")


def new_operations(rows: DataFrame) -> DataFrame:
    return rows.select(_moment(MINUTE_MS).alias("minute"), *KEYS, "count", "bytes", "units", "day")


def operations(rows: DataFrame) -> DataFrame:
    return rows.groupBy("day", "minute", *KEYS).agg(*_sums("count", "bytes", "units"))


def new_days(rows: DataFrame) -> DataFrame:
    return rows.select(
        F.to_date("day").alias("date"),
        *KEYS,
        *("count", "units", F.col("start_ms").alias("first"), F.col("start_ms").alias("last"), "bytes"),
        _month(),
    )


def days(rows: DataFrame) -> DataFrame:
    return rows.groupBy("month", "date", *KEYS).agg(
        *_sums("count", "units"), F.min("first").alias("first"), F.max("last").alias("last"), *_sums("bytes")
    )


def new_connections(rows: DataFrame) -> DataFrame:
    moments = (F.col("start_ms").alias("first"), F.col("start_ms").alias("last"))
    return rows.select(_moment(3_600_000).alias("hour"), "namespace", "peak", *moments, _month())


def connections(rows: DataFrame) -> DataFrame:
    """Peak connections of a namespace by hour."""
    return rows.groupBy("month", "hour", "namespace").agg(
        F.max("peak").alias("peak"), F.min("first").alias("first"), F.max("last").alias("last")
    )


def new_backlog(rows: DataFrame) -> DataFrame:
    counts = ("depth", "depth_bytes", "oldest_ms", F.coalesce("dead", F.lit(0).cast("bigint")).alias("dead"))
    return rows.select(_moment(MINUTE_MS).alias("minute"), "namespace", F.col("entity").alias("queue"), *counts, "day")


def backlog(rows: DataFrame) -> DataFrame:
    """For each minute the measurement with the greatest depth, and the greatest age.

    Not the last measurement: a backlog that came and went within a minute would not show.
    """
    found = rows.groupBy("day", "minute", "namespace", "queue").agg(
        F.max(F.struct("depth", "depth_bytes", "dead")).alias("look"), F.max("oldest_ms").alias("oldest_ms")
    )
    return found.select("*", "look.*").drop("look")


def new_latency(rows: DataFrame) -> DataFrame:
    queue = F.coalesce("queue", F.lit("")).alias("queue")
    names = ("count", "sum_ms", "max_ms", "buckets", "day")
    return rows.select(_moment(MINUTE_MS).alias("minute"), "namespace", "entity", queue, *names)


def latency(rows: DataFrame) -> DataFrame:
    """Times through the backlog, added up by minute, entity and backlog queue."""
    buckets = [F.sum(F.coalesce(F.get("buckets", F.lit(at)), F.lit(0))).cast("bigint") for at in range(_BUCKETS)]
    return rows.groupBy("day", "minute", "namespace", "entity", "queue").agg(
        *_sums("count", "sum_ms"), F.max("max_ms").alias("max_ms"), F.array(*buckets).alias("buckets")
    )


def new_events(rows: DataFrame) -> DataFrame:
    return rows.withColumn("month", _month())


def _as_they_are(rows: DataFrame) -> DataFrame:
    return rows


# By table: the part of the rows it is built from, its new rows, and their fold.
FOLDS: Final[dict[str, tuple[str, Callable[[DataFrame], DataFrame], Callable[[DataFrame], DataFrame]]]] = {
    "operations": ("operations", new_operations, operations),
    "days": ("operations", new_days, days),
    "connections": ("connections", new_connections, connections),
    "backlog": ("backlog", new_backlog, backlog),
    "latency": ("latency", new_latency, latency),
    "events": ("failover", new_events, _as_they_are),
}
