"""Headers and SASL in both roles, one byte at a time and all at once."""

from __future__ import annotations

import pytest

from twinbus.amqp import Attached, Begun, Closed, Connection, Opened, Role, SaslInit, Target
from twinbus.amqp.frames import HEADER_AMQP, HEADER_SASL, frame, sasl_init_frame, sasl_outcome_frame
from twinbus.amqp.states import composite
from twinbus.amqp.types import Symbol
from twinbus.limits import PIPELINED_BYTES_MAX, SASL_FRAME_BYTES_MAX

from .pair import Pair, frames_in, named, of


def server(**options: object) -> Connection:
    return Connection(Role.SERVER, container_id="server", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("chunk", [None, 1, 7, 50])
@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "MSSBCBS", "PLAIN"])
def test_sasl_then_open(mechanism: str, pipelined: bool, chunk: int | None) -> None:
    pair = Pair(sasl=(mechanism, b"\x00u\x00p"), pipelined=pipelined, chunk=chunk)
    pair.client.begin().attach_sender("out", target=Target("q"))
    pair.run()
    init = of(pair.server_events, SaslInit)
    assert [(event.mechanism, event.response, event.hostname) for event in init] == [
        (mechanism, b"\x00u\x00p", "localhost")
    ]
    for events in (pair.server_events, pair.client_events):
        assert len(of(events, Opened)) == len(of(events, Begun)) == len(of(events, Attached)) == 1


def test_a_pipelining_client_needs_one_write() -> None:
    client = Connection(Role.CLIENT, container_id="c", hostname="h")
    client.start(sasl=("ANONYMOUS", None), pipelined=True)
    client.begin().attach_sender("out", target=Target("q"))
    everything = client.take_output()
    engine = server()
    first = engine.receive(everything)
    assert [type(event) for event in first] == [SaslInit]
    rest = engine.sasl_outcome(True)
    assert [type(event) for event in rest] == [Opened, Begun, Attached]
    assert engine.sasl_outcome(True) == []


def test_the_server_offers_its_mechanisms_as_an_array() -> None:
    engine = server()
    engine.receive(HEADER_SASL)
    out = engine.take_output()
    assert out.startswith(HEADER_SASL)
    assert frames_in(out)[0].fields[0] == ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"]
    assert frames_in(out)[0].kind == 1


def test_without_sasl_where_it_is_not_required() -> None:
    pair = Pair(sasl=None, server={"require_sasl": False}).run()
    assert len(of(pair.client_events, Opened)) == 1


def test_without_sasl_where_it_is_required() -> None:
    engine = server()
    events = engine.receive(HEADER_AMQP)
    assert [type(event) for event in events] == [Closed]
    assert engine.take_output() == HEADER_SASL
    assert engine.closed


@pytest.mark.parametrize(
    "header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"GET / HT", b"\x16\x03\x01\x00\x00\x00\x00\x00"]
)
def test_other_headers_are_answered_with_the_right_one(header: bytes) -> None:
    engine = server()
    events = engine.receive(header + b"more")
    assert [type(event) for event in events] == [Closed]
    assert engine.take_output() == HEADER_SASL
    assert engine.receive(b"ignored") == []


def test_a_second_sasl_header_is_refused() -> None:
    engine = server()
    engine.receive(HEADER_SASL + sasl_init_frame("ANONYMOUS", None, None))
    engine.sasl_outcome(True)
    events = engine.receive(HEADER_SASL)
    assert [type(event) for event in events] == [Closed]


def test_refused_by_the_owner() -> None:
    pair = Pair(sasl=("PLAIN", b"\x00u\x00wrong"))
    pair.server.sasl_mechanisms.remove("ANONYMOUS")
    out = pair.client.take_output()
    pair.server.receive(out)
    pair.client.receive(pair.server.take_output())
    assert of(pair.server.receive(pair.client.take_output()), SaslInit)
    assert of(pair.server.sasl_outcome(False), Closed)
    (closed,) = pair.client.receive(pair.server.take_output())
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:unauthorized-access"
    assert pair.client.take_output() == b""
    assert pair.server.closed


def test_a_mechanism_that_is_not_offered() -> None:
    engine = server(sasl_mechanisms=("ANONYMOUS",))
    events = engine.receive(HEADER_SASL + sasl_init_frame("PLAIN", b"", None))
    assert [type(event) for event in events] == [Closed]
    assert named(frames_in(engine.take_output()), "outcome")[0].fields[0] == 1


def test_the_client_says_when_its_mechanism_is_not_offered() -> None:
    pair = Pair(sasl=("PLAIN", b""), server={"sasl_mechanisms": ("ANONYMOUS",)}).run()
    (closed,) = of(pair.client_events, Closed)
    assert "PLAIN" in closed.error.description
    assert "ANONYMOUS" in closed.error.description


def test_input_while_the_owner_decides_is_bounded() -> None:
    engine = server()
    assert of(engine.receive(HEADER_SASL + sasl_init_frame("ANONYMOUS", None, None)), SaslInit)
    assert engine.receive(b"x" * PIPELINED_BYTES_MAX) == []
    (closed,) = engine.receive(b"x")
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:resource-limit-exceeded"


def test_sasl_frames_are_bounded() -> None:
    fits = sasl_init_frame("ANONYMOUS", b"x" * (SASL_FRAME_BYTES_MAX - 50), None)
    assert len(fits) <= SASL_FRAME_BYTES_MAX
    assert of(server().receive(HEADER_SASL + fits), SaslInit)
    engine = server()
    head = (SASL_FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"\x02\x01\x00\x00"
    (closed,) = engine.receive(HEADER_SASL + head)
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:connection:framing-error"


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x00\x00\x07\x02\x01\x00\x00",
        b"\x00\x00\x00\x08\x02\x00\x00\x00",
        b"\x00\x00\x00\x0c\x01\x01\x00\x00\x00\x53\x41\x45",
        b"\x00\x00\x00\x0c\x09\x01\x00\x00\x00\x53\x41\x45",
        frame(0, b"\x00\x53\x41\x45"),
        frame(0, b"\x00\x53\x44\x45", 1),
        frame(0, b"\x40\x53\x44\x45", 1),
        frame(0, b"\x00\x53\x41\x40", 1),
        frame(0, composite(0x41, [Symbol("ANONYMOUS"), "text"]), 1),
        frame(0, composite(0x41, [7]), 1),
    ],
)
def test_wrong_sasl_frames_close_the_connection(raw: bytes) -> None:
    engine = server()
    events = engine.receive(HEADER_SASL + raw)
    assert [type(event) for event in events] == [Closed]
    assert engine.closed


def test_the_client_refuses_a_challenge_and_unasked_frames() -> None:
    client = Connection(Role.CLIENT, container_id="c")
    client.start(sasl=("PLAIN", b""))
    assert of(client.receive(HEADER_SASL + frame(0, composite(0x42, [b"x"]), 1)), Closed)
    client = Connection(Role.CLIENT, container_id="c")
    client.start(sasl=None)
    assert of(client.receive(HEADER_SASL), Closed)
    client = Connection(Role.CLIENT, container_id="c")
    client.start(sasl=("PLAIN", b""))
    assert of(client.receive(HEADER_AMQP), Closed)


def test_a_client_that_gave_up_ignores_the_rest_of_the_handshake() -> None:
    client = Connection(Role.CLIENT, container_id="c")
    client.start(sasl=("ANONYMOUS", None))
    client.take_output()
    client.close()
    assert client.receive(HEADER_SASL + sasl_outcome_frame(0)) == []
    assert client.take_output() == b""
