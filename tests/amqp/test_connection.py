"""Open, heartbeats, close, and frames that arrive in pieces."""

from __future__ import annotations

import pytest

from twinbus.amqp import AmqpError, Begun, Closed, Connection, Ended, Opened, Role, Target
from twinbus.amqp.frames import EMPTY_FRAME
from twinbus.errors import IllegalStateError, PeerLimitError
from twinbus.limits import HEARTBEAT_INTERVAL_MS_MIN, OUTGOING_FRAME_BYTES_MAX

from .pair import Pair, named, of


def test_both_sides_learn_of_each_other() -> None:
    pair = Pair(
        client={"frame_bytes_max": 4096, "idle_timeout_ms": 60_000, "properties": {"product": "test"}},
        server={"properties": {"product": "broker"}},
    ).run()
    assert pair.server.remote_open is not None
    assert pair.client.remote_open is not None
    assert pair.server.remote_open.container_id == "client"
    assert pair.server.remote_open.hostname == "localhost"
    assert pair.server.remote_open.frame_bytes_max == 4096
    assert pair.server.remote_open.idle_timeout_ms == 60_000
    assert pair.server.remote_open.properties == {"product": "test"}
    assert pair.client.remote_open.channel_max == 4_999
    assert pair.client.remote_open.idle_timeout_ms == 240_000
    assert pair.client.remote_open.properties == {"product": "broker"}


def test_a_peer_without_a_frame_limit_gets_ours() -> None:
    pair = Pair(client={"frame_bytes_max": 0xFFFFFFFF}).run()
    assert pair.server.remote_frame_max == OUTGOING_FRAME_BYTES_MAX


def test_close_is_answered_once() -> None:
    pair = Pair().run()
    pair.forget()
    pair.client.close()
    pair.client.close()
    pair.run()
    assert [type(event) for event in pair.server_events] == [Closed]
    assert [type(event) for event in pair.client_events] == [Closed]
    assert len(named(pair.to_server, "close")) == len(named(pair.to_client, "close")) == 1
    assert pair.client.closed
    assert pair.server.closed


def test_close_carries_its_reason() -> None:
    pair = Pair().run()
    pair.server.close(AmqpError("amqp:connection:forced", "shutting down", {"a": 1}))
    pair.run()
    (closed,) = of(pair.client_events, Closed)
    assert closed.error == AmqpError("amqp:connection:forced", "shutting down", {"a": 1})


def test_both_sides_closing_at_once() -> None:
    pair = Pair().run()
    pair.client.close()
    pair.server.close()
    pair.run()
    assert len(of(pair.client_events, Closed)) == len(of(pair.server_events, Closed)) == 1


def test_after_our_close_only_the_close_of_the_peer_matters() -> None:
    pair = Pair()
    link = pair.sender()
    pair.forget()
    pair.server.close()
    link.send(b"x", tag=b"t", settled=False)
    pair.client.begin()
    pair.run()
    assert [type(event) for event in pair.server_events] == [Closed]


def test_dispositions_held_back_go_out_before_the_close() -> None:
    pair = Pair()
    link = pair.sender()
    link.send(b"x", tag=b"t", settled=False)
    pair.step()
    session = pair.server_link("out").session
    pair.forget()
    session.settle(0, b"\x00\x53\x24\x45")
    pair.server.close()
    pair.run()
    assert [frame.name for frame in pair.to_client][-2:] == ["disposition", "close"]


def test_nothing_happens_after_closed() -> None:
    pair = Pair()
    link = pair.sender()
    server_link = pair.server_link("out")
    pair.client.close()
    pair.run()
    server_link.session.settle(0, b"\x00\x53\x24\x45")
    server_link.session.answer(0, b"\x00\x53\x24\x45")
    server_link.flow(5)
    server_link.detach()
    server_link.drained()
    server_link.session.end()
    pair.server.close()
    assert pair.server.take_output() == b""
    assert pair.server.receive(b"anything") == []
    assert link.sendable() == 0
    assert not link.attached
    with pytest.raises(IllegalStateError):
        pair.client.begin()


def test_sessions_are_listed() -> None:
    pair = Pair()
    first, second = pair.client.begin(), pair.client.begin()
    pair.run()
    assert [session.channel for session in pair.server.sessions] == [0, 1]
    second.end()
    pair.run()
    assert [session.channel for session in pair.server.sessions] == [0]
    assert pair.client.sessions == [first]
    third = pair.session()
    assert third.channel == 1


def test_the_peers_channel_max_is_kept() -> None:
    pair = Pair(server={"channel_max": 1}).run()
    pair.client.begin()
    pair.client.begin()
    with pytest.raises(PeerLimitError):
        pair.client.begin()
    pair.run()
    assert len(of(pair.server_events, Begun)) == 2


def test_ended_by_the_peer() -> None:
    pair = Pair()
    session = pair.session()
    pair.server.sessions[0].end(AmqpError("amqp:internal-error", "oops"))
    pair.run()
    (ended,) = of(pair.client_events, Ended)
    assert ended.session is session
    assert ended.error == AmqpError("amqp:internal-error", "oops")
    assert session.ended
    assert of(pair.server_events, Ended) == []
    with pytest.raises(IllegalStateError):
        session.attach_sender("x", target=Target("q"))


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_frames_in_pieces(chunk: int) -> None:
    pair = Pair(chunk=chunk)
    link = pair.sender()
    for number in range(3):
        link.send(bytes([number]) * 700, tag=bytes([number]), settled=True)
    pair.run()
    assert [event.payload for event in pair.server_events[-3:]] == [bytes([n]) * 700 for n in range(3)]  # type: ignore[attr-defined]


def test_output_is_counted_and_taken_once() -> None:
    pair = Pair()
    link = pair.sender()
    assert pair.client.output_bytes == 0
    link.send(b"x" * 100, tag=b"t", settled=True)
    waiting = pair.client.output_bytes
    assert len(pair.client.take_output()) == waiting > 100
    assert pair.client.output_bytes == 0
    assert pair.client.take_output() == b""


# --- heartbeats -----------------------------------------------------------------------------------------------------


def test_a_heartbeat_goes_out_at_half_the_peers_time_out() -> None:
    pair = Pair(client={"idle_timeout_ms": 60_000}).run()
    assert pair.server.tick(1_000) == 31_000
    assert pair.server.take_output() == b""
    assert pair.server.tick(30_999) == 31_000
    assert pair.server.take_output() == b""
    assert pair.server.tick(31_000) == 61_000
    assert pair.server.take_output() == EMPTY_FRAME
    assert pair.client.receive(EMPTY_FRAME * 3) == []


def test_no_heartbeat_for_a_peer_that_wants_none() -> None:
    pair = Pair(client={"idle_timeout_ms": None}, server={"idle_timeout_ms": 0}).run()
    assert pair.server.tick(1_000) is None
    assert pair.client.tick(1_000) is None


def test_heartbeats_are_not_sent_without_measure() -> None:
    pair = Pair(client={"idle_timeout_ms": 1}).run()
    assert pair.server.tick(1_000) == 1_000 + HEARTBEAT_INTERVAL_MS_MIN


def test_a_silent_peer_is_noticed_after_twice_our_time_out() -> None:
    engine = Connection(Role.SERVER, container_id="s", idle_timeout_ms=1_000)
    assert engine.tick(0) == 2_001
    engine.heard(500)
    assert engine.tick(2_000) == 2_501
    assert not engine.timed_out
    engine.tick(2_500)
    assert not engine.timed_out
    engine.tick(2_501)
    assert engine.timed_out


def test_no_ticks_after_the_close() -> None:
    pair = Pair().run()
    pair.client.close()
    pair.run()
    assert pair.client.tick(5) is None
    assert len(of(pair.client_events, Opened)) == 1
