"""Sessions over the wire: by id, next available, lock, state, order."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest

from tests.broker.peer import Peer, body_of, decoded, text
from twinbus.amqp.events import Attached, Detached, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.states import Accepted, Rejected, state_modified
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Described, Int, Symbol, Timestamp, UInt, ULong
from twinbus.broker.connections.attachment import ticks
from twinbus.clock import SteppedClock
from twinbus.testing import Broker

FILTER = Symbol("com.microsoft:session-filter")
ANY_TIME = Timestamp(253_402_300_800_000)


@pytest.fixture(scope="module")
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture(scope="module")
def broker(clock: SteppedClock) -> Iterator[Broker]:
    with Broker(clock=clock, queues=["plain"]) as broker:
        yield broker


@pytest.fixture
def queue(broker: Broker) -> str:
    return broker.create_queue(f"s-{uuid.uuid4().hex[:8]}", lock_duration_ms=30_000, requires_session=True).path


def step(broker: Broker, clock: SteppedClock, seconds: float) -> None:
    clock.step(seconds=seconds)
    broker.call(lambda server: server.step())


def fill(peer: Peer, path: str, session_id: str, *bodies: str) -> None:
    link = peer.sender(path)
    for body in bodies:
        assert isinstance(peer.send(link, text(body, group_id=session_id)), Accepted)


def held(link: Link) -> str:
    assert link.source is not None
    return str((link.source.filter or {})[FILTER])


def test_by_id_answers_with_the_lock_in_ticks(broker: Broker, clock: SteppedClock, queue: str) -> None:
    with Peer(broker) as peer:
        link = peer.receiver(queue, session_filter="one")
        assert held(link) == "one"
        assert link.source is not None
        assert link.source.address == queue
        assert (link.properties or {})["com.microsoft:locked-until-utc"] == ticks(clock.now_ms() + 30_000)


def test_described_filter_is_answered_in_kind(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "go", "x")
        link = peer.receiver(queue, session_filter=Described(ULong(0x137000000C), None))
        assert link.source is not None
        assert (link.source.filter or {})[FILTER] == Described(ULong(0x137000000C), "go")


def test_empty_id_is_a_session_wherever_a_message_goes(broker: Broker, queue: str) -> None:
    topic = broker.create_topic(f"t-{uuid.uuid4().hex[:8]}").path
    broker.create_subscription(topic, "s", requires_session=True)
    through = broker.create_queue(f"f-{uuid.uuid4().hex[:8]}", forward_to=queue).path
    with Peer(broker) as peer:
        fill(peer, topic, "", "copy")
        assert body_of(peer.receive(peer.receiver(f"{topic}/Subscriptions/s", 1, session_filter=""))) == "copy"
        fill(peer, through, "", "forwarded")
        assert body_of(peer.receive(peer.receiver(queue, 1, session_filter=""))) == "forwarded"


def test_an_empty_state_clears_it(broker: Broker, queue: str) -> None:
    node = f"{queue}/$management"
    with Peer(broker) as peer:
        peer.receiver(queue, session_filter="one")
        for state in (b"something", b""):
            peer.call(node, "com.microsoft:set-session-state", {"session-id": "one", "session-state": state})
        assert peer.call(node, "com.microsoft:get-session-state", {"session-id": "one"})[2] == {"session-state": None}
        assert peer.call(node, "com.microsoft:get-message-sessions", {"last-updated-time": ANY_TIME})[0] == 204


def test_empty_id_is_a_session(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "", "x")
        assert held(peer.receiver(queue, session_filter=None)) == ""


def test_empty_id_goes_with_any_partition_key(broker: Broker, queue: str) -> None:
    keyed = {"message_annotations": {Symbol("x-opt-partition-key"): "my-session"}}
    with Peer(broker) as peer:
        for path in (queue, "plain"):
            assert isinstance(peer.send(peer.sender(path), text("x", group_id="", **keyed)), Accepted)
            refused = peer.send(peer.sender(path), text("y", group_id="other", **keyed))
            assert isinstance(refused, Rejected)
        assert body_of(peer.receive(peer.receiver(queue, 1, session_filter=""))) == "x"
        assert body_of(peer.receive(peer.receiver("plain", 1))) == "x"


def test_order_inside_a_session_and_only_there(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "a", "a1", "a2", "a3")
        fill(peer, queue, "b", "b1")
        link = peer.receiver(queue, 10, session_filter="a")
        deliveries = [peer.receive(link) for _ in range(3)]
        assert [body_of(delivery) for delivery in deliveries] == ["a1", "a2", "a3"]
        peer.settle(deliveries[0], state_modified(True, False))
        assert body_of(peer.receive(link)) == "a1"
        assert peer.quiet(Transfer)


def test_held_session_is_refused_at_once(broker: Broker, queue: str) -> None:
    with Peer(broker) as one, Peer(broker) as two:
        link = one.receiver(queue, session_filter="mine")
        error = two.refusal(lambda: two.receiver(queue, session_filter="mine"))
        assert error.condition == "com.microsoft:session-cannot-be-locked"
        link.detach()
        one.flush()
        one.wait(Detached)
        assert held(two.receiver(queue, session_filter="mine")) == "mine"


def test_next_available_waits_for_messages(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer, Peer(broker) as sender:
        link = peer.session.attach_receiver(
            "waiting", source=Source(queue, {FILTER: None}), target=Target("peer"), rcv_settle_mode=1
        )
        assert peer.quiet(Attached)
        fill(sender, queue, "late", "x")
        peer.wait(Attached)
        assert held(link) == "late"
        link.flow(1)
        assert body_of(peer.receive(link)) == "x"


def test_next_available_gives_up_in_time(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        properties = {Symbol("com.microsoft:timeout"): UInt(100)}
        error = peer.refusal(lambda: peer.receiver(queue, session_filter=None, properties=properties))
        assert error.condition == "com.microsoft:timeout"
        # After giving up, it takes no session from others.
        fill(peer, queue, "left", "x")
        assert held(peer.receiver(queue, session_filter=None)) == "left"


def test_waiter_that_left_gets_nothing(broker: Broker, queue: str) -> None:
    with Peer(broker) as keeper:
        waiter = Peer(broker)
        waiter.session.attach_receiver("waiting", source=Source(queue, {FILTER: None}), target=Target("p"))
        waiter.flush()
        waiter.quiet(Attached, 0.05)
        waiter.socket.close()
        fill(keeper, queue, "left", "x")
        assert held(keeper.receiver(queue, session_filter=None)) == "left"


def test_lapsed_session_lock_detaches_and_frees(broker: Broker, clock: SteppedClock, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "one", "x")
        link = peer.receiver(queue, 1, session_filter="one")
        peer.receive(link)
        step(broker, clock, 31)
        detached = peer.wait(Detached)
        assert detached.error is not None
        assert detached.error.condition == "com.microsoft:session-lock-lost"
        again = peer.receiver(queue, 1, session_filter="one")
        assert decoded(peer.receive(again)).delivery_count == 1


def test_renewed_session_lasts(broker: Broker, clock: SteppedClock, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "one", "x")
        link = peer.receiver(queue, 1, session_filter="one")
        delivery = peer.receive(link)
        step(broker, clock, 20)
        node = f"{queue}/$management"
        status, _, body = peer.call(node, "com.microsoft:renew-session-lock", {"session-id": "one"})
        assert (status, body) == (200, {"expiration": clock.now_ms() + 30_000})
        step(broker, clock, 20)
        assert isinstance(peer.settle(delivery), Accepted)
        assert peer.call(node, "com.microsoft:renew-session-lock", {"session-id": "other"})[:2] == (
            410,
            "com.microsoft:session-lock-lost",
        )


def test_settlement_after_the_session_lock_lapsed_fails(broker: Broker, clock: SteppedClock, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "one", "x")
        delivery = peer.receive(peer.receiver(queue, 1, session_filter="one"))
        clock.step(seconds=31)  # the broker's timer has not run yet: the clock alone decides
        outcome = peer.settle(delivery)
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == "com.microsoft:session-lock-lost"


def test_state_needs_the_lock(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        node = f"{queue}/$management"
        set_state = {"session-id": "one", "session-state": b"s"}
        assert peer.call(node, "com.microsoft:set-session-state", set_state)[0] == 410
        peer.receiver(queue, session_filter="one")
        assert peer.call(node, "com.microsoft:get-session-state", {"session-id": "one"})[2] == {"session-state": None}
        assert peer.call(node, "com.microsoft:set-session-state", set_state)[0] == 200
        assert peer.call(node, "com.microsoft:get-session-state", {"session-id": "one"})[2] == {"session-state": b"s"}
        too_large = {"session-id": "one", "session-state": b"s" * (256 * 1024 + 1)}
        assert peer.call(node, "com.microsoft:set-session-state", too_large)[0] in (400, 403)


def test_listing(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        node = f"{queue}/$management"
        request = {"last-updated-time": ANY_TIME, "skip": Int(0), "top": Int(2)}
        assert peer.call(node, "com.microsoft:get-message-sessions", request)[0] == 204
        for name in ("a", "b", "c"):
            fill(peer, queue, name, "x")
        status, _, body = peer.call(node, "com.microsoft:get-message-sessions", request)
        assert (status, list(body["sessions-ids"]), body["skip"]) == (200, ["a", "b"], 2)
        request["skip"] = Int(2)
        assert list(peer.call(node, "com.microsoft:get-message-sessions", request)[2]["sessions-ids"]) == ["c"]


def test_peek_in_a_session(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "a", "a1", "a2")
        fill(peer, queue, "b", "b1")
        peer.receiver(queue, session_filter="a")
        request = {"from-sequence-number": 0, "message-count": Int(10), "session-id": "a"}
        _, _, body = peer.call(f"{queue}/$management", "com.microsoft:peek-message", request)
        assert len(body["messages"]) == 2


def test_misuse_is_refused_with_the_service_texts(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        error = peer.refusal(lambda: peer.receiver(queue))
        assert error.condition == "amqp:not-allowed"
        assert "non-sessionful message receiver" in error.description
        error = peer.refusal(lambda: peer.receiver("plain", session_filter="x"))
        assert error.condition == "amqp:not-allowed"
        assert "does not require sessions" in error.description
        assert (
            peer.refusal(lambda: peer.receiver(queue, session_filter=Int(5))).condition
            == "com.microsoft:argument-error"
        )
        peer.receiver(f"{queue}/$DeadLetterQueue")  # a dead-letter queue has no sessions


def test_many_waiters_share_the_sessions(broker: Broker, queue: str) -> None:
    """Each session goes to one waiter, in any order."""
    got: list[str] = []

    def wait_for_one() -> None:
        with Peer(broker) as peer:
            got.append(held(peer.receiver(queue, session_filter=None)))
            done.wait(10)

    done = threading.Event()
    threads = [threading.Thread(target=wait_for_one) for _ in range(5)]
    for thread in threads:
        thread.start()
    with Peer(broker) as peer:
        for number in range(5):
            fill(peer, queue, f"s{number}", "x")
        while len(got) < 5 and any(thread.is_alive() for thread in threads):
            peer.read(0.01)
    done.set()
    for thread in threads:
        thread.join()
    assert sorted(got) == [f"s{number}" for number in range(5)]
