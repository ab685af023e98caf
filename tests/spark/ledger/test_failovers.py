"""Failover episodes: flapping, several clients, and clients that never report their end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from twinbus.spark.ledger import schemas
from twinbus.spark.ledger.failovers import failovers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # small Spark jobs, on a machine that may be busy

OVER, BACK, DIVERTED, SYPHONED, DEAD = "failed-over", "failed-back", "diverted", "syphoned", "dead-lettered"

# By entity: client, event, second, messages.
TOLD: dict[str, list[tuple[str, str, int, int]]] = {
    "plain": [
        ("a", OVER, 10, 0),
        ("a", DIVERTED, 11, 5),
        ("a", BACK, 20, 0),
        ("s", SYPHONED, 25, 4),
        ("s", DEAD, 26, 1),
    ],
    "flapping": [
        ("a", OVER, 10, 0),
        ("a", BACK, 20, 0),
        ("a", OVER, 21, 0),
        ("a", DIVERTED, 22, 7),
        ("a", BACK, 30, 0),
        ("s", SYPHONED, 40, 7),
    ],
    "two that overlap": [
        ("a", OVER, 10, 0),
        ("b", OVER, 15, 0),
        ("a", BACK, 20, 0),
        ("b", DIVERTED, 21, 2),
        ("b", BACK, 25, 0),
    ],
    "two that do not": [("a", OVER, 10, 0), ("a", BACK, 20, 0), ("b", OVER, 30, 0), ("b", BACK, 35, 0)],
    "still open": [("a", OVER, 10, 0), ("a", DIVERTED, 12, 3)],
    "killed, another is back": [("a", OVER, 10, 0), ("a", DIVERTED, 12, 3), ("b", OVER, 11, 0), ("b", BACK, 30, 0)],
    "killed, nobody was back since": [
        ("a", OVER, 10, 0),
        ("b", OVER, 11, 0),
        ("b", BACK, 30, 0),
        ("a", DIVERTED, 40, 3),
    ],
    "told twice": [("a", OVER, 10, 0), ("a", OVER, 12, 0), ("a", BACK, 20, 0)],
    "never failed over": [("a", BACK, 20, 0), ("a", DIVERTED, 21, 1)],
}
WANTED: dict[str, list[tuple[int, int | None, int, int, int]]] = {
    "plain": [(10, 20, 5, 4, 1)],
    "flapping": [(10, 20, 0, 0, 0), (21, 30, 7, 7, 0)],
    "two that overlap": [(10, 25, 2, 0, 0)],
    "two that do not": [(10, 20, 0, 0, 0), (30, 35, 0, 0, 0)],
    "still open": [(10, None, 3, 0, 0)],
    "killed, another is back": [(10, 30, 3, 0, 0)],
    "killed, nobody was back since": [(10, None, 3, 0, 0)],
    "told twice": [(10, 20, 0, 0, 0)],
    "never failed over": [],
}


def test_episodes(spark: SparkSession) -> None:
    names = [each.split(" ")[0] for each in schemas.RECORD.split(", ")]
    numbers: dict[str, int] = {}
    rows: list[tuple[Any, ...]] = []
    for entity, events in TOLD.items():
        for client, event, second, count in events:
            numbers[client] = numbers.get(client, 0) + 1
            row: dict[str, Any] = dict.fromkeys(names)
            row |= {"id": f"{client}-{numbers[client]:x}", "start_ms": second * 1000, "end_ms": second * 1000}
            row |= {"source": "client", "namespace": "contoso", "entity": entity, "event": event, "count": count}
            if event == OVER:
                row |= {"target": f"to-{client}", "cause": f"because-{client}"}
            rows.append(tuple(row.values()))
    found: dict[str, list[Any]] = {entity: [] for entity in TOLD}
    for row in failovers(spark.createDataFrame(rows, schemas.RECORD)).orderBy("started").collect():
        assert (row["namespace"], row["target"][:3], row["cause"][:8]) == ("contoso", "to-", "because-")
        ended = None if row["ended"] is None else _second(row["ended"])
        found[row["entity"]].append(
            (_second(row["started"]), ended, row["diverted"], row["syphoned"], row["dead_lettered"])
        )
    assert found == WANTED


def _second(moment: datetime) -> int:
    # The session is in UTC.
    return int(moment.replace(tzinfo=UTC).timestamp())
