"""Attach, send, credit, drain, detach."""

from __future__ import annotations

import pytest

from twinbus.amqp import (
    ACCEPTED,
    STATE_ACCEPTED,
    AmqpError,
    Attached,
    Closed,
    Coordinator,
    Credit,
    Detached,
    Drained,
    Link,
    Source,
    Symbol,
    Target,
    TransactionalState,
    Transfer,
    state_transactional,
)
from twinbus.errors import LinkDetachedError
from twinbus.limits import LINK_OBJECT_BYTES, UNSETTLED_DELIVERIES_MAX

from .pair import Pair, accept_all, named, of
from .raw import attach, begin, detach, opened, put


def test_what_the_client_asks_reaches_the_server() -> None:
    pair = Pair()
    session = pair.session()
    link = session.attach_receiver(
        "in",
        source=Source("amqps://h/q", {Symbol("com.microsoft:session-filter"): None}),
        target=Target("me"),
        properties={"com.microsoft:timeout": 5},
        snd_settle_mode=0,
        rcv_settle_mode=1,
        max_message_size=1 << 20,
    )
    pair.run()
    asked = pair.server_link("in")
    assert asked.sender
    assert not link.sender
    assert asked.source is not None
    assert asked.source.address == "amqps://h/q"
    assert asked.source.filter == {"com.microsoft:session-filter": None}
    assert isinstance(asked.target, Target)
    assert asked.target.address == "me"
    assert asked.properties == {"com.microsoft:timeout": 5}
    assert (asked.snd_settle_mode, asked.rcv_settle_mode, asked.max_message_size) == (0, 1, 1 << 20)


def test_an_accepted_link_echoes_both_ends() -> None:
    pair = Pair()
    link = pair.sender()
    asked, answered = named(pair.to_server, "attach")[0], named(pair.to_client, "attach")[0]
    assert answered.fields[0] == "out"
    assert answered.fields[2] is not asked.fields[2]
    assert answered.fields[5:7] == asked.fields[5:7]
    assert link.attached
    assert link.max_message_size == 262_144


def test_an_accepted_link_may_change_its_source() -> None:
    session_filter = Symbol("com.microsoft:session-filter")

    def accept(link: Link) -> None:
        assert link.source is not None
        link.accept(source=link.source.with_filter({session_filter: "one"}), properties={"com.microsoft:x": 1})

    pair = Pair(accept=accept)
    link = pair.client.begin().attach_receiver("in", source=Source("q", {session_filter: None}))
    pair.run()
    assert link.source is not None
    assert link.source.address == "q"
    assert link.source.filter == {session_filter: "one"}
    assert link.properties == {"com.microsoft:x": 1}


def test_a_refused_link_has_no_ends_and_one_detach() -> None:
    error = AmqpError("amqp:not-found", "no such queue")
    pair = Pair(accept=lambda link: link.refuse(error))
    link = pair.sender()
    attach = named(pair.to_client, "attach")[0]
    assert attach.fields[5] is None
    assert attach.fields[6] is None
    assert of(pair.client_events, Attached) == []
    (detached,) = of(pair.client_events, Detached)
    assert detached.link is link
    assert detached.closed
    assert detached.error == error
    assert len(named(pair.to_client, "detach")) == len(named(pair.to_server, "detach")) == 1
    assert of(pair.server_events, Detached) == []


def test_a_link_may_be_answered_later() -> None:
    held: list[Link] = []
    pair = Pair(accept=held.append)
    link = pair.sender()
    assert not link.attached
    assert not held[0].attached
    held[0].accept(credit=10)
    pair.run()
    assert link.attached
    assert link.credit == 10


def test_the_peer_leaves_before_its_attach_is_answered() -> None:
    held: list[Link] = []
    pair = Pair(accept=held.append)
    link = pair.sender()
    link.detach()
    pair.run()
    assert [frame.name for frame in pair.to_client][-2:] == ["attach", "detach"]
    assert len(of(pair.server_events, Detached)) == 1
    pair.forget()
    held[0].accept(credit=10)
    held[0].refuse(AmqpError("a:b"))
    held[0].detach()
    pair.run()
    assert pair.to_client == []


def test_one_detach_when_the_client_leaves() -> None:
    pair = Pair()
    link = pair.sender()
    pair.forget()
    link.detach()
    link.detach()
    pair.run()
    assert len(named(pair.to_server, "detach")) == len(named(pair.to_client, "detach")) == 1
    (detached,) = of(pair.server_events, Detached)
    assert detached.closed
    detached.link.detach()
    assert pair.server.take_output() == b""


def test_one_detach_when_both_leave_at_once() -> None:
    pair = Pair()
    link = pair.sender()
    pair.forget()
    link.detach()
    server_link = next(iter(pair.server.sessions[0].links.values()))
    server_link.detach(AmqpError("amqp:link:detach-forced"))
    pair.run()
    assert len(named(pair.to_server, "detach")) == len(named(pair.to_client, "detach")) == 1
    assert of(pair.server_events, Detached) == []
    assert pair.server.link_count == pair.client.link_count == 0


def test_a_handle_can_be_used_again() -> None:
    pair = Pair()
    session = pair.session()
    for _ in range(3):
        link = session.attach_sender("out", target=Target("q"))
        pair.run()
        assert link.handle == 0
        link.detach()
        pair.run()
    assert pair.server.link_count == 0
    assert len(of(pair.server_events, Attached)) == 3


def test_a_detached_link_cannot_send() -> None:
    pair = Pair()
    link = pair.sender()
    pair.server_link("out").detach(AmqpError("amqp:link:detach-forced", "idle"))
    pair.run()
    assert link.sendable() == 0
    with pytest.raises(LinkDetachedError):
        link.send(b"x", tag=b"t", settled=True)


def test_transfers_to_a_link_we_left_are_dropped() -> None:
    pair = Pair()
    link = pair.sender()
    pair.server_link("out").detach()
    link.send(b"x", tag=b"t", settled=False)
    pair.forget()
    pair.run()
    assert of(pair.server_events, Transfer) == []


def test_a_coordinator_can_be_a_target() -> None:
    seen: list[Link] = []
    pair = Pair(accept=seen.append)
    pair.client.begin().attach_sender("txn", target=Coordinator())
    pair.run()
    assert isinstance(seen[0].target, Coordinator)


# --- sending --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 300, 65_000, 65_536, 200_000])
@pytest.mark.parametrize("settled", [False, True])
def test_a_message_arrives_whole(size: int, settled: bool) -> None:
    pair = Pair()
    link = pair.sender()
    payload = bytes(number & 0xFF for number in range(size))
    link.send(payload, tag=b"\x00\x00\x00\x07", settled=settled, message_format=0x80013700)
    pair.run()
    (transfer,) = of(pair.server_events, Transfer)
    assert transfer.payload == payload
    assert transfer.size == size
    assert transfer.settled is settled
    assert transfer.tag == b"\x00\x00\x00\x07"
    assert transfer.message_format == 0x80013700
    assert transfer.state is None


def test_formats_and_tags_may_change_from_message_to_message() -> None:
    pair = Pair()
    link = pair.sender()
    wanted = [(b"", 0), (b"a", 0), (b"b" * 16, 0x80013700), (b"c" * 32, 1), (b"d", 0)]
    for tag, form in wanted:
        link.send(b"x", tag=tag, settled=True, message_format=form)
    pair.run()
    assert [(event.tag, event.message_format) for event in of(pair.server_events, Transfer)] == wanted
    with pytest.raises(ValueError, match="32"):
        link.send(b"x", tag=b"e" * 33, settled=True)
    assert link.session.unsettled == {}


def test_a_state_travels_with_a_transfer() -> None:
    pair = Pair()
    link = pair.sender()
    link.send(b"x" * 70_000, tag=b"t", settled=False, state=state_transactional(b"txn", STATE_ACCEPTED))
    pair.run()
    (transfer,) = of(pair.server_events, Transfer)
    assert transfer.state == TransactionalState(b"txn", ACCEPTED)


def test_frames_are_cut_to_what_the_peer_takes() -> None:
    pair = Pair(client={"frame_bytes_max": 512})
    pair.receiver(credit=10)
    server_link = pair.server_link("in")
    pair.forget()
    server_link.send(b"x" * 5_000, tag=b"t" * 16, settled=False)
    pair.run()
    transfers = named(pair.to_client, "transfer")
    assert len(transfers) > 10
    assert all(len(frame.raw) <= 512 for frame in transfers)
    assert [frame.fields[5] for frame in transfers] == [True] * (len(transfers) - 1) + [False]
    (event,) = of(pair.client_events, Transfer)
    assert event.payload == b"x" * 5_000


def test_a_payload_that_just_fits_takes_one_frame() -> None:
    for extra, count in ((0, 1), (1, 2)):
        pair = Pair(client={"frame_bytes_max": 512})
        pair.receiver(credit=10)
        server_link = pair.server_link("in")
        server_link.send(b"", tag=b"t" * 16, settled=True)
        overhead = pair.server.output_bytes
        pair.run()
        pair.forget()
        server_link.send(b"x" * (512 - overhead + extra), tag=b"t" * 16, settled=True)
        pair.run()
        assert len(named(pair.to_client, "transfer")) == count


# --- credit ---------------------------------------------------------------------------------------------------------


def test_credit_is_counted_down_and_topped_up_at_half() -> None:
    pair = Pair(accept=lambda link: link.accept(credit=10))
    link = pair.sender()
    assert link.credit == 10
    pair.forget()
    for number in range(4):
        link.send(b"x", tag=bytes([number]), settled=True)
    pair.run()
    assert link.credit == 6
    assert named(pair.to_client, "flow") == []
    link.send(b"x", tag=b"t", settled=True)
    pair.run()
    (flow,) = named(pair.to_client, "flow")
    assert flow.fields[5:7] == [5, 10]
    assert link.credit == 10


def test_many_transfers_cause_one_flow() -> None:
    pair = Pair(accept=lambda link: link.accept(credit=10))
    link = pair.sender()
    pair.forget()
    for number in range(10):
        link.send(b"x", tag=bytes([number]), settled=True)
    pair.run()
    assert len(named(pair.to_client, "flow")) == 1
    assert link.credit == 10


def test_credit_is_not_enforced() -> None:
    pair = Pair(accept=lambda link: link.accept(credit=2))
    link = pair.sender()
    for number in range(20):
        link.send(b"x", tag=bytes([number]), settled=True)
    pair.run()
    assert len(of(pair.server_events, Transfer)) == 20


def test_each_flow_replaces_the_grant_before_it() -> None:
    pair = Pair()
    link = pair.receiver()
    server_link = pair.server_link("in")
    link.flow(5)
    pair.run()
    assert server_link.sendable() == server_link.credit == 5
    server_link.send(b"x", tag=b"t" * 16, settled=True)
    # The receiver has not seen that delivery yet, so its grant still includes it.
    link.flow(5)
    pair.server.receive(pair.client.take_output())
    assert server_link.credit == 4
    pair.run()
    link.flow(2)
    pair.run()
    assert server_link.credit == 2
    assert len(of(pair.server_events, Credit)) >= 2


def test_unlimited_credit_is_understood() -> None:
    pair = Pair()
    link = pair.receiver()
    link.flow(0xFFFFFFFF)
    pair.run()
    server_link = pair.server_link("in")
    assert server_link.credit == 0xFFFFFFFF
    assert server_link.sendable() == server_link.session.remote_window


def test_drain_is_answered_with_what_is_left() -> None:
    pair = Pair()
    link = pair.receiver()
    server_link = pair.server_link("in")
    link.flow(5)
    pair.run()
    server_link.send(b"x", tag=b"t" * 16, settled=True)
    link.flow(5, drain=True)
    pair.forget()

    def drain(event: object) -> None:
        if isinstance(event, Credit) and event.link.drain:
            event.link.drained()

    pair.on_server = drain
    pair.run()
    assert [frame.name for frame in pair.to_client] == ["transfer", "flow"]
    flow = pair.to_client[1].fields
    assert flow[5] == 5
    assert flow[6] == 0
    assert flow[8] is True
    assert len(of(pair.client_events, Drained)) == 1
    assert link.credit == 0
    assert link.delivery_count == server_link.delivery_count == 5


def test_drain_without_credit_is_answered_too() -> None:
    pair = Pair()
    link = pair.receiver()
    pair.on_server = lambda event: event.link.drained() if isinstance(event, Credit) and event.link.drain else None
    link.flow(0, drain=True)
    pair.forget()
    pair.run()
    (flow,) = named(pair.to_client, "flow")
    assert flow.fields[6] == 0
    assert flow.fields[8] is True
    assert len(of(pair.client_events, Drained)) == 1


def test_drained_and_flow_mind_their_direction() -> None:
    pair = Pair()
    out = pair.sender()
    pair.forget()
    out.flow(5)
    next(iter(pair.server.sessions[0].links.values())).drained()
    assert pair.client.take_output() == b""
    assert pair.server.take_output() == b""


def test_unsettled_deliveries_are_bounded() -> None:
    pair = Pair()
    link = pair.receiver()
    link.flow(0xFFFFFFFF)
    pair.run()
    server_link = pair.server_link("in")
    session = server_link.session
    session.remote_window = 1_000_000
    session.unsettled = dict.fromkeys(range(-UNSETTLED_DELIVERIES_MAX + 2, 0), (server_link, b""))
    assert server_link.sendable() == 2
    server_link.send(b"x", tag=b"t", settled=False)
    server_link.send(b"x", tag=b"t", settled=False)
    assert server_link.sendable() == 0
    session.answer(70_000, STATE_ACCEPTED)
    assert server_link.sendable() == 1


def test_links_accepted_twice_are_answered_once() -> None:
    def twice(link: Link) -> None:
        accept_all(link)
        accept_all(link)
        link.refuse(AmqpError("a:b"))

    pair = Pair(accept=twice)
    assert pair.sender().attached
    assert len(named(pair.to_client, "attach")) == 1


class Tally:
    """A byte budget."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0

    def take(self, count: int) -> bool:
        if self.held_bytes + count > self.bytes_max:
            return False
        self.held_bytes += count
        return True

    def give(self, count: int) -> None:
        self.held_bytes -= count


def test_a_large_attach_is_refused() -> None:
    engine = opened()
    put(engine, begin(0))
    assert isinstance(put(engine, attach(0, "n" * 10_000, 0, receiver=True))[0], Attached)
    (event,) = put(engine, attach(0, "n" * 17_000, 1, receiver=True))
    assert isinstance(event, Closed)
    assert event.error is not None
    assert event.error.condition == "amqp:resource-limit-exceeded"


def test_the_bytes_of_attaches_are_counted_and_bounded() -> None:
    engine = opened()
    objects = 8 * LINK_OBJECT_BYTES
    engine.link_account = Tally(objects + 4_500)
    put(engine, begin(0) + begin(1))
    for handle in range(3):
        put(engine, attach(0, "n" * 1_000, handle, receiver=True) + attach(1, str(handle), handle, receiver=True))
    held = engine.link_account.held_bytes
    assert objects + 3_000 < held < objects + 4_500
    put(engine, detach(0, 0))
    assert engine.link_account.held_bytes < held - 1_000 - LINK_OBJECT_BYTES
    put(engine, attach(0, "again", 0, receiver=True))
    (event,) = put(engine, attach(0, "n" * 2_000, 4, receiver=True))
    assert isinstance(event, Closed)
    engine.lost()
    assert engine.link_account.held_bytes == 0
    assert engine.link_count == 0
