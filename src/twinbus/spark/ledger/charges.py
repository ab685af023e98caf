"""What operations cost: turns daily sums and a price sheet into a row for each day, stage, entity and kind.

- Each operation is charged once: from the broker's ledger if it covers the namespace in that month, otherwise from
  those of clients and syphons. Only a syphon knows that a send moves a diverted message to the primary, so that many of
  the broker's direct sends to the entity are shown as `to-primary`.
- Tiers are cumulative by namespace and month, in the order of the rows. Amounts are exact decimals: the sum of a month
  is exactly what the sheet gives for it.
- The base charge runs from the first to the last hour of the month that the ledger covers; connections are billed by
  the hour at their peak. Bandwidth is every byte of a billed operation, at every stage.
- There are few days, however many operations they had, so all work on them is one task without an exchange. In a fresh
  session that takes a fraction of the time.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from twinbus.ledger.prices import DECIMALS, Sheet, Tiers, scaled
from twinbus.ledger.words import OK, Kind, LedgerSource, Stage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BASE = "base"
CONNECTIONS = "connections"
BANDWIDTH = "bandwidth"
_KEYS = ("date", "namespace", "stage", "entity", "kind")
_HOUR_S = 3_600


def month(date: Column) -> Column:
    """The month, for example `2026-10`."""
    return F.date_format(date, "yyyy-MM")


def charges(days: DataFrame, hours: DataFrame, sheet: Sheet) -> DataFrame:
    """The charges of whole months with their `month`, from all days and hours of those months."""
    days, hours = days.coalesce(1), hours.coalesce(1)
    found = (
        _tiered(_charged(days, sheet), sheet.operations)
        .unionByName(_of_base(days, hours, sheet))
        .unionByName(_tiered(_connected(hours), sheet.connections))
    )
    if any(tier.price for tier in sheet.bandwidth.steps):
        found = found.unionByName(_tiered(_carried(days, sheet), sheet.bandwidth))
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
        month(F.col("date")).alias("month"),
    )


def _billed(sheet: Sheet) -> Column:
    """Whether the sheet bills an operation."""
    billed = ~F.col("kind").isin(sorted(sheet.free_kinds)) if sheet.free_kinds else F.lit(True)
    return billed if sheet.refused else billed & (F.col("outcome") == OK)


def _carried(days: DataFrame, sheet: Sheet) -> DataFrame:
    """Bytes of billed operations by day, each counted once; `kind` is the stage that carried them."""
    broker = F.col("source") == LedgerSource.BROKER.value
    by_month = Window.partitionBy("namespace", month(F.col("date")))
    told = days.withColumn("has_broker", F.max(broker).over(by_month)).where(broker | ~F.col("has_broker"))
    found = told.where(_billed(sheet) & (F.col("bytes") > 0)).groupBy("date", "namespace", "stage", "entity")
    return found.agg(F.sum("count").alias("count"), F.sum("bytes").alias("units")).select(
        "date", "namespace", F.lit(BANDWIDTH).alias("stage"), "entity", F.col("stage").alias("kind"), "count", "units"
    )


def _charged(days: DataFrame, sheet: Sheet) -> DataFrame:
    """Billed operations by day: each namespace and month from the broker, or from clients and syphons together."""
    billed = _billed(sheet)
    units = "units" if sheet.step_bytes else "count"
    broker = F.col("source") == LedgerSource.BROKER.value
    stage, kind = F.col("stage"), F.col("kind")
    by_month = Window.partitionBy("namespace", month(F.col("date")))
    by_entity = Window.partitionBy("date", "namespace", F.lower("entity"))
    found = days.groupBy("date", "namespace", "source", "stage", "entity", "kind").agg(
        F.sum(F.when(billed, F.col("count"))).alias("count"), F.sum(F.when(billed, F.col(units))).alias("units")
    )
    found = found.withColumn("has_broker", F.max(broker).over(by_month)).where("count > 0")
    home = ~broker & F.col("has_broker") & (stage == Stage.TO_PRIMARY.value) & (kind == Kind.SEND.value)
    sent = broker & (stage == Stage.DIRECT.value) & (kind == Kind.SEND.value)
    # If nothing was syphoned, nothing is moved to another stage.
    home_count, home_units = (
        F.when(sent, F.coalesce(F.sum(F.when(home, F.col(name))).over(by_entity), F.lit(0))).otherwise(0)
        for name in ("count", "units")
    )
    told = found.select("*", home_count.alias("home_count"), home_units.alias("home_units"))
    told = told.where(broker | ~F.col("has_broker"))
    part_count = F.least("count", "home_count")
    part_units = F.when(F.col("home_count") >= F.col("count"), F.col("units")).otherwise(F.least("units", "home_units"))
    rest = F.struct("stage", (F.col("count") - part_count).alias("count"), (F.col("units") - part_units).alias("units"))
    moved = F.struct(F.lit(Stage.TO_PRIMARY.value).alias("stage"), part_count.alias("count"), part_units.alias("units"))
    split = told.select("date", "namespace", "entity", "kind", F.explode(F.array(rest, moved)).alias("row"))
    return (
        split.select("date", "namespace", "row.stage", "entity", "kind", "row.count", "row.units")
        .where("count > 0")
        .groupBy(*_KEYS)
        .agg(F.sum("count").alias("count"), F.sum("units").alias("units"))
    )


def _connected(hours: DataFrame) -> DataFrame:
    found = hours.groupBy(F.to_date("hour").alias("date"), "namespace").agg(
        F.max("peak").alias("count"), F.sum("peak").alias("units")
    )
    return found.where("units > 0").select(
        "*", F.lit(CONNECTIONS).alias("stage"), F.lit("").alias("entity"), F.lit(CONNECTIONS).alias("kind")
    )


def _of_base(days: DataFrame, hours: DataFrame, sheet: Sheet) -> DataFrame:
    told = days.select("namespace", "date", "first", "last").unionByName(
        hours.select("namespace", F.to_date("hour").alias("date"), "first", "last")
    )
    spans = told.groupBy("namespace", month(F.col("date")).alias("month")).agg(
        *(
            F.date_trunc("hour", F.timestamp_millis(moment)).alias(name)
            for name, moment in (("first", F.min("first")), ("last", F.max("last")))
        )
    )
    found = spans.select(
        "*", F.explode(F.sequence(F.to_date("first"), F.to_date("last"), F.expr("interval 1 day"))).alias("date")
    )
    day_start = F.col("date").cast("timestamp")
    start = F.greatest("first", day_start)
    end = F.least("last", day_start + F.expr("interval 23 hours"))
    count = ((F.unix_timestamp(end) - F.unix_timestamp(start)) / _HOUR_S).cast("bigint") + 1
    return found.select(
        "date",
        "namespace",
        F.lit(BASE).alias("stage"),
        F.lit("").alias("entity"),
        F.lit(BASE).alias("kind"),
        count.alias("count"),
        count.alias("units"),
        (count.cast("decimal(18,0)") * F.lit(sheet.base_per_hour).cast("decimal(18,9)")).alias("amount"),
    )


def _tiered(rows: DataFrame, tiers: Tiers) -> DataFrame:
    """Rows with units, and their amounts: the month's cost with the row minus its cost without."""
    by_month = Window.partitionBy("namespace", month(F.col("date"))).orderBy(*_KEYS)
    so_far = F.sum("units").over(by_month.rowsBetween(Window.unboundedPreceding, 0))
    found = rows.withColumn("so_far", so_far)
    amount = f"{_total('so_far', tiers)} - {_total('(so_far - units)', tiers)} as amount"
    return found.selectExpr(*_KEYS, "count", "units", amount)


def _total(units: str, tiers: Tiers) -> str:
    """`Tiers.total` as a SQL expression, in whole numbers of the smallest money unit, truncated."""
    parts = []
    low = 0
    for tier in tiers.steps:
        inside = f"greatest({units} - {low}L, 0L)"
        if tier.up_to is not None:
            inside = f"least({inside}, {tier.up_to - low}L)"
            low = tier.up_to
        parts.append(f"cast({inside} as decimal(19,0)) * cast({scaled(tier.price)} as decimal(18,0))")
    cost = " + ".join(parts)
    per = f"cast({tiers.per} as decimal(10,0))"
    whole = f"cast((({cost}) - ({cost}) % {per}) / {per} as decimal(25,0))"
    return f"{whole} * cast({Decimal(1).scaleb(-DECIMALS):f} as decimal({DECIMALS},{DECIMALS}))"
