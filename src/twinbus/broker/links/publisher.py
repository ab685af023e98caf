"""A link on which a client sends messages to an entity."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from twinbus.amqp.events import Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.states import (
    STATE_ACCEPTED,
    AmqpError,
    State,
    TransactionalState,
    state_rejected,
    state_transactional,
)
from twinbus.broker.links.session_answers import SessionAnswers
from twinbus.broker.messages.intake import BATCH_FORMAT
from twinbus.broker.sending import sending, takes_long
from twinbus.broker.slices import Work, pause_if_over
from twinbus.entities.message import NewMessage
from twinbus.entities.topic import Topic
from twinbus.errors import (
    ArgumentError,
    DecodeError,
    MessageTooLargeError,
    ProtocolError,
    QuotaExceededError,
    ServerBusyError,
    ServiceError,
)
from twinbus.ledger.words import Kind
from twinbus.limits import BATCH_STEP_BYTES, OPERATION_STEP_BYTES, SLICE_EVENTS
from twinbus.store.facts import Facts

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection
    from twinbus.broker.links.senders import Senders

# Errors that reject a message.
REFUSED = (ServiceError, ProtocolError, UnicodeDecodeError, IndexError)


class Publisher:
    """Answers each transfer `accepted` once it is on disk, or `rejected` with the reason; never detaches for an
    error."""

    __slots__ = (
        "_answers",
        "_clock",
        "_commits",
        "_connection",
        "_host",
        "_intake",
        "_meter",
        "_senders",
        "_sent",
        "_store",
        "_topic",
        "link",
        "queue",
    )

    def __init__(self, connection: BrokerConnection, link: Link, senders: Senders) -> None:
        self._connection = connection
        host = connection.host
        self._host = host
        # Parts of the namespace that every message needs.
        self._clock = host.clock
        self._commits = host.commits
        self._intake = host.intake
        self._store = host.store
        self.link = link
        self._senders = senders
        self.queue = senders.entity
        self._topic = self.queue if isinstance(self.queue, Topic) else None
        self._meter = host.meter.entity(self.queue.path)
        self._sent = self._meter.counter(Kind.SEND)
        self._answers: SessionAnswers = link.session.context

    def on_transfer(self, event: Transfer) -> Work | None:
        payload = event.payload
        facts = self._commits.facts
        try:
            queue = self.queue
            settings = queue.settings
            if payload is None and event.size <= self.link.size_max:
                raise ServerBusyError("The broker holds as many unfinished messages as it may. Try again later.")
            if payload is None or event.size > settings.max_message_bytes:
                raise MessageTooLargeError(
                    f"The received message (delivery-id:{event.delivery_id}, size:{event.size} bytes) exceeds "
                    f"the limit ({settings.max_message_bytes} bytes) currently allowed on the link."
                )
            # Checked once per commit: a run exists only if there was room.
            run = self._answers.sent
            if (run is None or run.facts is not facts) and self._store.full:
                raise QuotaExceededError(
                    "The disk that holds this namespace is full: receive messages or make room, then retry."
                )
            now_ms = self._clock.now_ms()
            if event.message_format == BATCH_FORMAT and event.size > BATCH_STEP_BYTES:
                return self._take_batch(event, self._intake.parts(payload))
            messages = self._intake.messages(payload, event.message_format, now_ms, settings.default_ttl_ms)
            if event.state is not None or self._topic is not None:
                return self._send(event, messages, now_ms)
            queue.send(messages, now_ms, facts)
            self._sent_by(event, messages, facts)
        except REFUSED as error:
            self._reject(event, error)
        return None

    def _take_batch(self, event: Transfer, parts: list[bytes]) -> Work:
        """Decode a large batch in steps, then send all of it."""
        host = self._host
        now_ms = host.clock.now_ms()
        ttl_ms = self.queue.settings.default_ttl_ms
        messages: list[NewMessage] = []
        try:
            for part in parts:
                messages.append(host.intake.message(part, now_ms, ttl_ms))
                if len(messages) % SLICE_EVENTS == 0:
                    yield None
            rest = self._send(event, messages, host.clock.now_ms())
            if rest is not None:
                yield from rest
        except REFUSED as error:
            self._reject(event, error)

    def _send(self, event: Transfer, messages: list[NewMessage], now_ms: int) -> Work | None:
        if event.state is not None:
            self._send_in_transaction(event, messages)
            return None
        if takes_long(self.queue, messages):
            return self._send_in_steps(event, messages)
        facts = self._host.commits.facts
        self.queue.send(messages, now_ms, facts)
        self._sent_by(event, messages, facts)
        return pause_if_over(self._host.slices) if self._topic is not None and self._topic.costly else None

    def _send_in_steps(self, event: Transfer, messages: list[NewMessage]) -> Work:
        try:
            yield from sending(self._host, self.queue, messages, partial(self._sent_by, event, messages))
        except REFUSED as error:
            self._reject(event, error)

    def _sent_by(self, event: Transfer, messages: list[NewMessage], facts: Facts) -> None:
        """Count accepted messages, and answer once they are on disk."""
        commits = self._commits
        if len(messages) == 1 and not messages[0].ping:
            sent = self._sent
            sent.count += 1
            sent.bytes += event.size
            if event.size > OPERATION_STEP_BYTES:
                sent.steps += (event.size - 1) // OPERATION_STEP_BYTES
        else:
            self._meter.add_sends(messages)
        if not event.settled:
            self._answers.accept(event.delivery_id, facts)
        commits.pending_bytes += event.size
        commits.request()

    def _send_in_transaction(self, event: Transfer, messages: list[NewMessage]) -> None:
        state = event.state
        if not isinstance(state, TransactionalState):
            raise ArgumentError("A transfer's state can only name a transaction.")
        transaction = self._connection.transactions.join(state.txn_id, self.link.session, self.queue)
        transaction.send(self.queue, messages)
        if not event.settled:
            self.link.session.settle(event.delivery_id, state_transactional(state.txn_id, STATE_ACCEPTED))
            self._connection.flush_soon()

    def _reject(self, event: Transfer, error: Exception) -> None:
        if isinstance(error, UnicodeDecodeError | IndexError):
            # The sender's fault, and a retry would not help.
            error = DecodeError("The message cannot be read: it is cut short, or a text is not UTF-8.")
        wire_error = self._host.tracker.wire_error(error, self.queue.path)
        self._meter.counter(Kind.SEND, wire_error.condition).add(event.size)
        if not event.settled:
            self.link.session.settle(event.delivery_id, state_rejected(wire_error))
            self._connection.flush_soon()

    def on_credit(self) -> None:
        """Never called: the peer sends on this link."""

    def on_disposed(self, delivery_id: int, tag: bytes, state: State | None, settled: bool) -> None:
        """Never called: the peer sends on this link."""

    def on_detached(self, orderly: bool) -> None:
        """Nothing to clean up: what was sent is on its way to the disk."""
        self._senders.leave_publisher(self)

    def detach(self, error: AmqpError) -> None:
        """Detach the link from our side."""
        self._connection.detach(self.link, error)
