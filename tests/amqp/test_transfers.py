"""Transfers in every legal encoding, whole and in pieces."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.amqp import ACCEPTED, Attached, Closed, Connection, Described, Link, Transfer, UByte, UInt, ULong
from twinbus.amqp.encoding import encode
from twinbus.amqp.frames import frame
from twinbus.limits import PARTIAL_BYTES_MAX

from .pair import of
from .raw import attach, begin, opened, put, transfer


def ready(max_message_size: int = 1_000, credit: int = 100) -> tuple[Connection, Link]:
    engine = opened()
    put(engine, begin(0))
    (event,) = put(engine, attach(0, "out", 0, receiver=False))
    assert isinstance(event, Attached)
    event.link.accept(max_message_size=max_message_size, credit=credit)
    engine.take_output()
    return engine, event.link


FULL = [UInt(0), UInt(300), b"tag", UInt(0), False, False, None, None, False, False, False]


@pytest.mark.parametrize("count", range(4, 12))
def test_trailing_fields_may_be_left_out(count: int) -> None:
    engine, link = ready()
    (event,) = put(engine, transfer(0, FULL[:count], b"payload"))
    assert isinstance(event, Transfer)
    assert (event.link, event.delivery_id, event.tag, event.message_format) == (link, 300, b"tag", 0)
    assert (event.settled, event.payload, event.size, event.state) == (False, b"payload", 7, None)


@pytest.mark.parametrize("count", [3, 4, 11])
def test_nulls_are_defaults(count: int) -> None:
    engine, _ = ready()
    fields: list[Any] = [UInt(0), UInt(1), b"t"] + [None] * 8
    (event,) = put(engine, transfer(0, fields[:count], b"x"))
    assert isinstance(event, Transfer)
    assert (event.message_format, event.settled, event.payload) == (0, False, b"x")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # small forms of every number
        (b"\x00\x53\x14\xc0\x08\x05\x43\x43\xa0\x01t\x43\x41x", (0, b"t", 0, True)),
        (b"\x00\x53\x14\xc0\x0a\x05\x52\x00\x52\x09\xa0\x01t\x43\x41x", (9, b"t", 0, True)),
        # every number long
        (
            b"\x00\x53\x14\xc0\x14\x05\x70\x00\x00\x00\x00\x70\x00\x00\x01\x00\xa0\x01t\x70\x80\x01\x37\x00\x42x",
            (256, b"t", 0x80013700, False),
        ),
        # a boolean with a byte, a small format, a long tag
        (b"\x00\x53\x14\xc0\x09\x05\x43\x43\xa0\x01t\x43\x56\x01x", (0, b"t", 0, True)),
        (b"\x00\x53\x14\xc0\x09\x05\x43\x43\xa0\x01t\x52\x07\x42x", (0, b"t", 7, False)),
        (b"\x00\x53\x14\xc0\x0b\x05\x43\x43\xb0\x00\x00\x00\x01t\x43\x41x", (0, b"t", 0, True)),
        # list32, and descriptors as long ulong and as symbol
        (b"\x00\x53\x14\xd0\x00\x00\x00\x0b\x00\x00\x00\x05\x43\x43\xa0\x01t\x43\x41x", (0, b"t", 0, True)),
        (b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x14\xc0\x08\x05\x43\x43\xa0\x01t\x43\x41x", (0, b"t", 0, True)),
        (b"\x00\xa3\x12amqp:transfer:list\xc0\x08\x05\x43\x43\xa0\x01t\x43\x41x", (0, b"t", 0, True)),
    ],
)
def test_every_encoding_is_read(body: bytes, expected: tuple[int, bytes, int, bool]) -> None:
    engine, _ = ready()
    (event,) = put(engine, frame(0, body))
    assert isinstance(event, Transfer), event.error.description  # type: ignore[attr-defined]
    assert (event.delivery_id, event.tag, event.message_format, event.settled) == expected
    assert event.payload == b"x"


def test_an_extended_header_is_skipped() -> None:
    engine, _ = ready()
    raw = transfer(0, FULL, b"x")
    longer = (len(raw) + 4).to_bytes(4, "big") + b"\x03\x00\x00\x00" + b"????" + raw[8:]
    (event,) = put(engine, longer)
    assert isinstance(event, Transfer)


def test_pieces_are_joined_whether_or_not_they_repeat_themselves() -> None:
    engine, link = ready()
    more = [*FULL[:5], True]
    assert put(engine, transfer(0, more, b"one,")) == []
    assert put(engine, transfer(0, [UInt(0), None, None, None, None, True], b"two,")) == []
    assert put(engine, transfer(0, more, b"three,")) == []
    (event,) = put(engine, transfer(0, [UInt(0)], b"four"))
    assert isinstance(event, Transfer)
    assert (event.payload, event.size, event.tag, event.delivery_id) == (b"one,two,three,four", 18, b"tag", 300)
    assert engine.partial_bytes == 0
    assert link.delivery_count == 1
    assert link.credit == 99


def test_settled_or_a_state_on_the_last_piece_counts() -> None:
    engine, _ = ready()
    put(engine, transfer(0, [*FULL[:5], True], b"a"))
    state = Described(ULong(0x34), [b"txn", Described(ULong(0x24), [])])
    (event,) = put(engine, transfer(0, [UInt(0), None, None, None, True, False, None, state], b"b"))
    assert isinstance(event, Transfer)
    assert event.settled
    assert event.state.outcome is ACCEPTED  # type: ignore[union-attr]


def test_pieces_of_two_links_may_alternate() -> None:
    engine, _ = ready()
    (event,) = put(engine, attach(0, "other", 1, receiver=False))
    assert isinstance(event, Attached)
    event.link.accept(credit=10)
    put(engine, transfer(0, [UInt(0), UInt(1), b"a", UInt(0), False, True], b"a"))
    put(engine, transfer(0, [UInt(1), UInt(2), b"b", UInt(0), False, True], b"b"))
    (first,) = put(engine, transfer(0, [UInt(0), UInt(1), b"a", UInt(0), False, False], b"A"))
    (second,) = put(engine, transfer(0, [UInt(1), UInt(2), b"b", UInt(0), False, False], b"B"))
    assert isinstance(first, Transfer)
    assert isinstance(second, Transfer)
    assert (first.payload, second.payload) == (b"aA", b"bB")


def test_an_aborted_delivery_leaves_nothing() -> None:
    engine, link = ready()
    put(engine, transfer(0, [*FULL[:5], True], b"one"))
    aborted = [UInt(0), None, None, None, None, False, None, None, None, True]
    assert put(engine, transfer(0, aborted, b"two")) == []
    assert engine.partial_bytes == 0
    assert link.delivery_count == 1
    (event,) = put(engine, transfer(0, [UInt(0), UInt(301), b"t"], b"x"))
    assert isinstance(event, Transfer)


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_delivery_of_the_largest_size_is_taken_and_one_byte_more_is_not(pieces: int) -> None:
    for size in (1_000, 1_001):
        engine, _ = ready(max_message_size=1_000)
        events = []
        each = -(-size // pieces)
        payload = b"x" * size
        for piece in range(pieces):
            part = payload[piece * each : (piece + 1) * each]
            events += put(engine, transfer(0, [*FULL[:5], piece < pieces - 1], part))
        (event,) = events
        assert isinstance(event, Transfer)
        assert event.size == size
        assert event.payload == (payload if size == 1_000 else None)
        assert engine.partial_bytes == 0


def test_an_endless_delivery_holds_nothing() -> None:
    engine, link = ready(max_message_size=1_000)
    more = [*FULL[:5], True]
    for _ in range(50):
        assert put(engine, transfer(0, more, b"x" * 60_000)) == []
    assert engine.partial_bytes == 0
    assert link.partial_size == 3_000_000


def test_unfinished_deliveries_are_bounded_for_the_connection() -> None:
    engine, link = ready(max_message_size=1 << 30)
    more = [*FULL[:5], True]
    put(engine, transfer(0, more, b"x"))
    engine.partial_bytes = PARTIAL_BYTES_MAX - 1
    assert put(engine, transfer(0, more, b"x")) == []
    (closed,) = put(engine, transfer(0, more, b"x"))
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:resource-limit-exceeded"
    assert not link.attached


def test_leaving_a_link_lets_go_of_its_unfinished_delivery() -> None:
    engine, link = ready()
    put(engine, transfer(0, [*FULL[:5], True], b"one"))
    assert engine.partial_bytes == 3
    link.detach()
    assert engine.partial_bytes == 0
    assert put(engine, transfer(0, [*FULL[:5], True], b"two")) == []
    assert engine.partial_bytes == 0


def test_transfers_on_a_link_that_is_not_answered_yet() -> None:
    engine = opened()
    put(engine, begin(0))
    put(engine, attach(0, "out", 0, receiver=False))
    assert len(of(put(engine, transfer(0, FULL, b"x")), Transfer)) == 1


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ([], "amqp:invalid-field"),
        ([None, UInt(1), b"t"], "amqp:invalid-field"),
        (["0", UInt(1), b"t"], "amqp:invalid-field"),
        ([UInt(0), None, b"t"], "amqp:invalid-field"),
        ([UInt(0), UInt(1), None], "amqp:invalid-field"),
        ([UInt(0), UInt(1), "tag"], "amqp:invalid-field"),
        ([UInt(0), UInt(1), b"t" * 33, UInt(0)], "amqp:invalid-field"),
        ([UInt(0), UInt(1), b"t" * 33], "amqp:invalid-field"),
        ([UInt(0), ULong(1 << 40), b"t"], "amqp:invalid-field"),
        ([UInt(0), UInt(1), b"t", "0"], "amqp:invalid-field"),
        ([UInt(0), UInt(1), b"t", UInt(0), UByte(1)], "amqp:invalid-field"),
        ([UInt(0), UInt(1), b"t", UInt(0), False, "no"], "amqp:invalid-field"),
        ([UInt(0), UInt(1), b"t", UInt(0), False, False, None, 7], "amqp:decode-error"),
        ([UInt(0)] * 40, "amqp:decode-error"),
    ],
)
def test_wrong_fields_close_the_connection(fields: list[Any], condition: str) -> None:
    engine, _ = ready()
    (closed,) = put(engine, transfer(0, fields, b"x"))
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == condition


def test_a_delivery_inside_another_closes_the_connection() -> None:
    engine, _ = ready()
    put(engine, transfer(0, [*FULL[:5], True], b"one"))
    (closed,) = put(engine, transfer(0, [UInt(0), UInt(301), b"u", UInt(0), False, False], b"two"))
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:illegal-state"


def test_a_transfer_against_the_direction_closes_the_connection() -> None:
    engine = opened()
    put(engine, begin(0))
    (event,) = put(engine, attach(0, "in", 0, receiver=True))
    assert isinstance(event, Attached)
    event.link.accept()
    (closed,) = put(engine, transfer(0, FULL, b"x"))
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:not-allowed"


def test_a_list_that_lies_about_its_size_closes_the_connection() -> None:
    for body in (
        b"\x00\x53\x14\xc0\x09\x05\x43\x43\xa0\x01t\x43\x41",
        b"\x00\x53\x14\xc0\x08\x06\x43\x43\xa0\x01t\x43\x41",
        b"\x00\x53\x14\xc0\x08\x04\x43\x43\xa0\x01t\x43\x41",
        b"\x00\x53\x14\xc0\x00\x05\x43\x43\xa0\x01t\x43\x41",
        b"\x00\x53\x14\xc0\x08\x05\x43\x43\xa0\x20t\x43\x41",
        b"\x00\x53\x14\xc0",
        b"\x00\x53\x14\xc0\x01",
        b"\x00\x53\x14\xd0\x00\x00\x00\x01",
        b"\x00\x53\x14" + encode({"a": 1}),
    ):
        engine, _ = ready()
        events = put(engine, frame(0, body))
        assert [type(event) for event in events] == [Closed], body.hex()
