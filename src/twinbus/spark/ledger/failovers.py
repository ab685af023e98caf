"""Failover episodes, from the events that clients and syphons recorded.

- A client is failed over from its `failed-over` to its next `failed-back`. Overlapping times of an entity's clients
  form one episode.
- A killed client never reports failing back. It counts as back when any client of the entity fails back after the
  killed one's last event; until then the episode is open.
- Messages belong to the last episode that began before they were recorded, because the syphon delivers them after its
  end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from twinbus.ledger.words import Event

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ENTITY = ("namespace", "entity")
_OPEN_MS = 2**62


def failovers(events: DataFrame) -> DataFrame:
    """All episodes in these records of type `failover`, which must be complete for their entities."""
    spells = _spells(events)
    by_entity = Window.partitionBy(*_ENTITY).orderBy("start_ms", "last_ms", "id")
    until = F.max("until_ms").over(by_entity.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(until.isNull() | (F.col("start_ms") > until), 1).otherwise(0)
    marked = spells.withColumn("begins", begins)
    counted = marked.withColumn("number", F.sum("begins").over(by_entity.rowsBetween(Window.unboundedPreceding, 0)))
    first = F.struct("start_ms", "id", "target", "cause")
    episodes = counted.groupBy(*_ENTITY, "number").agg(F.min(first).alias("first"), F.max("until_ms").alias("until_ms"))
    after = F.lead("first.start_ms").over(Window.partitionBy(*_ENTITY).orderBy("number"))
    episodes = episodes.withColumn("after_ms", F.coalesce(after, F.lit(_OPEN_MS)))
    return _with_messages(episodes, events).select(
        *_ENTITY,
        F.timestamp_millis("first.start_ms").alias("started"),
        F.when(F.col("until_ms") < _OPEN_MS, F.timestamp_millis("until_ms")).alias("ended"),
        "first.target",
        "first.cause",
        "diverted",
        "syphoned",
        "dead_lettered",
    )


def _is(*events: Event) -> Column:
    return F.col("event").isin([str(each) for each in events])


def _spells(events: DataFrame) -> DataFrame:
    """When each client was failed over: start_ms and until_ms, which is far in the future while it lasts."""
    heard = _is(Event.FAILED_OVER, Event.FAILED_BACK, Event.DIVERTED)
    told = events.where(heard).withColumn("run", F.regexp_replace("id", "-[^-]*$", ""))
    by_client = Window.partitionBy(*_ENTITY, "run")
    told = told.withColumn("last_ms", F.max("end_ms").over(by_client))
    turns = told.where(_is(Event.FAILED_OVER, Event.FAILED_BACK))
    # Ids of one run end in numbers of different lengths: the longer id is the later one.
    in_order = by_client.orderBy("start_ms", F.length("id"), "id")
    back = F.when(_is(Event.FAILED_BACK), F.col("start_ms"))
    turns = turns.withColumn("before", F.lag("event").over(in_order)).withColumn(
        "back_ms", F.min(back).over(in_order.rowsBetween(1, Window.unboundedFollowing))
    )
    starts = turns.where(_is(Event.FAILED_OVER)).where(
        F.col("before").isNull() | (F.col("before") == Event.FAILED_BACK.value)
    )
    others = (
        turns.where(_is(Event.FAILED_BACK))
        .groupBy(*_ENTITY)
        .agg(F.array_sort(F.collect_set("start_ms")).alias("backs"))
    )
    known = starts.join(others, list(_ENTITY), "left")
    heard_of = F.expr("array_min(filter(backs, each -> each > last_ms))")
    return known.withColumn("until_ms", F.coalesce("back_ms", heard_of, F.lit(_OPEN_MS))).drop("backs")


def _with_messages(episodes: DataFrame, events: DataFrame) -> DataFrame:
    """Episodes with the messages recorded from their start to the start of the next."""
    names = {Event.DIVERTED: "diverted", Event.SYPHONED: "syphoned", Event.DEAD_LETTERED: "dead_lettered"}
    messages = events.where(_is(*names)).select(
        F.col("namespace").alias("namespace_"),
        F.col("entity").alias("entity_"),
        "end_ms",
        *(F.when(_is(event), F.col("count")).otherwise(0).alias(name) for event, name in names.items()),
    )
    here = (
        (F.col("namespace") == F.col("namespace_"))
        & (F.col("entity") == F.col("entity_"))
        & (F.col("end_ms") >= F.col("first.start_ms"))
        & (F.col("end_ms") < F.col("after_ms"))
    )
    return (
        episodes.join(messages, here, "left")
        .groupBy(*_ENTITY, "number", "first", "until_ms")
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).cast("bigint").alias(name) for name in names.values()))
    )
