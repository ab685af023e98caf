"""Transactions over several queues: all or nothing, on disk in one commit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.broker.commit_disk import Disk
from tests.broker.peer import Peer, body_of, decoded, text
from twinbus.amqp.events import Disposed, Outcome, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import (
    ACCEPTED,
    STATE_ACCEPTED,
    STATE_RELEASED,
    Accepted,
    AmqpError,
    Declared,
    Rejected,
    State,
    TransactionalState,
    state_modified,
    state_rejected,
    state_transactional,
)
from twinbus.amqp.terminus import Coordinator, Source, Target
from twinbus.amqp.types import ARRAY_OF_LONG, ARRAY_OF_UUID, Array, Described, Symbol, Timestamp, ULong
from twinbus.broker.server import Server
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.limits import TRANSACTION_MESSAGES_MAX
from twinbus.testing import Broker


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def broker(clock: SteppedClock) -> Iterator[Broker]:
    queues = [
        "a",
        "b",
        QueueSettings(path="s", requires_session=True),
        QueueSettings(path="off", status="SendDisabled"),
        QueueSettings(path="small", max_megabytes=1),
    ]
    with Broker(queues=queues, clock=clock) as broker:
        yield broker


def counts(broker: Broker) -> tuple[int, int]:
    return broker.call(
        lambda server: (
            server.hosts["contoso"].entities.queue("a").counts.active,
            server.hosts["contoso"].entities.queue("b").counts.active,
        )
    )


def control(peer: Peer) -> Link:
    link = peer.session.attach_sender(str(uuid.uuid4()), source=None, target=Coordinator([]))
    peer._answered(link)
    return link


def command(peer: Peer, link: Link, code: int, fields: list[object]) -> State | None:
    message = AmqpMessage()
    message.value, message.has_value = Described(ULong(code), fields), True
    return peer.send(link, message)


def declare(peer: Peer, link: Link) -> bytes:
    state = command(peer, link, 0x31, [None])
    assert isinstance(state, Declared)
    return state.txn_id


def discharge(peer: Peer, link: Link, txn_id: bytes, fail: bool = False) -> State | None:
    return command(peer, link, 0x32, [txn_id, fail])


def send_in(peer: Peer, link: Link, txn_id: bytes, message: AmqpMessage) -> State | None:
    delivery_id = link.send(
        message.encode(), tag=uuid.uuid4().bytes, settled=False, state=state_transactional(txn_id, None)
    )
    return peer.wait(Disposed, lambda event: any(each[0] == delivery_id for each in event.deliveries)).state


def test_commit_over_two_queues(broker: Broker) -> None:
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        delivery = peer.receive(peer.receiver("a", 1))
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        answer = send_in(peer, peer.sender("b"), txn_id, text("out"))
        assert isinstance(answer, TransactionalState)
        assert isinstance(answer.outcome, Accepted)
        receiver = peer.receiver("b", 5)
        assert peer.quiet(Transfer)
        echo = peer.settle(delivery, state_transactional(txn_id, STATE_ACCEPTED))
        assert isinstance(echo, TransactionalState)
        assert counts(broker) == (1, 0)
        assert isinstance(discharge(peer, coordinator, txn_id), Accepted)
        assert counts(broker) == (0, 1)
        assert body_of(peer.receive(receiver)) == "out"
    broker.restart()
    assert counts(broker) == (0, 1)


def test_rollback_does_nothing(broker: Broker) -> None:
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        delivery = peer.receive(peer.receiver("a", 1))
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        send_in(peer, peer.sender("b"), txn_id, text("out"))
        peer.settle(delivery, state_transactional(txn_id, STATE_ACCEPTED))
        assert isinstance(discharge(peer, coordinator, txn_id, fail=True), Accepted)
        assert counts(broker) == (1, 0)


def asked_in(peer: Peer, txn_id: bytes, queue: str, operation: str, body: dict[str, object]) -> Link:
    """The link on which the answer to a management request inside a transaction comes."""
    node, name = f"{queue}/$management", str(uuid.uuid4())
    receiver = peer.session.attach_receiver(name, source=Source(node), target=Target(name))
    peer._answered(receiver)
    receiver.flow(1)
    request = AmqpMessage()
    request.message_id, request.reply_to = str(uuid.uuid4()), name
    request.application_properties = {"operation": f"com.microsoft:{operation}"}
    request.value = body
    request.has_value = True
    assert isinstance(send_in(peer, peer.sender(node), txn_id, request), TransactionalState)
    return receiver


def ask_in(peer: Peer, txn_id: bytes, queue: str, operation: str, body: dict[str, object]) -> AmqpMessage:
    return decoded(peer.receive(asked_in(peer, txn_id, queue, operation, body)))


def scheduling(message: AmqpMessage) -> dict[str, object]:
    return {"messages": [{"message-id": str(message.message_id), "message": message.encode()}]}


def test_a_scheduled_number_is_told_when_no_crash_can_give_it_to_another_message(
    broker: Broker, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    due = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(clock.now_ms() + 30_000)}
    with Peer(broker) as peer:
        txn_id = declare(peer, control(peer))
        disk.free.clear()
        asked = scheduling(text("later", message_annotations=due))
        receiver = asked_in(peer, txn_id, "a", "schedule-message", asked)
        assert peer.quiet(Transfer)
        disk.free.set()
        assert decoded(peer.receive(receiver)).value["sequence-numbers"] == [1]


def status_in(peer: Peer, txn_id: bytes, queue: str, operation: str, body: dict[str, object]) -> int:
    return int((ask_in(peer, txn_id, queue, operation, body).application_properties or {})["statusCode"])


def schedule_in(peer: Peer, txn_id: bytes, queue: str, message: AmqpMessage) -> AmqpMessage:
    return ask_in(peer, txn_id, queue, "schedule-message", scheduling(message))


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_scheduling_is_part_of_a_transaction(broker: Broker, clock: SteppedClock, fail: bool, late: bool) -> None:
    due = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(clock.now_ms() + 30_000)}
    with Peer(broker) as peer:
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        answer = schedule_in(peer, txn_id, "a", text("later", message_annotations=due))
        assert (answer.application_properties or {})["statusCode"] == 200
        (number,) = answer.value["sequence-numbers"]
        send_in(peer, peer.sender("a"), txn_id, text("now"))
        # Meanwhile another message gets the next number.
        peer.send(peer.sender("a"), text("outside"))
        assert scheduled(broker) == []
        if late:
            clock.step(seconds=31)
        assert isinstance(discharge(peer, coordinator, txn_id, fail=fail), Accepted)
        assert scheduled(broker) == ([] if fail or late else [number])
        if fail:
            return
        if not late:
            cancel = {"sequence-numbers": Array([number], ARRAY_OF_LONG)}
            assert peer.call("a/$management", "com.microsoft:cancel-scheduled-message", cancel)[0] == 200
        receiver = peer.receiver("a", 5)
        wanted = ["outside", "now", "later"] if late else ["outside", "now"]
        assert sorted(body_of(peer.receive(receiver)) for _ in wanted) == sorted(wanted)


def scheduled(broker: Broker) -> list[int]:
    return broker.call(lambda server: sorted(server.hosts["contoso"].entities.queue("a").messages.schedule.messages))


@pytest.mark.parametrize("fail", [False, True])
def test_cancelling_is_part_of_a_transaction(broker: Broker, clock: SteppedClock, fail: bool) -> None:
    due = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(clock.now_ms() + 30_000)}
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("later", message_annotations=due))
        (number,) = scheduled(broker)
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        body: dict[str, object] = {"sequence-numbers": Array([number], ARRAY_OF_LONG)}
        assert status_in(peer, txn_id, "a", "cancel-scheduled-message", body) == 200
        assert status_in(peer, txn_id, "a", "cancel-scheduled-message", body) == 404
        assert scheduled(broker) == [number]
        assert isinstance(discharge(peer, coordinator, txn_id, fail=fail), Accepted)
        assert scheduled(broker) == ([number] if fail else [])
    broker.restart()
    assert scheduled(broker) == ([number] if fail else [])


def test_a_schedule_that_came_due_rolls_its_cancellation_back(broker: Broker, clock: SteppedClock) -> None:
    due = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(clock.now_ms() + 30_000)}
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("later", message_annotations=due))
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        body: dict[str, object] = {"sequence-numbers": Array(scheduled(broker), ARRAY_OF_LONG)}
        assert status_in(peer, txn_id, "a", "cancel-scheduled-message", body) == 200
        send_in(peer, peer.sender("b"), txn_id, text("instead"))
        clock.step(seconds=31)
        assert body_of(peer.receive(peer.receiver("a", 1))) == "later"
        answer = discharge(peer, coordinator, txn_id)
        assert isinstance(answer, Rejected)
        assert counts(broker) == (1, 0)


def session_state(broker: Broker) -> bytes | None:
    def state(server: Server) -> bytes | None:
        sessions = server.hosts["contoso"].entities.queue("s").sessions
        session = None if sessions is None else sessions.by_id.get("one")
        return None if session is None else session.state

    return broker.call(state)


@pytest.mark.parametrize("fail", [False, True])
def test_a_session_state_is_part_of_a_transaction(broker: Broker, fail: bool) -> None:
    with Peer(broker) as peer:
        peer.send(peer.sender("s"), text("step", group_id="one"))
        delivery = peer.receive(peer.receiver("s", 1, session_filter="one"))
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        for state in (b"1", b"2"):
            body: dict[str, object] = {"session-id": "one", "session-state": state}
            assert status_in(peer, txn_id, "s", "set-session-state", body) == 200
        peer.settle(delivery, state_transactional(txn_id, STATE_ACCEPTED))
        assert session_state(broker) is None
        assert isinstance(discharge(peer, coordinator, txn_id, fail=fail), Accepted)
        assert session_state(broker) == (None if fail else b"2")
    broker.restart()
    assert session_state(broker) == (None if fail else b"2")


def test_a_session_lost_before_the_commit_keeps_its_state(broker: Broker, clock: SteppedClock) -> None:
    with Peer(broker) as peer:
        peer.receiver("s", session_filter="one")
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        body: dict[str, object] = {"session-id": "one", "session-state": b"1"}
        assert status_in(peer, txn_id, "s", "set-session-state", body) == 200
        clock.step(seconds=61)
        assert isinstance(discharge(peer, coordinator, txn_id), Rejected)
        assert session_state(broker) is None


def test_requests_that_only_read_or_renew_may_come_in_a_transaction(broker: Broker) -> None:
    # The .NET client puts every request inside a TransactionScope into the transaction.
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        peer.send(peer.sender("a"), text("aside"))
        receiver = peer.receiver("a", 2)
        delivery, aside = peer.receive(receiver), peer.receive(receiver)
        peer.settle(aside, state_modified(None, True, None))
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        token = uuid.UUID(bytes_le=delivery.tag)
        numbers = Array([2], ARRAY_OF_LONG)
        asked: list[tuple[str, dict[str, object], int]] = [
            ("peek-message", {"from-sequence-number": 0, "message-count": 1}, 200),
            ("renew-lock", {"lock-tokens": Array([token], ARRAY_OF_UUID)}, 200),
            ("receive-by-sequence-number", {"sequence-numbers": numbers, "receiver-settle-mode": 1}, 200),
            ("receive-by-sequence-number", {"sequence-numbers": numbers, "receiver-settle-mode": 0}, 501),
            ("batch-delete-messages", {"message-count": 1}, 501),
        ]
        for operation, body, wanted in asked:
            assert status_in(peer, txn_id, "a", operation, body) == wanted, operation


def test_dead_lettering_in_a_transaction_is_echoed_without_the_error(broker: Broker) -> None:
    # The .NET client takes a rejection with an error for a failure.
    reason = {"DeadLetterReason": "why"}
    outcome = state_rejected(AmqpError("com.microsoft:dead-letter", "", reason))
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        delivery = peer.receive(peer.receiver("a", 1))
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        echo = peer.settle(delivery, state_transactional(txn_id, outcome))
        assert echo == TransactionalState(txn_id, Rejected(None))
        assert isinstance(discharge(peer, coordinator, txn_id), Accepted)
        letter = decoded(peer.receive(peer.receiver("a/$DeadLetterQueue", 1)))
        assert (letter.application_properties or {})["DeadLetterReason"] == "why"


def test_rollback_frees_a_message_that_its_receiver_settled(broker: Broker) -> None:
    # JMS settles inside its transaction and forgets the delivery: only the broker can give it back.
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        receiver = peer.receiver("a", 1)
        delivery = peer.receive(receiver)
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        state = state_transactional(txn_id, STATE_ACCEPTED)
        delivery.link.session.dispose(delivery.delivery_id, delivery.delivery_id, state, True)
        assert isinstance(discharge(peer, coordinator, txn_id, fail=True), Accepted)
        receiver.flow(1)
        again = decoded(peer.receive(receiver))
        assert again.delivery_count == 1


def test_only_links_of_one_session_may_use_several_entities(broker: Broker) -> None:
    # The service does the same: clients that enable transactions across entities have one session for everything.
    broker.create_topic("t")
    broker.create_subscription("t", "all")
    with Peer(broker) as peer:
        coordinator = control(peer)
        inside = peer.sender("b")
        peer.session = peer.begin()
        peer.send(peer.sender("t"), text("copied"))
        copy = peer.receive(peer.receiver("t/Subscriptions/all", 1))
        outside, topic = peer.sender("a"), peer.sender("t")
        body: dict[str, object] = {"message-count": 1}
        txn_id = declare(peer, coordinator)
        # Any entity from inside, and one from outside: a topic and its subscriptions are one.
        assert isinstance(send_in(peer, inside, txn_id, text("in")), TransactionalState)
        assert isinstance(send_in(peer, topic, txn_id, text("again")), TransactionalState)
        peer.settle(copy, state_transactional(txn_id, STATE_ACCEPTED))
        refused = send_in(peer, outside, txn_id, text("out"))
        assert isinstance(refused, Rejected)
        assert refused.error is not None
        assert refused.error.condition == "amqp:not-allowed"
        assert refused.error.description.startswith("Local transactions cannot span multiple top-level entities")
        settle: dict[str, object] = {"sequence-numbers": Array([1], ARRAY_OF_LONG)}
        assert status_in(peer, txn_id, "a", "cancel-scheduled-message", settle) == 400
        assert status_in(peer, txn_id, "a", "peek-message", body) in (200, 204)
        assert isinstance(discharge(peer, coordinator, txn_id), Accepted)
        assert counts(broker) == (0, 1)


def test_rollback_leaves_an_unsettled_delivery_to_its_receiver(broker: Broker) -> None:
    # As the specification says: the delivery is still acquired, and the receiver decides again.
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        receiver = peer.receiver("a", 1)
        delivery = peer.receive(receiver)
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        number = delivery.delivery_id
        delivery.link.session.dispose(number, number, state_transactional(txn_id, STATE_ACCEPTED), False)
        answer = peer.wait(Outcome, lambda event: event.first == number)
        assert (answer.settled, answer.state) == (False, TransactionalState(txn_id, ACCEPTED))
        assert isinstance(discharge(peer, coordinator, txn_id, fail=True), Accepted)
        receiver.flow(1)
        assert peer.quiet(Transfer)
        delivery.link.session.dispose(number, number, STATE_RELEASED, True)
        again = peer.receive(receiver)
        assert body_of(again) == "in"
        # And again, this time to complete it in a transaction that commits.
        txn_id, number = declare(peer, coordinator), again.delivery_id
        delivery.link.session.dispose(number, number, state_transactional(txn_id, STATE_ACCEPTED), False)
        assert not peer.wait(Outcome, lambda event: event.first == number).settled
        assert isinstance(discharge(peer, coordinator, txn_id), Accepted)
        last = peer.wait(Outcome, lambda event: event.first == number)
        assert (last.settled, last.state) == (True, ACCEPTED)
        assert counts(broker) == (0, 0)
        assert not peer.session.unsettled


def test_a_receipt_for_the_answer_does_not_give_the_message_away(broker: Broker) -> None:
    # The Java client settles the delivery when the answer has come, still inside the transaction.
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        receiver = peer.receiver("a", 1)
        delivery = peer.receive(receiver)
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        state, number = state_transactional(txn_id, STATE_ACCEPTED), delivery.delivery_id
        for settled in (False, True):
            delivery.link.session.dispose(number, number, state, settled)
        assert isinstance(discharge(peer, coordinator, txn_id, fail=True), Accepted)
        receiver.flow(1)
        assert peer.quiet(Transfer)
        settle = {
            "disposition-status": "completed",
            "lock-tokens": Array([uuid.UUID(bytes_le=delivery.tag)], ARRAY_OF_UUID),
        }
        assert peer.call("a/$management", "com.microsoft:update-disposition", settle)[0] == 200


def test_a_receiver_that_vanishes_in_a_transaction_frees_its_messages(broker: Broker) -> None:
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        delivery = peer.receive(peer.receiver("a", 1))
        txn_id = declare(peer, control(peer))
        assert peer.settle(delivery, state_transactional(txn_id, STATE_ACCEPTED)) is not None
        peer.socket.close()
        with Peer(broker) as other:
            assert body_of(other.receive(other.receiver("a", 1))) == "in"


def test_a_control_link_that_goes_frees_what_was_settled(broker: Broker) -> None:
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        receiver = peer.receiver("a", 1)
        delivery = peer.receive(receiver)
        coordinator = control(peer)
        state = state_transactional(declare(peer, coordinator), STATE_ACCEPTED)
        delivery.link.session.dispose(delivery.delivery_id, delivery.delivery_id, state, True)
        coordinator.detach()
        receiver.flow(1)
        assert body_of(peer.receive(receiver)) == "in"


def test_lost_lock_rolls_everything_back(broker: Broker, clock: SteppedClock) -> None:
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        delivery = peer.receive(peer.receiver("a", 1))
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        send_in(peer, peer.sender("b"), txn_id, text("out"))
        peer.settle(delivery, state_transactional(txn_id, STATE_ACCEPTED))
        clock.step(seconds=61)
        outcome = discharge(peer, coordinator, txn_id)
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == "amqp:transaction:rollback"
        assert counts(broker) == (1, 0)


def test_late_discharge_rolls_back(broker: Broker, clock: SteppedClock) -> None:
    with Peer(broker) as peer:
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        send_in(peer, peer.sender("b"), txn_id, text("out"))
        clock.step(seconds=121)
        assert isinstance(discharge(peer, coordinator, txn_id), Rejected)
        assert counts(broker) == (0, 0)


def test_lost_control_link_rolls_back(broker: Broker) -> None:
    with Peer(broker) as peer:
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        sender = peer.sender("b")
        send_in(peer, sender, txn_id, text("out"))
        coordinator.detach()
        answer = send_in(peer, sender, txn_id, text("late"))
        assert isinstance(answer, Rejected)
        assert answer.error is not None
        assert answer.error.condition == "amqp:transaction:unknown-id"
        assert counts(broker) == (0, 0)


def test_refused_work_is_refused_at_once(broker: Broker) -> None:
    with Peer(broker) as peer:
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        assert isinstance(send_in(peer, peer.sender("off"), txn_id, text()), Rejected)
        small = peer.sender("small")
        outcomes = [send_in(peer, small, txn_id, text("x" * 250_000)) for _ in range(5)]
        # Each one fits, all together do not.
        assert isinstance(outcomes[0], TransactionalState)
        assert isinstance(outcomes[-1], Rejected)


def test_bounds_and_mistakes(broker: Broker) -> None:
    with Peer(broker) as peer:
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        sender = peer.sender("b")
        for _ in range(TRANSACTION_MESSAGES_MAX):
            assert isinstance(send_in(peer, sender, txn_id, text()), TransactionalState)
        assert isinstance(send_in(peer, sender, txn_id, text()), Rejected)
        assert isinstance(discharge(peer, coordinator, txn_id), Accepted)
        assert counts(broker) == (0, TRANSACTION_MESSAGES_MAX)
        assert isinstance(discharge(peer, coordinator, txn_id), Rejected)
        assert isinstance(discharge(peer, coordinator, b"unknown"), Rejected)
        assert isinstance(command(peer, coordinator, 0x77, []), Rejected)
        assert isinstance(peer.send(coordinator, b"rubbish"), Rejected)
        assert isinstance(peer.send(coordinator, text()), Rejected)


def test_dead_letter_of_a_dead_letter_does_not_half_commit(broker: Broker) -> None:
    with Peer(broker) as peer:
        for body in ("one", "two"):
            peer.send(peer.sender("a"), text(body))
        receiver = peer.receiver("a", 2)
        first, second = peer.receive(receiver), peer.receive(receiver)
        peer.settle(second, state_rejected(AmqpError("com.microsoft:dead-letter", "", None)))
        dead = peer.receive(peer.receiver("a/$DeadLetterQueue", 1))
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        assert isinstance(peer.settle(first, state_transactional(txn_id, STATE_ACCEPTED)), TransactionalState)
        refused = peer.settle(dead, state_transactional(txn_id, state_rejected(None)))
        assert isinstance(refused, Rejected)
        assert counts(broker) == (1, 0)
        assert isinstance(discharge(peer, coordinator, txn_id), Accepted)
        assert counts(broker) == (0, 0)


@pytest.mark.parametrize("fail", [False, True])
def test_settlement_by_request_is_part_of_it(broker: Broker, fail: bool) -> None:
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        token = uuid.UUID(bytes_le=peer.receive(peer.receiver("a", 1)).tag)
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        settle: dict[str, object] = {"disposition-status": "completed", "lock-tokens": Array([token], ARRAY_OF_UUID)}
        assert status_in(peer, txn_id, "a", "update-disposition", settle) == 200
        assert counts(broker) == (1, 0)
        assert isinstance(discharge(peer, coordinator, txn_id, fail=fail), Accepted)
        assert counts(broker) == ((1, 0) if fail else (0, 0))


def test_send_via_another_entity(broker: Broker) -> None:
    with Peer(broker) as peer:
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        via = {Symbol("com.microsoft:transfer-destination-address"): "b"}
        answer = send_in(peer, peer.sender("a", properties=via), txn_id, text("out"))
        assert isinstance(answer, TransactionalState)
        assert isinstance(discharge(peer, coordinator, txn_id), Accepted)
        assert counts(broker) == (0, 1)
        missing = {Symbol("com.microsoft:transfer-destination-address"): "missing"}
        assert peer.refusal(lambda: peer.sender("a", properties=missing)).condition == "amqp:not-found"
