"""Transactions over several queues: all or nothing, on disk in one commit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.broker.commit_disk import Disk
from tests.broker.peer import Peer, body_of, decoded, text
from twinbus.amqp.events import Disposed, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import (
    STATE_ACCEPTED,
    Accepted,
    AmqpError,
    Declared,
    Rejected,
    State,
    TransactionalState,
    state_rejected,
    state_transactional,
)
from twinbus.amqp.terminus import Coordinator, Source, Target
from twinbus.amqp.types import ARRAY_OF_LONG, ARRAY_OF_UUID, Array, Described, Symbol, Timestamp, ULong
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.limits import TRANSACTION_MESSAGES_MAX
from twinbus.testing import Broker


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def broker(clock: SteppedClock) -> Iterator[Broker]:
    queues = ["a", "b", QueueSettings(path="off", status="SendDisabled"), QueueSettings(path="small", max_megabytes=1)]
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


def schedule_in(peer: Peer, txn_id: bytes, queue: str, message: AmqpMessage) -> AmqpMessage:
    """The answer to a schedule request inside a transaction."""
    return decoded(peer.receive(asked_to_schedule(peer, txn_id, queue, message)))


def asked_to_schedule(peer: Peer, txn_id: bytes, queue: str, message: AmqpMessage) -> Link:
    """The link on which the answer to a schedule request comes."""
    node, name = f"{queue}/$management", str(uuid.uuid4())
    receiver = peer.session.attach_receiver(name, source=Source(node), target=Target(name))
    peer._answered(receiver)
    receiver.flow(1)
    request = AmqpMessage()
    request.message_id, request.reply_to = str(uuid.uuid4()), name
    request.application_properties = {"operation": "com.microsoft:schedule-message"}
    request.value = {"messages": [{"message-id": str(message.message_id), "message": message.encode()}]}
    request.has_value = True
    assert isinstance(send_in(peer, peer.sender(node), txn_id, request), TransactionalState)
    return receiver


def test_a_scheduled_number_is_told_when_no_crash_can_give_it_to_another_message(
    broker: Broker, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    due = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(clock.now_ms() + 30_000)}
    with Peer(broker) as peer:
        txn_id = declare(peer, control(peer))
        disk.free.clear()
        receiver = asked_to_schedule(peer, txn_id, "a", text("later", message_annotations=due))
        assert peer.quiet(Transfer)
        disk.free.set()
        assert decoded(peer.receive(receiver)).value["sequence-numbers"] == [1]


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


def request_in(peer: Peer, txn_id: bytes, operation: str, body: dict[str, object]) -> int:
    """A management request inside a transaction; returns its status."""
    name = str(uuid.uuid4())
    replies = peer.session.attach_receiver(name, source=Source("a/$management"), target=Target(name))
    peer._answered(replies)
    replies.flow(1)
    request = AmqpMessage()
    request.message_id, request.reply_to = str(uuid.uuid4()), name
    request.application_properties = {"operation": f"com.microsoft:{operation}"}
    request.value, request.has_value = body, True
    assert isinstance(send_in(peer, peer.sender("a/$management"), txn_id, request), TransactionalState)
    return int((decoded(peer.receive(replies)).application_properties or {})["statusCode"])


@pytest.mark.parametrize("fail", [False, True])
def test_settlement_by_request_is_part_of_it(broker: Broker, fail: bool) -> None:
    with Peer(broker) as peer:
        peer.send(peer.sender("a"), text("in"))
        token = uuid.UUID(bytes_le=peer.receive(peer.receiver("a", 1)).tag)
        coordinator = control(peer)
        txn_id = declare(peer, coordinator)
        settle = {"disposition-status": "completed", "lock-tokens": Array([token], ARRAY_OF_UUID)}
        assert request_in(peer, txn_id, "update-disposition", settle) == 200
        assert counts(broker) == (1, 0)
        assert request_in(peer, txn_id, "peek-message", {"message-count": 1}) == 501
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
