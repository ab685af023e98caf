"""Dispositions in every legal encoding."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.amqp import (
    ACCEPTED,
    AmqpError,
    Attached,
    Closed,
    Connection,
    Described,
    Disposed,
    Modified,
    Outcome,
    Rejected,
    Symbol,
    TransactionalState,
    UInt,
    ULong,
)
from twinbus.amqp.frames import frame
from twinbus.amqp.states import STATE_ACCEPTED

from .pair import frames_in, of
from .raw import attach, begin, disposition, flow, opened, put


def ready(count: int = 3) -> Connection:
    engine = opened()
    put(engine, begin(0))
    (event,) = put(engine, attach(0, "in", 0, receiver=True))
    assert isinstance(event, Attached)
    event.link.accept()
    put(engine, flow(0, 1, 5_000, handle=0, delivery_count=0, credit=100))
    for number in range(count):
        event.link.send(b"x", tag=bytes([number]), settled=False)
    engine.take_output()
    return engine


FIRST = UInt(70_000)
YES = Described(ULong(0x24), [])


@pytest.mark.parametrize(
    ("fields", "count", "state", "settled"),
    [
        ([True, FIRST, None, False, YES], 1, ACCEPTED, False),
        ([True, FIRST, None, None, YES], 1, ACCEPTED, False),
        ([True, FIRST, FIRST, True, YES], 1, ACCEPTED, True),
        ([True, FIRST, UInt(70_002), True, YES, True], 3, ACCEPTED, True),
        ([True, FIRST, UInt(70_001), False, YES, False], 2, ACCEPTED, False),
        ([True, FIRST, None, True], 1, None, True),
        ([True, FIRST, None, True, None, None], 1, None, True),
        (
            [True, FIRST, None, False, Described(ULong(0x27), [True, False, {Symbol("a"): 1}])],
            1,
            Modified(True, False, {"a": 1}),
            False,
        ),
        (
            [
                True,
                FIRST,
                None,
                False,
                Described(
                    ULong(0x25),
                    [Described(ULong(0x1D), [Symbol("com.microsoft:dead-letter"), None, {Symbol("r"): "x"}])],
                ),
            ],
            1,
            Rejected(AmqpError("com.microsoft:dead-letter", "", {"r": "x"})),
            False,
        ),
        (
            [True, FIRST, None, False, Described(ULong(0x34), [b"t", YES])],
            1,
            TransactionalState(b"t", ACCEPTED),
            False,
        ),
    ],
)
def test_what_the_receiver_says(fields: list[Any], count: int, state: Any, settled: bool) -> None:
    engine = ready()
    (event,) = put(engine, disposition(0, fields))
    assert isinstance(event, Disposed)
    assert [delivery_id for delivery_id, _, _ in event.deliveries] == list(range(70_000, 70_000 + count))
    assert (event.state, event.settled) == (state, settled)
    assert len(engine.sessions[0].unsettled) == 3 - count
    assert len(engine.sessions[0].disposing) == (0 if settled else count)


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x53\x15\xc0\x0a\x05\x41\x52\x07\x40\x41\x00\x53\x24\x45",
        b"\x00\x53\x15\xc0\x0b\x05\x41\x52\x07\x52\x07\x41\x00\x53\x24\x45",
        b"\x00\x53\x15\xc0\x0c\x06\x41\x52\x07\x52\x07\x41\x00\x53\x24\x45\x41",
        b"\x00\x53\x15\xc0\x0d\x05\x41\x70\x00\x00\x00\x07\x40\x41\x00\x53\x24\x45",
        b"\x00\x53\x15\xc0\x0c\x05\x41\x52\x07\x40\x41\x00\x53\x24\xc0\x01\x00",
        b"\x00\x53\x15\xc0\x0b\x05\x56\x01\x52\x07\x40\x41\x00\x53\x24\x45",
        b"\x00\x53\x15\xd0\x00\x00\x00\x0d\x00\x00\x00\x05\x41\x52\x07\x40\x41\x00\x53\x24\x45",
    ],
)
def test_every_encoding_is_read(body: bytes) -> None:
    engine = ready()
    session = engine.sessions[0]
    link = next(iter(session.links.values()))
    session.unsettled[7] = (link, b"t")
    link.unsettled_count += 1
    (event,) = put(engine, frame(0, body))
    assert isinstance(event, Disposed), event.error  # type: ignore[attr-defined]
    assert event.deliveries == [(7, link, b"t")]
    assert event.state is ACCEPTED
    assert event.settled


def test_zero_is_a_delivery_id() -> None:
    engine = ready()
    (event,) = put(engine, disposition(0, [False, UInt(0), UInt(0), True, YES]))
    assert isinstance(event, Outcome)
    assert (event.first, event.last) == (0, 0)
    (event,) = put(engine, frame(0, b"\x00\x53\x15\xc0\x09\x05\x42\x43\x43\x41\x00\x53\x24\x45"))
    assert isinstance(event, Outcome)


def test_what_the_sender_says() -> None:
    engine = ready()
    error = Described(ULong(0x1D), [Symbol("com.microsoft:message-lock-lost"), "gone", None])
    (event,) = put(engine, disposition(0, [False, UInt(5), UInt(6), True, Described(ULong(0x25), [error])]))
    assert isinstance(event, Outcome)
    assert (event.first, event.last, event.settled) == (5, 6, True)
    assert event.state == Rejected(AmqpError("com.microsoft:message-lock-lost", "gone"))
    assert event.session is engine.sessions[0]


@pytest.mark.parametrize("state", [None, Described(ULong(0x23), [UInt(1), ULong(2)])])
def test_words_that_decide_nothing_are_ignored(state: Any) -> None:
    engine = ready()
    assert put(engine, disposition(0, [True, FIRST, None, False, state])) == []
    assert len(engine.sessions[0].unsettled) == 3


def test_ids_never_sent_are_not_answered() -> None:
    engine = ready()
    assert put(engine, disposition(0, [True, UInt(90_000), None, False, YES])) == []
    assert put(engine, disposition(0, [True, UInt(5), UInt(9), False, YES])) == []
    assert put(engine, disposition(0, [True, UInt(5), None, True, YES])) == []
    assert engine.take_output() == b""


def test_the_whole_circle_of_ids_costs_no_more_than_what_is_unsettled() -> None:
    engine = ready()
    (event,) = put(engine, disposition(0, [True, UInt(0), UInt(0x7FFFFFFF), False, YES]))
    assert isinstance(event, Disposed)
    assert len(event.deliveries) == 3
    assert frames_in(engine.take_output()) == []


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [None, FIRST],
        [UInt(1), FIRST],
        [True],
        [True, None, None, False, YES],
        [True, FIRST, ULong(1 << 40), False, YES],
        [True, FIRST, UInt(5), False, YES],
        [True, FIRST, None, "x", YES],
        [True, FIRST, None, False, 7],
        [True, FIRST, None, False, Described(ULong(0x25), [7])],
    ],
)
def test_wrong_fields_close_the_connection(fields: list[Any]) -> None:
    engine = ready()
    (closed,) = put(engine, disposition(0, fields))
    assert isinstance(closed, Closed)
    assert closed.error is not None


def test_bytes_behind_a_disposition_close_the_connection() -> None:
    engine = ready()
    raw = disposition(0, [True, FIRST, None, False, Described(ULong(0x27), [True])])
    body = raw[8:] + b"more"
    assert of(put(engine, frame(0, body)), Closed)


class CountedDict(dict[int, Any]):
    """Counts its look-ups."""

    asked = 0

    def get(self, key: int, default: Any = None) -> Any:
        CountedDict.asked += 1
        return super().get(key, default)


@pytest.mark.parametrize("settled", [True, False])
def test_ranges_of_settled_deliveries_cost_little_however_often_they_come(settled: bool) -> None:
    """A peer keeps one old delivery and many new ones unsettled, and repeats dispositions of the settled ones
    between."""
    engine = opened()
    put(engine, begin(0))
    (event,) = put(engine, attach(0, "in", 0, receiver=True))
    assert isinstance(event, Attached)
    event.link.accept()
    put(engine, flow(0, 1, 10_000, handle=0, delivery_count=0, credit=10_000))
    for _ in range(8_000):
        event.link.send(b"x", tag=b"", settled=False)
    put(engine, disposition(0, [True, UInt(70_001), UInt(73_999), True, YES]))
    session = event.link.session
    assert len(session.unsettled) == 4_001
    session.unsettled = CountedDict(session.unsettled)
    CountedDict.asked = 0
    for step in range(1_000):
        put(engine, disposition(0, [True, UInt(70_001 + step % 7), UInt(73_999 - step % 11), settled, YES]))
    assert CountedDict.asked < 20_000
    assert len(session.unsettled) == 4_001
    # Unsettled deliveries are still found, in one range and across the gap.
    (event,) = put(engine, disposition(0, [True, UInt(70_000), UInt(77_999), True, YES]))
    assert isinstance(event, Disposed)
    assert len(event.deliveries) == 4_001


def test_ranges_find_deliveries_sent_after_a_gap_was_seen() -> None:
    engine = ready(100)
    put(engine, disposition(0, [True, UInt(70_000), UInt(70_098), True, YES]))
    for _ in range(70):
        put(engine, disposition(0, [True, UInt(70_000), UInt(70_098), True, YES]))
    link = engine.sessions[0].links[0]
    for _ in range(50):
        link.send(b"x", tag=b"", settled=False)
    (event,) = put(engine, disposition(0, [True, UInt(70_050), UInt(70_120), True, YES]))
    assert isinstance(event, Disposed)
    assert [number for number, _, _ in event.deliveries] == list(range(70_099, 70_121))


def told(engine: Connection) -> list[list[Any]]:
    """First, last and settled of the dispositions written."""
    return [frame.fields[1:4] for frame in frames_in(engine.take_output()) if frame.name == "disposition"]


@pytest.mark.parametrize("last", [70_000, 70_001, 70_050])
def test_a_kept_delivery_can_be_disposed_of_again(last: int) -> None:
    engine = ready()
    (event,) = put(engine, disposition(0, [True, FIRST, UInt(70_001), False, YES]))
    assert isinstance(event, Disposed)
    session, link = event.session, event.deliveries[0][1]
    for number, _, tag in event.deliveries:
        session.keep(number, tag, STATE_ACCEPTED)
    session.flush()
    assert told(engine) == [[70_000, 70_000, False], [70_001, 70_001, False]]
    assert (link.unsettled_count, len(session.kept)) == (3, 2)
    (again,) = put(engine, disposition(0, [True, FIRST, UInt(last), True, Described(ULong(0x26), [])]))
    assert isinstance(again, Disposed)
    assert sorted(number for number, _, _ in again.deliveries) == list(range(70_000, min(last, 70_002) + 1))
    assert link.unsettled_count == 3 - len(again.deliveries)
    # Only what the peer still holds is settled.
    for number in (70_000, 70_001):
        session.settle_kept(number, STATE_ACCEPTED)
    session.flush()
    assert told(engine) == ([[70_001, 70_001, True]] if last == 70_000 else [])
    assert link.unsettled_count == len(session.unsettled)


def test_kept_deliveries_go_with_their_link() -> None:
    engine = ready()
    (event,) = put(engine, disposition(0, [True, FIRST, None, False, YES]))
    assert isinstance(event, Disposed)
    number, link, tag = event.deliveries[0]
    event.session.keep(number, tag, STATE_ACCEPTED)
    engine.take_output()
    link.detach()
    event.session.settle_kept(number, STATE_ACCEPTED)
    event.session.flush()
    assert told(engine) == []
