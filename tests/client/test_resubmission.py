"""Dead letters prepared for another attempt."""

from __future__ import annotations

import pytest

from twinbus.amqp import AmqpMessage, Symbol, Timestamp
from twinbus.client import Message
from twinbus.client.envelope import pack, unwrap, wrap
from twinbus.client.resubmission import resubmitted, sent_again, without
from twinbus.errors import EnvelopeError

MARKS = {"DeadLetterReason": "DestinationNotFound", "DeadLetterErrorDescription": "orders: gone"}


def dead(payload: bytes) -> bytes:
    """Return a message as a broker delivers it from the dead-letter queue."""
    message = AmqpMessage.decode(payload)
    message.application_properties = {**(message.application_properties or {}), **MARKS}
    message.message_annotations = {
        **(message.message_annotations or {}),
        Symbol("x-opt-sequence-number"): 7,
        Symbol("x-opt-enqueued-time"): Timestamp(1_000),
    }
    message.delivery_count = 3
    return message.encode()


def test_it_is_as_it_was_diverted() -> None:
    original = Message(
        b"x", message_id="m", session_id="red", ttl_ms=5_000, application_properties={"mine": 1}
    ).encode()
    again = resubmitted(dead(wrap(original, "orders")))
    assert unwrap(again) == unwrap(wrap(original, "orders"))


def test_a_new_destination() -> None:
    again = resubmitted(dead(wrap(Message(b"x", message_id="m").encode(), "orders")), "others")
    assert unwrap(again).path == "others"


def test_a_packed_batch_stays_one() -> None:
    payloads = [Message(b"x", message_id=str(number)).encode() for number in range(3)]
    restored = unwrap(resubmitted(dead(pack(payloads, "orders"))))
    assert restored == ("orders", tuple(payloads))


def test_one_without_a_path_needs_one() -> None:
    payload = dead(Message(b"x", message_id="m", application_properties={"mine": 1}).encode())
    with pytest.raises(EnvelopeError):
        resubmitted(payload)
    restored = unwrap(resubmitted(payload, "orders"))
    assert restored.path == "orders"
    message = AmqpMessage.decode(restored.payloads[0])
    assert message.application_properties == {"mine": 1}
    assert not message.message_annotations
    assert message.message_id == "m"


def test_properties_taken_off() -> None:
    plain = Message(b"x").encode()
    assert without(plain, frozenset({"a"})) == plain
    some = Message(b"x", application_properties={"a": 1, "b": 2}).encode()
    assert AmqpMessage.decode(without(some, frozenset({"a"}))).application_properties == {"b": 2}
    assert AmqpMessage.decode(without(some, frozenset({"a", "b"}))).application_properties is None


def test_it_is_as_its_sender_sent_it() -> None:
    sent = Message(
        b"x",
        message_id="m",
        session_id="s",
        partition_key="s",
        ttl_ms=5_000,
        subject="subject",
        application_properties={"mine": 1},
    ).encode()
    assert sent_again(dead(sent)) == sent
    assert sent_again(sent) == sent
    plain = Message(b"x").encode()
    assert sent_again(dead(plain)) == plain


def test_it_may_get_another_id() -> None:
    for sent in (Message(b"x", message_id="m", subject="s").encode(), Message(b"x").encode()):
        again = AmqpMessage.decode(sent_again(dead(sent), "other"))
        before = AmqpMessage.decode(sent)
        assert (again.message_id, again.subject, again.data) == ("other", before.subject, [b"x"])


def test_when_it_expires_is_counted_anew() -> None:
    message = AmqpMessage.decode(Message(b"x", message_id="m", ttl_ms=5_000).encode())
    message.absolute_expiry_time = 1_000
    again = AmqpMessage.decode(sent_again(message.encode()))
    assert (again.absolute_expiry_time, again.ttl) == (None, 5_000)
