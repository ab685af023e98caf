"""`frames_max` bounds what one `receive` reads; nothing is lost or put in another order by it."""

from __future__ import annotations

import pytest

from tests.amqp.raw import attach, begin, detach, opened, put, transfer
from twinbus.amqp import UInt
from twinbus.amqp.connection import Connection
from twinbus.amqp.events import AmqpEvent, Closed, Transfer
from twinbus.amqp.frames import EMPTY_FRAME, close_frame

COUNT = 20


def conversation() -> bytes:
    sends = [transfer(0, [UInt(1), UInt(n), b"t", UInt(0)], bytes((n,)) * (n * 50)) for n in range(COUNT)]
    return b"".join((begin(0), attach(0, "a", 1, receiver=False), EMPTY_FRAME, *sends, detach(0, 1)))


def stepped(engine: Connection, data: bytes) -> list[list[AmqpEvent]]:
    """What each call returned."""
    steps = [put(engine, data)]
    while engine.more:
        steps.append(engine.receive(b""))
    return steps


@pytest.mark.parametrize("frames_max", [1, 2, 7, 100])
@pytest.mark.parametrize("piece", [13, 600, 1_000_000])
def test_every_frame_is_read_in_order(frames_max: int, piece: int) -> None:
    engine = opened()
    engine.frames_max = frames_max
    data = conversation()
    steps = [step for at in range(0, len(data), piece) for step in stepped(engine, data[at : at + piece])]
    assert max(map(len, steps)) <= frames_max
    events = [event for step in steps for event in step]
    expected = put(opened(), data)
    assert [type(event) for event in events] == [type(event) for event in expected]
    assert [event.payload for event in events if isinstance(event, Transfer)] == [
        bytes((n,)) * (n * 50) for n in range(COUNT)
    ]
    assert not engine.held_bytes


@pytest.mark.parametrize("at", [3, 7, 8, 9, 15, 700, 9_000])
def test_a_frame_that_came_in_two_pieces_is_completed(at: int) -> None:
    engine = opened()
    engine.receive(begin(0) + attach(0, "a", 1, receiver=False))
    sends = [transfer(0, [UInt(1), UInt(n), b"t", UInt(0)], bytes((n,)) * 10_000) for n in range(3)]
    data = EMPTY_FRAME.join(sends)
    events = put(engine, data[:at]) + put(engine, data[at:])
    assert [event.payload for event in events if isinstance(event, Transfer)] == [
        bytes((n,)) * 10_000 for n in range(3)
    ]
    assert not engine.held_bytes


def test_what_comes_before_the_rest_is_read_waits_its_turn() -> None:
    engine = opened()
    engine.frames_max = 2
    data = conversation()
    half = len(data) // 2 + 3
    events = put(engine, data[:half])
    assert engine.more
    events += put(engine, data[half:])
    while engine.more:
        events += engine.receive(b"")
    assert len([event for event in events if isinstance(event, Transfer)]) == COUNT


def test_nothing_is_left_to_read_after_the_end() -> None:
    engine = opened()
    engine.frames_max = 1
    (event,) = [event for step in stepped(engine, close_frame(None) + conversation()) for event in step]
    assert isinstance(event, Closed)
    assert not engine.more
    broken = opened()
    broken.frames_max = 1
    steps = stepped(broken, begin(0) + b"\0\0\0\1" + bytes(20))
    assert isinstance(steps[-1][-1], Closed)
    assert not broken.more
