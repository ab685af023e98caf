"""Small handmade tables of an outage, in which every number is known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from twinbus.spark.ledger import schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
START_S = int(START.timestamp())
# Names that nobody should give a queue, and somebody will.
NASTY = (
    "<script>alert(1)</script>",
    "price $x^2$ and $y_1$",
    "заказы/очередь-注文",
    "a" * 200,
    "\"quoted\" & 'single' </svg></style>",
    "id=\"x\" url(#y) #d9822b font-family: 'x'",
    "tab\tnew\nline\x1b[31m",
)


def minute(at: float) -> datetime:
    return START + timedelta(minutes=at)


@dataclass
class Frames:
    """Replaces `LedgerTables`: DataFrames by the tables' names."""

    operations: DataFrame
    charges: DataFrame
    failovers: DataFrame
    backlog: DataFrame
    latency: DataFrame
    quarantine: DataFrame


def frames(spark: SparkSession, **rows: list[tuple[Any, ...]]) -> Any:
    """Tables with these rows; the others are empty."""
    made = {
        name: spark.createDataFrame(rows.get(name, []), getattr(schemas, name.upper()))
        for name in ("operations", "charges", "failovers", "backlog", "latency", "quarantine")
    }
    return Frames(**made)


def operation(at: float, entity: str, kind: str, stage: str, count: int, **other: Any) -> tuple[Any, ...]:
    source, namespace = other.get("source", "broker"), other.get("namespace", "contoso")
    row = (minute(at), source, namespace, entity, kind, stage, other.get("outcome", "ok"), count)
    return (*row, count * 1_000, other.get("units", count))


def charge(stage: str, entity: str, units: int, amount: str = "0", **other: Any) -> tuple[Any, ...]:
    day, namespace = other.get("day", date(2026, 11, 15)), other.get("namespace", "contoso")
    head = (day, other.get("sheet", "standard"), "USD", namespace, stage, entity, other.get("kind", "send"))
    return (*head, other.get("count", units), units, Decimal(amount))


def failover(entity: str, start: float, end: float | None, diverted: int, **other: Any) -> tuple[Any, ...]:
    ended = None if end is None else minute(end)
    head = (
        other.get("namespace", "contoso"),
        entity,
        minute(start),
        ended,
        "contoso-dr",
        other.get("cause", "amqp:connection:forced"),
    )
    return (*head, diverted, other.get("syphoned", diverted), other.get("dead", 0))


def buckets(times_ms: list[int]) -> list[int]:
    counts = [0] * 33
    for time_ms in times_ms:
        counts[max(time_ms - 1, 0).bit_length()] += 1
    return counts


def latency(at: float, entity: str, times_ms: list[int]) -> tuple[Any, ...]:
    head = (minute(at), "contoso", entity, "contoso/x-servicebus-transfer/0")
    return (*head, len(times_ms), sum(times_ms), max(times_ms), buckets(times_ms))


def backlog(at: float, queue: int, depth: int, oldest_s: float, dead: int = 0) -> tuple[Any, ...]:
    name = f"contoso/x-servicebus-transfer/{queue}"
    return (minute(at), "contoso-dr", name, depth, depth * 1_200, int(oldest_s * 1_000), dead)


def outage(spark: SparkSession, entities: tuple[str, ...] = ("orders", "invoices", "events")) -> Any:
    """Half an hour; the primary is down from minute 10 to minute 18, and by minute 20 everything is home.

    Each entity has 600 messages per minute, of which 10 minutes are diverted: 6,000 messages per entity.
    """
    operations, looks, times = [], [], []
    for at in range(30):
        away = 10 <= at < 20
        for number, entity in enumerate(entities):
            queue = f"contoso/x-servicebus-transfer/{number % 4}"
            if away:
                operations.append(operation(at, queue, "send", "to-backlog", 600, namespace="contoso-dr"))
                operations.append(
                    operation(
                        at, entity, "ping", "ping", 1, outcome="ok" if at == 19 else "amqp:timeout", source="broker"
                    )
                )
            else:
                operations.append(operation(at, entity, "send", "direct", 600))
                operations.append(operation(at, entity, "receive", "direct", 600))
                operations.append(operation(at, entity, "complete", "direct", 600))
            if at in (20, 21):
                operations.append(operation(at, queue, "receive", "from-backlog", 3_000, namespace="contoso-dr"))
                operations.append(operation(at, queue, "complete", "from-backlog", 3_000, namespace="contoso-dr"))
                # The broker records the syphon's sends as direct; only the syphon knows better.
                operations.append(operation(at, entity, "send", "direct", 3_000))
                operations.append(operation(at, entity, "send", "to-primary", 3_000, source="syphon"))
                times.append(latency(at, entity, [1_000 * each for each in range(1, 601)]))
        for queue_number in range(4):
            depth = min(max(at - 9, 0), 10) * 150 * (queue_number + 1) if at < 21 else 0
            looks.append(backlog(at, queue_number, depth, max(at - 9, 0) * 60 if at < 21 else 0))
        if at % 15 == 0:
            operations.append(
                operation(at, "contoso/x-servicebus-transfer/0", "empty-poll", "poll", 4, namespace="contoso-dr")
            )
    total = 6_000 * len(entities)
    charges = [charge("direct", entity, 24_000) for entity in entities]
    charges += [charge("to-primary", entity, 6_000, "0.0048") for entity in entities]
    charges += [charge("ping", entity, 1, "0.0000008", kind="ping") for entity in entities]
    charges += [
        charge("to-backlog", "contoso/x-servicebus-transfer/0", total, "0.0144", namespace="contoso-dr"),
        charge(
            "from-backlog", "contoso/x-servicebus-transfer/0", total, "0.0144", namespace="contoso-dr", kind="receive"
        ),
        charge("poll", "contoso/x-servicebus-transfer/0", 8, "0.0000064", namespace="contoso-dr", kind="empty-poll"),
        charge("base", "", 0, "0.324", kind="", count=24),
        charge("base", "", 0, "0.324", kind="", count=24, namespace="contoso-dr"),
        charge("direct", "orders", 99_999, "9.99", sheet="another"),
    ]
    failovers = [failover(entity, 10 + number / 10, 19.5, 6_000) for number, entity in enumerate(entities)]
    return frames(spark, operations=operations, charges=charges, failovers=failovers, backlog=looks, latency=times)
