"""Messages and batches, as bytes and back."""

from __future__ import annotations

from uuid import uuid4

import pytest

from twinbus.amqp import AmqpMessage, Symbol, data_sections, locate
from twinbus.client import Message, ReceivedMessage, batches, delivered_part, encode_batch
from twinbus.errors import MessageTooLargeError, ProtocolError
from twinbus.limits import BATCH_MESSAGES_MAX


def test_every_field_is_written() -> None:
    message = Message(
        "text",
        message_id="id",
        session_id="session",
        subject="subject",
        content_type="text/plain",
        correlation_id="correlation",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply session",
        partition_key="session",
        ttl_ms=5_000,
        scheduled_ms=7,
        application_properties={"a": 1},
    )
    back = AmqpMessage.decode(message.encode())
    assert back.data == [b"text"]
    assert (back.message_id, back.group_id, back.subject, back.content_type) == (
        "id",
        "session",
        "subject",
        "text/plain",
    )
    assert (back.correlation_id, back.to, back.reply_to, back.reply_to_group_id) == (
        "correlation",
        "to",
        "reply",
        "reply session",
    )
    assert back.ttl == 5_000
    assert back.message_annotations == {"x-opt-partition-key": "session", "x-opt-scheduled-enqueue-time": 7}
    assert back.application_properties == {"a": 1}


def test_an_empty_message_is_an_empty_body() -> None:
    assert Message().encode() == b"\x00\x53\x75\xa0\x00"


def test_a_received_message_is_read_when_asked() -> None:
    token = uuid4()
    amqp = AmqpMessage.of_data(b"a", b"b")
    amqp.message_id = "id"
    amqp.group_id = "session"
    amqp.delivery_count = 2
    amqp.message_annotations = {
        Symbol("x-opt-sequence-number"): 7,
        Symbol("x-opt-locked-until"): 9,
        Symbol("x-opt-message-state"): 1,
        Symbol("x-opt-enqueued-time"): 3,
        Symbol("x-opt-enqueue-sequence-number"): 8,
    }
    message = ReceivedMessage(amqp.encode(), 5, token.bytes_le)
    assert message.lock_token == token
    assert message.body == b"ab"
    assert (message.message_id, message.session_id, message.delivery_count) == ("id", "session", 2)
    assert (message.sequence_number, message.locked_until_ms, message.state) == (7, 9, 1)
    assert (message.enqueued_ms, message.scheduled_ms, message.enqueued_sequence_number) == (3, None, 8)
    assert message.application_properties == {}
    assert (message.subject, message.correlation_id, message.content_type) == (None, None, None)
    message.locked_until = 11
    assert message.locked_until_ms == 11
    assert str(token) in repr(message)


def test_other_bodies() -> None:
    assert ReceivedMessage(AmqpMessage.of_value("x").encode(), 1, b"").body == "x"
    sequence = AmqpMessage()
    sequence.sequences = [[1], [2]]
    assert ReceivedMessage(sequence.encode(), 1, b"").body == [[1], [2]]
    assert ReceivedMessage(b"", 1, b"").lock_token is None


def test_a_batch_holds_whole_messages_and_repeats_the_first_ones_keys() -> None:
    first = Message(b"a", message_id="1", session_id="s", partition_key="s")
    second = Message(b"b", message_id="2", session_id="s").encode()
    payload = encode_batch([first, second])
    found = locate(payload)
    assert found.body is not None
    assert data_sections(payload, found.body) == [first.encode(), second]
    outer = AmqpMessage.decode(payload)
    assert (outer.message_id, outer.group_id) == ("1", "s")
    assert outer.message_annotations == {"x-opt-partition-key": "s"}


def test_batches_are_bounded() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])
    assert encode_batch([b""] * BATCH_MESSAGES_MAX)
    with pytest.raises(MessageTooLargeError):
        encode_batch([b""] * (BATCH_MESSAGES_MAX + 1))


def test_a_stream_is_cut_into_batches_that_fit() -> None:
    messages = [Message(b"x" * 100, message_id=str(number)) for number in range(50)]
    cut = list(batches(messages, max_bytes=1_000))
    assert [payload for held in cut for payload in held] == [message.encode() for message in messages]
    assert len(cut) > 5
    assert all(len(encode_batch(held)) <= 1_000 for held in cut)
    assert [len(held) for held in batches(messages, max_count=20)] == [20, 20, 10]
    assert list(batches([])) == []
    with pytest.raises(MessageTooLargeError):
        list(batches([Message(b"x" * 1_001)], max_bytes=1_000))


def test_the_delivered_part_is_what_the_broker_wrote() -> None:
    needed = {
        Symbol("x-opt-sequence-number"): 7,
        Symbol("x-opt-enqueued-time"): 3,
        Symbol("x-opt-locked-until"): 9,
    }
    whole = AmqpMessage.decode(Message("secret", message_id="id", application_properties={"a": 1}).encode())
    whole.message_annotations = {Symbol("x-opt-partition-key"): "p", **needed, Symbol("own"): "mine"}
    part = AmqpMessage.decode(delivered_part(whole.encode()))
    assert part.message_annotations == needed
    assert (part.data, part.message_id, part.application_properties) == ([b""], None, None)


def test_the_delivered_part_of_what_nobody_can_decode_is_decodable() -> None:
    whole = AmqpMessage()
    whole.message_annotations = {Symbol("x-opt-sequence-number"): 7, Symbol("x-opt-locked-until"): 9}
    annotations = locate(whole.encode()).message_annotations
    assert annotations is not None
    start, end = annotations
    # Properties that are a list of one value, and the value has a type that does not exist.
    wrong = whole.encode()[start:end] + b"\x00\x53\x73\xc0\x02\x01\x3f" + b"\x00\x53\x75\xa0\x01x"
    with pytest.raises(ProtocolError):
        AmqpMessage.decode(wrong)
    assert AmqpMessage.decode(delivered_part(wrong)).message_annotations == whole.message_annotations
    # Without sections there is nothing to keep, and the library still gets a message.
    for nonsense in (b"", b"\xff" * 20, b"\x00\x53\x72\xd1\x00\x00\xff\xff\x00\x00\x00\x02"):
        part = AmqpMessage.decode(delivered_part(nonsense))
        assert (part.message_annotations or {}, part.data) == ({}, [b""])
