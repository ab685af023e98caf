"""A session: messages with one session id, delivered in order to the one receiver that holds the session's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from twinbus.errors import SessionLockLostError
from twinbus.limits import ACQUIRE_BYTES_MAX
from twinbus.store.facts import Facts

from .available import Available
from .message import GONE, QueuedMessage
from .receiving import acquire_in_session, take_in_session
from .returned import Returned

if TYPE_CHECKING:
    from .queue import Queue
    from .session_blocks import SessionBlock

LOCK_LOST_TEXT: Final = "The session lock has expired on the MessageSession. Accept a new MessageSession."


class MessageSession:
    """One session of a queue."""

    __slots__ = (
        "aside",
        "available",
        "block",
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
        # Its place in the list of sessions; None when it is gone.
        self.block: SessionBlock | None = None
        # Messages that can be received now.
        self.available = Available()
        # Locked messages by token.
        self.held: dict[bytes, QueuedMessage] = {}
        # Deferred and scheduled messages; None until there is one.
        self.aside: Returned | None = None
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
        if self.aside is not None:
            left = count
            for message in self.aside.since(from_seq):
                if message.state != GONE:
                    found.append(message)
                    left -= 1
                    if left == 0:
                        break
        if self.returning:
            for message in _in_transit(self.queue):
                if message.session is self and message.seq >= from_seq:
                    found.append(message)
        return nsmallest(count, found, key=_seq)

    def put_aside(self, message: QueuedMessage) -> None:
        """One of its messages is deferred or scheduled."""
        if self.aside is None:
            self.aside = Returned()
        self.aside.add(message)

    def drop_aside(self, seq: int) -> None:
        """A deferred or scheduled message is neither any more."""
        if self.aside is not None:
            self.aside.remove(seq)
            if not self.aside.lasts:
                self.aside = None

    def __repr__(self) -> str:
        return f"<MessageSession {self.id!r} locked={self.locked} members={self.members}>"


def _in_transit(queue: Queue) -> Iterator[QueuedMessage]:
    """Messages that left a receiver and are not back yet, or are about to leave with one."""
    yield from queue.arrivals.returning()
    yield from queue.messages.pinned.values()
    yield from queue.messages.taken.values()


def _seq(message: QueuedMessage) -> int:
    return message.seq
