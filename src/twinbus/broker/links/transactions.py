"""Transactions: sends and settlements on several entities that happen together or not at all.

Work is checked when it arrives and done when the transaction is discharged: everything is checked again, then
everything goes into one commit. A message settled in a transaction stays locked until then; if its receiver has
forgotten the delivery, the message is returned when the transaction fails. A transaction belongs to its control link:
when that link detaches, the transaction is rolled back.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from twinbus.amqp.events import Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import (
    STATE_ACCEPTED,
    AmqpError,
    State,
    state_declared,
    state_rejected,
)
from twinbus.amqp.types import Described
from twinbus.broker.links.long_commit import LongCommit
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
    ProtocolError,
    QuotaExceededError,
    ServerBusyError,
    ServiceError,
    TransactionUnknownError,
    UnauthorizedError,
)
from twinbus.ledger.words import Kind
from twinbus.limits import (
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
# The deadline of a finished transaction: earlier than any time.
_OVER_MS = -1
# Memory of a message or a settlement besides its bytes.
_WORK_BYTES = 512


class Transaction:
    """The pending work of one transaction."""

    __slots__ = (
        "_account",
        "_forgotten",
        "_held_bytes",
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
        self._settlements: dict[bytes, tuple[Queue, State | None]] = {}
        self._size = 0
        # When it is rolled back unless discharged; on the steady clock.
        self.deadline_ms = deadline_ms
        # Fires at the deadline; None until set.
        self.timer: asyncio.TimerHandle | None = None

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

    @property
    def takes_long(self) -> bool:
        """Whether a topic makes so many copies that `begin_commit` must be used."""
        return any(isinstance(target, Topic) and target.hands_out_long(sent) for target, sent in self._sends.items())

    def begin_commit(self, now_ms: int, steady_ms: int) -> LongCommit:
        """Start a commit in steps, or raise without having done anything."""
        self._check(steady_ms)
        return LongCommit(self._settlements, self._sends, self._schedules, now_ms)

    def commit(self, now_ms: int, steady_ms: int, facts: Facts) -> None:
        """Do everything, or raise without having done anything."""
        self._check(steady_ms)
        settle_all(self._settlements, now_ms, facts)
        for target, messages in self._sends.items():
            target.send(messages, now_ms, facts)
        for target, numbered in self._schedules.items():
            target.schedule(list(numbered), now_ms, facts, list(numbered.values()))

    def _check(self, steady_ms: int) -> None:
        if steady_ms > self.deadline_ms:
            raise ArgumentError(TOO_LATE_TEXT)
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
                # The Java client declares before it puts its first token. More than that needs one.
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
        _end(transaction)
        facts.then.append((self._committed, delivery_id))
        host.commits.request()

    def _committed(self, delivery_id: int) -> None:
        self._link.session.settle(delivery_id, STATE_ACCEPTED)
        self._connection.flush_soon()

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


def _end(transaction: Transaction) -> None:
    if transaction.timer is not None:
        transaction.timer.cancel()
    transaction.let_go()


def _command(payload: bytes | None) -> tuple[int, list[Any]]:
    if payload is None:
        raise ArgumentError("The request to the coordinator is too large.")
    value = AmqpMessage.decode(payload).value
    if not isinstance(value, Described) or not isinstance(value.value, list):
        raise ArgumentError("The coordinator takes declare and discharge.")
    code = _CODES.get(value.descriptor)
    if code is None:
        raise ArgumentError("The coordinator takes declare and discharge.")
    return code, value.value
