"""Transactions: sends and settlements on several entities that happen together or not at all.

Work is checked when it arrives and done when the transaction is discharged: everything is checked again, then
everything goes into one commit. A message settled in a transaction stays locked until then, and its delivery stays
unsettled, so that its receiver can settle it again after a rollback. If the receiver has forgotten the delivery, the
message is returned when the transaction fails. A transaction belongs to its control link:
when that link detaches, the transaction is rolled back.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from twinbus.amqp.events import Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.session import Session
from twinbus.amqp.states import (
    STATE_ACCEPTED,
    AmqpError,
    State,
    state_declared,
    state_rejected,
)
from twinbus.amqp.types import Described
from twinbus.broker.links.long_commit import LongCommit
from twinbus.broker.links.pending_changes import PendingChanges
from twinbus.broker.links.settlement import check, held_bytes, kind_of, settle_all
from twinbus.broker.metering.meter import Meter
from twinbus.broker.sending import durable
from twinbus.broker.slices import Work
from twinbus.entities.account import Account
from twinbus.entities.message import NewMessage
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic
from twinbus.errors import (
    ArgumentError,
    InternalError,
    MessageLockLostError,
    NotAllowedError,
    ProtocolError,
    QuotaExceededError,
    ServerBusyError,
    ServiceError,
    TransactionUnknownError,
    UnauthorizedError,
)
from twinbus.ledger.words import Kind
from twinbus.limits import (
    FAN_OUT_COPIES_MAX,
    REQUEST_VALUES_MAX,
    STRANGER_TRANSACTIONS_MAX,
    TRANSACTION_MESSAGES_MAX,
    TRANSACTION_MS_MAX,
    TRANSACTIONS_PER_CONNECTION_MAX,
)
from twinbus.store.facts import Facts

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection

DECLARE = 0x31
DISCHARGE = 0x32
_CODES: dict[Any, int] = {
    DECLARE: DECLARE,
    DISCHARGE: DISCHARGE,
    "amqp:declare:list": DECLARE,
    "amqp:discharge:list": DISCHARGE,
}


TOO_LATE_TEXT = f"The transaction took longer than {TRANSACTION_MS_MAX // 1000} s and was rolled back."
SPAN_TEXT = (
    "Local transactions cannot span multiple top-level entities such as queue or topic. Enable transactions across "
    "entities in the client, or attach all links in the session of the control link."
)
# The deadline of a finished transaction: earlier than any time.
_OVER_MS = -1
# The AMQP session, the delivery's id on it, and the state to settle it with.
KeptDelivery = tuple[Session, int, bytes]
# Memory of a message or a settlement besides its bytes.
_WORK_BYTES = 512


class Transaction:
    """The pending work of one transaction."""

    __slots__ = (
        "_account",
        "_changes",
        "_elsewhere",
        "_forgotten",
        "_held_bytes",
        "_kept",
        "_schedules",
        "_sends",
        "_settlements",
        "_size",
        "deadline_ms",
        "timer",
    )

    def __init__(self, deadline_ms: int, account: Account) -> None:
        self._account = account
        # Bytes held in the account.
        self._held_bytes = 0
        # Messages to send by entity, in the order in which the entities were first used.
        self._sends: dict[Queue | Topic, list[NewMessage]] = {}
        # Messages to schedule by entity, with the sequence numbers given to the sender.
        self._schedules: dict[Queue | Topic, dict[NewMessage, int]] = {}
        # Lock tokens that the receiver has settled for good, so nobody can use them after a rollback.
        self._forgotten: list[bytes] = []
        # Deliveries that were answered but not settled, and the answer when the transaction commits.
        self._kept: list[KeptDelivery] = []
        self._settlements: dict[bytes, tuple[Queue, State | None]] = {}
        self._changes = PendingChanges()
        # The one entity that links of other sessions than the control link's may use; None until one does.
        self._elsewhere: Queue | Topic | None = None
        self._size = 0
        # When it is rolled back unless discharged; on the steady clock.
        self.deadline_ms = deadline_ms
        # Fires at the deadline; None until set.
        self.timer: asyncio.TimerHandle | None = None

    def stay_within(self, entity: Queue | Topic) -> None:
        """A link of another session uses this entity: raise if such links have used another one."""
        if self._elsewhere is None:
            self._elsewhere = entity
        elif self._elsewhere is not entity:
            raise NotAllowedError(SPAN_TEXT)

    def send(self, queue: Queue | Topic, messages: list[NewMessage]) -> None:
        """Add messages to send. What the entity would reject now is rejected now."""
        self._check_size(len(messages))
        queue.check_send([*self._waiting(queue), *messages])
        self._hold(messages)
        self._sends.setdefault(queue, []).extend(messages)

    def schedule(self, queue: Queue | Topic, messages: list[NewMessage], facts: Facts) -> list[int]:
        """Add messages to schedule and return their numbers, which the sender learns before the discharge."""
        self._check_size(len(messages))
        queue.check_send([*self._waiting(queue), *messages])
        self._hold(messages)
        numbers = queue.reserve_numbers(len(messages), facts)
        self._schedules.setdefault(queue, {}).update(zip(messages, numbers, strict=True))
        return numbers

    def _waiting(self, queue: Queue | Topic) -> list[NewMessage]:
        return [*self._sends.get(queue, ()), *self._schedules.get(queue, ())]

    def settle(self, queue: Queue, token: bytes, state: State | None, now_ms: int, *, forgotten: bool = False) -> None:
        """Add a settlement. The lock must be valid now, and again at the discharge."""
        self.settle_all(queue, [token], state, now_ms)
        if forgotten:
            self._forgotten.append(token)

    def settle_all(self, queue: Queue, tokens: list[bytes], state: State | None, now_ms: int) -> None:
        """Add settlements, all or none."""
        for token in tokens:
            check(queue, token, state, now_ms)
            if token in self._settlements:
                raise MessageLockLostError("The message is settled in this transaction already.")
        self._check_size(len(tokens))
        self._take(held_bytes(state) + len(tokens) * _WORK_BYTES)
        self._size += len(tokens)
        for token in tokens:
            self._settlements[token] = (queue, state)

    def settles(self, token: bytes) -> bool:
        """Whether it settles this message."""
        return token in self._settlements

    def keep(self, session: Session, delivery_id: int, answer: bytes) -> None:
        """Remember a delivery that is settled with this answer once the transaction has committed."""
        self._kept.append((session, delivery_id, answer))

    @property
    def kept(self) -> list[KeptDelivery]:
        return self._kept

    def set_session_state(self, queue: Queue, session_id: str, state: bytes | None, now_ms: int) -> None:
        """Set a session's state at the commit; its holder must still hold it then."""
        self._check_size(1)
        self._changes.set_state(queue, session_id, state, now_ms)
        self._take(len(state or b"") + _WORK_BYTES)
        self._size += 1

    def cancel(self, queue: Queue | Topic, numbers: list[int]) -> None:
        """Cancel scheduled messages at the commit; none of them may have become due by then."""
        self._check_size(len(numbers))
        self._changes.cancel(queue, numbers)
        self._take(len(numbers) * _WORK_BYTES)
        self._size += len(numbers)

    @property
    def takes_long(self) -> bool:
        """Whether a topic makes so many copies that `begin_commit` must be used."""
        return any(isinstance(target, Topic) and target.hands_out_long(sent) for target, sent in self._sends.items())

    def begin_commit(self, now_ms: int, steady_ms: int) -> LongCommit:
        """Start a commit in steps, or raise without having done anything."""
        self._check(now_ms, steady_ms)
        if self._changes.cancels:
            # A cancelled message could become due between the steps.
            raise NotAllowedError(f"A transaction with more than {FAN_OUT_COPIES_MAX} copies cannot cancel schedules.")
        return LongCommit(self._settlements, self._sends, self._schedules, self._changes, now_ms)

    def commit(self, now_ms: int, steady_ms: int, facts: Facts) -> None:
        """Do everything, or raise without having done anything."""
        self._check(now_ms, steady_ms)
        settle_all(self._settlements, now_ms, facts)
        self._changes.cancel_all(now_ms, facts)
        for target, messages in self._sends.items():
            target.send(messages, now_ms, facts)
        for target, numbered in self._schedules.items():
            target.schedule(list(numbered), now_ms, facts, list(numbered.values()))
        self._changes.put_states(now_ms, facts)

    def _check(self, now_ms: int, steady_ms: int) -> None:
        if steady_ms > self.deadline_ms:
            raise ArgumentError(TOO_LATE_TEXT)
        self._changes.check(now_ms)
        for target in (*self._sends, *self._schedules):
            target.check_send(self._waiting(target))

    def held(self) -> list[Work] | None:
        """The list in which to wait if one of its topics is held; otherwise None."""
        return next((target.held for target in (*self._sends, *self._schedules) if target.held is not None), None)

    def roll_back(self, now_ms: int, facts: Facts) -> None:
        """Return messages that nobody else can return; each counts a delivery."""
        for token in self._forgotten:
            with contextlib.suppress(ServiceError):
                self._settlements[token][0].abandon(token, now_ms, facts)

    def count(self, meter: Meter) -> None:
        """Count the completed work."""
        for queue, state in self._settlements.values():
            meter.entity(queue.path).counter(kind_of(state)).count += 1
        for target, messages in self._sends.items():
            meter.entity(target.path).add_sends(messages)
        for target, numbered in self._schedules.items():
            meter.entity(target.path).counter(Kind.SCHEDULE).add_many([message.size for message in numbered])

    def let_go(self) -> None:
        """The transaction is over: release the memory. Later use fails."""
        self._account.give(self._held_bytes)
        self._held_bytes = 0
        self._sends = {}
        self._schedules = {}
        self._settlements = {}
        self._kept = []
        self._changes = PendingChanges()

    def expire(self, now_ms: int, facts: Facts) -> None:
        """Roll back, because nobody discharged it in time; remember only that it existed."""
        self.roll_back(now_ms, facts)
        self._forgotten = []
        self.let_go()
        self.deadline_ms = _OVER_MS

    def _check_size(self, count: int) -> None:
        if self.deadline_ms == _OVER_MS:
            raise TransactionUnknownError(TOO_LATE_TEXT)
        if self._size + count > TRANSACTION_MESSAGES_MAX:
            raise QuotaExceededError(f"A transaction takes at most {TRANSACTION_MESSAGES_MAX} messages.")

    def _hold(self, messages: list[NewMessage]) -> None:
        self._take(sum(len(message.body) + _WORK_BYTES for message in messages))
        self._size += len(messages)

    def _take(self, count: int) -> None:
        if not self._account.take(count):
            raise ServerBusyError("The broker holds as many messages of open transactions as it may. Try again later.")
        self._held_bytes += count


class ConnectionTransactions:
    """The open transactions of one connection."""

    __slots__ = ("_account", "_by_link", "_count", "_open")

    def __init__(self, account: Account) -> None:
        self._account = account
        # By id, with the control link of each.
        self._open: dict[bytes, tuple[Link, Transaction]] = {}
        # Ids by control link, so that detaching a link need not search all transactions.
        self._by_link: dict[Link, dict[bytes, None]] = {}
        # For ids, which are never reused on a connection.
        self._count = 0

    def __len__(self) -> int:
        return len(self._open)

    def declare(self, link: Link, steady_ms: int) -> bytes:
        if len(self._open) >= TRANSACTIONS_PER_CONNECTION_MAX:
            raise QuotaExceededError(f"A connection has at most {TRANSACTIONS_PER_CONNECTION_MAX} transactions open.")
        self._count += 1
        txn_id = self._count.to_bytes(16, "big")
        self._open[txn_id] = (link, Transaction(steady_ms + TRANSACTION_MS_MAX, self._account))
        self._by_link.setdefault(link, {})[txn_id] = None
        return txn_id

    def get(self, txn_id: bytes) -> Transaction:
        found = self._open.get(txn_id)
        if found is None:
            raise TransactionUnknownError(
                "The transaction is not known: it was discharged, or its control link is gone."
            )
        return found[1]

    def join(self, txn_id: bytes, session: Session, entity: Queue | Topic) -> Transaction:
        """The transaction for work on an entity, by a link of `session`.

        As in the service, only links in the session of the control link may use several queues and topics: that is how
        clients enable transactions across entities.
        """
        transaction = self.get(txn_id)
        if session is not self._open[txn_id][0].session:
            transaction.stay_within(top_level(entity))
        return transaction

    def discharge(self, txn_id: bytes) -> Transaction:
        """Remove a transaction, to commit it or roll it back."""
        transaction = self.get(txn_id)
        link, _ = self._open.pop(txn_id)
        del self._by_link[link][txn_id]
        return transaction

    def abandon(self, link: Link) -> list[Transaction]:
        """Remove the transactions of a detached control link, to roll them back."""
        return [self._open.pop(txn_id)[1] for txn_id in self._by_link.pop(link, ())]


class ControlLink:
    """The link on which a client declares and discharges its transactions."""

    __slots__ = ("_connection", "_link")

    def __init__(self, connection: BrokerConnection, link: Link) -> None:
        self._connection = connection
        self._link = link

    def on_transfer(self, event: Transfer) -> Work | None:
        host = self._connection.host
        session = self._link.session
        try:
            code, fields = _command(event.payload)
            if code == DECLARE:
                transactions = self._connection.transactions
                # The .NET and Java clients declare before they put their first token. More than that needs one.
                if len(transactions) >= STRANGER_TRANSACTIONS_MAX and not self._connection.known:
                    raise UnauthorizedError("Unauthorized access. A token is required to declare more transactions.")
                txn_id = transactions.declare(self._link, host.clock.steady_ms())
                transaction = transactions.get(txn_id)
                transaction.timer = host.loop.call_later(TRANSACTION_MS_MAX / 1000, self._expire, transaction)
                session.settle(event.delivery_id, state_declared(txn_id))
                return None
            discharged = fields[0] if fields else None
            if not isinstance(discharged, bytes):
                raise ArgumentError("A discharge needs the transaction's id.")
            transaction = self._connection.transactions.discharge(discharged)
            if len(fields) > 1 and fields[1] is True:
                self._roll_back([transaction])
                session.settle(event.delivery_id, STATE_ACCEPTED)
                return None
        except (ServiceError, ProtocolError) as error:
            session.settle(
                event.delivery_id, state_rejected(host.tracker.wire_error(error, address=self._connection.address))
            )
            return None
        if transaction.held() is None and not transaction.takes_long:
            self._commit(transaction, event.delivery_id)
            return None
        return self._commit_later(transaction, event.delivery_id)

    def _commit_later(self, transaction: Transaction, delivery_id: int) -> Work:
        """Commit after a topic's large batch: what is sent now comes after it."""
        while (held := transaction.held()) is not None:
            yield held
        if transaction.takes_long:
            yield from self._commit_in_steps(transaction, delivery_id)
        else:
            self._commit(transaction, delivery_id)

    def _commit_in_steps(self, transaction: Transaction, delivery_id: int) -> Work:
        host = self._connection.host
        commits = host.commits
        try:
            work = transaction.begin_commit(host.clock.now_ms(), host.clock.steady_ms())
        except ServiceError as error:
            self._refuse(transaction, delivery_id, error)
            return
        if transaction.timer is not None:
            transaction.timer.cancel()
        try:
            for _ in work.steps(lambda: commits.facts):
                commits.request_if_needed()
                yield None
        except Exception:
            work.undo(commits.facts)
            self._let_go(work)
            self._refuse(transaction, delivery_id, InternalError("The broker failed to commit it."))
            raise
        try:
            work.finish(commits.facts)
        except Exception:
            # Some of it may be in the open facts, so there is no answer. Let the others continue.
            self._let_go(work)
            raise
        yield from durable(host)
        yield from work.show()
        self._let_go(work)
        self._answer_after(transaction, delivery_id, commits.facts)

    def _let_go(self, work: LongCommit) -> None:
        for topic in work.topics:
            self._connection.host.let_go(topic)

    def _commit(self, transaction: Transaction, delivery_id: int) -> None:
        host = self._connection.host
        facts = host.commits.facts
        try:
            transaction.commit(host.clock.now_ms(), host.clock.steady_ms(), facts)
        except ServiceError as error:
            self._refuse(transaction, delivery_id, error)
            return
        self._answer_after(transaction, delivery_id, facts)

    def _refuse(self, transaction: Transaction, delivery_id: int, error: ServiceError) -> None:
        text = f"The transaction was rolled back: {error.text}"
        rollback = AmqpError("amqp:transaction:rollback", self._connection.host.tracker.text(text)[0], None)
        self._roll_back([transaction])
        self._link.session.settle(delivery_id, state_rejected(rollback))

    def _answer_after(self, transaction: Transaction, delivery_id: int, facts: Facts) -> None:
        host = self._connection.host
        transaction.count(host.meter)
        facts.then.append((self._committed, (delivery_id, transaction.kept)))
        _end(transaction)
        host.commits.request()

    def _committed(self, answer: tuple[int, list[KeptDelivery]]) -> None:
        delivery_id, kept = answer
        for session, number, state in kept:
            session.settle_kept(number, state)
        self._link.session.settle(delivery_id, STATE_ACCEPTED)
        self._connection.flush_soon()
        if kept and self._connection.crowded:
            self._connection.make_room()

    def on_detached(self, orderly: bool) -> None:
        self._roll_back(self._connection.transactions.abandon(self._link))

    def _roll_back(self, transactions: list[Transaction]) -> None:
        host = self._connection.host
        for transaction in transactions:
            transaction.roll_back(host.clock.now_ms(), host.commits.facts)
            _end(transaction)
        host.commits.request_if_needed()

    def _expire(self, transaction: Transaction) -> None:
        host = self._connection.host
        transaction.expire(host.clock.now_ms(), host.commits.facts)
        host.commits.request_if_needed()

    def on_credit(self) -> None:
        """Never called: the peer sends on this link."""

    def on_disposed(self, delivery_id: int, tag: bytes, state: State | None, settled: bool) -> None:
        """Never called: the peer sends on this link."""


def top_level(entity: Queue | Topic) -> Queue | Topic:
    """The queue or topic that an entity belongs to."""
    if isinstance(entity, Topic):
        return entity
    queue = entity if entity.owner is None else entity.owner
    return queue if queue.subscription is None else queue.subscription.topic


def _end(transaction: Transaction) -> None:
    if transaction.timer is not None:
        transaction.timer.cancel()
    transaction.let_go()


def _command(payload: bytes | None) -> tuple[int, list[Any]]:
    if payload is None:
        raise ArgumentError("The request to the coordinator is too large.")
    value = AmqpMessage.decode(payload, REQUEST_VALUES_MAX).value
    if not isinstance(value, Described) or not isinstance(value.value, list):
        raise ArgumentError("The coordinator takes declare and discharge.")
    code = _CODES.get(value.descriptor)
    if code is None:
        raise ArgumentError("The coordinator takes declare and discharge.")
    return code, value.value
