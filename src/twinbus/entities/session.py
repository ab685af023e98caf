"""A session: messages with one session id, delivered in order to the one receiver that holds the session's lock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from twinbus.errors import SessionLockLostError
from twinbus.limits import ACQUIRE_BYTES_MAX
from twinbus.store.facts import Facts

from .available import Available
from .message import GONE, QueuedMessage
from .receiving import acquire_in_session, take_in_session

if TYPE_CHECKING:
    from .queue import Queue

LOCK_LOST_TEXT: Final = "The session lock has expired on the MessageSession. Accept a new MessageSession."


class MessageSession:
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
        self.queue = queue
        self.id = session_id
        # Messages that can be received now.
        self.available = Available()
        # Locked messages by token.
        self.held: dict[bytes, QueuedMessage] = {}
        # Deferred and scheduled messages by sequence number.
        self.aside: dict[int, QueuedMessage] = {}
        # Number of messages in any place; the session exists while there are any.
        self.members = 0
        # Messages whose return is not durable yet; later ones wait for them.
        self.returning = 0
        self.locked = False
        self.locked_until_ms: int | None = None
        # The lock has expired, but the receiver has not been told yet.
        self.leaving = False
        # It is in the queue of free sessions.
        self.ready = False
        # The application's session state.
        self.state: bytes | None = None
        # When the state was last set; 0 if never.
        self.updated_ms = 0
        # Called when messages become available while the session is locked; set by the receiver's link.
        self.on_available: Callable[[MessageSession], None] | None = None

    def acquire(
        self, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX
    ) -> list[QueuedMessage]:
        """Lock the next messages, in order, up to one that reaches the limit."""
        return acquire_in_session(self, count, now_ms, facts, limit_bytes)

    def take(self, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX) -> list[QueuedMessage]:
        """Take the next messages, in order, for a receive-and-delete receiver; see `Queue.take`."""
        return take_in_session(self, count, now_ms, facts, limit_bytes)

    def check(self, now_ms: int) -> None:
        """Raise unless the lock is valid."""
        if not self.alive(now_ms):
            raise SessionLockLostError(LOCK_LOST_TEXT)

    def alive(self, now_ms: int) -> bool:
        until = self.locked_until_ms
        return until is not None and until > now_ms

    @property
    def active(self) -> bool:
        """Whether it has messages that are available, locked or returning."""
        return bool(len(self.available) or self.held or self.returning)

    def browse(self, from_seq: int, count: int) -> list[QueuedMessage]:
        """Its messages in any place, by sequence number."""
        found = self.available.browse(from_seq, count)
        found.extend(message for message in self.held.values() if message.seq >= from_seq)
        found.extend(message for message in self.aside.values() if message.seq >= from_seq and message.state != GONE)
        return nsmallest(count, found, key=_seq)

    def __repr__(self) -> str:
        return f"<MessageSession {self.id!r} locked={self.locked} members={self.members}>"


def _seq(message: QueuedMessage) -> int:
    return message.seq
