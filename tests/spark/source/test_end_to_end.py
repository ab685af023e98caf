"""The source and the sink as Spark runs them: planned in separate processes, read and written by its workers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from tests.spark.source.desk import Desk
from twinbus.amqp import Int
from twinbus.client import Message
from twinbus.ledger.words import Kind
from twinbus.spark.versions import HAS_FILTERS, HAS_LIMITS
from twinbus.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.timeout(180)

NUMBERS = 3_000


@pytest.fixture
def filled(desk: Desk, queue: str) -> list[str]:
    ids = [f"m{number}" for number in range(NUMBERS)]
    for at in range(0, NUMBERS, 500):
        desk.send(queue, [Message(f"body {each}", message_id=each) for each in ids[at : at + 500]])
    return ids


def read(spark: SparkSession, desk: Desk, **options: Any) -> DataFrame:
    return spark.read.format("servicebus").option("connectionString", desk.text).options(**options).load()


def stream(spark: SparkSession, desk: Desk, **options: Any) -> DataFrame:
    return spark.readStream.format("servicebus").option("connectionString", desk.text).options(**options).load()


def available_now(frame: DataFrame, checkpoint: Path, kind: str, **options: Any) -> StreamingQuery:
    writer = frame.writeStream.format(kind).option("checkpointLocation", str(checkpoint)).options(**options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def drain(frame: DataFrame, checkpoint: Path, kind: str, **options: Any) -> StreamingQuery:
    """Runs with availableNow until everything is processed and settled. Spark before 4.2 plans one batch per run, and
    the next run settles it."""
    query = available_now(frame, checkpoint, kind, **options)
    for _ in range(0 if HAS_LIMITS else 2):
        available_now(frame, checkpoint, kind, **options)
    return query


def _number(offset: Any) -> int:
    found = json.loads(offset) if isinstance(offset, str) else offset
    return int(found["sequenceNumber"])


def test_a_batch_read(spark: SparkSession, desk: Desk, queue: str, filled: list[str]) -> None:
    frame = read(spark, desk, queueName=queue, numPartitions=2)
    assert frame.rdd.getNumPartitions() == 2
    assert sorted(row.messageId for row in frame.select("messageId").collect()) == sorted(filled)
    assert frame.filter("messageId = 'm7'").selectExpr("cast(body AS string) AS text").first().text == "body m7"
    assert desk.ids(queue) == filled


def test_a_schema_of_ones_own(spark: SparkSession, desk: Desk, queue: str) -> None:
    desk.fill(queue, ["a"])
    frame = (
        spark.read.format("servicebus")
        .schema("messageId string, body string")
        .options(connectionString=desk.text, queueName=queue)
        .load()
    )
    assert [tuple(row) for row in frame.collect()] == [("a", "body of a")]
    assert "body" not in read(spark, desk, queueName=queue, includeBody="false").columns


@pytest.mark.skipif(not HAS_FILTERS, reason="this Spark has no filters for Python sources")
def test_filters_by_option(spark: SparkSession, desk: Desk, queue: str, filled: list[str]) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "true")
    try:
        frame = read(spark, desk, queueName=queue, pushdown="true").filter("sequenceNumber BETWEEN 11 AND 20")
        assert [row.messageId for row in frame.collect()] == filled[10:20]
    finally:
        spark.conf.set(name, before)
    assert desk.operations(queue)[Kind.PEEK] < 200


def test_a_stream_of_a_queue_to_parquet(
    spark: SparkSession, desk: Desk, queue: str, filled: list[str], tmp_path: Path
) -> None:
    frame = stream(spark, desk, queueName=queue, maxMessagesPerTrigger=1_000)
    query = drain(frame, tmp_path / "checkpoint", "parquet", path=str(tmp_path / "out"))
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    # Admission control: exactly as many as allowed.
    assert [progress["numInputRows"] for progress in batches] == ([1_000] * 3 if HAS_LIMITS else [3_000])
    # The lag is in the progress.
    for number, progress in enumerate(batches if HAS_LIMITS else []):
        source = progress["sources"][0]
        assert _number(source["latestOffset"]) == NUMBERS
        assert _number(source["endOffset"]) == (number + 1) * 1_000
    written = [row.messageId for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(written) == sorted(filled)
    # The last batch is settled too, although the engine never commits it to the source.
    assert desk.left(queue) == []

    # A later run continues from the checkpoint.
    desk.fill(queue, ["later"])
    drain(frame, tmp_path / "checkpoint", "parquet", path=str(tmp_path / "out"))
    written = [row.messageId for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(written) == sorted([*filled, "later"])
    assert desk.left(queue) == []


def test_a_stream_that_claims_to_a_queue(
    spark: SparkSession, desk: Desk, broker: Broker, queue: str, filled: list[str], tmp_path: Path
) -> None:
    target = f"target-{queue}"
    broker.create_queue(target, requires_duplicate_detection=True)
    frame = stream(spark, desk, queueName=queue, readMode="claim", maxMessagesPerTrigger=2_000)
    drain(
        frame,
        tmp_path / "checkpoint",
        "servicebus",
        connectionString=desk.text,
        queueName=target,
        duplicateDetection="require",
    )
    assert sorted(desk.ids(target)) == sorted(filled)
    assert desk.left(queue) == []


def test_a_stream_into_a_queue_numbers_its_rows(spark: SparkSession, desk: Desk, queue: str, tmp_path: Path) -> None:
    source = tmp_path / "in"
    spark.range(100).selectExpr("cast(id AS string) AS body").repartition(2).write.parquet(str(source))
    frame = spark.readStream.schema("body string").parquet(str(source))
    query = available_now(frame, tmp_path / "checkpoint", "servicebus", connectionString=desk.text, queueName=queue)
    found = desk.look(queue)
    assert sorted(int(each.body or b"") for each in found) == list(range(100))
    ids = [str(each.message_id) for each in found]
    assert len(set(ids)) == 100
    assert all(each.startswith(f"{query.id}/0/") for each in ids)


def test_a_batch_write(spark: SparkSession, desk: Desk, queue: str) -> None:
    frame = spark.range(1_000).selectExpr(
        "cast(id AS string) AS body", "concat('id-', id) AS messageId", "map('n', cast(id AS string)) AS properties"
    )
    write = frame.write.format("servicebus").options(connectionString=desk.text, queueName=queue)
    write.mode("append").save()
    found = desk.look(queue)
    assert sorted(str(each.message_id) for each in found) == sorted(f"id-{number}" for number in range(1_000))
    assert all(each.properties == {"n": int(each.body or b"")} for each in found)


def test_properties_keep_their_types_through_spark(spark: SparkSession, desk: Desk, broker: Broker, queue: str) -> None:
    desk.send(queue, [Message(b"", application_properties={"n": Int(5), "text": "5", "long": 5})])
    target = f"target-{queue}"
    broker.create_queue(target)
    frame = read(spark, desk, queueName=queue)
    frame.write.format("servicebus").options(connectionString=desk.text, queueName=target).mode("append").save()
    (found,) = desk.look(target)
    assert {name: type(value) for name, value in (found.properties or {}).items()} == {
        "n": Int,
        "text": str,
        "long": int,
    }


def test_a_subscription_and_its_dead_letters(
    spark: SparkSession, desk: Desk, broker: Broker, queue: str, tmp_path: Path
) -> None:
    topic = f"t-{queue}"
    broker.create_topic(topic)
    broker.create_subscription(topic, "s")
    path = f"{topic}/Subscriptions/s"
    desk.fill(topic, ["a", "b", "c"])
    (held,) = desk.bus.receive(path, 1, 5)
    desk.bus._submit(desk.bus._receivers[path].dead_letter(held, "bad", "very")).result()
    names = {"topicName": topic, "subscriptionName": "s"}
    dead = read(spark, desk, **names, subQueue="deadletter").select("messageId", "deadLetterReason")
    assert [tuple(row) for row in dead.collect()] == [("a", "bad")]
    for options, wanted in ((names, ["b", "c"]), ({**names, "subQueue": "deadletter"}, ["a"])):
        out = tmp_path / f"out-{len(options)}"
        frame = stream(spark, desk, **options)
        drain(frame, tmp_path / f"checkpoint-{len(options)}", "parquet", path=str(out))
        assert sorted(row.messageId for row in spark.read.parquet(str(out)).collect()) == wanted
    assert desk.left(path) == desk.left(f"{path}/$DeadLetterQueue") == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queuName": "q"}, "Did you mean 'queueName'"),
        ({}, "No source given"),
        ({"topicName": "t"}, "give subscriptionName as well"),
        ({"queueName": "nowhere-at-all"}, "could not be found"),
        ({"queueName": "q", "maxMessagesPerTrigger": "-1"}, "between 1 and"),
    ],
)
def test_what_is_wrong_reaches_the_user(spark: SparkSession, desk: Desk, options: dict[str, str], text: str) -> None:
    with pytest.raises(PySparkException, match=text):
        read(spark, desk, **options).count()


def test_sessions_are_refused(spark: SparkSession, desk: Desk, broker: Broker, queue: str, tmp_path: Path) -> None:
    broker.create_queue(f"s-{queue}", requires_session=True)
    frame = stream(spark, desk, queueName=f"s-{queue}")
    with pytest.raises(StreamingQueryException, match="requires sessions"):
        available_now(frame, tmp_path / "checkpoint", "noop")


def test_an_idle_query_stays_cheap_and_stops_at_once(
    spark: SparkSession, desk: Desk, queue: str, tmp_path: Path
) -> None:
    desk.fill(queue, ["a"])
    frame = stream(spark, desk, queueName=queue, maxWaitTime="1s")
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        deadline = time.monotonic() + 60
        while desk.ids(queue) and time.monotonic() < deadline:
            time.sleep(0.05)
        before = desk.operations(queue)
        started = time.monotonic()
        while desk.operations(queue)[Kind.EMPTY_POLL] < before[Kind.EMPTY_POLL] + 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        waits = time.monotonic() - started
        used = desk.operations(queue) - before
        # A wait that is under way may end in between.
        assert used.total() <= waits + 2
        assert set(used) <= {Kind.EMPTY_POLL, Kind.PEEK}
    finally:
        query.stop()
    assert not query.isActive
