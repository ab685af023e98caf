"""What operations cost: from sums of whole months and a price sheet to a row for each day, stage, entity and kind.

Rules:
- Each operation is charged once: by the broker's ledger if it tells of the namespace in that month, else by those of
  clients and syphons. Only a syphon knows that a send brings a message home: so many of the broker's direct sends to
  the entity are shown as `to-primary`.
- Tiers are cumulative by namespace and month, in the order of the rows. Money is DECIMAL and exact: sums of a month are
  the sheet's own figure for it.
- The base charge runs from the first to the last hour of the month that the ledger tells of; connections are billed by
  the hour, each with the most there were at once.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from twinbus.ledger.prices import DECIMALS, Sheet, Tiers, scaled
from twinbus.ledger.words import OK, Kind, Source, Stage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BASE = "base"
CONNECTIONS = "connections"
_KEYS = ("date", "namespace", "stage", "entity", "kind")
_HOUR_S = 3_600


def charges(operations: DataFrame, connections: DataFrame, sheet: Sheet) -> DataFrame:
    """The charges of whole months, with their `month`. `operations` are as readers see them, or not yet added up;
    connections have minute, namespace and peak."""
    found = (
        _of_operations(_daily(operations, sheet), sheet)
        .unionByName(_of_base(operations, connections, sheet))
        .unionByName(_of_connections(connections, sheet))
    )
    return found.select(
        "date",
        F.lit(sheet.name).alias("sheet"),
        F.lit(sheet.currency).alias("currency"),
        "namespace",
        "stage",
        "entity",
        "kind",
        F.col("count").cast("bigint"),
        F.col("units").cast("bigint"),
        F.col("amount").cast("decimal(38,12)"),
        _month(F.col("date")).alias("month"),
    )


def _month(date: Column) -> Column:
    return F.date_format(date, "yyyy-MM")


def _daily(operations: DataFrame, sheet: Sheet) -> DataFrame:
    """Billed operations a day: of each namespace and month by one source, or by clients and syphons together."""
    billed = ~F.col("kind").isin(sorted(sheet.free_kinds)) if sheet.free_kinds else F.lit(True)
    if not sheet.refused:
        billed = billed & (F.col("outcome") == OK)
    units = "units" if sheet.step_bytes else "count"
    broker = F.col("source") == Source.BROKER.value
    daily = operations.groupBy(F.to_date("minute").alias("date"), "namespace", "source", "stage", "entity", "kind").agg(
        F.sum(F.when(billed, F.col("count"))).alias("count"), F.sum(F.when(billed, F.col(units))).alias("units")
    )
    by_month = Window.partitionBy("namespace", _month(F.col("date")))
    daily = daily.withColumn("has_broker", F.max(broker).over(by_month)).where("count > 0")
    own = daily.where(broker | ~F.col("has_broker"))
    home = (
        daily.where(~broker & F.col("has_broker"))
        .where((F.col("stage") == Stage.TO_PRIMARY.value) & (F.col("kind") == Kind.SEND.value))
        .groupBy("date", "namespace", F.lower("entity").alias("lower"))
        .agg(F.sum("count").alias("home_count"), F.sum("units").alias("home_units"))
        .withColumn("is_send", F.lit(True))
    )
    is_send = (F.col("kind") == Kind.SEND.value) & (F.col("stage") == Stage.DIRECT.value) & broker
    told = own.withColumn("lower", F.lower("entity")).withColumn("is_send", is_send)
    told = told.join(F.broadcast(home), ["date", "namespace", "lower", "is_send"], "left")
    # `least` overlooks nulls: where nothing was brought home, nothing is moved.
    home_count, home_units = (F.coalesce(each, F.lit(0).cast("bigint")) for each in ("home_count", "home_units"))
    part_count = F.least(F.col("count"), home_count)
    part_units = F.when(home_count >= F.col("count"), F.col("units")).otherwise(F.least(F.col("units"), home_units))
    rest = F.struct("stage", (F.col("count") - part_count).alias("count"), (F.col("units") - part_units).alias("units"))
    moved = F.struct(F.lit(Stage.TO_PRIMARY.value).alias("stage"), part_count.alias("count"), part_units.alias("units"))
    split = told.select("date", "namespace", "entity", "kind", F.explode(F.array(rest, moved)).alias("row"))
    return (
        split.select("date", "namespace", "row.stage", "entity", "kind", "row.count", "row.units")
        .where("count > 0")
        .groupBy(*_KEYS)
        .agg(F.sum("count").alias("count"), F.sum("units").alias("units"))
    )


def _of_operations(daily: DataFrame, sheet: Sheet) -> DataFrame:
    return _tiered(daily, sheet.operations, *_KEYS)


def _of_connections(connections: DataFrame, sheet: Sheet) -> DataFrame:
    hourly = connections.groupBy("namespace", F.date_trunc("hour", "minute").alias("hour")).agg(
        F.max("peak").alias("peak")
    )
    daily = hourly.groupBy(F.to_date("hour").alias("date"), "namespace").agg(
        F.max("peak").alias("count"), F.sum("peak").alias("units")
    )
    daily = daily.where("units > 0")
    named = daily.select(
        "*", F.lit(CONNECTIONS).alias("stage"), F.lit("").alias("entity"), F.lit(CONNECTIONS).alias("kind")
    )
    return _tiered(named, sheet.connections, *_KEYS)


def _of_base(operations: DataFrame, connections: DataFrame, sheet: Sheet) -> DataFrame:
    minutes = operations.select("namespace", "minute").unionByName(connections.select("namespace", "minute"))
    spans = minutes.groupBy("namespace", _month(F.col("minute")).alias("month")).agg(
        F.date_trunc("hour", F.min("minute")).alias("first"), F.date_trunc("hour", F.max("minute")).alias("last")
    )
    days = spans.select(
        "*", F.explode(F.sequence(F.to_date("first"), F.to_date("last"), F.expr("interval 1 day"))).alias("date")
    )
    day_start = F.col("date").cast("timestamp")
    start = F.greatest("first", day_start)
    end = F.least("last", day_start + F.expr("interval 23 hours"))
    hours = ((F.unix_timestamp(end) - F.unix_timestamp(start)) / _HOUR_S).cast("bigint") + 1
    return days.select(
        "date",
        "namespace",
        F.lit(BASE).alias("stage"),
        F.lit("").alias("entity"),
        F.lit(BASE).alias("kind"),
        hours.alias("count"),
        hours.alias("units"),
        (hours.cast("decimal(18,0)") * F.lit(sheet.base_per_hour).cast("decimal(18,9)")).alias("amount"),
    )


def _tiered(rows: DataFrame, tiers: Tiers, *order: str) -> DataFrame:
    """Rows with units, and their amounts: what all of the month cost with them less what they cost without."""
    by_month = Window.partitionBy("namespace", _month(F.col("date"))).orderBy(*order)
    so_far = F.sum("units").over(by_month.rowsBetween(Window.unboundedPreceding, 0))
    found = rows.withColumn("so_far", so_far)
    amount = _total(F.col("so_far"), tiers) - _total(F.col("so_far") - F.col("units"), tiers)
    return found.select(*order, "count", "units", amount.alias("amount"))


def _total(units: Column, tiers: Tiers) -> Column:
    """`Tiers.total` as an expression: whole numbers of the smallest part of money, cut to whole ones."""
    parts = []
    low = 0
    for tier in tiers.steps:
        inside = F.greatest(units - F.lit(low).cast("bigint"), F.lit(0).cast("bigint"))
        if tier.up_to is not None:
            inside = F.least(inside, F.lit(tier.up_to - low).cast("bigint"))
            low = tier.up_to
        parts.append(inside.cast("decimal(19,0)") * F.lit(Decimal(scaled(tier.price))).cast("decimal(18,0)"))
    cost = parts[0]
    for part in parts[1:]:
        cost = cost + part
    per = F.lit(Decimal(tiers.per)).cast("decimal(10,0)")
    whole = ((cost - cost % per) / per).cast("decimal(25,0)")
    return whole * F.lit(Decimal(1).scaleb(-DECIMALS)).cast(f"decimal({DECIMALS},{DECIMALS})")
