"""Receiving: locks, settlements, credit, and what happens to locks when a peer leaves."""

from __future__ import annotations

import dataclasses
import socket
import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.peer import Peer, body_of, decoded, text
from twinbus.amqp.events import Transfer
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import (
    STATE_ACCEPTED,
    STATE_RELEASED,
    Accepted,
    AmqpError,
    Modified,
    Rejected,
    Released,
    state_modified,
    state_rejected,
)
from twinbus.amqp.types import ARRAY_OF_LONG, ARRAY_OF_UUID, Array, Int, Symbol, UInt
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker


@pytest.fixture(scope="module")
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture(scope="module")
def broker(clock: SteppedClock) -> Iterator[Broker]:
    with Broker(clock=clock) as broker:
        yield broker


@pytest.fixture
def queue(broker: Broker) -> str:
    return broker.create_queue(f"q-{uuid.uuid4().hex[:8]}", lock_duration_ms=30_000, max_delivery_count=3).path


def step(broker: Broker, clock: SteppedClock, seconds: float) -> None:
    clock.step(seconds=seconds)
    broker.call(lambda server: server.step())


def counts(broker: Broker, path: str) -> Any:
    return broker.call(lambda server: server.hosts["contoso"].entities.queue(path).counts)


def fill(peer: Peer, path: str, *bodies: str, **fields: Any) -> None:
    link = peer.sender(path)
    for body in bodies:
        assert isinstance(peer.send(link, text(body, **fields)), Accepted)


def test_lock_token_is_the_tag(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "a")
        delivery = peer.receive(peer.receiver(queue, 1))
        assert not delivery.settled
        assert len(delivery.tag) == 16
        message = decoded(delivery)
        assert (message.delivery_annotations or {})["x-opt-lock-token"] == uuid.UUID(bytes_le=delivery.tag)


def test_each_outcome_is_echoed(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "complete", "abandon", "defer", "dead-letter", "release")
        receiver = peer.receiver(queue, 5)
        found = {body_of(delivery): delivery for delivery in [peer.receive(receiver) for _ in range(5)]}
        assert isinstance(peer.settle(found["complete"], STATE_ACCEPTED), Accepted)
        assert isinstance(peer.settle(found["release"], STATE_RELEASED), Released)
        assert isinstance(peer.settle(found["abandon"], state_modified(True, False)), Modified)
        assert isinstance(peer.settle(found["defer"], state_modified(None, True)), Modified)
        reason = AmqpError(
            "com.microsoft:dead-letter",
            "",
            {Symbol("DeadLetterReason"): "bad", Symbol("DeadLetterErrorDescription"): "very", Symbol("extra"): Int(7)},
        )
        echo = peer.settle(found["dead-letter"], state_rejected(reason))
        assert isinstance(echo, Rejected)
        assert echo.error is None
        assert counts(broker, queue) == (2, 0, 1, 1)

        dead = decoded(peer.receive(peer.receiver(f"{queue}/$DeadLetterQueue", 1)))
        assert dead.application_properties == {
            "DeadLetterReason": "bad",
            "DeadLetterErrorDescription": "very",
            "extra": 7,
        }
        receiver.flow(2)
        again = {body_of(delivery): decoded(delivery) for delivery in [peer.receive(receiver) for _ in range(2)]}
        assert again["abandon"].delivery_count == 1
        assert again["release"].delivery_count == 0


def test_returned_message_comes_first(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "1", "2", "3")
        receiver = peer.receiver(queue, 1)
        peer.settle(peer.receive(receiver), state_modified(True, False))
        receiver.flow(3)
        assert [body_of(peer.receive(receiver)) for _ in range(3)] == ["1", "2", "3"]


def test_too_many_deliveries_dead_letter(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "poison")
        receiver = peer.receiver(queue)
        for count in range(3):
            receiver.flow(1)
            delivery = peer.receive(receiver)
            assert decoded(delivery).delivery_count == count
            peer.settle(delivery, state_modified(True, False))
        dead = decoded(peer.receive(peer.receiver(f"{queue}/$DeadLetterQueue", 1)))
        assert (dead.application_properties or {})["DeadLetterReason"] == "MaxDeliveryCountExceeded"


def test_lapsed_lock_cannot_be_settled_and_comes_again(broker: Broker, clock: SteppedClock, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "a")
        receiver = peer.receiver(queue, 2)
        delivery = peer.receive(receiver)
        step(broker, clock, 31)
        again = peer.receive(receiver)
        assert decoded(again).delivery_count == 1
        outcome = peer.settle(delivery)
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == "com.microsoft:message-lock-lost"
        assert isinstance(peer.settle(again), Accepted)
        assert counts(broker, queue).active == 0


def test_renewed_lock_lasts(broker: Broker, clock: SteppedClock, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "a")
        delivery = peer.receive(peer.receiver(queue, 1))
        step(broker, clock, 20)
        token = uuid.UUID(bytes_le=delivery.tag)
        status, _, body = peer.call(
            f"{queue}/$management", "com.microsoft:renew-lock", {"lock-tokens": Array([token], ARRAY_OF_UUID)}
        )
        assert status == 200
        assert list(body["expirations"]) == [clock.now_ms() + 30_000]
        step(broker, clock, 20)
        assert isinstance(peer.settle(delivery), Accepted)


def test_receive_and_delete(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "a", "b", "c")
        receiver = peer.receiver(queue, 2, settled=True)
        deliveries = [peer.receive(receiver) for _ in range(2)]
        assert [body_of(delivery) for delivery in deliveries] == ["a", "b"]
        assert all(delivery.settled for delivery in deliveries)
        assert counts(broker, queue).active == 1
        assert peer.quiet(Transfer)


def test_drain_gives_credit_back(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "a")
        receiver = peer.receiver(queue)
        receiver.flow(10, drain=True)
        assert body_of(peer.receive(receiver)) == "a"
        while receiver.credit:
            assert peer.read(5)
        receiver.flow(5, drain=True)
        while receiver.credit:
            assert peer.read(5)


def test_receivers_are_served_in_the_order_of_their_credit(broker: Broker, queue: str) -> None:
    with Peer(broker) as first, Peer(broker) as second:
        one = first.receiver(queue, 1)
        assert first.quiet(Transfer)
        two = second.receiver(queue, 1)
        assert second.quiet(Transfer)
        fill(second, queue, "1", "2")
        assert body_of(first.receive(one)) == "1"
        assert body_of(second.receive(two)) == "2"


def test_broken_connection_drops_its_locks_at_once(broker: Broker, queue: str) -> None:
    with Peer(broker) as keeper:
        fill(keeper, queue, "a")
        gone = Peer(broker)
        gone.receive(gone.receiver(queue, 1))
        receiver = keeper.receiver(queue, 1)
        # A reset, as after a crashed process.
        gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.socket.close()
        assert decoded(keeper.receive(receiver)).delivery_count == 1


@pytest.mark.parametrize("how", ["detach", "end", "close"])
def test_orderly_leave_keeps_locks_until_they_lapse(broker: Broker, clock: SteppedClock, queue: str, how: str) -> None:
    with Peer(broker) as keeper:
        fill(keeper, queue, "a", "b")
        leaver = Peer(broker)
        receiver = leaver.receiver(queue, 2)
        deliveries = [leaver.receive(receiver) for _ in range(2)]
        if how == "detach":
            receiver.detach()
        elif how == "end":
            receiver.session.end()
        else:
            leaver.engine.close()
        leaver.flush()
        leaver.read(1)
        leaver.socket.close()
        other = keeper.receiver(queue, 2)
        assert keeper.quiet(Transfer)
        # A valid token can be settled from any connection.
        status, _, _ = keeper.call(
            f"{queue}/$management",
            "com.microsoft:update-disposition",
            {
                "disposition-status": "completed",
                "lock-tokens": Array([uuid.UUID(bytes_le=deliveries[0].tag)], ARRAY_OF_UUID),
            },
        )
        assert status == 200
        step(broker, clock, 31)
        assert body_of(keeper.receive(other)) == "b"
        assert counts(broker, queue).active == 1


@pytest.mark.parametrize("omit", [False, True])
def test_peek_leaves_out_the_body_when_asked(broker: Broker, queue: str, omit: bool) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "long", subject="s", application_properties={"n": 1}, footer={Symbol("f"): 1})
        request = {"from-sequence-number": 0, "message-count": 5, "omit-message-body": omit}
        status, _, body = peer.call(f"{queue}/$management", "com.microsoft:peek-message", request)
        assert status == 200
        peeked = AmqpMessage.decode(body["messages"][0]["message"])
        assert (peeked.subject, peeked.application_properties) == ("s", {"n": 1})
        assert (peeked.data or []) == ([] if omit else [b"long"])
        # The section's bytes: descriptor, constructor and length before the four of the body.
        assert peeked.delivery_annotations == ({"omitted-message-body-size": 9} if omit else {})
        assert (peeked.message_annotations or {})["x-opt-sequence-number"] == 1


def test_dead_letter_queues_do_not_count_deliveries(broker: Broker, clock: SteppedClock, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "dead")
        reason = AmqpError("com.microsoft:dead-letter", "", {})
        peer.settle(peer.receive(peer.receiver(queue, 1)), state_rejected(reason))
        receiver = peer.receiver(f"{queue}/$DeadLetterQueue", 1)
        peer.settle(peer.receive(receiver), state_modified(True, False))
        receiver.flow(1)
        delivery = peer.receive(receiver)
        assert decoded(delivery).delivery_count == 0
        step(broker, clock, 61)
        receiver.flow(1)
        assert decoded(peer.receive(receiver)).delivery_count == 0


def test_deferred_message_is_received_by_number_only(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, "aside")
        receiver = peer.receiver(queue, 1)
        delivery = peer.receive(receiver)
        seq = (decoded(delivery).message_annotations or {})["x-opt-sequence-number"]
        peer.settle(delivery, state_modified(None, True))
        receiver.flow(1)
        assert peer.quiet(Transfer)
        node = f"{queue}/$management"
        status, _, body = peer.call(node, "com.microsoft:peek-message", {"from-sequence-number": 0, "message-count": 5})
        assert status == 200
        assert len(body["messages"]) == 1
        request = {"sequence-numbers": Array([seq], ARRAY_OF_LONG), "receiver-settle-mode": UInt(1)}
        status, _, body = peer.call(node, "com.microsoft:receive-by-sequence-number", request)
        assert status == 200
        token = body["messages"][0]["lock-token"]
        # Deferring it counted as a delivery.
        assert AmqpMessage.decode(body["messages"][0]["message"]).delivery_count == 1
        assert peer.call(node, "com.microsoft:receive-by-sequence-number", request)[:2] == (
            404,
            "com.microsoft:message-not-found",
        )
        settle = {"disposition-status": "completed", "lock-tokens": Array([token], ARRAY_OF_UUID)}
        assert peer.call(node, "com.microsoft:update-disposition", settle)[0] == 200
        assert peer.call(node, "com.microsoft:update-disposition", settle)[:2] == (
            410,
            "com.microsoft:message-lock-lost",
        )
        assert counts(broker, queue) == (0, 0, 0, 0)


def test_expired_message_goes_where_the_queue_says(broker: Broker, clock: SteppedClock) -> None:
    keep = broker.create_queue(f"q-{uuid.uuid4().hex[:8]}", dead_letter_on_expiry=True, default_ttl_ms=10_000).path
    drop = broker.create_queue(f"q-{uuid.uuid4().hex[:8]}", default_ttl_ms=10_000).path
    with Peer(broker) as peer:
        for path in (keep, drop):
            fill(peer, path, "old")
        step(broker, clock, 12)
        assert counts(broker, drop) == (0, 0, 0, 0)
        dead = decoded(peer.receive(peer.receiver(f"{keep}/$DeadLetterQueue", 1)))
        assert (dead.application_properties or {})["DeadLetterReason"] == "TTLExpiredException"


def test_deep_queue_with_small_windows(broker: Broker, queue: str) -> None:
    with Peer(broker) as peer:
        link = peer.sender(queue)
        for number in range(1200):
            link.send(text(str(number)).encode(), tag=str(number).encode(), settled=False)
        peer.flush()
        receiver = peer.receiver(queue, 1200)
        assert [int(body_of(peer.receive(receiver))) for _ in range(1200)] == list(range(1200))


def test_batch_delete(broker: Broker, clock: SteppedClock, queue: str) -> None:
    with Peer(broker) as peer:
        fill(peer, queue, *"abcde")
        step(broker, clock, 1)
        node = f"{queue}/$management"
        status, _, body = peer.call(node, "com.microsoft:batch-delete-messages", {"message-count": Int(3)})
        assert (status, body) == (200, {"message-count": 3})
        assert counts(broker, queue).active == 2
        assert peer.call(node, "com.microsoft:batch-delete-messages", {"message-count": Int(10)})[2] == {
            "message-count": 2
        }
        assert peer.call(node, "com.microsoft:batch-delete-messages", {"message-count": Int(10)})[0] == 204
        assert peer.call(node, "com.microsoft:batch-delete-messages", {"message-count": Int(501)})[0] == 400


def test_messages_survive_a_restart(clock: SteppedClock) -> None:
    settings = [
        QueueSettings(path="q"),
        QueueSettings(path="s", requires_session=True),
        QueueSettings(path="once", requires_duplicate_detection=True),
    ]
    with Broker(queues=settings, clock=clock) as broker:
        with Peer(broker) as peer:
            fill(peer, "q", "locked", "waiting")
            fill(peer, "s", "in session", group_id="one")
            fill(peer, "once", "first", message_id="same")
            peer.receive(peer.receiver("q", 1))
            peer.settle(peer.receive(peer.receiver("once", 1)))
            peer.receiver("s", session_filter="one")
            status, _, _ = peer.call(
                "s/$management", "com.microsoft:set-session-state", {"session-id": "one", "session-state": b"kept"}
            )
            assert status == 200
        broker.restart()
        with Peer(broker) as peer:
            receiver = peer.receiver("q", 2)
            assert [body_of(peer.receive(receiver)) for _ in range(2)] == ["locked", "waiting"]
            assert body_of(peer.receive(peer.receiver("s", 1, session_filter=None))) == "in session"
            state = peer.call("s/$management", "com.microsoft:get-session-state", {"session-id": "one"})
            assert state[2] == {"session-state": b"kept"}
            fill(peer, "once", "second", message_id="same")
            peer.receiver("once", 1)
            assert peer.quiet(Transfer)


@pytest.mark.parametrize("drain", [False, True])
def test_a_receiver_of_a_disabled_queue_waits_until_it_is_enabled(
    broker: Broker, queue: str, drain: bool, caplog: pytest.LogCaptureFixture
) -> None:

    def set_status(status: str) -> None:
        def work(server: Any) -> None:
            host = server.hosts["contoso"]
            host.update_queue(dataclasses.replace(host.entities.queue(queue).settings, status=status))

        broker.call(work)

    with Peer(broker) as peer:
        link = peer.receiver(queue, credit=0 if drain else 5)
        sender = peer.sender(queue)
        set_status("ReceiveDisabled")
        assert isinstance(peer.send(sender, text("later")), Accepted)
        if drain:
            link.flow(5, drain=True)
        assert peer.quiet(Transfer)
        assert not peer.lost
        set_status("Active")
        if drain:
            link.flow(5)
        assert body_of(peer.receive(link)) == "later"
    assert "Exception in callback" not in caplog.text
