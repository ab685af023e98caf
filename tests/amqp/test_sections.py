"""Sections are found in any order, and garbage is refused."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp import AmqpMessage, data_section, data_sections, decode_section, encode, locate
from twinbus.amqp.reader import Sections
from twinbus.amqp.states import composite
from twinbus.amqp.types import Described, Symbol, Timestamp, UInt, ULong
from twinbus.errors import DecodeError

HEADER = b"\x00\x53\x70" + encode([True, None, UInt(5)])
DELIVERY = b"\x00\x53\x71" + encode({Symbol("d"): 1})
ANNOTATIONS = b"\x00\x53\x72" + encode({Symbol("m"): 1})
PROPERTIES = b"\x00\x53\x73" + encode(["id"])
APPLICATION = b"\x00\x53\x74" + encode({"a": 1})
DATA = data_section(b"x" * 10)
FOOTER = b"\x00\x53\x78" + encode({Symbol("f"): 1})


def test_the_usual_order() -> None:
    payload = HEADER + DELIVERY + ANNOTATIONS + PROPERTIES + APPLICATION + DATA + FOOTER
    found = locate(payload)
    spans = [
        found.header,
        found.delivery_annotations,
        found.message_annotations,
        found.properties,
        found.application_properties,
        found.body,
        found.footer,
    ]
    parts = [HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, FOOTER]
    assert [payload[span[0] : span[1]] for span in spans if span] == parts
    assert found.header is not None
    assert decode_section(payload, found.header) == [True, None, 5]


@pytest.mark.parametrize("order", list(itertools.permutations([HEADER, DELIVERY, PROPERTIES, DATA])))
def test_any_order(order: tuple[bytes, ...]) -> None:
    payload = b"".join(order)
    found = locate(payload)
    for span, part in (
        (found.header, HEADER),
        (found.delivery_annotations, DELIVERY),
        (found.properties, PROPERTIES),
        (found.body, DATA),
    ):
        assert span is not None
        assert payload[span[0] : span[1]] == part
    assert found.footer is None


def test_a_batch_is_one_body_of_many_data_sections() -> None:
    inner = [b"a", b"b" * 255, b"c" * 256, b""]
    payload = PROPERTIES + b"".join(map(data_section, inner)) + FOOTER
    found = locate(payload)
    assert found.body is not None
    assert data_sections(payload, found.body) == inner


def test_long_descriptors_are_read() -> None:
    payload = (
        encode(Described(Symbol("amqp:header:list"), [True]))
        + b"\x00\x80"
        + (0x73).to_bytes(8, "big")
        + encode(["id"])
        + encode(Described(Symbol("amqp:data:binary"), b"x"))
        + encode(Described(ULong(0x75), b"y"))
    )
    found = locate(payload)
    assert found.header is not None
    assert found.body is not None
    assert found.properties is not None
    assert decode_section(payload, found.header) == [True]
    assert decode_section(payload, found.properties) == ["id"]
    assert data_sections(payload, found.body) == [b"x", b"y"]


def test_an_empty_payload_has_no_sections() -> None:
    assert locate(b"").body is None


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",
        b"\x00\x53",
        b"\x00\x53\x75",
        b"\x01\x53\x75\xa0\x00",
        b"\x00\x53\x75\xa0\x05abc",
        b"\x00\x53\x75\xb0\xff\xff\xff\xff",
        b"\x00\x53\x6f\x45",
        b"\x00\x53\x79\x45",
        b"\x00\xa3\x03abc\x45",
        b"\x00\xa1\x03abc\x45",
        b"\x00\x53\x77\xff",
        HEADER + HEADER,
        DATA + PROPERTIES + DATA,
        DATA + b"\x00\x53\x76\x45",
        b"\x00\x53\x77\x40\x00\x53\x77\x40",
        b"\x00\x53\x77\x40" + DATA,
    ],
)
def test_nonsense_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        locate(payload)


def test_a_data_section_must_hold_binary() -> None:
    payload = b"\x00\x53\x75\xa1\x01a"
    found = locate(payload)
    assert found.body is not None
    with pytest.raises(DecodeError, match="binary"):
        data_sections(payload, found.body)


@given(st.binary(max_size=100))
def test_random_bytes_are_located_or_refused(payload: bytes) -> None:
    with contextlib.suppress(DecodeError):
        assert isinstance(locate(payload), Sections)


@given(st.binary(max_size=80), st.integers(0, 60), st.integers(0, 255))
def test_a_changed_message_is_decoded_or_refused(body: bytes, at: int, byte: int) -> None:
    message = AmqpMessage.of_data(body)
    message.message_id = "id"
    message.ttl = 5
    message.application_properties = {"a": 1}
    payload = bytearray(message.encode())
    payload[at % len(payload)] = byte
    with contextlib.suppress(DecodeError):
        assert AmqpMessage.decode(bytes(payload)).encode()


HEADER_NAMES = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
PROPERTY_NAMES = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
ODD = [True, -1, 300, 2**40, 1.5, "text", b"bytes", Symbol("symbol"), [], {}, UInt(7), ULong(2**63), Timestamp(5)]


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("name", HEADER_NAMES + PROPERTY_NAMES)
def test_a_field_keeps_what_its_sender_wrote(name: str, odd: object) -> None:
    """A sender may write any type into any field: what was decoded is encoded again with the same value."""
    code, names = (0x70, HEADER_NAMES) if name in HEADER_NAMES else (0x73, PROPERTY_NAMES)
    payload = composite(code, [odd if each == name else None for each in names]) + DATA
    again = AmqpMessage.decode(AmqpMessage.decode(payload).encode())
    assert getattr(again, name) == odd
