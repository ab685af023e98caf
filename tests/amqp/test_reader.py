from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.test_typed_json import VALUES
from twinbus.amqp import AmqpMessage, Symbol, Timestamp, encode
from twinbus.amqp.reader import IDENTITY, items, read_fields, read_head, read_properties
from twinbus.amqp.sections import list_section, map_section
from twinbus.amqp.typed_json import to_json
from twinbus.client import Message, ReceivedMessage
from twinbus.client.outgoing import encode_message
from twinbus.errors import DecodeError

TEXT = st.one_of(st.none(), st.text(max_size=300))


@given(
    body=st.binary(max_size=600),
    message_id=TEXT,
    session_id=TEXT,
    subject=TEXT,
    content_type=st.one_of(st.none(), st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)),
    correlation_id=TEXT,
    to=TEXT,
    reply_to=TEXT,
    reply_to_session_id=TEXT,
    partition_key=TEXT,
    ttl_ms=st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    scheduled_ms=st.one_of(st.none(), st.integers(0, 2**41)),
    properties=st.dictionaries(st.text(max_size=20), st.one_of(st.text(), st.integers(-100, 100)), max_size=3),
)
def test_what_is_encoded_by_hand_reads_as_the_message(body: bytes, properties: dict[str, Any], **fields: Any) -> None:
    payload = encode_message(body, application_properties=properties or None, **fields)
    usual = AmqpMessage.decode(Message(body, application_properties=properties or None, **fields).encode())
    found = AmqpMessage.decode(payload)
    assert {name: getattr(found, name) for name in found.__slots__} == {
        name: getattr(usual, name) for name in usual.__slots__
    }
    read = read_fields(payload)
    received = ReceivedMessage(payload, None, b"")
    assert read.body == body
    assert (read.message_id, read.session_id, read.subject) == tuple(
        fields[name] for name in ("message_id", "session_id", "subject")
    )
    assert (read.correlation_id, read.to, read.reply_to) == tuple(
        fields[name] for name in ("correlation_id", "to", "reply_to")
    )
    assert (read.content_type, read.partition_key) == (fields["content_type"], fields["partition_key"])
    assert (read.properties or {}) == properties
    assert read.scheduled_ms == received.scheduled_ms


@given(st.dictionaries(st.text(max_size=300), VALUES, max_size=4))
def test_properties_as_json_are_the_same(properties: dict[str, Any]) -> None:
    payload = encode_message(b"", "m", application_properties=properties or None)
    found = read_fields(payload, as_json=True).properties or {}
    assert found == {name: to_json(value) for name, value in properties.items()}


def rendered(**annotations: Any) -> bytes:
    message = AmqpMessage.of_data(b"x")
    message.delivery_count = 3
    message.ttl = 1_000
    message.message_annotations = {Symbol(name): value for name, value in annotations.items()}
    return message.encode()


def test_annotations_in_another_order_and_size() -> None:
    found = read_fields(
        rendered(
            **{
                "x-opt-enqueued-time": Timestamp(5),
                "x-opt-message-state": 1,
                "x-opt-sequence-number": 77,
                "x-opt-partition-key": "k",
            }
        )
    )
    assert (found.sequence_number, found.enqueued_ms, found.state, found.partition_key) == (77, 5, 1, "k")
    assert (found.delivery_count, found.expires_ms) == (3, 1_005)


@pytest.mark.parametrize(
    ("message_id", "text"), [(UUID(int=5), str(UUID(int=5))), (b"abc", "abc"), (7, "7"), ("plain", "plain")]
)
def test_ids_of_other_types_are_text(message_id: Any, text: str) -> None:
    message = AmqpMessage.of_data(b"")
    message.message_id = message_id
    assert read_fields(message.encode()).message_id == text


@pytest.mark.parametrize(
    ("value", "body"), [("text", b"text"), (b"raw", b"raw"), (5, b"5"), ({"a": 1}, None), (None, b"null")]
)
def test_bodies_that_are_values(value: Any, body: bytes | None) -> None:
    found = read_fields(AmqpMessage.of_value(value).encode()).body
    assert found is not None
    assert body is None or found == body


def test_several_data_sections_are_one_body() -> None:
    assert read_fields(AmqpMessage.of_data(b"a", b"b" * 300).encode()).body == b"a" + b"b" * 300


def test_several_sequence_sections_are_one_body() -> None:
    several, one = AmqpMessage(), AmqpMessage()
    several.sequences, one.sequences = [["a"], ["b", "c"]], [["a", "b", "c"]]
    assert read_fields(several.encode()).body == read_fields(one.encode()).body


@given(st.binary(max_size=200))
def test_nonsense_is_refused(payload: bytes) -> None:
    for read in (read_fields, read_head):
        try:
            found = read(payload)
        except DecodeError:
            continue
        assert found is not None


def test_text_that_is_not_utf8_is_refused() -> None:
    payload = encode_message(b"", "abc").replace(b"abc", b"\xff\xfe\xfd")
    with pytest.raises(DecodeError, match="not UTF-8"):
        read_fields(payload)
    assert read_head(payload).sequence_number == 0


@pytest.mark.parametrize("odd", ["soon", 1.5, [1], b"\x00", None])
def test_what_is_no_number_is_no_time(odd: Any) -> None:
    payload = rendered(**{"x-opt-sequence-number": 7, "x-opt-scheduled-enqueue-time": odd, "x-opt-enqueued-time": odd})
    for found in (read_fields(payload), read_head(payload)):
        assert (found.sequence_number, found.scheduled_ms, found.enqueued_ms, found.expires_ms) == (7, None, None, None)


@pytest.mark.parametrize("odd", ["soon", Symbol("soon"), 1.5, [1], b"\x00", None])
def test_an_expiry_that_is_no_number_is_none(odd: Any) -> None:
    payload = b"\x00\x53\x73" + encode(["id", *[None] * 7, odd]) + b"\x00\x53\x75\xa0\x01x"
    found = read_fields(payload)
    assert (found.message_id, found.expires_ms, found.body) == ("id", None, b"x")


PROPERTIES = b"\x00\x53\x73"
APPLICATION = b"\x00\x53\x74"


def test_items_keep_their_bytes() -> None:
    encoded = [b"\x40", b"\xa1\x02ab", b"\xb1\x00\x00\x00\x01c", b"\x54\x05"]
    for section in (list_section(0x73, encoded), list_section(0x73, [*encoded, encode("x" * 300)])):
        assert items(section, (0, len(section)))[:4] == encoded
    pairs = map_section(0x74, [b"\xa1\x01k", b"\x41"])
    assert items(pairs, (0, len(pairs))) == [b"\xa1\x01k", b"\x41"]
    assert items(b"", None) == []
    assert items(PROPERTIES + b"\x45", (0, 4)) == []


@pytest.mark.parametrize(
    "section",
    [
        PROPERTIES + b"\xc0\x05\x03\xa1\x01k",
        PROPERTIES + b"\xc0\x05\x01\xa1\x01k\x40",
        PROPERTIES + b"\xc0\x05\x02\xa1\x01k\xa1",
        PROPERTIES + b"\xd0\x00\x00",
        PROPERTIES + b"\xc1\x05\x02\xa1\x01k\x40",
        APPLICATION + b"\xc0\x05\x02\xa1\x01k\x40",
        PROPERTIES + b"\xa1\x01k",
        PROPERTIES,
    ],
)
def test_items_that_are_cut_off_are_refused_or_left_out(section: bytes) -> None:
    span = (0, len(section))
    with pytest.raises(DecodeError):
        items(section, span)
    assert items(section, span, readable=True) in ([], [b"\xa1\x01k"])


def test_properties_that_nobody_asks_for_cannot_make_a_message_unreadable() -> None:
    not_utf8 = b"\xa1\x01\xff"
    section = list_section(0x73, [encode("id"), not_utf8, not_utf8])
    assert read_properties(section, (0, len(section)), IDENTITY)[0] == "id"
    with pytest.raises(DecodeError):
        read_fields(section)
    section = list_section(0x73, [encode("id"), not_utf8])
    assert read_fields(section).message_id == "id"


def test_more_properties_than_there_are_do_no_harm() -> None:
    section = list_section(0x73, [encode("id"), *[encode("x")] * 20])
    assert read_properties(section, (0, len(section)), IDENTITY)[0] == "id"
