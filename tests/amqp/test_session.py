"""Windows, delivery ids, merging, order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from twinbus.amqp import (
    ACCEPTED,
    RELEASED,
    STATE_ACCEPTED,
    STATE_RELEASED,
    AmqpError,
    Attached,
    Closed,
    Connection,
    Credit,
    Detached,
    Disposed,
    Ended,
    Link,
    Outcome,
    Rejected,
    Role,
    Source,
    Target,
    Transfer,
    attachments,
    state_rejected,
)
from twinbus.errors import PeerLimitError
from twinbus.limits import FIRST_DELIVERY_ID, INCOMING_WINDOW_TRANSFERS

from .pair import Pair, frames_in, named, of
from .raw import attach, begin, detach, flow, opened, put


def test_server_ids_are_consecutive_over_all_links() -> None:
    pair = Pair()
    session = pair.session()
    for name in ("a", "b"):
        session.attach_receiver(name, source=Source(name), credit=10)
    pair.run()
    for name in ("a", "b", "b", "a"):
        pair.server_link(name).send(b"x", tag=b"t" * 16, settled=name == "b")
    pair.run()
    ids = [event.delivery_id for event in of(pair.client_events, Transfer)]
    assert ids == list(range(FIRST_DELIVERY_ID, FIRST_DELIVERY_ID + 4))


def test_our_window_is_refreshed_when_half_is_used() -> None:
    pair = Pair(accept=lambda link: link.accept(credit=1_000_000))
    link = pair.sender()
    pair.forget()
    for number in range(INCOMING_WINDOW_TRANSFERS // 2):
        link.send(b"", tag=number.to_bytes(4, "big"), settled=True)
    pair.step()
    (flow_frame,) = named(pair.to_client, "flow")
    assert flow_frame.fields[0] == 1 + INCOMING_WINDOW_TRANSFERS // 2
    assert flow_frame.fields[1] == INCOMING_WINDOW_TRANSFERS
    assert link.session.remote_window == INCOMING_WINDOW_TRANSFERS


@pytest.mark.parametrize("payload", [b"x", b"x" * 2_000])
def test_transfers_stop_at_the_peers_window(payload: bytes) -> None:
    """A client with a window of 2,048 transfers and frames of 512 bytes, like a slow reader."""
    engine = opened(frame_bytes_max=512)
    put(engine, begin(0, window=2_048))
    (event,) = put(engine, attach(0, "in", 0, receiver=True))
    assert isinstance(event, Attached)
    link = event.link
    link.accept()
    put(engine, flow(0, 1, 2_048, handle=0, delivery_count=0, credit=10_000))
    engine.take_output()
    assert link.sendable() == 2_048
    sent = 0
    while link.sendable():
        link.send(payload, tag=b"t" * 16, settled=True)
        sent += 1
    transfers = named(frames_in(engine.take_output()), "transfer")
    assert len(transfers) == 2_048
    assert link.session.remote_window == 0
    assert engine.take_output() == b""
    events = put(engine, flow(0, 2_049, 2_048))
    assert [type(event) for event in events] == [Credit]
    rest = named(frames_in(engine.take_output()), "transfer")
    assert len(transfers) + len(rest) == sent * (1 if len(payload) == 1 else 5)
    assert link.session.waiting_bytes == 0
    assert link.sendable() > 0


def test_nothing_overtakes_waiting_transfers() -> None:
    engine = opened(frame_bytes_max=512)
    put(engine, begin(0, window=2))
    (event,) = put(engine, attach(0, "in", 0, receiver=True))
    assert isinstance(event, Attached)
    link = event.link
    link.accept()
    put(engine, flow(0, 1, 2, handle=0, delivery_count=0, credit=100))
    engine.take_output()
    link.send(b"x" * 1_500, tag=b"t", settled=True)
    link.drained()
    out = frames_in(engine.take_output())
    assert [frame.name for frame in out] == ["transfer", "transfer"]
    link.detach(AmqpError("amqp:link:detach-forced"))
    assert engine.take_output() == b""
    put(engine, flow(0, 3, 2))
    out = frames_in(engine.take_output())
    assert [frame.name for frame in out] == ["transfer", "transfer", "flow", "detach"]


def test_an_exact_window_is_counted_from_the_peers_view() -> None:
    engine = opened()
    put(engine, begin(0, window=10))
    (event,) = put(engine, attach(0, "in", 0, receiver=True))
    assert isinstance(event, Attached)
    event.link.accept()
    put(engine, flow(0, 1, 10, handle=0, delivery_count=0, credit=100))
    for _ in range(4):
        event.link.send(b"x", tag=b"t", settled=True)
    put(engine, flow(0, 3, 10))
    assert event.link.session.remote_window == 8
    put(engine, flow(0, None, 10))
    assert event.link.session.remote_window == 6
    put(engine, flow(0, 1, 0))
    assert event.link.sendable() == 0


def test_credit_comes_back_with_the_window_for_every_link_that_can_use_it() -> None:
    engine = opened()
    put(engine, begin(0, window=0))
    links = []
    for handle in range(3):
        (event,) = put(engine, attach(0, str(handle), handle, receiver=True))
        assert isinstance(event, Attached)
        event.link.accept()
        links.append(event.link)
    put(engine, flow(0, 1, 0, handle=0, delivery_count=0, credit=5))
    put(engine, flow(0, 1, 0, handle=1, delivery_count=0, credit=5))
    assert [link.sendable() for link in links] == [0, 0, 0]
    events = put(engine, flow(0, 1, 10, handle=0, delivery_count=0, credit=5))
    assert [event.link for event in of(events, Credit)] == [links[0], links[1]]


def crowd(engine: Connection, count: int) -> list[Link]:
    """Attach `count` links with credit on which we send."""
    links = []
    for handle in range(count):
        (event,) = put(engine, attach(0, str(handle), handle, receiver=True))
        assert isinstance(event, Attached)
        event.link.accept()
        put(engine, flow(0, 1, 10, handle=handle, delivery_count=0, credit=5))
        links.append(event.link)
    return links


def test_a_window_that_opens_and_closes_costs_no_look_at_every_link() -> None:
    engine = opened()
    put(engine, begin(0, window=10))
    links = crowd(engine, 100)
    events = put(engine, (flow(0, 1, 0) + flow(0, 1, 10)) * 50)
    assert of(events, Credit) == []
    put(engine, flow(0, 1, 0))
    assert [link.sendable() for link in links[:3]] == [0, 0, 0]
    links[1].detach()
    events = put(engine, (flow(0, 1, 10) + flow(0, 1, 0)) * 50)
    assert [event.link for event in of(events, Credit)] == [links[0], links[2]]


def test_answers_behind_a_closed_window_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "FRAMES_BEHIND_MAX", 20)
    engine = opened(frame_bytes_max=512)
    put(engine, begin(0, window=10))
    links = crowd(engine, 10)
    put(engine, flow(0, 1, 1))
    links[0].send(b"x" * 2_000, tag=b"t", settled=True)
    engine.take_output()
    echoes = b"".join(flow(0, 1, 1, handle=handle, delivery_count=0, credit=5, echo=True) for handle in range(10))
    for _ in range(3):
        put(engine, echoes)
        engine.take_output()
    (event,) = of(put(engine, echoes), Closed)
    assert event.error is not None
    assert event.error.condition == "amqp:resource-limit-exceeded"
    assert engine.frames_behind == 0


def test_links_that_leave_behind_a_closed_window_cost_no_look_at_all_that_waits() -> None:
    looks = 0

    class Watched(deque[Any]):
        def __iter__(self) -> Iterator[Any]:
            nonlocal looks
            looks += 1
            return super().__iter__()

    engine = opened(frame_bytes_max=512)
    put(engine, begin(0, window=10))
    links = crowd(engine, 30)
    put(engine, flow(0, 1, 0))
    session = links[0].session
    session.waiting = Watched()
    links[0].send(b"x" * 600_000, tag=b"t", settled=True)
    put(engine, b"".join(detach(0, handle) for handle in range(1, 30)))
    assert (looks, len(session.waiting)) == (0, 30)
    put(engine, detach(0, 0))
    assert (looks, len(session.waiting), session.waiting_bytes) == (1, 0, 0)


def test_answers_that_waited_for_the_window_count_no_more() -> None:
    engine = opened(frame_bytes_max=512)
    put(engine, begin(0, window=10))
    (link,) = crowd(engine, 1)
    put(engine, flow(0, 1, 1))
    link.send(b"x" * 2_000, tag=b"t", settled=True)
    put(engine, flow(0, 2, 0, handle=0, delivery_count=0, credit=5, echo=True))
    engine.take_output()
    assert engine.frames_behind == 1
    put(engine, flow(0, 2, 10))
    assert engine.frames_behind == 0


def test_echo_is_answered() -> None:
    engine = opened()
    put(engine, begin(0))
    (event,) = put(engine, attach(0, "in", 0, receiver=True))
    assert isinstance(event, Attached)
    event.link.accept()
    engine.take_output()
    put(engine, flow(0, 1, 10, echo=True))
    (answer,) = frames_in(engine.take_output())
    assert answer.fields[4] is None
    assert answer.fields[0] is not None
    put(engine, flow(0, 1, 10, handle=0, delivery_count=0, credit=3, echo=True))
    (answer,) = frames_in(engine.take_output())
    assert answer.fields[4:7] == [0, 0, 3]
    assert answer.fields[9] is False


# --- dispositions ---------------------------------------------------------------------------------------------------


def test_answers_to_neighbours_are_one_disposition() -> None:
    pair = Pair()
    link = pair.sender()
    for number in range(10):
        link.send(b"x", tag=bytes([number]), settled=False)
    pair.step()
    session = pair.server.sessions[0]
    error = state_rejected(AmqpError("amqp:not-allowed", "no"))
    pair.forget()
    for number in (0, 1, 2):
        session.settle(number, STATE_ACCEPTED)
    session.settle(3, error)
    session.settle(4, STATE_ACCEPTED)
    for number in (6, 7, 9, 8, 5):
        session.settle(number, STATE_ACCEPTED)
    pair.run()
    ranges = [tuple(frame.fields[:4]) for frame in named(pair.to_client, "disposition")]
    assert ranges == [
        (True, 0, 2, True),
        (True, 3, 3, True),
        (True, 4, 4, True),
        (True, 6, 7, True),
        (True, 9, 9, True),
        (True, 8, 8, True),
        (True, 5, 5, True),
    ]
    outcomes = {
        delivery_id: event.state for event in of(pair.client_events, Disposed) for delivery_id, _, _ in event.deliveries
    }
    assert len(outcomes) == 10
    assert outcomes[3] == Rejected(AmqpError("amqp:not-allowed", "no"))
    assert link.session.unsettled == {}
    assert link.unsettled_count == 0


def test_ranges_merge_across_the_wrap() -> None:
    pair = Pair()
    link = pair.sender()
    link.session.next_delivery_id = 0xFFFFFFFE
    for number in range(4):
        link.send(b"x", tag=bytes([number]), settled=False)
    pair.on_server = lambda event: (
        event.link.session.settle(event.delivery_id, STATE_ACCEPTED) if isinstance(event, Transfer) else None
    )
    pair.run()
    (disposition,) = named(pair.to_client, "disposition")
    assert disposition.fields[1:3] == [0xFFFFFFFE, 1]
    (disposed,) = of(pair.client_events, Disposed)
    assert [delivery_id for delivery_id, _, _ in disposed.deliveries] == [0xFFFFFFFE, 0xFFFFFFFF, 0, 1]


def test_the_answer_to_a_request_goes_before_the_response() -> None:
    pair = Pair()
    session = pair.session()
    out = session.attach_sender("out", target=Target("$cbs"))
    session.attach_receiver("in", source=Source("$cbs"), credit=10)
    pair.run()
    out.send(b"request", tag=b"t", settled=False)
    pair.forget()

    def respond(event: object) -> None:
        if isinstance(event, Transfer):
            event.link.session.settle(event.delivery_id, STATE_ACCEPTED)
            response = next(link for link in event.link.session.links.values() if link.sender)
            response.send(b"response", tag=b"r", settled=True)

    pair.on_server = respond
    pair.run()
    assert [frame.name for frame in pair.to_client] == ["disposition", "transfer"]


def settled_pair(count: int) -> tuple[Pair, list[Transfer]]:
    pair = Pair()
    pair.receiver(credit=100)
    link = pair.server_link("in")
    for number in range(count):
        link.send(b"x", tag=bytes([number]) * 16, settled=False)
    pair.run()
    transfers = of(pair.client_events, Transfer)
    assert len(transfers) == count
    return pair, transfers


def test_a_settlement_is_echoed_and_forgotten() -> None:
    pair, transfers = settled_pair(5)
    session = transfers[0].link.session
    server_session = pair.server.sessions[0]
    pair.forget()
    session.dispose(transfers[0].delivery_id, transfers[3].delivery_id, STATE_ACCEPTED, False)
    session.dispose(transfers[4].delivery_id, transfers[4].delivery_id, STATE_RELEASED, False)

    def echo(event: object) -> None:
        if isinstance(event, Disposed):
            for delivery_id, _, _ in event.deliveries:
                event.session.answer(delivery_id, STATE_ACCEPTED if event.state is ACCEPTED else STATE_RELEASED)

    pair.on_server = echo
    pair.run()
    first, second = of(pair.server_events, Disposed)
    assert [tag for _, _, tag in first.deliveries] == [bytes([n]) * 16 for n in range(4)]
    assert (first.state, first.settled) == (ACCEPTED, False)
    assert second.state is RELEASED
    one, two = of(pair.client_events, Outcome)
    assert (one.first, one.last, one.state, one.settled) == (70_000, 70_003, ACCEPTED, True)
    assert (two.first, two.last, two.state) == (70_004, 70_004, RELEASED)
    assert server_session.unsettled == server_session.disposing == {}
    answers = named(pair.to_client, "disposition")
    assert [frame.fields[0] for frame in answers] == [False, False]


def test_neighbouring_settlements_of_the_client_merge() -> None:
    pair, transfers = settled_pair(5)
    pair.forget()
    for transfer in transfers:
        transfer.link.session.dispose(transfer.delivery_id, transfer.delivery_id, STATE_ACCEPTED, False)
    pair.step()
    assert len(named(pair.to_server, "disposition")) == 1


def test_a_settled_disposition_is_final() -> None:
    pair, transfers = settled_pair(3)
    pair.forget()
    transfers[0].link.session.dispose(70_000, 70_002, STATE_RELEASED, True)
    pair.run()
    (disposed,) = of(pair.server_events, Disposed)
    assert disposed.settled
    assert len(disposed.deliveries) == 3
    assert pair.server.sessions[0].unsettled == {}
    assert pair.to_client == []


def test_the_same_word_twice_is_heard_once() -> None:
    pair, transfers = settled_pair(2)
    pair.forget()
    for _ in range(3):
        transfers[0].link.session.dispose(70_000, 70_001, STATE_ACCEPTED, False)
    pair.run()
    assert len(of(pair.server_events, Disposed)) == 1
    assert pair.to_client == []


def test_unknown_deliveries_are_answered_as_not_found() -> None:
    pair, transfers = settled_pair(5)
    session = pair.server.sessions[0]
    pair.forget()
    session.answer(70_001, STATE_ACCEPTED)
    session.answer(70_003, STATE_ACCEPTED)
    pair.run()
    pair.forget()
    transfers[0].link.session.dispose(0, 0x7FFFFFFF, STATE_ACCEPTED, False)
    pair.run()
    (disposed,) = of(pair.server_events, Disposed)
    assert [delivery_id for delivery_id, _, _ in disposed.deliveries] == [70_000, 70_002, 70_004]
    outcomes = of(pair.client_events, Outcome)
    assert [(event.first, event.last) for event in outcomes] == [(70_001, 70_001), (70_003, 70_003)]
    assert all(event.state.error.condition == "amqp:not-found" for event in outcomes)


def test_answers_about_unknown_deliveries_are_bounded() -> None:
    pair = Pair()
    pair.receiver(credit=1_000)
    link = pair.server_link("in")
    for number in range(400):
        link.send(b"x", tag=b"t", settled=number % 2 == 0)
    pair.run()
    pair.forget()
    next(iter(pair.client.sessions)).dispose(70_000, 70_399, STATE_ACCEPTED, False)
    pair.run()
    assert len(of(pair.server_events, Disposed)[0].deliveries) == 200
    assert len(named(pair.to_client, "disposition")) == 64


def test_deliveries_of_a_detached_link_are_forgotten() -> None:
    pair, transfers = settled_pair(3)
    other = transfers[0].link.session.attach_receiver("other", source=Source("q"), credit=5)
    pair.run()
    pair.server_link("other").send(b"x", tag=b"o", settled=False)
    pair.run()
    session = pair.server.sessions[0]
    assert len(session.unsettled) == 4
    transfers[0].link.detach()
    pair.run()
    assert [entry[1] for entry in session.unsettled.values()] == [b"o"]
    other.detach()
    pair.run()
    assert session.unsettled == {}


def test_a_link_that_comes_and_goes_beside_a_busy_one_is_swept_in_steps() -> None:
    pair, transfers = settled_pair(50)
    session = pair.server.sessions[0]
    for number in range(60):
        other = transfers[0].link.session.attach_receiver(f"other {number}", source=Source("q"), credit=5)
        pair.run()
        pair.server_link(f"other {number}").send(b"x", tag=b"o", settled=False)
        pair.run()
        other.detach()
        pair.run()
        assert len(session.unsettled) <= 101
    assert len([entry for entry in session.unsettled.values() if entry[0].attached]) == 50
    pair.forget()
    transfers[0].link.session.dispose(70_000, 70_109, STATE_ACCEPTED, False)
    pair.run()
    (disposed,) = of(pair.server_events, Disposed)
    assert len(disposed.deliveries) == 50
    (unknown,) = of(pair.client_events, Outcome)
    assert (unknown.first, unknown.last) == (70_050, 70_109)


# --- ending ---------------------------------------------------------------------------------------------------------


def test_end_takes_its_links_along() -> None:
    pair = Pair()
    link = pair.sender()
    pair.forget()
    link.session.end()
    link.session.end()
    pair.run()
    assert [type(event) for event in pair.server_events] == [Ended]
    assert [type(event) for event in pair.client_events] == [Ended]
    assert of(pair.server_events, Detached) == []
    assert not link.attached
    assert pair.server.link_count == 0
    assert pair.server.channels == pair.client.own_channels == {}


def test_frames_for_a_session_we_ended_are_dropped() -> None:
    pair = Pair()
    link = pair.sender()
    pair.server.sessions[0].end(AmqpError("amqp:internal-error"))
    link.send(b"x", tag=b"t", settled=False)
    pair.forget()
    pair.run()
    assert pair.server_events == []
    assert len(of(pair.client_events, Ended)) == 1


def test_handles_end_where_the_peer_says() -> None:
    pair = Pair(server={"handle_max": 1})
    session = pair.session()
    session.attach_sender("a", target=Target("q"))
    session.attach_sender("b", target=Target("q"))
    with pytest.raises(PeerLimitError):
        session.attach_sender("c", target=Target("q"))


def test_a_fresh_server_session_starts_away_from_the_clients_ids() -> None:
    engine = Connection(Role.SERVER, container_id="s")
    assert engine.sessions == []
    pair = Pair()
    pair.session()
    assert pair.server.sessions[0].next_delivery_id == FIRST_DELIVERY_ID
    assert pair.client.sessions[0].next_delivery_id == 0
