from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual
from pyspark.sql.types import BinaryType, IntegerType, MapType, StringType, StructField, StructType

from tests.spark.source.desk import Desk, read_all, read_between
from twinbus.amqp import AmqpMessage, Int, Timestamp
from twinbus.client import Message
from twinbus.clock import SteppedClock
from twinbus.errors import ConfigError, EntityNotFoundError
from twinbus.ledger.words import Kind
from twinbus.spark.versions import ReadAllAvailable
from twinbus.testing import Broker


def test_every_column(desk: Desk, queue: str) -> None:
    desk.send(
        queue,
        [
            Message(
                b"\x00\xffbody",
                message_id="m",
                session_id="s",
                subject="sub",
                content_type="text/plain",
                correlation_id="c",
                to="t",
                reply_to="r",
                ttl_ms=60_000,
                application_properties={"n": 1, "text": "hello", "i": Int(5), "t": Timestamp(7), "b": True},
            )
        ],
    )
    (row,) = read_all(desk.reader(queueName=queue))
    enqueued = row.pop("enqueuedTime")
    assert abs((datetime.now(UTC) - enqueued).total_seconds()) < 60
    assert (row.pop("expiresAt") - enqueued).total_seconds() == 60
    assert dict(row.pop("properties")) == {
        "n": "1",
        "text": '"hello"',
        "i": '{"int": 5}',
        "t": '{"timestamp": 7}',
        "b": "true",
    }
    assert row == {
        "body": b"\x00\xffbody",
        "messageId": "m",
        "sessionId": "s",
        "correlationId": "c",
        "subject": "sub",
        "contentType": "text/plain",
        "to": "t",
        "replyTo": "r",
        "partitionKey": None,
        "sequenceNumber": 1,
        "scheduledEnqueueTime": None,
        "deliveryCount": 0,
        "state": "active",
        "deadLetterReason": None,
        "deadLetterErrorDescription": None,
        "entity": queue,
        "_corrupt": None,
        "namespace": desk.options(queueName=queue).access.namespace,
    }


def test_all_states_are_seen_and_nothing_is_touched(desk: Desk, queue: str) -> None:
    desk.fill(queue, ["a", "b", "c"])
    desk.fill(queue, ["later"], scheduled_ms=4_000_000_000_000)
    held = desk.bus.receive(queue, 1, 1)
    desk.bus.defer(queue, held, {"x-twinbus-claim": "other"})
    for _ in range(2):
        rows = read_all(desk.reader(queueName=queue))
        assert [(row["messageId"], row["state"]) for row in rows] == [
            ("a", "deferred"),
            ("b", "active"),
            ("c", "active"),
            ("later", "scheduled"),
        ]
        # The mark of a claim is ours, not a property of the sender.
        assert dict(rows[0]["properties"]) == {}
    assert [each.delivery_count for each in desk.look(queue)][1:] == [0, 0, 0]


def test_partitions_hold_everything_once(desk: Desk, queue: str) -> None:
    ids = [f"m{number}" for number in range(3_500)]
    desk.send(queue, [Message(b"", message_id=each) for each in ids])
    reader = desk.reader(queueName=queue, numPartitions=3)
    partitions = reader.partitions()
    assert len(partitions) == 3
    found = [
        row["messageId"]
        for partition in partitions
        # As in Spark, another instance reads.
        for batch in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(partition)))
        for row in batch.to_pylist()
    ]
    assert found == ids


def test_batches_are_of_a_thousand_rows(desk: Desk, queue: str) -> None:
    desk.send(queue, [Message(b"") for _ in range(2_500)])
    reader = desk.reader(queueName=queue, numPartitions=1)
    (partition,) = reader.partitions()
    assert [batch.num_rows for batch in reader.read(partition)] == [1_000, 1_000, 500]


def test_an_empty_queue_has_no_rows(desk: Desk, queue: str) -> None:
    assert read_all(desk.reader(queueName=queue)) == []


def test_ranges_of_numbers(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abcdef"))

    def ids(**options: int) -> str:
        return "".join(row["messageId"] for row in read_all(desk.reader(queueName=queue, **options)))

    assert ids(startingSequenceNumber=3) == "cdef"
    assert ids(endingSequenceNumber=3) == "abc"
    assert ids(startingSequenceNumber=2, endingSequenceNumber=5) == "bcde"
    assert ids(startingSequenceNumber=7) == ""
    assert ids(startingSequenceNumber=6, endingSequenceNumber=1_000_000) == "f"
    assert ids(startingSequenceNumber=6, endingSequenceNumber=2**63 - 1) == "f"
    assert ids(startingSequenceNumber=2**63 - 1, endingSequenceNumber=2**63 - 1) == ""


@pytest.fixture
def stepped() -> Iterator[tuple[Broker, SteppedClock]]:
    clock = SteppedClock()
    with Broker(queues=["q"], clock=clock, sync=False) as broker:
        yield broker, clock


def test_since_a_time(stepped: tuple[Broker, SteppedClock]) -> None:
    broker, clock = stepped
    with Desk(broker) as desk:
        times = []
        for number in range(10):
            times.append(clock.now_ms())
            desk.fill("q", [f"{number}a", f"{number}b"])
            clock.step(seconds=1)
        for number, moment_ms in enumerate(times):
            rows = read_all(desk.reader(queueName="q", startingTimestamp=moment_ms))
            assert [row["messageId"][0] for row in rows] == [str(each) for each in range(number, 10) for _ in range(2)]
            assert len(read_all(desk.reader(queueName="q", startingTimestamp=moment_ms + 1))) == len(rows) - 2


def test_filters_narrow_the_range_only_when_asked(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abcdef"))
    plain = desk.reader(queueName=queue)
    # Spark refuses a reader that takes filters unless its configuration allows it.
    assert type(plain).pushFilters is type(plain).__mro__[1].pushFilters
    column = ("sequenceNumber",)
    for filters, wanted in (
        ([GreaterThan(column, 2), LessThan(column, 5)], "cd"),
        ([GreaterThanOrEqual(column, 2), LessThanOrEqual(column, 5)], "bcde"),
        ([EqualTo(column, 4)], "d"),
        ([EqualTo(("messageId",), "a")], "abcdef"),
        ([GreaterThan(("enqueuedTime",), datetime(2100, 1, 1, tzinfo=UTC))], ""),
    ):
        reader = desk.reader(queueName=queue, pushdown="true")
        # Spark applies all of them again.
        assert list(reader.pushFilters(filters)) == filters
        assert "".join(row["messageId"] for row in read_all(reader)) == wanted


def test_only_wanted_columns(desk: Desk, queue: str) -> None:
    desk.fill(queue, ["a"])
    assert "body" not in read_all(desk.reader(queueName=queue, includeBody="false"))[0]
    schema = StructType([StructField("messageId", StringType()), StructField("body", StringType())])
    assert read_all(desk.reader(schema, queueName=queue)) == [{"messageId": "a", "body": "body of a"}]


def test_schemas_that_do_not_fit(desk: Desk, queue: str) -> None:
    for field, text in (
        (StructField("mesageId", StringType()), "Did you mean 'messageId'"),
        (StructField("messageid", StringType()), "is written 'messageId'"),
        (StructField("messageId", IntegerType()), "as string, not int"),
        (StructField("timeToLive", BinaryType()), "no column 'timeToLive'"),
        (StructField("properties", MapType(StringType(), IntegerType())), "as map<string,string>, not map<string,int>"),
    ):
        with pytest.raises(ConfigError, match=text):
            desk.reader(StructType([field]), queueName=queue)
    twice = StructType([StructField("body", BinaryType()), StructField("body", StringType())])
    with pytest.raises(ConfigError, match="'body' twice"):
        desk.reader(twice, queueName=queue)


def test_subscriptions_and_dead_letters(desk: Desk, broker: Broker, queue: str) -> None:
    broker.create_topic(f"t-{queue}")
    broker.create_subscription(f"t-{queue}", "all")
    desk.fill(f"t-{queue}", ["a", "b"])
    rows = read_all(desk.reader(topicName=f"t-{queue}", subscriptionName="all"))
    assert [row["messageId"] for row in rows] == ["a", "b"]
    assert {row["entity"] for row in rows} == {f"t-{queue}/Subscriptions/all"}

    broker.create_queue(f"d-{queue}", max_delivery_count=1)
    desk.fill(f"d-{queue}", ["x"])
    held = desk.bus.receive(f"d-{queue}", 1, 1)
    desk.bus.defer(f"d-{queue}", [], {})
    assert held
    desk.bus._submit(desk.bus._receivers[f"d-{queue}"].dead_letter(held[0], "why", "because")).result()
    (row,) = read_all(desk.reader(queueName=f"d-{queue}", subQueue="deadletter"))
    assert (row["messageId"], row["deadLetterReason"], row["deadLetterErrorDescription"]) == ("x", "why", "because")
    assert dict(row["properties"]) == {}


def test_a_message_that_cannot_be_decoded_is_a_row(desk: Desk, queue: str) -> None:
    message = AmqpMessage.of_data(b"x")
    message.subject = "about-it"
    broken = message.encode().replace(b"about-it", b"\xff" * 8)
    assert desk.bus.start_send(queue, [[broken]]).result() == [None]
    desk.fill(queue, ["good"])
    bad, good = read_all(desk.reader(queueName=queue))
    assert good["messageId"] == "good"
    assert (bad["messageId"], bad["sequenceNumber"]) == (None, 1)
    assert (bad["body"], good["_corrupt"]) == (None, None)
    assert b"\xff" * 8 in bad["_corrupt"]
    assert "x-twinbus-unreadable" in dict(bad["properties"])


def test_min_partitions_split_what_is_small(desk: Desk, queue: str) -> None:
    desk.fill(queue, list("abcde"))
    for wanted, found in ((1, 1), (3, 3), (9, 5)):
        assert len(desk.reader(queueName=queue, minPartitions=wanted).partitions()) == found
    reader = desk.reader(queueName=queue, minPartitions=3)
    assert [row["messageId"] for row in read_all(reader)] == list("abcde")
    for mode in ("browse", "claim"):
        stream = desk.stream(queueName=queue, minPartitions=3, readMode=mode)
        try:
            start = stream.initialOffset()
            end = stream.latestOffset(start, ReadAllAvailable())
            assert len(stream.partitions(start, end)) == 3
            assert [row["messageId"] for row in read_between(stream, start, end)] == list("abcde")
        finally:
            stream.stop()
    with pytest.raises(ConfigError, match="minPartitions is above numPartitions"):
        desk.reader(queueName=queue, minPartitions=3, numPartitions=2)


def test_a_queue_that_is_not_there(desk: Desk) -> None:
    with pytest.raises(EntityNotFoundError, match="could not be found"):
        desk.reader(queueName="nowhere").partitions()


def test_a_look_costs_one_operation_a_message(desk: Desk, queue: str) -> None:
    desk.send(queue, [Message(b"x" * 100) for _ in range(2_000)])
    read_all(desk.reader(queueName=queue, numPartitions=2))
    counted = desk.operations(queue)
    assert set(counted) == {Kind.SEND, Kind.PEEK}
    # Finding first and last takes some more peeks.
    assert 2_000 <= counted[Kind.PEEK] <= 2_040
