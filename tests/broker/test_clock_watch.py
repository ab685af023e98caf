"""The machine's clock is set: intervals keep their length, dates follow the new time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.links.test_transactions import control, declare, discharge
from tests.broker.peer import PATIENCE_S, Peer, body_of, decoded, text
from twinbus.amqp.events import Closed, Detached, Transfer
from twinbus.amqp.frames import EMPTY_FRAME
from twinbus.amqp.states import STATE_ACCEPTED, STATE_RELEASED, Accepted, Rejected
from twinbus.amqp.types import ARRAY_OF_UUID, Array, Symbol, Timestamp
from twinbus.auth.policies import Policy, Right
from twinbus.auth.sas import sign
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.connections.attachment import ticks
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.limits import IDLE_TIMEOUT_MS
from twinbus.testing import Broker

DAY_S = 86_400.0
LOCK_S = 30
WINDOW_S = 60
KEY = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
ENQUEUED = Symbol("x-opt-enqueued-time")
LOCKED_UNTIL = Symbol("x-opt-locked-until")
SCHEDULED = Symbol("x-opt-scheduled-enqueue-time")

# A day back, a day forward, small steps, and several, some of which cancel each other out.
JUMPS = [(-DAY_S,), (DAY_S,), (-2.0,), (2.0,), (DAY_S, -DAY_S, -3.0), (-DAY_S, -DAY_S, 0.5, 0.5)]
jumps = pytest.mark.parametrize("jumps", JUMPS, ids=str)


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def broker(clock: SteppedClock) -> Iterator[Broker]:
    queues = [
        QueueSettings(path="q", lock_duration_ms=LOCK_S * 1000),
        QueueSettings(path="s", lock_duration_ms=LOCK_S * 1000, requires_session=True),
        QueueSettings(path="ids", requires_duplicate_detection=True, duplicate_window_ms=WINDOW_S * 1000),
        QueueSettings(path="idle", auto_delete_on_idle_ms=300_000),
    ]
    with Broker(queues=queues, clock=clock, sync=False) as broker:
        yield broker


def step(broker: Broker, clock: SteppedClock, seconds: float) -> None:
    clock.step(seconds=seconds)
    broker.call(lambda server: server.step())


def jump(broker: Broker, clock: SteppedClock, seconds: tuple[float, ...]) -> None:
    """Set the clock several times, each time giving the broker a second to notice."""
    for each in seconds:
        clock.jump(seconds=each)
        step(broker, clock, 1)


def fill(peer: Peer, path: str, *bodies: str, **fields: Any) -> None:
    link = peer.sender(path)
    for body in bodies:
        assert isinstance(peer.send(link, text(body, **fields)), Accepted)


def active(broker: Broker, path: str) -> int:
    return broker.call(lambda server: server.hosts["contoso"].entities.queue(path).counts.active)


# --- intervals --------------------------------------------------------------------------------------------------------


@jumps
def test_message_locks_last_as_long_as_they_should(
    broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]
) -> None:
    with Peer(broker) as peer:
        fill(peer, "q", "kept", "lapses")
        receiver = peer.receiver("q", 2)
        kept, _ = peer.receive(receiver), peer.receive(receiver)
        jump(broker, clock, jumps)
        step(broker, clock, LOCK_S - len(jumps) - 1)
        assert isinstance(peer.settle(kept, STATE_ACCEPTED), Accepted)
        receiver.flow(1)
        assert peer.quiet(Transfer)
        step(broker, clock, 1)
        again = peer.receive(receiver)
        assert (body_of(again), decoded(again).delivery_count) == ("lapses", 1)


@jumps
def test_a_renewed_lock_ends_on_the_new_clock(broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]) -> None:
    with Peer(broker) as peer:
        fill(peer, "q", "a")
        delivery = peer.receive(peer.receiver("q", 1))
        jump(broker, clock, jumps)
        tokens = Array([uuid.UUID(bytes_le=delivery.tag)], ARRAY_OF_UUID)
        status, _, body = peer.call("q/$management", "com.microsoft:renew-lock", {"lock-tokens": tokens})
        assert (status, list(body["expirations"])) == (200, [clock.now_ms() + LOCK_S * 1000])
        step(broker, clock, LOCK_S - 1)
        assert isinstance(peer.settle(delivery, STATE_ACCEPTED), Accepted)


@jumps
def test_session_locks_last_as_long_as_they_should(
    broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]
) -> None:
    with Peer(broker) as peer:
        fill(peer, "s", "a", "b", group_id="one")
        link = peer.receiver("s", 1, session_filter="one")
        delivery = peer.receive(link)
        jump(broker, clock, jumps)
        step(broker, clock, LOCK_S - len(jumps) - 1)
        assert isinstance(peer.settle(delivery, STATE_ACCEPTED), Accepted)
        assert peer.quiet(Detached)
        step(broker, clock, 1)
        lost = peer.wait(Detached, lambda event: event.link is link)
        assert lost.error is not None
        assert lost.error.condition == "com.microsoft:session-lock-lost"
        again = peer.receiver("s", 1, session_filter="one")
        assert body_of(peer.receive(again)) == "b"
        assert (again.properties or {})["com.microsoft:locked-until-utc"] == ticks(clock.now_ms() + LOCK_S * 1000)


@jumps
def test_duplicates_are_known_for_their_window(broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]) -> None:
    with Peer(broker) as peer:
        fill(peer, "ids", "first", message_id="one")
        jump(broker, clock, jumps)
        step(broker, clock, WINDOW_S - len(jumps) - 1)
        fill(peer, "ids", "dropped", message_id="one")
        assert active(broker, "ids") == 1
        step(broker, clock, 1)
        fill(peer, "ids", "second", message_id="one")
        assert active(broker, "ids") == 2


@jumps
def test_heartbeats_go_on(broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]) -> None:
    with Peer(broker) as peer:
        jump(broker, clock, jumps)
        step(broker, clock, IDLE_TIMEOUT_MS / 2000)
        peer.socket.settimeout(PATIENCE_S)
        assert peer.socket.recv(100) == EMPTY_FRAME


@jumps
def test_a_silent_peer_is_cut_in_time(broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]) -> None:
    with Peer(broker) as peer:
        peer.sender("q")
        jump(broker, clock, jumps)
        step(broker, clock, 2 * IDLE_TIMEOUT_MS / 1000 - len(jumps))
        assert peer.quiet(Closed)
        assert not peer.lost
        step(broker, clock, 1)
        peer.quiet(Closed, PATIENCE_S)
        assert peer.lost


@jumps
def test_a_connection_without_a_token_is_closed_in_time(clock: SteppedClock, jumps: tuple[float, ...]) -> None:
    with Broker(["contoso"], dev=False, clock=clock, sync=False) as broker, Peer(broker) as peer:
        jump(broker, clock, jumps)
        step(broker, clock, 19 - len(jumps))
        assert peer.quiet(Closed)
        step(broker, clock, 1)
        assert peer.wait(Closed).error is not None


@jumps
def test_a_transaction_has_its_two_minutes(broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]) -> None:
    with Peer(broker) as peer:
        coordinator = control(peer)
        early, late = declare(peer, coordinator), declare(peer, coordinator)
        jump(broker, clock, jumps)
        clock.step(seconds=120 - len(jumps))
        assert isinstance(discharge(peer, coordinator, early), Accepted)
        clock.step(ms=1)
        assert isinstance(discharge(peer, coordinator, late), Rejected)


@jumps
def test_an_idle_queue_is_deleted_in_time(broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]) -> None:
    def exists() -> bool:
        return broker.call(lambda server: any(q.path == "idle" for q in server.hosts["contoso"].entities.queues()))

    with Peer(broker) as peer:
        fill(peer, "idle", "a")
    end = time.monotonic() + PATIENCE_S
    while broker.call(lambda server: server.hosts["contoso"].entities.queue("idle").links):
        assert time.monotonic() < end, "the link does not go away"
    jump(broker, clock, jumps)
    step(broker, clock, 299 - len(jumps))
    assert exists()
    step(broker, clock, 1)
    assert not exists()


@jumps
def test_an_idle_topic_is_deleted_in_time(broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]) -> None:
    def paths() -> list[str]:
        return broker.call(lambda server: [topic.path for topic in server.hosts["contoso"].entities.topics()])

    broker.create_topic("t", auto_delete_on_idle_ms=300_000)
    step(broker, clock, 100)
    broker.create_subscription("t", "s")
    jump(broker, clock, jumps)
    step(broker, clock, 299 - len(jumps))
    assert paths() == ["t"]
    step(broker, clock, 1)
    assert paths() == []


# --- dates ------------------------------------------------------------------------------------------------------------


def test_a_scheduled_message_is_due_when_the_clock_is_set_past_its_time(broker: Broker, clock: SteppedClock) -> None:
    with Peer(broker) as peer:
        receiver = peer.receiver("q", 1)
        at_ms = clock.now_ms() + 3_600_000
        fill(peer, "q", "later", message_annotations={SCHEDULED: Timestamp(at_ms)})
        assert peer.quiet(Transfer)
        clock.jump(seconds=3_599)
        assert peer.quiet(Transfer, 1.2), "it is noticed, and the message is not due yet"
        clock.jump(seconds=1)
        # Nobody tells the broker: it checks by itself.
        assert body_of(peer.receive(receiver)) == "later"


def test_a_message_scheduled_on_a_topic_is_due_when_the_clock_is_set_past_its_time(
    broker: Broker, clock: SteppedClock
) -> None:
    broker.create_topic("t")
    broker.create_subscription("t", "s")
    with Peer(broker) as peer:
        receiver = peer.receiver("t/Subscriptions/s", 1)
        fill(peer, "t", "later", message_annotations={SCHEDULED: Timestamp(clock.now_ms() + 3_600_000)})
        clock.jump(seconds=3_600)
        assert body_of(peer.receive(receiver)) == "later"


def test_a_scheduled_message_waits_when_the_clock_is_set_back(broker: Broker, clock: SteppedClock) -> None:
    with Peer(broker) as peer:
        receiver = peer.receiver("q", 1)
        fill(peer, "q", "later", message_annotations={SCHEDULED: Timestamp(clock.now_ms() + 60_000)})
        jump(broker, clock, (-30.0,))
        step(broker, clock, 88)
        assert peer.quiet(Transfer)
        step(broker, clock, 1)
        assert body_of(peer.receive(receiver)) == "later"


@jumps
def test_a_message_expires_at_its_date(broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]) -> None:
    with Peer(broker) as peer:
        fill(peer, "q", "mortal", ttl=10_000)
        jump(broker, clock, jumps)
        ages_s = [sum(jumps[: count + 1]) + count + 1 for count in range(len(jumps))]
        if max(ages_s) < 10:
            step(broker, clock, 9 - ages_s[-1])
            assert active(broker, "q") == 1
            step(broker, clock, 2)
        assert active(broker, "q") == 0


@jumps
def test_a_locked_message_that_comes_back_expires_once(
    broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]
) -> None:
    with Peer(broker) as peer:
        fill(peer, "q", "first", ttl=1_000)
        step(broker, clock, 3)
        jump(broker, clock, jumps)
        fill(peer, "q", "second", "third", ttl=1_000)
        peer.settle(peer.receive(peer.receiver("q", 1)), STATE_RELEASED)
        assert active(broker, "q") == 2
        step(broker, clock, 3)
        assert active(broker, "q") == 0
        assert broker.call(lambda server: server.hosts["contoso"].entities.queue("q").size_bytes) == 0


@jumps
def test_times_shown_are_of_the_new_clock(broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]) -> None:
    with Peer(broker) as peer:
        jump(broker, clock, jumps)
        fill(peer, "q", "a")
        shown = decoded(peer.receive(peer.receiver("q", 1))).message_annotations or {}
        assert shown[ENQUEUED] == clock.now_ms()
        assert shown[LOCKED_UNTIL] == clock.now_ms() + LOCK_S * 1000


def test_a_token_ends_at_its_date() -> None:
    clock = SteppedClock(int(time.time() * 1000))
    policies = [Policy("sender", frozenset({Right.SEND}), KEY)]
    config = NamespaceConfig("contoso", queues=[QueueSettings(path="q")], policies=policies)
    with Broker([config], dev=False, clock=clock, sync=False) as broker, Peer(broker) as peer:
        ends_s = clock.now_ms() // 1000 + 3_600
        assert peer.put_token("sb://localhost/q", sign("sb://localhost/q", "sender", KEY, ends_s)) == 202
        link = peer.sender("q")
        jump(broker, clock, (-DAY_S,))
        assert isinstance(peer.send(link, text()), Accepted)
        clock.jump(seconds=DAY_S + 3_700)
        # Nobody tells the broker: it checks by itself.
        detached = peer.wait(Detached, lambda event: event.link is link)
        assert detached.error is not None
        assert detached.error.description.startswith("ExpiredToken")


# --- restarts ---------------------------------------------------------------------------------------------------------


@jumps
def test_over_a_restart_ids_are_known_no_longer_than_their_window(
    broker: Broker, clock: SteppedClock, jumps: tuple[float, ...]
) -> None:
    with Peer(broker) as peer:
        fill(peer, "ids", "first", message_id="one")
    jump(broker, clock, jumps)
    broker.restart()
    if sum(jumps) < WINDOW_S / 2:
        with Peer(broker) as peer:
            fill(peer, "ids", "dropped", message_id="one")
        assert active(broker, "ids") == 1
    step(broker, clock, WINDOW_S)
    with Peer(broker) as peer:
        fill(peer, "ids", "second", message_id="one")
    assert active(broker, "ids") == 2


def test_what_is_due_by_date_is_due_after_a_restart(broker: Broker, clock: SteppedClock) -> None:
    with Peer(broker) as peer:
        fill(peer, "q", "later", message_annotations={SCHEDULED: Timestamp(clock.now_ms() + 3_600_000)})
    broker.stop()
    clock.jump(seconds=3_600)
    broker.start()
    with Peer(broker) as peer:
        assert body_of(peer.receive(peer.receiver("q", 1))) == "later"
