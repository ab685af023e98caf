"""A link on which a client receives messages from an entity or from one of its sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp.events import Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.states import (
    Accepted,
    AmqpError,
    State,
    TransactionalState,
    state_rejected,
)
from twinbus.broker.links.session_answers import SessionAnswers
from twinbus.broker.links.settlement import echo, kind_of, settle
from twinbus.broker.messages.damage import UNREADABLE, put_aside, whole
from twinbus.broker.messages.stored import render
from twinbus.broker.slices import Work
from twinbus.entities.message import QueuedMessage
from twinbus.entities.queue import Queue
from twinbus.entities.session import MessageSession
from twinbus.errors import ServiceError, SessionLockLostError
from twinbus.ledger.words import Kind
from twinbus.limits import OPERATION_STEP_BYTES, SESSION_GRACE_MS, WRITE_BUFFER_BYTES_HIGH
from twinbus.store.facts import Facts

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection
    from twinbus.broker.links.dispatcher import Dispatcher

# Messages sent to one receiver before others and the socket get their turn.
BURST = 250
# Messages returned per step when a receiver vanishes.
_DROPPED = 50


class Consumer:
    """Credit in, locked messages out, settlements back."""

    __slots__ = (
        "_answers",
        "_clock",
        "_commits",
        "_completed",
        "_host",
        "_lapsed",
        "_meter",
        "_poll_start",
        "_received",
        "_taken",
        "connection",
        "deleting",
        "dispatcher",
        "gone",
        "held",
        "link",
        "queue",
        "session",
        "waiting",
    )

    def __init__(
        self,
        connection: BrokerConnection,
        link: Link,
        dispatcher: Dispatcher,
        session: MessageSession | None,
        deleting: bool,
    ) -> None:
        self.connection = connection
        self._host = connection.host
        # Parts of the namespace that every settlement needs.
        self._clock = connection.host.clock
        self._commits = connection.host.commits
        self.link = link
        # Distributes the queue's messages among its consumers.
        self.dispatcher = dispatcher
        self.queue: Queue = dispatcher.queue
        # The session held by this link; None on entities without sessions.
        self.session = session
        # Receive-and-delete: messages are sent settled and removed once they are written.
        self.deleting = deleting
        # Receive-and-delete: messages sent but not written to the socket yet, by sequence number.
        self._taken: dict[int, QueuedMessage] = {}
        # Whether it is in the dispatcher's line.
        self.waiting = False
        # Set while it must not get messages: by a fault, or because its session is lost.
        self.held = False
        # Set when the session's lock has expired while the link is still attached.
        self._lapsed = False
        # Set when the link has ended.
        self.gone = False
        self._meter = connection.host.meter.entity(self.queue.path)
        # Messages sent, and messages completed.
        self._received = self._meter.counter(Kind.RECEIVE)
        self._completed = self._meter.counter(Kind.COMPLETE)
        self._answers: SessionAnswers = link.session.context
        # The delivery count when the peer last issued credit; if it has not grown, that was an empty poll.
        self._poll_start = 0

    def room(self) -> int:
        """How many messages can be sent now."""
        if self.gone or self.held:
            return 0
        connection = self.connection
        credit = self.link.credit
        if credit > 0 and connection.room_bytes() <= 0:
            # Credit permits sending but does not require it: messages stay in the queue while the peer does not read.
            connection.choked.add(self)
            return 0
        count = min(self.link.sendable(), BURST)
        if count <= 0 and credit > 0:
            # Too many deliveries of its AMQP session are unsettled. No credit will come, but settlements will make
            # room.
            connection.crowded.add(self)
        return count

    def on_credit(self) -> None:
        link = self.link
        if link.drain:
            self.connection.do_in_slices(self._drain())
        elif link.credit > 0:
            self._poll_start = link.delivery_count
            self.dispatcher.line_up(self)

    def resume(self) -> None:
        """There is room again: get in line."""
        self.dispatcher.line_up(self)

    def feed(self, now_ms: int, facts: Facts) -> int:
        """Send what is available and fits; returns the number of messages sent."""
        count = self.room()
        if count <= 0:
            return 0
        source = self.session if self.session is not None else self.queue
        room_bytes = self.connection.room_bytes()
        if self.deleting:
            messages = source.take(count, now_ms, facts, room_bytes)
        else:
            messages = source.acquire(count, now_ms, facts, room_bytes)
        if messages:
            self._deliver(messages)
        return len(messages)

    def _deliver(self, messages: list[QueuedMessage]) -> None:
        send = self.link.send
        deleting = self.deleting
        messages, bodies = whole(self._host, self.queue, messages)
        if not messages:
            return
        size = 0
        refused = False
        for message, body in zip(messages, bodies, strict=True):
            token = message.token
            assert token is not None
            try:
                payload = render(body, message) if deleting else render(body, message, token)
            except UNREADABLE as error:
                put_aside(self._host, self.queue, message, error)
                refused = True
                continue
            if deleting:
                send(payload, tag=b"", settled=True)
            else:
                send(payload, tag=token, settled=False)
            size += len(payload)
            if len(payload) > OPERATION_STEP_BYTES:
                self._received.steps += (len(payload) - 1) // OPERATION_STEP_BYTES
        if refused:
            messages = [message for message in messages if message.token is not None]
        self._received.count += len(messages)
        self._received.bytes += size
        if deleting:
            self._taken.update((message.seq, message) for message in messages)
            self.link.session.mark(self.link, (self, messages))
        if self.connection.engine.output_bytes > WRITE_BUFFER_BYTES_HIGH:
            # Now, so that the socket can tell whether the peer reads before it is sent more.
            self.connection.flush()
        else:
            self.connection.flush_soon()

    def on_written(self, messages: list[QueuedMessage]) -> None:
        """Receive-and-delete: these messages are written to the socket, so they leave the queue."""
        if self.gone:
            return  # the peer left before they were written: others get them
        for message in messages:
            del self._taken[message.seq]
        commits = self._host.commits
        self.queue.remove_taken(messages, commits.facts)
        commits.request()

    def _drain(self) -> Work:
        """Send what is available and fits, then return the remaining credit."""
        while self.dispatcher.serve(self):
            yield None
        if self.link.drain and not self.gone:
            self._finish_drain()

    def _finish_drain(self) -> None:
        if self.link.credit > 0 and self.link.delivery_count == self._poll_start:
            self._meter.counter(Kind.EMPTY_POLL).count += 1
        self.link.drained()
        self._poll_start = self.link.delivery_count
        self.connection.flush_soon()

    def on_disposed(self, delivery_id: int, tag: bytes, state: State | None, settled: bool) -> None:
        commits = self._commits
        facts = commits.facts
        now_ms = self._clock.now_ms()
        if settled and self.connection.crowded:
            self.connection.make_room()
        try:
            if isinstance(state, Accepted):
                self.queue.complete(tag, now_ms, facts)
                self._completed.count += 1
                if not settled:
                    self._answers.complete(delivery_id, facts)
            elif isinstance(state, TransactionalState):
                transaction = self.connection.transactions.join(state.txn_id, self.link.session, self.queue)
                if settled and transaction.settles(tag):
                    return  # the Java client's receipt for our answer; the lock is still the receiver's
                transaction.settle(self.queue, tag, state.outcome, now_ms, forgotten=settled)
                if not settled:
                    # The delivery stays in the receiver's hands: after a rollback it may settle it differently.
                    self.link.session.keep(delivery_id, tag, echo(state))
                    transaction.keep(self.link.session, delivery_id, echo(state.outcome))
                    self.connection.flush_soon()
            else:
                answer = settle(self.queue, tag, state, now_ms, facts)
                self._meter.counter(kind_of(state)).count += 1
                if not settled:
                    facts.then.append((self._answer, (delivery_id, answer)))
        except ServiceError as error:
            wire_error = self._host.tracker.wire_error(error, self.queue.path)
            self._meter.counter(kind_of(state), wire_error.condition).count += 1
            if not settled:
                self._answer((delivery_id, state_rejected(wire_error)))
            return
        commits.request()

    def _answer(self, answer: tuple[int, bytes]) -> None:
        self.link.session.answer(answer[0], answer[1])
        self.connection.flush_soon()
        if self.connection.crowded:
            self.connection.make_room()

    def on_transfer(self, event: Transfer) -> None:
        """Never called: we send on this link."""

    def on_session_lost(self) -> None:
        """The session's lock expired: others may accept the session, and this link is useless.

        Detach a little later: the holder's clock started after ours, and it may be about to leave by itself.
        """
        if not self.gone:
            self.held = self._lapsed = True
            self._host.loop.call_later(SESSION_GRACE_MS / 1000, self._take_session)

    def _take_session(self) -> None:
        if self.gone or self.session is None:
            return
        text = f"The session lock has expired on the message session '{self.session.id}'. Accept a new session."
        self.detach(self._host.tracker.wire_error(SessionLockLostError(text), self.queue.path))

    def detach(self, error: AmqpError) -> None:
        """Detach the link from our side."""
        self.connection.detach(self.link, error)

    def entity_gone(self) -> None:
        """Nothing to do: the link is detached with all links of the entity."""

    def on_detached(self, orderly: bool) -> None:
        """The link has ended. A session is released at once; other locks remain unless the peer vanished."""
        if self.gone:
            return
        self.gone = True
        host = self._host
        self.dispatcher.leave(self)
        now_ms = host.clock.now_ms()
        facts = host.commits.facts
        if self._taken:
            # Never completely written: others get them, and no delivery is counted.
            self.queue.return_taken(list(self._taken.values()), now_ms, facts)
            self._taken = {}
        if self._lapsed:
            pass  # its session is already free or held by another receiver
        elif self.session is not None:
            self.queue.release_session(self.session, now_ms, facts)
        elif not orderly and self.link.delivery_count:
            session = self.link.session
            held = (*session.unsettled.values(), *session.kept.values())
            tags = [tag for link, tag in held if link is self.link]
            host.slices.start(self._drop(tags))
        host.commits.request_if_needed()

    def _drop(self, tags: list[bytes]) -> Work:
        """Return what the peer held, a few messages per step."""
        host = self._host
        for start in range(0, len(tags), _DROPPED):
            now_ms = host.clock.now_ms()
            facts = host.commits.facts
            for tag in tags[start : start + _DROPPED]:
                try:
                    self.queue.drop(tag, now_ms, facts)
                except ServiceError:
                    continue  # settled otherwise meanwhile, or the lock expired
            host.commits.request_if_needed()
            yield None
