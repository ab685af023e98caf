"""Sessions: messages with one session id, given in order to the one receiver that holds the session's lock.

A session exists while it has messages, a state or a lock. Free sessions with available messages wait in a line, in
the order in which they became available; accepting the next one takes the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from twinbus.errors import SessionLockLostError
from twinbus.limits import ACQUIRE_BYTES_MAX
from twinbus.store.facts import Facts

from .available import Available
from .locks import Locks
from .message import GONE, Message

if TYPE_CHECKING:
    from .queue import Queue

LOCK_LOST_TEXT: Final = "The session lock has expired on the MessageSession. Accept a new MessageSession."

_READY_MIN: Final = 64


def _seq(message: Message) -> int:
    return message.seq


class Session:
    """One session of a queue."""

    __slots__ = (
        "aside",
        "available",
        "held",
        "id",
        "leaving",
        "locked",
        "locked_until_ms",
        "members",
        "on_available",
        "queue",
        "ready",
        "returning",
        "state",
        "updated_ms",
    )

    def __init__(self, queue: Queue, session_id: str) -> None:
        # The queue it belongs to.
        self.queue = queue
        # The session id.
        self.id = session_id
        # Its messages that can be received now.
        self.available = Available()
        # Its locked messages, by token.
        self.held: dict[bytes, Message] = {}
        # Its deferred and scheduled messages, by sequence number.
        self.aside: dict[int, Message] = {}
        # All its messages, in whatever place; the session is kept while there are any.
        self.members = 0
        # Its messages whose return is not durable yet: until it is, later ones must wait.
        self.returning = 0
        # Held by a receiver.
        self.locked = False
        # End of the lock; None when not locked.
        self.locked_until_ms: int | None = None
        # The lock has lapsed and its receiver has not been told yet.
        self.leaving = False
        # It stands in the line of free sessions.
        self.ready = False
        # The application's state; None: none set.
        self.state: bytes | None = None
        # When the state was last set; 0: never.
        self.updated_ms = 0
        # Set by the receiver's owner: called when messages became available while locked.
        self.on_available: Callable[[Session], None] | None = None

    def acquire(self, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX) -> list[Message]:
        """Lock the next messages, in order, up to one that reaches the limit."""
        return self.queue.acquire_session(self, count, now_ms, facts, limit_bytes)

    def take(self, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX) -> list[Message]:
        """Receive and delete the next messages, in order, first half: see `Queue.take`."""
        return self.queue.take_session(self, count, now_ms, facts, limit_bytes)

    def check(self, now_ms: int) -> None:
        if not self.alive(now_ms):
            raise SessionLockLostError(LOCK_LOST_TEXT)

    def alive(self, now_ms: int) -> bool:
        until = self.locked_until_ms
        return until is not None and until > now_ms

    def browse(self, from_seq: int, count: int) -> list[Message]:
        """Its messages in any place, by sequence number."""
        found = self.available.browse(from_seq, count)
        found.extend(message for message in self.held.values() if message.seq >= from_seq)
        found.extend(message for message in self.aside.values() if message.seq >= from_seq and message.state != GONE)
        return nsmallest(count, found, key=_seq)

    def __repr__(self) -> str:
        return f"<Session {self.id!r} locked={self.locked} members={self.members}>"


class Sessions:
    """All sessions of a queue."""

    __slots__ = ("_ready", "by_id", "locks")

    def __init__(self) -> None:
        # Every session that exists.
        self.by_id: dict[str, Session] = {}
        # The locked ones, earliest deadline first.
        self.locks: Locks[str, Session] = Locks()
        # Free sessions with available messages, longest waiting first; some may have been accepted by id since.
        self._ready: deque[Session] = deque()

    def open(self, queue: Queue, session_id: str) -> Session:
        session = self.by_id.get(session_id)
        if session is None:
            session = Session(queue, session_id)
            self.by_id[session_id] = session
        return session

    def offer(self, session: Session) -> None:
        """Put a session into the line if it can be accepted and is not there yet."""
        if session.ready or session.locked or session.leaving or not len(session.available):
            return
        session.ready = True
        self._ready.append(session)
        if len(self._ready) > _READY_MIN and len(self._ready) > 2 * len(self.by_id):
            self._tidy()

    def first(self) -> Session | None:
        """The free session that has waited longest, still in the line."""
        while self._ready:
            session = self._ready[0]
            if not session.locked and not session.leaving and len(session.available):
                return session
            self._ready.popleft()
            session.ready = False
        return None

    def lock(self, session: Session, until_ms: int) -> None:
        session.locked = True
        session.locked_until_ms = until_ms
        self.locks.held[session.id] = session
        if self._ready and self._ready[0] is session:
            self._ready.popleft()
            session.ready = False

    def unlock(self, session: Session) -> None:
        session.locked = False
        session.locked_until_ms = None
        session.on_available = None
        self.locks.remove(session.id)

    def drop_if_unused(self, session: Session) -> None:
        unused = session.members == 0 and session.state is None and not session.locked and not session.leaving
        # It may be gone already, and another one may have its name.
        if unused and self.by_id.get(session.id) is session:
            del self.by_id[session.id]

    def names(self, updated_after_ms: int | None, skip: int, top: int) -> list[str]:
        """Ids of sessions with messages or a state; or of those whose state was set after a time."""
        names: list[str] = []
        for session in self.by_id.values():
            if updated_after_ms is None:
                listed = session.state is not None or session_active(session)
            else:
                listed = session.updated_ms > updated_after_ms
            if not listed:
                continue
            if skip > 0:
                skip -= 1
            elif len(names) < top:
                names.append(session.id)
            else:
                break
        return names

    def _tidy(self) -> None:
        """Drop sessions that ended while standing in the line."""
        kept: deque[Session] = deque()
        for session in self._ready:
            if session.locked or not len(session.available):
                session.ready = False
            else:
                kept.append(session)
        self._ready = kept


def session_active(session: Session) -> bool:
    """It has messages that are available, locked or on their way back."""
    return bool(len(session.available) or session.held or session.returning)
