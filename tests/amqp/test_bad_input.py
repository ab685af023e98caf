"""Whatever a peer sends, `receive` returns, and the right link, session or connection ends with the right error."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.amqp import AmqpError, Attached, Begun, Closed, Connection, Ended, Opened, Role, UInt, ULong, UShort
from twinbus.amqp.frames import (
    BEGIN,
    HEADER_AMQP,
    OPEN,
    attach_frame,
    begin_frame,
    close_frame,
    frame,
    open_frame,
)
from twinbus.amqp.states import composite
from twinbus.limits import HANDLE_MAX, LINKS_PER_CONNECTION_MAX

from .pair import Pair, frames_in, named, of
from .raw import attach, begin, detach, disposition, flow, opened, put, transfer


def reason(engine: Connection, data: bytes) -> str:
    """Return the condition with which the connection closes."""
    events = engine.receive(data)
    closed = events[-1]
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert engine.closed
    written = named(frames_in(engine.take_output()), "close")
    assert len(written) == 1
    error = written[0].fields[0].value
    assert len(error) == 3
    assert error[0] == closed.error.condition
    assert engine.receive(data) == []
    assert engine.take_output() == b""
    return closed.error.condition


def begun() -> Connection:
    engine = opened()
    put(engine, begin(0))
    put(engine, attach(0, "out", 0, receiver=False))
    engine.sessions[0].links[0].accept(credit=10)
    engine.take_output()
    return engine


FRAMING = "amqp:connection:framing-error"


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"\x00\x00\x00\x07\x02\x00\x00\x00", FRAMING),
        (b"\x00\x01\x00\x01\x02\x00\x00\x00", FRAMING),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff", FRAMING),
        (b"\x00\x00\x00\x0c\x01\x00\x00\x00\x00\x53\x14\x45", FRAMING),
        (b"\x00\x00\x00\x0c\x04\x00\x00\x00\x00\x53\x14\x45", FRAMING),
        (b"\x00\x00\x00\x0c\x02\x01\x00\x00\x00\x53\x14\x45", FRAMING),
        (b"\x00\x00\x00\x0c\x02\x07\x00\x00\x00\x53\x14\x45", FRAMING),
        (HEADER_AMQP, FRAMING),
        (b"GET / HTTP/1.1\r\n", FRAMING),
        (frame(0, b"\x00\x53\x14"), "amqp:decode-error"),
        (frame(0, b"\x45\x45\x45\x45"), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x99\x45"), "amqp:decode-error"),
        (frame(0, b"\x00\x40\x40\x45"), "amqp:decode-error"),
        (frame(0, b"\x00\xa3\x03abc\x45"), "amqp:decode-error"),
        (frame(0, b"\x00\xa3\xffabc"), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x12\x40"), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x12\xd0\xff\xff\xff\xff\x00\x00\x00\x01"), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x12\xd0\x00\x00\x00\x04\xff\xff\xff\xff"), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x17\xc0\x02\x01\x99"), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x18\xc0\x02\x02\x40"), "amqp:decode-error"),
        (open_frame("c", None, 512, 1, 0, None), "amqp:illegal-state"),
        (begin(0), "amqp:illegal-state"),
        (frame(1, b"\x00\x53\x17\x45"), "amqp:illegal-state"),
        (transfer(1, [UInt(0)]), "amqp:illegal-state"),
        (begin(5_000), FRAMING),
        (transfer(65_535, [UInt(0)]), FRAMING),
        (attach(0, None, 1, receiver=True), "amqp:invalid-field"),
        (attach(0, 7, 1, receiver=True), "amqp:invalid-field"),
        (attach(0, "x", None, receiver=True), "amqp:invalid-field"),
        (attach(0, "x", ULong(1 << 40), receiver=True), "amqp:invalid-field"),
        (attach(0, "x", 1, receiver=None), "amqp:invalid-field"),  # type: ignore[arg-type]
        (attach(0, "x", 1, receiver=True, source=7), "amqp:decode-error"),
        (attach(0, "x", 1, receiver=True, target=[1]), "amqp:decode-error"),
        (attach(0, "x", HANDLE_MAX + 1, receiver=True), FRAMING),
        (frame(0, composite(0x12, [])), "amqp:invalid-field"),
        (frame(0, composite(0x12, ["x", UInt(1), True, UInt(9)])), "amqp:invalid-field"),
        (
            frame(0, composite(0x12, ["x", UInt(1), False, None, None, None, None, None, None, -1])),
            "amqp:invalid-field",
        ),
        (frame(0, composite(0x13, [])), "amqp:invalid-field"),
        (frame(0, composite(0x13, [UInt(1), None])), "amqp:invalid-field"),
        (frame(0, composite(0x13, [UInt(1), "x"])), "amqp:invalid-field"),
        (frame(0, composite(0x13, [UInt(1), UInt(1), None, None, None, None, None, None, -5])), "amqp:invalid-field"),
        (frame(0, composite(0x16, [])), "amqp:invalid-field"),
        (frame(0, composite(0x16, [UInt(0), "x"])), "amqp:invalid-field"),
        (frame(0, composite(0x16, [UInt(0), True, "x"])), "amqp:invalid-field"),
        (frame(0, composite(0x17, ["x"])), "amqp:invalid-field"),
        (disposition(0, [7]), "amqp:invalid-field"),
        (frame(0, composite(0x10, [None] * 33)), "amqp:decode-error"),
    ],
)
def test_the_connection_closes_with_a_reason(data: bytes, condition: str) -> None:
    engine = begun()
    # Another frame follows, so that reading past the end of a frame is noticed.
    assert reason(engine, data + flow(0, 1, 10)) == condition


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ([], None),
        ([7], "amqp:invalid-field"),
        (["c", None, UInt(511)], "amqp:invalid-field"),
        (["c", None, UInt(512)], None),
        (["c", None, "x"], "amqp:invalid-field"),
        (["c", None, None, UShort(5), UInt(5), None, None, None, None, 7], "amqp:invalid-field"),
    ],
)
def test_opens(fields: list[Any], condition: str | None) -> None:
    engine = Connection(Role.SERVER, container_id="s", require_sasl=False)
    data = HEADER_AMQP + frame(0, composite(OPEN, fields))
    if condition is None:
        assert [type(event) for event in engine.receive(data)] == [Opened]
    else:
        assert reason(engine, data) == condition


@pytest.mark.parametrize(
    "data",
    [begin(0), attach(0, "x", 0, receiver=True), transfer(0, [UInt(0)]), flow(0, 1, 1), frame(0, b"\x00\x53\x17\x45")],
)
def test_nothing_comes_before_the_open(data: bytes) -> None:
    engine = Connection(Role.SERVER, container_id="s", require_sasl=False)
    out = HEADER_AMQP + data
    assert reason(engine, out) == "amqp:illegal-state"


def test_a_close_before_the_open_is_answered_with_both() -> None:
    engine = Connection(Role.SERVER, container_id="s", require_sasl=False)
    assert of(engine.receive(HEADER_AMQP + close_frame(None)), Closed)
    assert [one.name for one in frames_in(engine.take_output())] == ["open", "close"]


@pytest.mark.parametrize(
    "fields",
    [
        [None, None, UInt(1), UInt(1)],
        [None, UInt(1), None, UInt(1)],
        [None, UInt(1), UInt(1), None],
        [None, UInt(1), "x", UInt(1)],
        ["x", UInt(1), UInt(1), UInt(1)],
    ],
)
def test_begins_without_their_fields(fields: list[Any]) -> None:
    assert reason(opened(), frame(0, composite(BEGIN, fields))) == "amqp:invalid-field"


@pytest.mark.parametrize("refused", [False, True])
def test_a_second_detach_of_a_handle_is_ignored(refused: bool) -> None:
    # fe2o3 sends one on the refusal and another when the link is dropped.
    engine = begun()
    (attached,) = engine.receive(attach(0, "x", 3, receiver=True))
    assert isinstance(attached, Attached)
    if refused:
        attached.link.refuse(AmqpError("amqp:not-found"))
    else:
        attached.link.accept()
    engine.receive(detach(0, 3))
    engine.take_output()
    assert engine.receive(detach(0, 3)) == []
    assert engine.take_output() == b""
    assert of(engine.receive(attach(0, "y", 3, receiver=True)), Attached)


@pytest.mark.parametrize(
    "data",
    [
        transfer(0, [UInt(9), UInt(1), b"t", UInt(0)], b"x"),
        transfer(0, [UInt(9), UInt(1), b"t"], b"x"),
        flow(0, 1, 10, handle=9, delivery_count=0, credit=1),
        detach(0, 9),
    ],
)
def test_an_unknown_handle_ends_the_session(data: bytes) -> None:
    engine = begun()
    session = engine.sessions[0]
    (ended,) = engine.receive(data)
    assert isinstance(ended, Ended)
    assert ended.session is session
    assert ended.error is not None
    assert ended.error.condition == "amqp:session:unattached-handle"
    (end,) = frames_in(engine.take_output())
    assert end.name == "end"
    assert not engine.closed
    # Everything on that channel is dropped until the peer's own end; then the channel is free again.
    assert engine.receive(data + attach(0, "x", 3, receiver=True) + disposition(0, [True, UInt(1)])) == []
    assert engine.receive(frame(0, b"\x00\x53\x17\x45")) == []
    assert of(engine.receive(begin(0)), Begun)


def test_a_handle_in_use_ends_the_session() -> None:
    engine = begun()
    (ended,) = engine.receive(attach(0, "other", 0, receiver=True))
    assert isinstance(ended, Ended)
    assert ended.error is not None
    assert ended.error.condition == "amqp:session:handle-in-use"


def test_garbage_on_an_ended_session_still_closes() -> None:
    engine = begun()
    engine.sessions[0].end()
    assert reason(engine, frame(0, b"\x00\x53\x99\x45")) == "amqp:decode-error"


def test_a_deep_value_closes_the_connection() -> None:
    deep = b"\x40"
    for _ in range(60):
        deep = b"\xd0" + (len(deep) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + deep
    assert reason(begun(), frame(0, b"\x00\x53\x18\xd0" + (len(deep) + 4).to_bytes(4, "big") + b"\0\0\0\1" + deep)) == (
        "amqp:decode-error"
    )


def test_links_are_bounded_for_the_connection() -> None:
    engine = begun()
    engine.link_count = LINKS_PER_CONNECTION_MAX - 1
    assert of(engine.receive(attach(0, "x", 1, receiver=True)), Attached)
    engine.take_output()
    assert reason(engine, attach(0, "y", 2, receiver=True)) == "amqp:resource-limit-exceeded"


def test_channels_and_handles_up_to_the_limit_are_taken() -> None:
    engine = opened()
    assert of(engine.receive(begin(4_999)), Begun)
    assert of(engine.receive(attach(4_999, "x", HANDLE_MAX, receiver=True)), Attached)


def test_a_frame_of_the_largest_size_is_taken() -> None:
    engine = begun()
    head = transfer(0, [UInt(0), UInt(1), b"t", UInt(0), False])
    raw = transfer(0, [UInt(0), UInt(1), b"t", UInt(0), False], b"x" * (65_536 - len(head)))
    assert len(raw) == 65_536
    assert len(engine.receive(raw)) == 1
    assert reason(engine, (65_537).to_bytes(4, "big") + raw[4:] + b"x") == FRAMING


def test_the_client_refuses_what_it_did_not_ask_for() -> None:
    pair = Pair().run()
    assert of(pair.client.receive(begin_frame(3, 3, 0, 1, 1, 1)), Closed)
    pair = Pair()
    pair.session()
    surprise = attach_frame(0, "x", 0, True, 0, 0, b"\x40", b"\x40", 0, None)
    (closed,) = pair.client.receive(surprise)
    assert isinstance(closed, Closed)
    assert closed.error == AmqpError("amqp:not-allowed", "the peer attached a link that we did not ask for")


@pytest.mark.parametrize("size", range(0, 120, 3))
def test_a_conversation_may_stop_anywhere(size: int) -> None:
    data = HEADER_AMQP + open_frame("c", None, 512, 1, 0, None) + begin(0) + attach(0, "x", 0, receiver=True)
    engine = Connection(Role.SERVER, container_id="s", require_sasl=False)
    events = engine.receive(data[:size]) + engine.receive(data[size:])
    assert [type(event) for event in events] == [Opened, Begun, Attached]
