"""Queries that reduce the tables to what a page can show. DataFrames in, small DataFrames out.

- Nothing here collects rows on the driver; results are bounded by pieces of the period, stages, or a limit.
- Each operation counts once: from the broker if it kept a ledger for the namespace, otherwise from client and syphon.
  To the broker, a syphon's sends to the primary are direct, so they are moved to their own stage. Only the client knows
  of failed pings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from twinbus.ledger.records import LATENCY_BOUNDS_MS
from twinbus.ledger.words import OK, Kind, LedgerSource, Stage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from twinbus.ledger.prices import Sheet
    from twinbus.spark.report.period import Period

BUCKETS = len(LATENCY_BOUNDS_MS) + 1


def seconds(column: str) -> Column:
    """A timestamp as seconds since 1970, with fraction."""
    return F.unix_micros(column) / F.lit(1_000_000)


def piece(column: str, width_s: int) -> Column:
    """The start of a timestamp's piece, in seconds."""
    whole = F.unix_seconds(column)
    return (whole - F.pmod(whole, F.lit(width_s))).cast("bigint")


def extent(frame: DataFrame, start: str, end: str) -> DataFrame:
    """The first and last time in a table."""
    return frame.agg(F.min(seconds(start)).alias("first"), F.max(seconds(end)).alias("last"))


def inside(frame: DataFrame, period: Period, column: str = "minute") -> DataFrame:
    """The rows whose minute is in the period."""
    at = F.unix_seconds(column)
    return frame.where((at >= period.start_s) & (at < period.end_s))


def overlapping(failovers: DataFrame, period: Period) -> DataFrame:
    """The episodes that overlap the period."""
    ended = F.coalesce(seconds("ended"), F.lit(float("inf")))
    return failovers.where((seconds("started") < period.end_s) & (ended >= period.start_s))


def _month() -> Column:
    return F.date_format("minute", "yyyy-MM").alias("month")


def brokers(operations: DataFrame) -> DataFrame:
    """The namespaces and months that a broker's ledger covers; the charges use the same rule."""
    told = operations.where(F.col("source") == LedgerSource.BROKER)
    return told.select("namespace", _month()).distinct().withColumn("told", F.lit(True))


def once(operations: DataFrame, period: Period) -> DataFrame:
    """The period's operations, each once, without entities: by minute, namespace, stage, kind and outcome."""
    found = counted(inside(operations, period), brokers(operations))
    return found.groupBy("minute", "namespace", "stage", "kind", "outcome").agg(
        F.sum("count").alias("count"), F.sum("units").alias("units")
    )


def counted(operations: DataFrame, told: DataFrame) -> DataFrame:
    """Every operation once, with the stage from the best source; `told` are the months that brokers cover."""
    marked = operations.select("*", _month()).join(F.broadcast(told), ["namespace", "month"], "left")
    by_broker = F.col("told").isNotNull()
    broker = F.col("source") == LedgerSource.BROKER
    # A failed ping never reached the broker, so only the client knows of it.
    lost = (F.col("stage") == Stage.PING) & (F.col("outcome") != OK)
    own = marked.where(F.when(by_broker, broker | lost).otherwise(~broker))
    home = marked.where(by_broker & (F.col("source") == LedgerSource.SYPHON) & (F.col("stage") == Stage.TO_PRIMARY))
    taken = home.withColumn("stage", F.lit(str(Stage.DIRECT)))
    for name in ("count", "bytes", "units"):
        taken = taken.withColumn(name, -F.col(name))
    return own.unionByName(home).unionByName(taken).drop("told", "month")


def billed(operations: DataFrame, sheet: Sheet) -> DataFrame:
    """The operations that the sheet bills."""
    frame = operations.where(~F.col("kind").isin(sorted(sheet.free_kinds))) if sheet.free_kinds else operations
    return frame if sheet.refused else frame.where(F.col("outcome") == OK)


def flows(operations: DataFrame) -> DataFrame:
    """Messages accepted from senders, and deliveries to receivers."""
    done = operations.where(F.col("outcome") == OK)
    sends = F.col("kind").isin(str(Kind.SEND), str(Kind.SCHEDULE))
    by_sender = F.col("stage").isin(str(Stage.DIRECT), str(Stage.TO_BACKLOG))
    receives = F.col("kind").isin(str(Kind.RECEIVE), str(Kind.RECEIVE_DEFERRED)) & (F.col("stage") == Stage.DIRECT)
    return done.agg(
        F.sum(F.when(sends & by_sender, F.col("count"))).alias("sent"),
        F.sum(F.when(receives, F.col("count"))).alias("received"),
    )


def moves_by_piece(operations: DataFrame, width_s: int) -> DataFrame:
    """Messages that entered and left the backlog, by piece."""
    done = operations.where(F.col("outcome") == OK)
    into = (F.col("stage") == Stage.TO_BACKLOG) & (F.col("kind") == Kind.SEND)
    out_of = (F.col("stage") == Stage.FROM_BACKLOG) & F.col("kind").isin(str(Kind.COMPLETE), str(Kind.DEAD_LETTER))
    return done.groupBy(piece("minute", width_s).alias("piece")).agg(
        F.sum(F.when(into, F.col("count")).otherwise(0)).alias("into"),
        F.sum(F.when(out_of, F.col("count")).otherwise(0)).alias("out_of"),
    )


def by_piece(operations: DataFrame, width_s: int) -> DataFrame:
    """Operations by piece and stage."""
    return operations.groupBy(piece("minute", width_s).alias("piece"), "stage").agg(F.sum("count").alias("count"))


def counts_by_stage(operations: DataFrame) -> DataFrame:
    """Operations by stage."""
    return operations.groupBy("stage").agg(F.sum("count").alias("count"))


def costs(charges: DataFrame, *keys: str) -> DataFrame:
    """Charges summed by some columns."""
    return charges.groupBy(*keys).agg(
        F.sum("count").alias("count"), F.sum("units").alias("units"), F.sum("amount").alias("amount")
    )


def dearest(charges: DataFrame, limit: int) -> DataFrame:
    """The entities with the most units."""
    named = charges.where(F.col("entity") != "")
    order = (F.desc("units"), F.desc("count"), "namespace", "entity")
    return costs(named, "namespace", "entity").orderBy(*order).limit(limit)


def of_those(frame: DataFrame, names: DataFrame) -> DataFrame:
    """The rows of some entities."""
    return frame.join(F.broadcast(names.select("namespace", "entity")), ["namespace", "entity"])


def by_day(charges: DataFrame, days: int) -> DataFrame:
    """Units by stage, in groups of this many days."""
    number = F.unix_date("date")
    start = (number - F.pmod(number, F.lit(days))).cast("bigint") * 86_400
    return charges.groupBy(start.alias("start"), "stage").agg(F.sum("units").alias("units"))


def outages(failovers: DataFrame) -> DataFrame:
    """Overlapping episodes merged into outages; `next` is when the following one starts, null for the last."""
    endless = F.lit(float("inf"))
    spans = failovers.select(
        "*", seconds("started").alias("from"), F.coalesce(seconds("ended"), endless).alias("until")
    )
    # One window over everything: outages are few, and overlaps cross partition borders.
    order = Window.partitionBy(F.lit(0)).orderBy("from", "until", "namespace", "entity")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    fresh = F.when(F.max("until").over(before) >= F.col("from"), 0).otherwise(1)
    numbered = spans.withColumn("fresh", fresh).withColumn("outage", F.sum("fresh").over(order))
    joined = numbered.groupBy("outage").agg(
        F.min("from").alias("from"),
        F.max("until").alias("until"),
        F.countDistinct("namespace", "entity").alias("entities"),
        F.count("*").alias("episodes"),
        F.sum("diverted").alias("diverted"),
        F.sum("syphoned").alias("syphoned"),
        F.sum("dead_lettered").alias("dead_lettered"),
    )
    return joined.withColumn("next", F.lead("from").over(Window.partitionBy(F.lit(0)).orderBy("outage")))


def during(frame: DataFrame, found: DataFrame, column: str = "minute") -> DataFrame:
    """Rows with their outage: from its first minute until the next outage's."""
    spans = found.select(
        "outage",
        (F.floor(F.col("from") / 60) * 60).alias("first"),
        F.coalesce(F.floor(F.col("next") / 60) * 60, F.lit(float("inf"))).alias("last"),
    )
    at = F.unix_seconds(column)
    return frame.join(F.broadcast(spans), (at >= F.col("first")) & (at < F.col("last")))


def backlog_by_piece(backlog: DataFrame, width_s: int) -> DataFrame:
    """The total backlog by minute, and the maximum of each piece."""
    minutes = backlog.groupBy("minute").agg(
        F.sum("depth").alias("depth"),
        F.max("depth").alias("fullest"),
        F.sum("depth_bytes").alias("depth_bytes"),
        F.max("oldest_ms").alias("oldest_ms"),
        F.sum("dead").alias("dead"),
    )
    names = ("depth", "fullest", "depth_bytes", "oldest_ms", "dead")
    return minutes.groupBy(piece("minute", width_s).alias("piece")).agg(*(F.max(name).alias(name) for name in names))


def queue_peaks(backlog: DataFrame, limit: int) -> DataFrame:
    """The backlog queues with the greatest depth."""
    names = ("depth", "depth_bytes", "oldest_ms", "dead")
    peaks = backlog.groupBy("namespace", "queue").agg(*(F.max(name).alias(name) for name in names))
    return peaks.orderBy(F.desc("depth"), "namespace", "queue").limit(limit)


def latencies(latency: DataFrame, *keys: str) -> DataFrame:
    """Times through the backlog, grouped; buckets are added up one by one."""
    buckets = F.array(*(F.sum(F.coalesce(F.get("buckets", F.lit(at)), F.lit(0))) for at in range(BUCKETS)))
    return latency.groupBy(*keys).agg(
        F.sum("count").alias("count"),
        F.sum("sum_ms").alias("sum_ms"),
        F.max("max_ms").alias("max_ms"),
        buckets.alias("buckets"),
    )
