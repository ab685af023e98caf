"""The envelope of encoded messages: what is moved, kept and refused."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest

from twinbus.amqp import AmqpMessage, Array, Described, Float32, Symbol, Timestamp, UInt, data_section, encode
from twinbus.amqp.reader import PARTITION_KEY, SCHEDULED
from twinbus.client.envelope import (
    PACKED,
    PATH,
    RESTORE,
    SCHEDULED_TIME,
    SESSION_ID,
    TIME_TO_LIVE,
    clashes,
    pack,
    unwrap,
    wrap,
)
from twinbus.client.message import Message
from twinbus.errors import EnvelopeError

SCHEDULED_MS = 1_800_000_000_000


def fields(payload: bytes) -> dict[str, Any]:
    """Return all fields of a message with the types of their values, so that 1 is not 1.0 and a symbol not a string."""
    message = AmqpMessage.decode(payload)
    return {name: typed(getattr(message, name)) for name in AmqpMessage.__slots__}


def typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {(type(key), key): typed(item) for key, item in value.items()}
    if isinstance(value, Array):
        return (Array, value.code, [typed(item) for item in value])
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, Described):
        return (Described, typed(value.descriptor), typed(value.value))
    if isinstance(value, float):
        return (type(value), repr(value))
    return (type(value), value)


def test_the_table_of_properties() -> None:
    payload = Message(
        b"body", message_id="m1", session_id="s1", ttl_ms=5_000, scheduled_ms=SCHEDULED_MS, subject="hello"
    ).encode()
    inside = AmqpMessage.decode(wrap(payload, "orders"))
    assert inside.application_properties is not None
    assert inside.application_properties[PATH] == "orders"
    assert inside.application_properties[SESSION_ID] == "s1"
    assert inside.application_properties[TIME_TO_LIVE] == 5_000
    assert inside.application_properties[SCHEDULED_TIME] == SCHEDULED_MS
    assert (inside.group_id, inside.ttl, inside.message_annotations) == (None, None, None)
    assert (inside.message_id, inside.subject, inside.data) == ("m1", "hello", [b"body"])
    path, payloads = unwrap(wrap(payload, "orders"))
    assert path == "orders"
    assert [fields(each) for each in payloads] == [fields(payload)]


def test_a_plain_message_gets_the_path_and_nothing_else() -> None:
    inside = AmqpMessage.decode(wrap(Message(b"x", message_id="m").encode(), "a/b"))
    assert inside.application_properties == {PATH: "a/b"}
    assert (inside.durable, inside.message_annotations) == (None, None)


def test_a_partition_key_alone_comes_back_as_one() -> None:
    payload = Message(b"x", message_id="m", partition_key="k").encode()
    inside = AmqpMessage.decode(wrap(payload, "q"))
    assert inside.application_properties is not None
    assert (inside.application_properties[SESSION_ID], inside.message_annotations) == ("k", None)
    assert fields(unwrap(wrap(payload, "q")).payloads[0]) == fields(payload)


def whole() -> AmqpMessage:
    """Return a message with a value in every field."""
    message = AmqpMessage.of_data(b"one", b"", b"two" * 1000)
    message.durable, message.priority, message.ttl, message.first_acquirer, message.delivery_count = True, 7, 1, True, 3
    message.delivery_annotations = {Symbol("x-opt-hop"): Symbol("yes")}
    message.message_annotations = {
        PARTITION_KEY: "s", SCHEDULED: Timestamp(5), Symbol("x-opt-mine"): [UInt(1), Float32(0.5), None],
    }  # fmt: skip
    message.message_id, message.user_id, message.to, message.subject = b"\x00\xff", b"me", "there", "about"
    message.reply_to, message.correlation_id, message.content_type = "back", UInt(3), "text/plain"
    message.content_encoding, message.absolute_expiry_time, message.creation_time = "utf-8", 77, 66
    message.group_id, message.group_sequence, message.reply_to_group_id = "s", 9, "rs"
    message.application_properties = {"a": Symbol("b"), "c": Described(Symbol("com.microsoft:uri"), "u"), "": 2**60}
    message.footer = {Symbol("x-opt-end"): True}
    message.correlation_id = "c" * 300
    return message


def test_everything_comes_back_though_a_broker_writes_its_own() -> None:
    payload = whole().encode()
    # What a broker replaces: header, annotations and times.
    delivered = AmqpMessage.decode(wrap(payload, "orders"))
    delivered.delivery_count, delivered.durable, delivered.ttl = 4, None, 4_000_000
    delivered.message_annotations = {Symbol("x-opt-sequence-number"): 12, Symbol("x-opt-enqueued-time"): Timestamp(9)}
    delivered.delivery_annotations = {Symbol("x-opt-lock-token"): "t"}
    delivered.creation_time = delivered.absolute_expiry_time = 12345
    assert fields(unwrap(delivered.encode()).payloads[0]) == fields(payload)


def test_a_batch_packed_comes_out_as_a_batch() -> None:
    payloads = [Message(b"x" * 100, message_id=str(number), session_id="s").encode() for number in range(50)]
    packed = pack(payloads, "orders")
    assert len(packed) < sum(map(len, payloads)) / 5
    assert AmqpMessage.decode(packed).message_id == "0"
    assert unwrap(packed) == ("orders", tuple(payloads))


def test_what_has_too_many_properties_is_packed() -> None:
    payload = Message(b"x", message_id="m", application_properties={str(n): "v" * 1000 for n in range(65)}).encode()
    inside = AmqpMessage.decode(wrap(payload, "q"))
    assert inside.application_properties == {PATH: "q", PACKED: "zlib"}
    assert unwrap(wrap(payload, "q")).payloads == (payload,)
    large = AmqpMessage.of_data(b"x")
    large.message_annotations = {Symbol("x-opt-large"): "v" * 40_000}
    assert unwrap(wrap(large.encode(), "q")).payloads == (large.encode(),)


def test_a_message_of_the_old_sdk_is_restored() -> None:
    """Only the aliases, with .NET's types."""
    message = AmqpMessage.of_data(b"x")
    message.application_properties = {
        PATH: "orders",
        SESSION_ID: "s",
        TIME_TO_LIVE: Described(Symbol("com.microsoft:timespan"), 50_000_000),
        SCHEDULED_TIME: Timestamp(SCHEDULED_MS),
        "mine": 1,
    }
    restored = AmqpMessage.decode(unwrap(message.encode()).payloads[0])
    assert (restored.group_id, restored.ttl, restored.application_properties) == ("s", 5_000, {"mine": 1})
    assert restored.message_annotations == {SCHEDULED: SCHEDULED_MS}


def test_names_in_the_long_form_are_known() -> None:
    key = PATH.encode()
    body = b"\xb1" + len(key).to_bytes(4, "big") + key + encode("orders")
    payload = bytes((0, 0x53, 0x74, 0xC1, len(body) + 1, 2)) + body + data_section(b"x")
    assert unwrap(payload) == ("orders", (data_section(b"x"),))


def with_properties(**aliases: Any) -> bytes:
    message = AmqpMessage.of_data(b"x")
    message.application_properties = {name.replace("_", "-"): value for name, value in aliases.items()}
    return message.encode()


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (with_properties(), "has no x-ms-path"),
        (with_properties(x_ms_path=""), "path of an entity"),
        (with_properties(x_ms_path="p" * 261), "260 characters"),
        (with_properties(x_ms_path=7), "x-ms-path must be a string"),
        (with_properties(x_ms_path="q", x_ms_sessionid=b"s"), "x-ms-sessionid must be a string"),
        (with_properties(x_ms_path="q", x_ms_timetolive=-1), "0 or more"),
        (with_properties(x_ms_path="q", x_ms_timetolive="soon"), "milliseconds"),
        (with_properties(x_ms_path="q", x_ms_scheduledenqueuetimeutc="noon"), "must be a time"),
        (with_properties(x_ms_path="q", x_twinbus_restore="!"), "not base64"),
        (with_properties(x_ms_path="q", x_twinbus_restore="AAAA"), "cannot be decoded"),
        (with_properties(x_ms_path="q", x_twinbus_restore=7), "must be a string"),
        (with_properties(x_ms_path="q", x_twinbus_packed="rar"), "unknown packing"),
        (with_properties(x_ms_path="q", x_twinbus_packed="zlib"), "cut off"),
        (b"\x00", "cannot be decoded"),
    ],
)
def test_what_cannot_be_restored_says_why(payload: bytes, text: str) -> None:
    with pytest.raises(EnvelopeError, match=text):
        unwrap(payload)


def test_kept_sections_must_be_header_and_annotations() -> None:
    body = encode(data_section(b"x"))
    kept = bytes((0, 0x53, 0, 0xC0, len(body) + 1, 1)) + body
    with pytest.raises(EnvelopeError, match="more than header"):
        unwrap(with_properties(x_ms_path="q", x_twinbus_restore=base64.b64encode(kept).decode()))


def test_what_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.client.envelope.RESTORED_BYTES_MAX", 1000)
    message = AmqpMessage.of_data(zlib.compress(b"x" * 1001))
    message.application_properties = {PATH: "q", PACKED: "zlib"}
    with pytest.raises(EnvelopeError, match="more than 1000 bytes"):
        unwrap(message.encode())


def test_clashing_names() -> None:
    assert clashes(["mine", PATH, RESTORE.encode(), 3]) == [PATH, RESTORE]
