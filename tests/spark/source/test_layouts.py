"""Messages of a known layout give the same fields as the general reader, whatever comes between them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp import AmqpMessage
from twinbus.amqp.reader import read_fields
from twinbus.client.outgoing import encode_message
from twinbus.errors import DecodeError
from twinbus.limits import SPARK_LAYOUTS_MAX
from twinbus.spark.source import layouts
from twinbus.spark.source.layouts import LayoutReader


def delivered(sent: bytes, number: int = 1, count: int = 0) -> bytes:
    """A message as the service delivers it."""
    return (
        b"\x00\x53\x70\xc0\x0a\x05\x40\x40\x40\x40\x70"
        + count.to_bytes(4, "big")
        + b"\x00\x53\x71\xc1\x01\x00\x00\x53\x72\xd1\x00\x00\x00\x42\x00\x00\x00\x04\xa3\x15x-opt-sequence-number\x81"
        + number.to_bytes(8, "big")
        + b"\xa3\x13x-opt-enqueued-time\x83"
        + (1_800_000_000_000 + number).to_bytes(8, "big")
        + sent
    )


def general(payload: bytes) -> Any:
    try:
        return read_fields(payload, True, True, True)
    except DecodeError as error:
        return str(error)


def by_layout(reader: LayoutReader, payload: bytes) -> Any:
    try:
        return reader.read(payload)
    except DecodeError as error:
        return str(error)


# Few lengths, so that many messages share a layout.
TEXT = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ü", "long" * 70]))
VALUE = st.one_of(st.integers(-200, 200), st.sampled_from(["x", "y", 'a "b"', "ü", 1.5, True, None, b"z", 2**40]))
SENT = st.builds(
    encode_message,
    st.sampled_from([b"", b"x", b"y" * 300]),
    TEXT,
    session_id=TEXT,
    subject=TEXT,
    content_type=TEXT,
    correlation_id=TEXT,
    to=TEXT,
    reply_to=TEXT,
    reply_to_session_id=st.sampled_from([None, None, "a"]),
    ttl_ms=st.sampled_from([None, None, 5]),
    application_properties=st.one_of(
        st.none(), st.dictionaries(st.sampled_from(["n", "m", "ü", "DeadLetterReason"]), VALUE, max_size=3)
    ),
)
CHANGE = st.one_of(st.none(), st.tuples(st.integers(0, 200), st.integers(0, 255)), st.integers(0, 200))


@given(st.lists(st.tuples(SENT, st.integers(0, 2**62), CHANGE), min_size=1, max_size=12))
def test_the_same_fields_as_the_general_reader(messages: list[tuple[bytes, int, Any]]) -> None:
    reader = LayoutReader()
    for sent, number, change in messages:
        payload = delivered(sent, number, number % 5)
        for each in (payload, payload, spoiled(payload, change)):
            assert by_layout(reader, each) == general(each)


def spoiled(payload: bytes, change: Any) -> bytes:
    """The message with another byte, or cut off."""
    if change is None:
        return payload
    if isinstance(change, int):
        return payload[:change]
    at, value = change
    return payload[:at] + bytes([value]) + payload[at + 1 :]


@pytest.mark.parametrize("body", [b"x" * 20, b"x" * 1_000])
def test_only_the_first_of_a_layout_goes_through_the_general_reader(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = LayoutReader()
    own = {"shop": "A", "number": 500}
    reader.read(delivered(encode_message(body, "m-1", subject="order", application_properties=own)))
    monkeypatch.delattr(layouts, "read_fields")
    found = reader.read(
        delivered(encode_message(body, "m-2", subject="other", application_properties={**own, "number": 700}), 7, 2)
    )
    assert (found.message_id, found.subject, found.sequence_number, found.delivery_count) == ("m-2", "other", 7, 2)
    assert (found.properties, found.body) == ({"shop": '"A"', "number": "700"}, body)


def test_as_the_sdks_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(text: str, ms: int) -> bytes:
        return delivered(
            AmqpMessage(message_id=text, content_type="application/json", creation_time=ms, data=[b"{}"]).encode()
        )

    reader = LayoutReader()
    reader.read(sent("m-1", 1_800_000_000_000))
    expected = general(sent("m-2", 1_800_000_000_001))
    monkeypatch.delattr(layouts, "read_fields")
    assert reader.read(sent("m-2", 1_800_000_000_001)) == expected
    assert expected.content_type == "application/json"


def test_the_number_of_layouts_is_bounded() -> None:
    reader = LayoutReader()
    for size in range(1, 60):
        for own in range(1, 30):
            sent = encode_message(b"", "i" * size, application_properties={"n" * own: "x"})
            assert reader.read(delivered(sent)).message_id == "i" * size
    assert len(reader._known) == SPARK_LAYOUTS_MAX
