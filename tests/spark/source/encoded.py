"""Messages as services deliver them, of many layouts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from twinbus.amqp import AmqpMessage, Int, Symbol, Timestamp
from twinbus.client.outgoing import encode_message

# Few values, so that many messages share a layout.
TEXT = st.one_of(st.none(), st.sampled_from(["", "a", "b", "cc", "ü", 'a "b"', "\n", "long" * 70]))
VALUE = st.one_of(
    st.integers(-200, 200),
    st.sampled_from(
        ["x", "yy", 'a "b"', "ü\\", "\x1f", 1.5, True, None, b"z", 2**40, Int(7), Int(-(2**31)), Timestamp(9)]
    ),
)
NAMES = ["n", "m", "ü", "DeadLetterReason", "DeadLetterErrorDescription", "x-twinbus-claim"]
OWN = st.dictionaries(st.sampled_from(NAMES), VALUE, max_size=3)
SHORT = st.one_of(
    st.sampled_from(["", "a", "b", "cc", "ü", "d" * 255]), st.sampled_from(['a "b"', "\n", "\\", "\x1f", "\x7f"])
)
KINDS = [
    SHORT,
    st.integers(-130, 130),
    st.integers(2**31, 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(0, 2**40).map(Timestamp),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
]
FIELDS = ["session_id", "subject", "content_type", "correlation_id", "to", "reply_to", "reply_to_session_id"]
SENT = st.builds(
    encode_message,
    st.sampled_from([b"", b"x", b"\xff", b"y" * 300]),
    TEXT,
    session_id=TEXT,
    subject=TEXT,
    content_type=TEXT,
    correlation_id=TEXT,
    to=TEXT,
    reply_to=TEXT,
    reply_to_session_id=st.sampled_from([None, None, "a", "bb"]),
    ttl_ms=st.sampled_from([None, None, 5]),
    partition_key=st.sampled_from([None, None, "p", "qq"]),
    scheduled_ms=st.sampled_from([None, None, 0, 2**62]),
    application_properties=st.one_of(st.none(), OWN),
)
# Sections in an order or a form of their own.
ODD = st.sampled_from(
    [
        b"",
        b"\x00",
        AmqpMessage.of_value({"a": [1]}).encode(),
        AmqpMessage(data=[b"one", b"two"]).encode(),
        AmqpMessage(message_id=7, data=[b"x"]).encode(),
        AmqpMessage(message_id="m", user_id=b"u", data=[b"x"], footer={Symbol("f"): 1}).encode(),
        AmqpMessage(
            message_id="m", creation_time=Timestamp(5), absolute_expiry_time=Timestamp(9), data=[b"x"]
        ).encode(),
        b"\x00\x53\x73\x45\x00\x53\x75\xa0\x01x",
        b"\x00\x53\x74\xc1\x09\x04\xa1\x01n\x40\xa1\x01n\x41\x00\x53\x75\xa0\x01x",
        b"\x00\x53\x74\xd1\x00\x00\x00\x09\x00\x00\x00\x02\xa1\x01n\xa1\x00\x00\x53\x75\xa0\x01x",
    ]
)
# A byte to replace, a length to cut to, or nothing.
CHANGE = st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 200), st.integers(0, 255)), st.integers(0, 200))
ANNOTATED = st.sampled_from(
    [
        {},
        {"x-opt-message-state": Int(1)},
        {"x-opt-message-state": Int(2), "x-opt-enqueue-sequence-number": 12},
        {"x-opt-message-state": Int(-1)},
        {"x-opt-partition-key": "p", "x-opt-scheduled-enqueue-time": Timestamp(77)},
        {"x-opt-deadletter-source": "orders", "x-opt-enqueued-time": 5},
    ]
)


def delivered(sent: bytes, number: int = 1, count: int = 0, enqueued_ms: int | None = None) -> bytes:
    """A message as the service delivers it."""
    return (
        b"\x00\x53\x70\xc0\x0a\x05\x40\x40\x40\x40\x70"
        + count.to_bytes(4, "big")
        + b"\x00\x53\x71\xc1\x01\x00\x00\x53\x72\xd1\x00\x00\x00\x42\x00\x00\x00\x04\xa3\x15x-opt-sequence-number\x81"
        + number.to_bytes(8, "big")
        + b"\xa3\x13x-opt-enqueued-time\x83"
        + (1_800_000_000_000 + number if enqueued_ms is None else enqueued_ms).to_bytes(8, "big", signed=True)
        + sent
    )


def annotated(sent: bytes, number: int, ttl_ms: int | None, annotations: dict[str, Any]) -> bytes:
    """A message with other annotations, and perhaps a time to live."""
    own = {"x-opt-sequence-number": number, "x-opt-enqueued-time": Timestamp(number), **annotations}
    head = AmqpMessage(ttl=ttl_ms, delivery_count=number % 3)
    head.message_annotations = {Symbol(name): value for name, value in own.items()}
    return head.encode() + sent


def spoiled(payload: bytes, change: Any) -> bytes:
    """The message with another byte, or cut off."""
    if change is None:
        return payload
    if isinstance(change, int):
        return payload[:change]
    at, value = change
    return payload[:at] + bytes([value]) + payload[at + 1 :]


TWICE = b"\xa3\x15x-opt-sequence-number\x55"
NUMBER = st.one_of(st.integers(0, 9), st.integers(0, 2**62))
MESSAGE = st.one_of(
    st.builds(delivered, SENT, NUMBER, st.integers(0, 3)),
    st.builds(delivered, SENT, NUMBER, enqueued_ms=st.sampled_from([0, -(2**63), 2**63 - 1])),
    st.builds(annotated, st.one_of(SENT, ODD), NUMBER, st.sampled_from([None, 5, 300, 2**32 - 1]), ANNOTATED),
    st.builds(delivered, ODD, NUMBER),
    # A number twice: the last one counts.
    st.just(b"\x00\x53\x72\xc1\x33\x04" + TWICE + b"\x05" + TWICE + b"\x07\x00\x53\x75\xa0\x01x"),
)


@st.composite
def alike(draw: st.DrawFn) -> list[bytes]:
    """Messages of one sender, perhaps one of them with an error."""
    texts = draw(st.lists(st.sampled_from(FIELDS), unique=True, max_size=4))
    kinds = draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(KINDS), max_size=3))
    annotations, ttl_ms = draw(ANNOTATED), draw(st.sampled_from([None, None, 300]))
    usual = draw(st.booleans())
    messages = []
    for _ in range(draw(st.integers(2, 6))):
        sent = encode_message(
            draw(st.sampled_from([b"", b"x", b"\xff", b"y" * 300])),
            draw(SHORT),
            **{name: draw(SHORT) for name in texts},
            application_properties={name: draw(kind) for name, kind in kinds.items()},
        )
        number = draw(NUMBER)
        messages.append(delivered(sent, number, number % 3) if usual else annotated(sent, number, ttl_ms, annotations))
    at = draw(st.integers(0, len(messages) - 1))
    messages[at] = spoiled(messages[at], draw(CHANGE))
    return messages


PAYLOADS = st.lists(st.one_of(alike(), MESSAGE.map(lambda each: [each])), min_size=1, max_size=6).flatmap(
    lambda groups: st.permutations([payload for group in groups for payload in group])
)
