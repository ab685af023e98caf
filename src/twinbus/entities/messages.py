"""The messages of one entity: where each one is, how many there are, and their total size.

1. A message is in exactly one place; `states.py` has the table of places and moves.
2. A message that leaves is marked GONE, so that indexes that still point to it can tell.
3. Nothing here decides who may move a message or when; the entity does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from twinbus.errors import MessageLockLostError, SessionLockLostError
from twinbus.limits import CHANGES_BYTES_MAX
from twinbus.store.facts import Facts, Table

from .account import Account
from .arrivals import Arrivals
from .available import Available
from .changes import PropertyChanges, counted_bytes
from .commons import Commons
from .expiry import Expiry
from .locks import Locks
from .message import ACTIVE, DEFERRED, GONE, RETURNING, SCHEDULED, TAKEN, QueuedMessage
from .records import DAMAGED, KEY, pack
from .schedule import Schedule
from .session import LOCK_LOST_TEXT, MessageSession
from .sessions import Sessions
from .sweep import Row, Sweep, deleted_rows

if TYPE_CHECKING:
    from .selected import SelectedMessages

_INDEX: Final = Table.INDEX
# At the end of a token, it makes one that no client has: those have 16 bytes.
_PINNED: Final = b"pinned"


class Counts(NamedTuple):
    """An entity's messages by state; locked ones count as active or deferred."""

    active: int
    scheduled: int
    deferred: int
    dead_letter: int


class Messages:
    """What one entity holds. Each session has lists of its own messages, which this class maintains too."""

    __slots__ = (
        "_bodies",
        "_entity_id",
        "_sessions",
        "_tokens",
        "active",
        "available",
        "bytes",
        "changes",
        "damaged",
        "deferred",
        "deferred_count",
        "expires",
        "expiry",
        "locks",
        "pinned",
        "schedule",
        "selected",
        "taken",
    )

    def __init__(self, entity_id: int, commons: Commons, sessions: Sessions | None, expires: bool) -> None:
        self._entity_id = entity_id
        self._bodies = commons.bodies
        self._tokens = commons.tokens
        # None without sessions.
        self._sessions = sessions
        # Messages expire, and arrive in sequence order. Neither is true in a dead-letter queue.
        self.expires = expires
        # Active messages, locked ones included.
        self.active = 0
        # Deferred messages, locked ones included.
        self.deferred_count = 0
        # Bytes of all messages, damaged ones included.
        self.bytes = 0
        # The memory of their changed properties.
        self.changes = Account(CHANGES_BYTES_MAX, commons.accounts.changes)
        # Available messages; unused on a session queue, where each session has its own.
        self.available = Available()
        # Locked messages by token. In a session queue their order means nothing: the session locks expire instead.
        self.locks: Locks[bytes, QueuedMessage] = Locks()
        # Locked messages that a transaction is about to settle, by their new token.
        self.pinned: dict[bytes, QueuedMessage] = {}
        # Messages on their way to receive-and-delete receivers, by sequence number.
        self.taken: dict[int, QueuedMessage] = {}
        # Messages whose body cannot be read, by sequence number.
        self.damaged: dict[int, QueuedMessage] = {}
        # Deferred messages that are not locked, by sequence number.
        self.deferred: dict[int, QueuedMessage] = {}
        self.schedule = Schedule()
        # Expiry times of active messages.
        self.expiry = Expiry()
        # What the selectors of receivers have found; None if no receiver has one.
        self.selected: list[SelectedMessages] | None = None

    # --- arriving ---------------------------------------------------------------------------------------------------

    def write(self, message: QueuedMessage, facts: Facts) -> None:
        """Write the message's current index record."""
        session = message.session
        facts.index[KEY.pack(self._entity_id, message.seq)] = pack(
            message, None if session is None else session.id, message.body_number in self._bodies.references
        )

    def delete_row(self, message: QueuedMessage, facts: Facts) -> None:
        facts.delete(_INDEX, KEY.pack(self._entity_id, message.seq))

    def take_in(self, message: QueuedMessage, facts: Facts) -> None:
        """Write a message that has a number and a stored body; `show` makes it visible."""
        self.bytes += message.size
        if message.changes is not None:
            self.changes.hold(counted_bytes(message.changes))
        session = message.session
        facts.index[KEY.pack(self._entity_id, message.seq)] = pack(
            message, None if session is None else session.id, message.body_number in self._bodies.references
        )

    def withdraw(self, message: QueuedMessage) -> None:
        """Undo `take_in` for a message that never became visible."""
        self.bytes -= message.size
        self.changes.give(counted_bytes(message.changes))
        if message.session is not None and self._sessions is not None:
            self._sessions.leave(message.session)

    def show(self, arrivals: list[QueuedMessage]) -> dict[MessageSession, None]:
        """Make messages visible whose facts are durable; return the sessions that got some."""
        told: dict[MessageSession, None] = {}
        fresh = self.available.fresh
        # Copies that a topic delivered over several commits may arrive after later ones.
        ordered = self.expires and self._sessions is None and (not fresh or fresh[-1].seq < arrivals[0].seq)
        for message in arrivals:
            session = message.session
            if message.state == ACTIVE:
                available = self.available if session is None else session.available
                if message.token is None:
                    self.active += 1
                    if ordered:
                        fresh.append(message)
                    else:
                        available.push(message)
                    if message.expires_ms is not None and self.expires:
                        self.expiry.add(message)
                else:
                    message.token = None
                    available.give_back(message)
                    if message.expires_ms is not None and self.expires:
                        self.expiry.add_again(message)
                    if session is not None:
                        session.returning -= 1
                if session is not None:
                    told[session] = None
                    if session.block is not None:
                        session.block.mark()
            else:
                self._show_aside(message)
                if session is not None and message.state == DEFERRED:
                    told[session] = None
                    if session.block is not None:
                        session.block.mark()
        if self.selected is not None:
            for each in self.selected:
                each.offer(arrivals)
        return told

    def _show_aside(self, message: QueuedMessage) -> None:
        """A scheduled or deferred message is durable."""
        session = message.session
        if message.state == SCHEDULED:
            self.schedule.add(message)
        else:
            message.token = None
            self.deferred[message.seq] = message
            if session is not None:
                session.returning -= 1
        if session is not None:
            session.put_aside(message)

    # --- locks ------------------------------------------------------------------------------------------------------

    def lock(self, messages: list[QueuedMessage], until_ms: int) -> None:
        """Lock messages of one session, or of none, for a receiver; each gets a token."""
        tokens = self._tokens
        held = self.locks.held
        for message in messages:
            token = tokens()
            message.token = token
            message.locked_until_ms = until_ms
            held[token] = message
        session = messages[0].session
        if session is not None:
            if session.block is not None:
                session.block.mark()
            for message in messages:
                assert message.token is not None
                session.held[message.token] = message

    def unlock(self, message: QueuedMessage) -> None:
        """Remove the lock. The message is in no index until it returns or leaves."""
        token = message.token
        assert token is not None
        session = message.session
        message.token = RETURNING
        message.locked_until_ms = None
        if self.pinned and token in self.pinned:
            del self.pinned[token]
            if session is not None:
                session.returning -= 1
            return
        self.locks.remove(token)
        if session is not None:
            del session.held[token]

    def pin(self, token: bytes, now_ms: int) -> QueuedMessage:
        """Replace a valid lock by one that does not expire and whose token only the caller has, so that settling it
        cannot fail unless the entity is deleted."""
        message = self.locked(token, now_ms)
        self.unlock(message)
        message.token = token + _PINNED
        self.pinned[message.token] = message
        if message.session is not None:
            # Later messages of the session wait, because this one may come back.
            message.session.returning += 1
        return message

    def locked(self, token: bytes, now_ms: int) -> QueuedMessage:
        """The message behind a token whose lock is still valid; raises if it is lost."""
        message = self.locks.held.get(token)
        if message is None:
            message = self.locks.older.get(token)
            if message is None:
                message = self.pinned.get(token)
                if message is not None:
                    return message
                if self._sessions is not None:
                    raise SessionLockLostError(LOCK_LOST_TEXT)
                raise MessageLockLostError
        session = message.session
        if session is not None:
            session.check(now_ms)
        else:
            until = message.locked_until_ms
            assert until is not None
            if until <= now_ms:
                raise MessageLockLostError
        return message

    def change(self, message: QueuedMessage, changes: PropertyChanges | None) -> None:
        """Replace a message's changes."""
        if changes is not message.changes:
            self.changes.hold(counted_bytes(changes) - counted_bytes(message.changes))
            message.changes = changes

    def defer(self, message: QueuedMessage) -> None:
        """Turn an active message into a deferred one."""
        if message.state == ACTIVE:
            message.state = DEFERRED
            self.active -= 1
            self.deferred_count += 1

    # --- receive and delete -----------------------------------------------------------------------------------------

    def take(self, messages: list[QueuedMessage]) -> None:
        """Give messages to a receive-and-delete receiver, without a deadline: a slow reader may take its time."""
        for message in messages:
            message.token = TAKEN
            self.taken[message.seq] = message
            if message.session is not None:
                # Later messages of the session wait, because these may come back.
                message.session.returning += 1

    def untake(self, message: QueuedMessage) -> None:
        """The receiver left before it got the message."""
        del self.taken[message.seq]
        message.token = RETURNING
        if message.session is not None:
            message.session.returning -= 1

    def remove_taken(self, messages: list[QueuedMessage], facts: Facts) -> dict[MessageSession, None]:
        """The receiver has them; return the sessions that can continue."""
        told: dict[MessageSession, None] = {}
        for message in messages:
            del self.taken[message.seq]
            if message.session is not None:
                message.session.returning -= 1
                told[message.session] = None
            self.remove(message, facts)
        return told

    # --- leaving ----------------------------------------------------------------------------------------------------

    def leave(self, message: QueuedMessage) -> None:
        """Bookkeeping for a message that leaves this entity for good."""
        if message.state == ACTIVE:
            self.active -= 1
        elif message.state == DEFERRED:
            self.deferred_count -= 1
        message.state = GONE
        message.token = None
        self.bytes -= message.size
        if message.changes is not None:
            self.changes.give(counted_bytes(message.changes))
        if message.expires_ms is not None:
            self.expiry.forget(message)
        session = message.session
        if session is not None and self._sessions is not None:
            self._sessions.leave(session)

    def hand_over(self, message: QueuedMessage, facts: Facts) -> None:
        """Remove a message whose body goes to another entity."""
        self.leave(message)
        facts.delete(_INDEX, KEY.pack(self._entity_id, message.seq))

    def remove(self, message: QueuedMessage, facts: Facts) -> None:
        """Remove a message and release its body."""
        self.leave(message)
        # As in `Facts.delete`; a call for each message would be felt.
        key = KEY.pack(self._entity_id, message.seq)
        facts.index.pop(key, None)
        facts.deletes.append((_INDEX, key))
        self._bodies.release(message.body_number, facts)

    def extract(self, message: QueuedMessage) -> QueuedMessage:
        """Remove an available message without a session from any place; continue with the result."""
        live = self.available.extract(message)
        if live is not message and live.expires_ms is not None and self.expires:
            self.expiry.forget(message)
            self.expiry.add(live)
        return live

    def note_gone(self, message: QueuedMessage) -> None:
        """A message has left that is still among the available ones."""
        (self.available if message.session is None else message.session.available).note_gone()

    # --- messages whose body cannot be read -------------------------------------------------------------------------

    def put_aside(self, message: QueuedMessage, facts: Facts) -> bool:
        """Hide a damaged message: mark its row and keep counting its bytes. False if it is already gone, or if it is
        returning and will be met again later."""
        if message.state == GONE or message.token == RETURNING:
            return False
        session = message.session
        row = pack(message, None if session is None else session.id, message.body_number in self._bodies.references)
        if message.token == TAKEN:
            del self.taken[message.seq]
            if session is not None:
                session.returning -= 1
        elif message.token is not None:
            self.unlock(message)
        elif message.state == ACTIVE:
            self.note_gone(message)
        else:
            self.schedule.messages.pop(message.seq, None)
            self.deferred.pop(message.seq, None)
            if session is not None:
                session.drop_aside(message.seq)
        self.leave(message)
        self.restore_damaged(message)
        facts.index[KEY.pack(self._entity_id, message.seq)] = row[:1] + bytes((row[1] | DAMAGED,)) + row[2:]
        return True

    def find_at_rest(self, seq: int) -> QueuedMessage | None:
        """The message with that number if it is available, deferred or scheduled."""
        return self.find_all_at_rest((seq,)).get(seq)

    def find_all_at_rest(self, numbers: Iterable[int]) -> dict[int, QueuedMessage]:
        """The messages with those numbers that are available, deferred or scheduled, by number. It looks through the
        sessions once for all numbers: there may be a million sessions."""
        found: dict[int, QueuedMessage] = {}
        missing: list[int] = []
        for seq in dict.fromkeys(numbers):
            message = self.deferred.get(seq) or self.schedule.messages.get(seq) or self.available.find(seq)
            if message is None:
                missing.append(seq)
            else:
                found[seq] = message
        if missing and self._sessions is not None:
            missing.sort()
            for session in self._sessions.by_id.values():
                for message in session.available.among(missing):
                    found[message.seq] = message
        return found

    # --- recovery and deletion --------------------------------------------------------------------------------------

    def restore_many(self, messages: list[QueuedMessage], size: int) -> None:
        """Restore active messages without sessions, in order."""
        self.available.fresh.extend(messages)
        self.active += len(messages)
        self.bytes += size
        if self.expires:
            add = self.expiry.add
            for message in messages:
                if message.expires_ms is not None:
                    add(message)

    def restore(self, message: QueuedMessage, session_id: str | None) -> None:
        """Restore one message of any kind, in order."""
        self.bytes += message.size
        self.changes.hold(counted_bytes(message.changes))
        if session_id is not None and self._sessions is not None:
            message.session = self._sessions.join(session_id)
        if message.state == ACTIVE:
            available = self.available if message.session is None else message.session.available
            available.fresh.append(message)
            self.active += 1
            if message.expires_ms is not None and self.expires:
                self.expiry.add(message)
            return
        if message.state == SCHEDULED:
            self.schedule.add(message)
        else:
            self.deferred[message.seq] = message
            self.deferred_count += 1
        if message.session is not None:
            message.session.put_aside(message)

    def restore_damaged(self, message: QueuedMessage) -> None:
        self.bytes += message.size
        self.changes.hold(counted_bytes(message.changes))
        self.damaged[message.seq] = message

    def close(self, sweep: Sweep) -> None:
        """Hand the rows of all messages to the sweep. Only for a deleted entity, which no longer changes."""
        sweep.add(index_rows(self._entity_id, self._drained()))
        self.changes.close()

    def _drained(self) -> Iterator[QueuedMessage]:
        for message in self._all():
            # Twice, because up to half of the messages in there may have left before.
            self.expiry.shrink()
            self.expiry.shrink()
            yield message

    def _all(self) -> Iterator[QueuedMessage]:
        """Remove and yield all messages, so that each is freed by the sweep that deletes its row."""
        yield from self.available.drain()
        yield from self.locks.held.values()
        yield from self.locks.older.values()
        yield from self.pinned.values()
        yield from self.taken.values()
        while self.deferred:
            yield self.deferred.popitem()[1]
        yield from self.schedule.drain()
        if self._sessions is not None:
            for session in self._sessions.by_id.values():
                yield from session.available.drain()
        yield from self.damaged.values()


def index_rows(entity_id: int, messages: Iterator[QueuedMessage]) -> Iterator[Row]:
    """The rows of messages, one at a time: a compiled generator expression would produce them all at once."""
    for message in messages:
        yield _INDEX, KEY.pack(entity_id, message.seq), message.body_number


def sweep_arrivals(arrivals: Arrivals, entity_id: int, sweep: Sweep) -> None:
    """The deletion of an entity is durable: sweep the messages that a large batch had not shown yet, and then its
    mark."""
    for messages in arrivals.close():
        sweep.add(index_rows(entity_id, iter(messages)))
    sweep.add(deleted_rows(entity_id))
