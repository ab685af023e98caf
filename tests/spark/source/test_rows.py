from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amqp.test_typed_json import VALUES
from twinbus.amqp import AmqpMessage, Symbol, Timestamp, ULong
from twinbus.amqp.reader import Fields
from twinbus.amqp.typed_json import to_json
from twinbus.client.outgoing import encode_message
from twinbus.spark.source.columns import source_schema
from twinbus.spark.source.rows import CLAIM, STATES, RowMaker

MAKER = RowMaker(source_schema(include_body=True), entity="orders", namespace="contoso")
FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def row_of(payload: bytes) -> dict[str, Any]:
    return dict(MAKER.batch([MAKER.fields(payload)]).to_pylist()[0])


TEXT = st.one_of(st.none(), st.text(max_size=20))
TIME = st.one_of(st.none(), st.integers(-(2**64), 2**64))
SERVICES = ("DeadLetterReason", "DeadLetterErrorDescription", CLAIM)
FIELDS = st.builds(
    Fields,
    sequence_number=st.integers(0, 2**63 - 1),
    enqueued_ms=TIME,
    state=st.integers(-1, 4),
    delivery_count=st.integers(0, 2**31 - 1),
    message_id=TEXT,
    to=TEXT,
    subject=TEXT,
    reply_to=TEXT,
    correlation_id=TEXT,
    content_type=TEXT,
    session_id=TEXT,
    expires_ms=TIME,
    partition_key=TEXT,
    scheduled_ms=TIME,
    properties=st.one_of(
        st.none(),
        st.dictionaries(st.one_of(st.text(max_size=5), st.sampled_from(SERVICES)), VALUES.map(to_json), max_size=4),
    ),
    body=st.binary(max_size=10),
)


def expected(fields: Fields) -> dict[str, Any]:
    """The expected row, computed the simple way."""

    def time(ms: int | None) -> int | None:
        return None if ms is None else max(-62_135_596_800_000, min(ms, 253_402_300_799_999)) * 1000

    own = fields.properties or {}
    return {
        "messageId": fields.message_id,
        "to": fields.to,
        "subject": fields.subject,
        "sequenceNumber": fields.sequence_number,
        "deliveryCount": fields.delivery_count,
        "state": STATES[fields.state] if 0 <= fields.state < 3 else None,
        "enqueuedTime": time(fields.enqueued_ms),
        "scheduledEnqueueTime": time(fields.scheduled_ms),
        "expiresAt": time(fields.expires_ms),
        "body": fields.body,
        "entity": "orders",
        "namespace": "contoso",
        "properties": [(name, value) for name, value in own.items() if name not in SERVICES],
        "deadLetterReason": "DeadLetterReason" in own,
        "deadLetterErrorDescription": "DeadLetterErrorDescription" in own,
    }


@settings(deadline=None)
@given(st.lists(FIELDS, max_size=6))
def test_columns_say_what_each_row_would(rows: list[Fields]) -> None:
    batch = MAKER.batch(rows)
    batch.validate(full=True)
    assert batch.schema == MAKER.schema
    columns = {
        name: batch[name].view(pa.int64()) if pa.types.is_timestamp(batch[name].type) else batch[name]
        for name in batch.schema.names
    }
    found = [{name: column[index].as_py() for name, column in columns.items()} for index in range(len(rows))]
    for row, fields in zip(found, rows, strict=True):
        for name in ("deadLetterReason", "deadLetterErrorDescription"):
            row[name] = row[name] is not None
        wanted = expected(fields)
        assert {name: row[name] for name in wanted} == wanted


@pytest.mark.parametrize("odd", ["soon", 1.5, [1], b"\x00", True, ULong(2**64 - 1), Timestamp(-(2**63))])
def test_a_time_that_is_none_does_not_hold_up_the_others(odd: Any) -> None:
    message = AmqpMessage.of_data(b"x")
    message.message_annotations = {
        Symbol("x-opt-sequence-number"): 7,
        Symbol("x-opt-scheduled-enqueue-time"): odd,
        Symbol("x-opt-enqueued-time"): odd,
        Symbol("x-opt-message-state"): "odd",
    }
    row = row_of(message.encode())
    assert (row["body"], row["sequenceNumber"], row["state"]) == (b"x", 7, "active")
    assert "x-twinbus-unreadable" not in dict(row["properties"])


@pytest.mark.parametrize(
    ("given_ms", "shown"), [(-(2**63), FIRST), (2**63 - 1, LAST), (0, datetime(1970, 1, 1, tzinfo=UTC))]
)
def test_times_stay_within_what_spark_shows(given_ms: int, shown: datetime) -> None:
    message = AmqpMessage.of_data(b"x")
    message.absolute_expiry_time = Timestamp(given_ms)
    assert row_of(message.encode())["expiresAt"] == shown


@pytest.mark.parametrize("where", ["about-it", "key-here", "value-it"])
def test_text_that_is_not_utf8_is_never_a_string(where: str) -> None:
    payload = encode_message(b"x", "m", subject="about-it", application_properties={"key-here": "value-it"})
    broken = payload.replace(where.encode(), b"\xff\xc0\x80\xed\xa0\x80 \xfe")
    batch = MAKER.batch([MAKER.fields(broken), MAKER.fields(payload)])
    batch.validate(full=True)
    bad, good = batch.to_pylist()
    assert (bad["body"], bad["_corrupt"]) == (None, broken)
    assert (good["body"], good["_corrupt"]) == (b"x", None)
    assert list(dict(bad["properties"])) == ["x-twinbus-unreadable"]
    assert (good["subject"], dict(good["properties"])) == ("about-it", {"key-here": '"value-it"'})
