"""Whole messages: every field survives, with every kind of body."""

from __future__ import annotations

from uuid import uuid4

import pytest

from twinbus.amqp import AmqpMessage, Array, Described, Symbol, Timestamp, UInt, ULong, encode
from twinbus.errors import DecodeError


def full() -> AmqpMessage:
    message = AmqpMessage()
    message.durable = True
    message.priority = 4
    message.ttl = 60_000
    message.first_acquirer = False
    message.delivery_count = 2
    message.delivery_annotations = {Symbol("x-opt-lock-token"): uuid4()}
    message.message_annotations = {Symbol("x-opt-sequence-number"): 12}
    message.message_id = uuid4()
    message.user_id = b"me"
    message.to = "to"
    message.subject = "subject"
    message.reply_to = "reply-to"
    message.correlation_id = ULong(7)
    message.content_type = "text/plain"
    message.content_encoding = "gzip"
    message.absolute_expiry_time = Timestamp(5)
    message.creation_time = Timestamp(4)
    message.group_id = "session"
    message.group_sequence = UInt(3)
    message.reply_to_group_id = "reply session"
    message.application_properties = {"a": 1, "b": "x", "c": Described(Symbol("com.microsoft:uri"), "http://x")}
    message.footer = {Symbol("f"): 1}
    return message


def fields(message: AmqpMessage) -> dict[str, object]:
    named = ((name, getattr(message, name)) for name in dir(message) if not name.startswith("_"))
    return {name: value for name, value in named if not callable(value)}


@pytest.mark.parametrize("kind", ["data", "several", "value", "null", "sequence", "none"])
def test_every_field_survives(kind: str) -> None:
    message = full()
    if kind == "data":
        message.data = [b"x" * 300]
    elif kind == "several":
        message.data = [b"x", b"y"]
    elif kind == "value":
        message.value, message.has_value = {"k": Array([1, 2], 0x81)}, True
    elif kind == "null":
        message.value, message.has_value = None, True
    elif kind == "sequence":
        message.sequences = [[1, "a"], []]
    back = AmqpMessage.decode(message.encode())
    assert fields(back) == fields(message)
    assert back.encode() == message.encode()


def test_an_empty_message_is_empty() -> None:
    assert AmqpMessage().encode() == b""
    assert fields(AmqpMessage.decode(b"")) == fields(AmqpMessage())


@pytest.mark.parametrize(
    ("message", "size"),
    [
        (AmqpMessage(), 0),
        (AmqpMessage.of_value(None), 0),
        (AmqpMessage.of_data(), 0),
        (AmqpMessage.of_data(b"ab", b"c"), 3),
        (AmqpMessage.of_value("größer"), 8),
        (AmqpMessage.of_value(b"\x00\x01"), 2),
        (AmqpMessage.of_value({"a": 1}), len(encode({"a": 1}))),
        (AmqpMessage(sequences=[[1], ["b", 2]]), len(encode([1])) + len(encode(["b", 2]))),
    ],
)
def test_the_size_of_a_body_is_that_of_its_content(message: AmqpMessage, size: int) -> None:
    message.message_id = "not counted"
    assert AmqpMessage.decode(message.encode()).body_bytes == size


def test_plain_keys_become_symbols_where_amqp_wants_them() -> None:
    message = AmqpMessage.of_value("x")
    message.message_annotations = {"x-opt-partition-key": "p"}
    back = AmqpMessage.decode(message.encode())
    assert back.message_annotations is not None
    assert [type(key) for key in back.message_annotations] == [Symbol]


def test_short_lists_are_padded() -> None:
    back = AmqpMessage.decode(b"\x00\x53\x70\x45" + b"\x00\x53\x73" + encode(["id"]))
    assert back.durable is None
    assert back.message_id == "id"
    assert back.reply_to_group_id is None


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00\x53\x70\xa1\x01a",
        b"\x00\x53\x73" + encode([None] * 14),
        b"\x00\x53\x74\x45",
        b"\x00\x53\x76\xa1\x01a",
        b"\x00\x53\x75\xa1\x01a",
        b"\x00\x53\x72\xc1\x03\x02\x40",
        b"\x00\x53\x77\xc0\x02\x02\x40",
    ],
)
def test_sections_of_the_wrong_kind_are_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        AmqpMessage.decode(payload)


def test_a_body_with_many_values_stays_encoded() -> None:
    for body in (AmqpMessage.of_value([[1, 2]] * 20), AmqpMessage(sequences=[[1] * 30, [2] * 30])):
        body.message_id = "m"
        payload = body.encode()
        assert AmqpMessage.decode(payload, 100).encoded is None
        some = AmqpMessage.decode(payload, 50)
        assert some.message_id == "m"
        assert (some.value, some.has_value, some.sequences) == (None, False, None)
        assert some.encoded is not None
        assert payload.endswith(some.encoded)
        assert some.body_bytes == len(some.encoded)
        assert some.encode() == payload


def test_annotations_with_many_values_are_an_error_or_unreadable() -> None:
    message = AmqpMessage.of_data(b"x")
    message.message_annotations = {Symbol("a"): [1] * 100}
    payload = message.encode()
    with pytest.raises(DecodeError, match="more than 50 values"):
        AmqpMessage.decode(payload, 50)
    found, unreadable = AmqpMessage.decode_readable(payload, 50)
    assert found.data == [b"x"]
    assert list(unreadable) == ["message-annotations"]
