from __future__ import annotations

import logging
import pickle
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import (
    BinaryType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.spark.source.desk import Desk, read_all
from twinbus.amqp import Int, Symbol, Timestamp
from twinbus.client import Message
from twinbus.client.blocking import BlockingBus
from twinbus.errors import (
    ArgumentError,
    ConfigError,
    EntityNotFoundError,
    MessageTooLargeError,
    NotAllowedError,
    ServerBusyError,
)
from twinbus.spark.source import checks, sink
from twinbus.spark.source.columns import source_schema
from twinbus.spark.versions import arrow_schema
from twinbus.testing import Broker

BODY = StructType([StructField("body", StringType())])
TEXT = StringType()


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    checks._KNOWN.clear()


def frame(schema: StructType, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))


def write(desk: Desk, schema: StructType, rows: list[dict[str, Any]], **options: Any) -> Any:
    source = desk.source(**{"duplicateDetection": "ignore", **options})
    writer = pickle.loads(pickle.dumps(source.writer(schema, False)))
    return writer.write(iter([frame(schema, rows)]))


def with_fields(*fields: tuple[str, Any]) -> StructType:
    return StructType([StructField("body", StringType()), *[StructField(name, kind) for name, kind in fields]])


def test_bodies_as_text_and_binary(desk: Desk, queue: str) -> None:
    write(desk, BODY, [{"body": "grün"}, {"body": None}], queueName=queue)
    write(desk, StructType([StructField("body", BinaryType())]), [{"body": b"\xff\x00"}], queueName=queue)
    assert [each.body for each in desk.look(queue)] == ["grün".encode(), b"", b"\xff\x00"]


def test_every_column_that_is_sent(desk: Desk, queue: str) -> None:
    schema = with_fields(
        ("messageId", TEXT),
        ("sessionId", TEXT),
        ("correlationId", TEXT),
        ("subject", TEXT),
        ("contentType", TEXT),
        ("to", TEXT),
        ("replyTo", TEXT),
        ("replyToSessionId", TEXT),
        ("partitionKey", TEXT),
        ("timeToLive", LongType()),
        ("properties", MapType(TEXT, TEXT)),
    )
    row = {
        "body": "x",
        "messageId": "m",
        "sessionId": "s",
        "correlationId": "c",
        "subject": "sub",
        "contentType": "text/plain",
        "to": "t",
        "replyTo": "r",
        "replyToSessionId": "rs",
        "partitionKey": "s",
        "timeToLive": 60_000,
        "properties": [("a", "1"), ("b", '{"int": 2}'), ("c", "plain text"), ("d", None)],
    }
    write(desk, schema, [row], queueName=queue)
    (found,) = desk.look(queue)
    assert (found.message_id, found.session_id, found.correlation_id, found.subject) == ("m", "s", "c", "sub")
    assert (found.content_type, found.to, found.reply_to, found.partition_key) == ("text/plain", "t", "r", "s")
    assert found.expires_ms == (found.enqueued_ms or 0) + 60_000
    assert found.properties == {"a": 1, "b": 2, "c": "plain text", "d": None}
    assert type(found.properties["b"]) is Int


def test_times(desk: Desk, queue: str) -> None:
    moment = datetime(2100, 1, 1, tzinfo=UTC)
    write(
        desk,
        with_fields(("scheduledEnqueueTime", TimestampType()), ("timeToLive", DayTimeIntervalType())),
        [{"body": "", "scheduledEnqueueTime": moment, "timeToLive": timedelta(seconds=5)}],
        queueName=queue,
    )
    (found,) = desk.look(queue)
    assert found.state == 2
    assert found.scheduled_ms == int(moment.timestamp() * 1000)
    assert found.expires_ms == found.scheduled_ms + 5_000


def test_what_was_read_can_be_written_as_it_is(desk: Desk, broker: Broker, queue: str) -> None:
    """Including the types of properties."""
    sent = {
        "long": 1,
        "int": Int(2),
        "text": "3",
        "time": Timestamp(4),
        "symbol": Symbol("5"),
        "raw": b"6",
        "flag": True,
    }
    desk.send(queue, [Message(b"\x01", message_id="m", subject="s", application_properties=sent)])
    target = f"copy-{queue}"
    broker.create_queue(target)
    schema = source_schema(include_body=True)
    rows = read_all(desk.reader(queueName=queue))
    write(desk, schema, rows, queueName=target)
    (found,) = desk.look(target)
    assert (found.message_id, found.subject, found.body) == ("m", "s", b"\x01")
    assert found.properties == sent
    assert {name: type(value) for name, value in found.properties.items()} == {
        name: type(value) for name, value in sent.items()
    }
    # The column `entity` says where they were read; with a queueName they do not go back there.
    assert desk.ids(queue) == ["m"]


def test_ids_by_position_are_the_same_again(desk: Desk, broker: Broker, queue: str) -> None:
    rows = [{"body": str(number)} for number in range(5)]
    write(desk, BODY, rows, queueName=queue, jobId="job")
    write(desk, BODY, rows, queueName=queue, jobId="job")
    assert desk.ids(queue) == [f"job/0/{number}" for number in range(5)] * 2
    detecting = f"dd-{queue}"
    broker.create_queue(detecting, requires_duplicate_detection=True)
    for _ in range(3):
        write(desk, BODY, rows, queueName=detecting, jobId="job")
    assert len(desk.ids(detecting)) == 5


def test_without_a_job_id_another_write_is_another(desk: Desk, queue: str) -> None:
    for _ in range(2):
        write(desk, BODY, [{"body": ""}], queueName=queue)
    assert len(set(desk.ids(queue))) == 2


def test_a_task_that_is_tried_again_has_the_same_ids(desk: Desk, queue: str) -> None:
    writer = desk.source(queueName=queue, duplicateDetection="ignore").writer(BODY, False)
    for _ in range(2):
        pickle.loads(pickle.dumps(writer)).write(iter([frame(BODY, [{"body": ""}])]))
    assert len(set(desk.ids(queue))) == 1


def test_two_writes_of_one_foreach_batch_have_ids_of_their_own(
    desk: Desk, broker: Broker, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are told the same query and batch, and no row may be taken for a repeat of another."""
    monkeypatch.setattr(sink, "_property", {"streaming.sql.batchId": "7", "sql.streaming.queryId": "query"}.get)
    detecting = f"dd-{queue}"
    broker.create_queue(detecting, requires_duplicate_detection=True)
    for body in ("orders", "refunds"):
        write(desk, BODY, [{"body": body}], queueName=detecting)
    assert [each.body for each in desk.look(detecting)] == [b"orders", b"refunds"]
    for job in ("orders", "refunds", "orders"):
        write(desk, BODY, [{"body": job}], queueName=detecting, jobId=job)
    assert desk.ids(detecting)[2:] == ["orders/7/0/0", "refunds/7/0/0"]
    stream = desk.source(queueName=queue, duplicateDetection="ignore").streamWriter(BODY, False)
    stream.write(iter([frame(BODY, [{"body": ""}])]))
    assert desk.ids(queue) == ["query/7/0/0"]


def test_modes_of_ids(desk: Desk, queue: str) -> None:
    schema = with_fields(("messageId", TEXT))
    rows = [{"body": "", "messageId": "own"}, {"body": "", "messageId": None}]
    write(desk, schema, rows, queueName=queue, jobId="j")
    write(desk, schema, rows, queueName=queue, jobId="j", messageIdMode="position")
    assert desk.ids(queue) == ["own", "j/0/1", "j/0/0", "j/0/1"]
    with pytest.raises(ArgumentError, match=r"Row 1 cannot be sent.*'messageId' is null"):
        write(desk, schema, rows, queueName=queue, messageIdMode="column")
    with pytest.raises(ConfigError, match="no column 'messageId'"):
        write(desk, BODY, [], queueName=queue, messageIdMode="column")


def test_rows_say_where_they_go(desk: Desk, broker: Broker, queue: str) -> None:
    other = f"o-{queue}"
    broker.create_queue(other)
    schema = with_fields(("entity", TEXT))
    rows = [{"body": "1", "entity": queue}, {"body": "2", "entity": other}, {"body": "3", "entity": queue}]
    write(desk, schema, rows)
    assert [each.body for each in desk.look(queue)] == [b"1", b"3"]
    assert [each.body for each in desk.look(other)] == [b"2"]
    with pytest.raises(ArgumentError, match=r"Row 0 cannot be sent.*'entity' is null"):
        write(desk, schema, [{"body": "", "entity": None}])
    # The column takes precedence over the option only on request, as with Kafka's topic.
    write(desk, schema, [{"body": "4", "entity": other}], queueName=queue)
    write(desk, schema, [{"body": "5", "entity": other}], queueName=queue, useEntityColumn="true")
    write(desk, schema, [{"body": "6", "entity": None}], queueName=queue, useEntityColumn="true")
    assert [each.body for each in desk.look(queue)] == [b"1", b"3", b"4", b"6"]
    assert [each.body for each in desk.look(other)] == [b"2", b"5"]
    with pytest.raises(ConfigError, match="add a column 'entity'"):
        write(desk, BODY, [])


def test_deliveries_are_as_large_as_told(desk: Desk, queue: str) -> None:
    rows = [{"body": "x"} for _ in range(1_000)]
    assert write(desk, BODY, rows, queueName=queue, batchSize=300).deliveries == 4
    assert write(desk, BODY, [{"body": "x" * 60_000} for _ in range(10)], queueName=queue).deliveries == 3
    assert len(desk.look(queue)) == 1_010


def test_order_within_a_session(desk: Desk, broker: Broker, queue: str) -> None:
    sessions = f"s-{queue}"
    broker.create_queue(sessions, requires_session=True)
    schema = with_fields(("sessionId", TEXT))
    rows = [{"body": str(number), "sessionId": "ab"[number % 2]} for number in range(100)]
    assert write(desk, schema, rows, queueName=sessions).deliveries == 2
    found = desk.look(sessions)
    for session in "ab":
        own = [int(each.body or b"") for each in found if each.session_id == session]
        assert own == sorted(own)
        assert len(own) == 50


def test_topics(desk: Desk, broker: Broker, queue: str) -> None:
    broker.create_topic(f"t-{queue}")
    broker.create_subscription(f"t-{queue}", "all")
    write(desk, BODY, [{"body": "x"}], topicName=f"t-{queue}")
    assert len(desk.look(f"t-{queue}/Subscriptions/all")) == 1


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (StructType([StructField("messageId", TEXT)]), "no column 'body'.*to_json"),
        (with_fields(("subjekt", TEXT)), "Did you mean 'subject'"),
        (with_fields(("value", TEXT)), "sink has no column 'value'. It has body"),
        (with_fields(("messageId", IntegerType())), "as string, not int: cast it"),
        (with_fields(("properties", MapType(TEXT, IntegerType()))), "map<string,string>"),
        (with_fields(("Body", TEXT)), "'body' twice"),
    ],
)
def test_rows_that_do_not_fit(desk: Desk, queue: str, schema: StructType, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        desk.source(queueName=queue).writer(schema, False)


def test_nothing_is_overwritten(desk: Desk, queue: str) -> None:
    for make in (desk.source(queueName=queue).writer, desk.source(queueName=queue).streamWriter):
        with pytest.raises(ConfigError, match=r"mode.'append'"):
            make(BODY, True)


def test_one_bad_message_fails_or_is_left_out(desk: Desk, queue: str) -> None:
    rows = [{"body": "a"}, {"body": "x" * 300_000}, {"body": "b"}]
    with pytest.raises(MessageTooLargeError):
        write(desk, BODY, rows, queueName=queue)
    sent = write(desk, BODY, rows, queueName=queue, onError="drop", jobId="j")
    assert (sent.messages, sent.skipped) == (2, 1)
    assert [each.body for each in desk.look(queue) if str(each.message_id).startswith("j/")] == [b"a", b"b"]
    bad = with_fields(("properties", MapType(TEXT, TEXT)))
    rows = [{"body": "c", "properties": [("n", '{"int": "no"}')]}, {"body": "d", "properties": []}]
    with pytest.raises(ArgumentError, match=r"Row 0 cannot be sent.*no value of that type"):
        write(desk, bad, rows, queueName=queue)
    assert write(desk, bad, rows, queueName=queue, onError="drop").skipped == 1


def test_a_negative_time_to_live_is_refused(desk: Desk, queue: str) -> None:
    """It would be accepted, and gone at once."""
    schema = with_fields(("messageId", TEXT), ("timeToLive", LongType()))
    rows = [
        {"body": "", "messageId": "late", "timeToLive": -5},
        {"body": "", "messageId": "fine", "timeToLive": 60_000},
    ]
    with pytest.raises(ArgumentError, match=r"timeToLive.*-5 ms.*'late'"):
        write(desk, schema, rows, queueName=queue)
    assert write(desk, schema, rows, queueName=queue, onError="drop").skipped == 1
    assert desk.ids(queue) == ["fine"]


def test_a_refused_delivery_does_not_take_the_others_along(desk: Desk, queue: str) -> None:
    schema = with_fields(("messageId", TEXT))
    rows = [{"body": "", "messageId": each} for each in ("a", "x" * 200, "b")]
    sent = write(desk, schema, rows, queueName=queue, onError="drop")
    assert (sent.messages, sent.skipped) == (2, 1)
    assert desk.ids(queue) == ["a", "b"]


def test_a_refusal_names_the_message_and_the_reason(desk: Desk, broker: Broker, queue: str) -> None:
    schema = with_fields(("messageId", TEXT))
    with pytest.raises(MessageTooLargeError, match=r"The message 'big' was refused by '.*': "):
        write(desk, schema, [{"body": "x" * 2_000_000, "messageId": "big"}], queueName=queue)
    broker.create_queue(f"s-{queue}", requires_session=True)
    with pytest.raises(NotAllowedError, match="The message 'no-session' was refused by"):
        write(desk, schema, [{"body": "x", "messageId": "no-session"}], queueName=f"s-{queue}")
    bad = with_fields(("messageId", TEXT), ("properties", MapType(TEXT, TEXT)))
    with pytest.raises(ArgumentError, match=r"Row 0 cannot be sent: .*Its messageId is 'odd'"):
        write(desk, bad, [{"body": "x", "messageId": "odd", "properties": [("n", '{"int": "no"}')]}], queueName=queue)


# Too large, not encodable, and undecodable by the source.
REFUSED = with_fields(("messageId", TEXT), ("properties", MapType(TEXT, TEXT)), ("_corrupt", BinaryType()))
ROWS = [
    {"body": "fine", "messageId": "fine", "properties": [], "_corrupt": None},
    {"body": "x" * 2_000_000, "messageId": "big", "properties": [], "_corrupt": None},
    {"body": "odd", "messageId": "odd", "properties": [("n", '{"int": "no"}')], "_corrupt": None},
    {"body": None, "messageId": None, "properties": [], "_corrupt": b"\xff"},
    {"body": "last", "messageId": "last", "properties": [], "_corrupt": None},
]


def test_refused_rows_go_to_a_queue(desk: Desk, broker: Broker, queue: str) -> None:
    dead = f"dead-{queue}"
    broker.create_queue(dead)
    sent = write(desk, REFUSED, ROWS, queueName=queue, onError="deadletter", deadLetterQueueName=dead, jobId="j")
    assert (sent.messages, sent.skipped) == (2, 3)
    assert desk.ids(queue) == ["fine", "last"]
    found = {str(each.message_id): each for each in desk.look(dead)}
    assert set(found) == {"big", "odd", "j/0/3"}
    assert (found["odd"].body, found["j/0/3"].body) == (b"odd", b"\xff")
    assert 100_000 < len(found["big"].body or b"") < 2_000_000
    properties = found["odd"].properties or {}
    assert (properties["DeadLetterReason"], properties["x-twinbus-entity"]) == ("TwinbusRefused", queue)
    assert "Row 2 cannot be sent" in properties["DeadLetterErrorDescription"]
    with pytest.raises(EntityNotFoundError):
        write(desk, REFUSED, ROWS, queueName=queue, onError="deadletter", deadLetterQueueName="nowhere")


def test_refused_rows_go_to_a_table_once(desk: Desk, queue: str, tmp_path: Path) -> None:
    source = desk.source(queueName=queue, onError="table", errorTablePath=tmp_path / "refused", jobId="nightly")
    writer = source.streamWriter(REFUSED, False)
    batch = pa.RecordBatch.from_pylist(ROWS, schema=arrow_schema(REFUSED))
    for number in (0, 0, 1, 0):
        writer.commit([writer.write(iter([batch]))], number)
    rows = DeltaTable(tmp_path / "refused").to_pyarrow_table().to_pylist()
    assert Counter(row["messageId"] for row in rows) == {"big": 2, "odd": 2, "nightly/0/3": 2}
    assert {(row["entity"], row["namespace"]) for row in rows} == {(queue, source._parsed().access.namespace)}
    assert sorted({len(row["body"] or b"") for row in rows}) == [1, 3, 2_000_000]
    assert any("_corrupt" in row["reason"] for row in rows)


def test_refused_rows_of_every_run_are_in_the_table(
    desk: Desk, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that share a jobId are not repeats of each other, and neither are streams."""
    options = {"queueName": queue, "onError": "table", "errorTablePath": tmp_path / "refused", "jobId": "nightly"}
    schema = with_fields(("messageId", TEXT))
    for night in ("monday", "tuesday"):
        writer = desk.source(**options).writer(schema, False)
        rows = [{"body": "", "messageId": night.ljust(200, ".")}]
        writer.commit([writer.write(iter([frame(schema, rows)]))])
    for query, number in (("first", 5), ("second", 0), ("second", 0)):
        monkeypatch.setattr(sink, "_property", {"streaming.sql.batchId": "0", "sql.streaming.queryId": query}.get)
        stream = desk.source(**options).streamWriter(schema, False)
        rows = [{"body": "", "messageId": query.ljust(200, ".")}]
        stream.commit([stream.write(iter([frame(schema, rows)]))], number)
    found = DeltaTable(tmp_path / "refused").to_pyarrow_table()["messageId"].to_pylist()
    assert sorted(each.rstrip(".") for each in found) == ["first", "monday", "second", "tuesday"]


def test_refusals_need_a_place(desk: Desk, queue: str) -> None:
    with pytest.raises(ConfigError, match="deadLetterQueueName is not set"):
        write(desk, BODY, [], queueName=queue, onError="deadletter")
    with pytest.raises(ConfigError, match="onError is not 'table'"):
        write(desk, BODY, [], queueName=queue, errorTablePath="/tmp/t")


def test_what_concerns_the_destination_is_never_skipped(desk: Desk, broker: Broker, queue: str) -> None:
    with pytest.raises(EntityNotFoundError):
        write(desk, BODY, [{"body": ""}], queueName="nowhere", onError="drop")
    broker.create_queue(f"s-{queue}", requires_session=True)
    with pytest.raises(NotAllowedError):
        write(desk, BODY, [{"body": ""}], queueName=f"s-{queue}")


def test_a_busy_service_is_asked_again(desk: Desk, queue: str, monkeypatch: Any) -> None:
    from concurrent.futures import Future

    real = BlockingBus.start_send
    calls: list[int] = []

    def busy(self: BlockingBus, path: str, parcels: Any) -> Future[Any]:
        calls.append(len(parcels))
        if len(calls) < 3:
            refused: Future[Any] = Future()
            refused.set_result([ServerBusyError("not now")] * len(parcels))
            return refused
        return real(self, path, parcels)

    monkeypatch.setattr(BlockingBus, "start_send", busy)
    monkeypatch.setattr(BlockingBus, "pause", lambda self, pauses: pauses.next_ms())
    assert write(desk, BODY, [{"body": "x"}], queueName=queue, jobId="j").messages == 1
    assert desk.ids(queue) == ["j/0/0"]
    assert len(calls) == 3


def test_a_service_that_stays_busy_fails_the_task(desk: Desk, queue: str, monkeypatch: Any) -> None:
    from concurrent.futures import Future

    def busy(self: BlockingBus, path: str, parcels: Any) -> Future[Any]:
        refused: Future[Any] = Future()
        refused.set_result([ServerBusyError("not now")] * len(parcels))
        return refused

    monkeypatch.setattr(BlockingBus, "start_send", busy)
    monkeypatch.setattr(BlockingBus, "pause", lambda self, pauses: pauses.next_ms())
    with pytest.raises(ServerBusyError):
        write(desk, BODY, [{"body": "x"}], queueName=queue, onError="drop")


def test_duplicate_detection_is_looked_at(
    desk: Desk, broker: Broker, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_queue(f"dd-{queue}", requires_duplicate_detection=True)
    with caplog.at_level(logging.WARNING):
        write(desk, BODY, [{"body": ""}], queueName=f"dd-{queue}", duplicateDetection="require")
        assert caplog.text == ""
        for _ in range(2):
            write(desk, BODY, [{"body": ""}], queueName=queue, duplicateDetection="warn")
    assert caplog.text.count("does not detect duplicates") == 1
    with pytest.raises(ConfigError, match=r"does not detect duplicates.*duplicateDetection to warn"):
        write(desk, BODY, [{"body": ""}], queueName=queue, duplicateDetection="require")
    assert len(desk.look(queue)) == 2


def test_a_key_that_may_only_send_cannot_tell() -> None:
    from twinbus.auth.policies import Policy, Right
    from twinbus.broker.configuration.config import NamespaceConfig
    from twinbus.entities.settings import QueueSettings

    policy = Policy("sender", frozenset({Right.SEND}), "k" * 44, "l" * 44)
    namespace = NamespaceConfig("keys", queues=[QueueSettings(path="q")], policies=[policy])
    with Broker([namespace], dev=False, sync=False) as broker, Desk(broker) as desk:
        endpoint = broker.connection_string().split("SharedAccessKeyName")[0]
        desk.text = f"{endpoint}SharedAccessKeyName=sender;SharedAccessKey={'k' * 44};UseDevelopmentEmulator=true"
        with pytest.raises(ConfigError, match="Manage right"):
            write(desk, BODY, [{"body": ""}], queueName="q", duplicateDetection="require")
        write(desk, BODY, [{"body": ""}], queueName="q", duplicateDetection="warn")


def test_the_stream_writer_is_the_same(desk: Desk, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    writer = desk.source(queueName=queue, duplicateDetection="ignore", jobId="j").streamWriter(BODY, False)
    sent = writer.write(iter([frame(BODY, [{"body": "x"}])]))
    with caplog.at_level(logging.INFO, "twinbus.spark.source.sink"):
        writer.commit([sent, None], 7)
        writer.abort([None], 8)
    assert "Batch 7: 1 messages in 1 deliveries" in caplog.text
    assert "Batch 8 failed" in caplog.text
