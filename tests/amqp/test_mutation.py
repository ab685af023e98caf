"""Real conversations with bytes changed, cut, doubled and moved: the engine never raises and stays within bounds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twinbus.amqp import (
    STATE_ACCEPTED,
    AmqpEvent,
    Attached,
    Connection,
    Credit,
    Disposed,
    Role,
    SaslInit,
    Source,
    Target,
    Transfer,
    UInt,
)
from twinbus.amqp.states import composite

from .pair import Pair
from .raw import attach, begin, disposition, flow, transfer

OUTPUT_BYTES_PER_INPUT_BYTE_MAX = 40


def recorded() -> bytes:
    """Return everything a busy client sends, from its first byte to its close."""
    pair = Pair(client={"frame_bytes_max": 512}, server={"frame_bytes_max": 512})
    pair.on_server = serve
    session = pair.session()
    out = session.attach_sender("out", target=Target("q"))
    received = session.attach_receiver("in", source=Source("q"))
    pair.on_client = lambda event: (
        event.link.session.dispose(event.delivery_id, event.delivery_id, STATE_ACCEPTED, False)
        if isinstance(event, Transfer)
        else None
    )
    pair.run()
    received.flow(5)
    pair.run()
    for number in range(4):
        out.send(b"x" * (300 * number), tag=bytes([number]), settled=number == 0)
    pair.run()
    received.flow(3, drain=True)
    pair.run()
    out.detach()
    session.end()
    pair.client.close()
    pair.run()
    return bytes(pair.client_bytes)


def serve(event: AmqpEvent) -> None:
    """Respond like a broker."""
    if isinstance(event, Attached):
        event.link.accept(max_message_size=1_000, credit=0 if event.link.sender else 10)
    elif isinstance(event, Transfer):
        event.link.session.settle(event.delivery_id, STATE_ACCEPTED)
    elif isinstance(event, Credit):
        for _ in range(min(event.link.sendable(), 5)):
            event.link.send(b"x" * 600, tag=b"t" * 16, settled=False)
        if event.link.drain:
            event.link.drained()
    elif isinstance(event, Disposed):
        for delivery_id, _, _ in event.deliveries:
            event.session.answer(delivery_id, STATE_ACCEPTED)


CONVERSATION = recorded()


def feed(data: bytes, chunk: int = 0) -> Connection:
    engine = Connection(Role.SERVER, container_id="server", frame_bytes_max=512)
    pieces = [data[at : at + chunk] for at in range(0, len(data), chunk)] if chunk else [data]
    output = 0
    for piece in pieces:
        queue = engine.receive(piece)
        while queue:
            event = queue.pop(0)
            if isinstance(event, SaslInit):
                queue.extend(engine.sasl_outcome(True))
            serve(event)
        output += len(engine.take_output())
        assert engine.held_bytes <= 300_000
    assert output <= 5_000 + OUTPUT_BYTES_PER_INPUT_BYTE_MAX * len(data)
    return engine


def test_the_recorded_conversation_is_sound() -> None:
    assert feed(CONVERSATION).remote_open is not None
    assert feed(CONVERSATION, 1).closed


EDITS = st.lists(
    st.tuples(st.sampled_from(["set", "cut", "double", "insert"]), st.integers(0, 1 << 16), st.binary(max_size=8)),
    min_size=1,
    max_size=6,
)


def edited(data: bytes, edits: list[tuple[str, int, bytes]]) -> bytes:
    buf = bytearray(data)
    for kind, where, raw in edits:
        at = where % max(1, len(buf))
        if kind == "set":
            buf[at : at + len(raw)] = raw
        elif kind == "cut":
            del buf[at : at + len(raw)]
        elif kind == "double":
            buf[at:at] = buf[at : at + 60]
        else:
            buf[at:at] = raw
    return bytes(buf)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EDITS, st.sampled_from([0, 1, 13]))
def test_an_edited_conversation(edits: list[tuple[str, int, bytes]], chunk: int) -> None:
    assert feed(edited(CONVERSATION, edits), chunk).take_output() == b""


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_nonsense_behind_a_sound_beginning(raw: bytes) -> None:
    sound = CONVERSATION[: CONVERSATION.index(b"\x00\x53\x14") - 8]
    assert feed(sound + raw).remote_open is not None


NUMBERS = st.one_of(st.none(), st.integers(0, 2**32 - 1).map(UInt), st.sampled_from([UInt(0), UInt(70_000), UInt(1)]))
FLAGS = st.one_of(st.none(), st.booleans())
FRAMES = st.one_of(
    st.builds(lambda c: begin(c), st.integers(0, 2)),
    st.builds(lambda c, h, r: attach(c, "n", h, receiver=r), st.integers(0, 2), st.integers(0, 3), st.booleans()),
    st.builds(
        lambda c, fields, raw: transfer(c, list(fields), raw),
        st.integers(0, 2),
        st.tuples(NUMBERS, NUMBERS, st.one_of(st.none(), st.binary(max_size=4)), NUMBERS, FLAGS, FLAGS),
        st.binary(max_size=20),
    ),
    st.builds(
        lambda c, n, w, h, d, k, drain, echo: flow(
            c, n, w, handle=h, delivery_count=d, credit=k, drain=drain, echo=echo
        ),
        st.integers(0, 2),
        st.one_of(st.none(), st.integers(0, 2**32 - 1)),
        st.integers(0, 2**32 - 1),
        st.one_of(st.none(), st.integers(0, 3)),
        st.one_of(st.none(), st.integers(0, 2**32 - 1)),
        st.one_of(st.none(), st.integers(0, 2**32 - 1)),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        lambda c, fields: disposition(c, list(fields)),
        st.integers(0, 2),
        st.tuples(FLAGS, NUMBERS, NUMBERS, FLAGS),
    ),
    st.builds(lambda c, h: composite_frame(c, 0x16, [h, True, None]), st.integers(0, 2), st.integers(0, 3).map(UInt)),
    st.builds(lambda c: composite_frame(c, 0x17, [None]), st.integers(0, 2)),
)


def composite_frame(channel: int, code: int, fields: list[object]) -> bytes:
    body = composite(code, fields)
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FRAMES, max_size=30))
def test_well_formed_frames_in_any_order(sequence: list[bytes]) -> None:
    sound = CONVERSATION[: CONVERSATION.index(b"\x00\x53\x11") - 8]
    links = attach(0, "a", 0, receiver=True) + attach(0, "b", 1, receiver=False)
    assert feed(sound + begin(0) + links + b"".join(sequence)).remote_open is not None


@pytest.mark.parametrize("size", range(0, len(CONVERSATION), 61))
def test_a_cut_conversation(size: int) -> None:
    assert feed(CONVERSATION[:size]).closed is (size == len(CONVERSATION))


@settings(max_examples=200, deadline=None)
@given(EDITS)
def test_the_client_is_as_patient_as_the_server(edits: list[tuple[str, int, bytes]]) -> None:
    pair = Pair()
    link = pair.sender()
    for number in range(5):
        link.send(b"x", tag=bytes([number]), settled=False)
    pair.on_server = lambda event: None if isinstance(event, Attached) else serve(event)
    pair.run()
    client = Connection(Role.CLIENT, container_id="client", hostname="localhost")
    client.start(sasl=("ANONYMOUS", None), pipelined=True)
    client.begin().attach_sender("out", target=Target("q"))
    client.receive(edited(bytes(pair.server_bytes), edits))
    client.take_output()
    assert client.held_bytes <= 300_000
