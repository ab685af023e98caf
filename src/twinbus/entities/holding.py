"""What a queue holds, and how messages leave: the ground that every command stands on.

1. A change is made in memory at once and written as facts; what makes a message visible waits for the commit
   (`facts.then`).
2. A message is in exactly one place (`states.py`). Leaving marks it GONE, so that indexes that still point to it can
   tell.
3. A command checks first and changes afterwards: one that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from twinbus.errors import EntityDisabledError, EntityNotFoundError
from twinbus.limits import DEAD_LETTER_TEXT_CHARS_MAX
from twinbus.store.facts import Facts, Table

from .alarms import NEVER_MS
from .available import Available
from .commons import Commons
from .duplicates import Duplicates
from .expiry import Expiry
from .locks import Locks
from .message import ACTIVE, DEFERRED, GONE, RETURNING, Message, moved
from .records import ENTITY_KEY, KEY, META_DELETED, META_SEQUENCE, session_key
from .schedule import Schedule
from .session import Session, Sessions
from .settings import DISABLED, RECEIVE_DISABLED, SEND_DISABLED
from .sweep import Row
from .topic_settings import Settings

if TYPE_CHECKING:
    from .queue import Queue

_INDEX: Final = Table.INDEX

EXPIRED_REASON: Final = "TTLExpiredException"
EXPIRED_DESCRIPTION: Final = "The message expired and was dead lettered."
EXHAUSTED_REASON: Final = "MaxDeliveryCountExceeded"

# Entity ids come in blocks: the entity itself, its dead-letter queue, its transfer dead-letter queue, one to spare.
IDS_PER_ENTITY: Final = 4
MAIN_PART: Final = 0
DEAD_LETTER_PART: Final = 1
TRANSFER_PART: Final = 2

# The application properties that tell why a message was dead-lettered.
DEAD_LETTER_REASON: Final = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION: Final = "DeadLetterErrorDescription"


class Counts(NamedTuple):
    """Messages of a queue by place; locked ones count where they came from."""

    active: int
    scheduled: int
    deferred: int
    dead_letter: int


class Holding:
    """The messages of one entity."""

    __slots__ = (
        "_active",
        "_arrivals",
        "_available",
        "_bodies",
        "_bytes",
        "_commons",
        "_damaged",
        "_default_ttl_ms",
        "_deferred",
        "_deferred_count",
        "_duplicates",
        "_expiry",
        "_forward_path",
        "_group",
        "_last_seq",
        "_lock_duration_ms",
        "_locks",
        "_quota_bytes",
        "_receivable",
        "_reserved_seq",
        "_schedule",
        "_sendable",
        "_sessions",
        "_settings",
        "_taken",
        "accessed_ms",
        "created_ms",
        "dead_letters",
        "deleted",
        "entity_id",
        "links",
        "on_available",
        "on_deleted",
        "on_session_lost",
        "owner",
        "path",
        "pings",
        "transfer_dead_letters",
        "updated_ms",
        "wake_ms",
    )

    def __init__(
        self,
        settings: Settings,
        path: str,
        entity_id: int,
        commons: Commons,
        dead_letters: Queue | None,
        now_ms: int,
    ) -> None:
        # What the owner set; of a dead-letter queue, what was set on the queue it belongs to.
        self._settings = settings
        # Its name as the owner spelled it.
        self.path = path
        # Its number in keys; never used again after deletion.
        self.entity_id = entity_id
        # Where its dead-lettered messages go; None: it is a dead-letter queue itself, or a topic.
        self.dead_letters = dead_letters
        # Where messages go that could not be forwarded; None: none was needed yet.
        self.transfer_dead_letters: Queue | None = None
        # The queue whose dead-letter or transfer dead-letter queue this is; None: it stands for itself.
        self.owner: Queue | None = None
        # When it was created.
        self.created_ms = now_ms
        # When its settings last changed.
        self.updated_ms = now_ms
        # When it was last used: idle deletion counts from here.
        self.accessed_ms = now_ms
        # It no longer exists; links that still point here must go.
        self.deleted = False
        # Links attached to it, kept by their owner: a queue with links is not idle.
        self.links = 0
        # Pings accepted and dropped.
        self.pings = 0
        # Called after a commit that made messages, or free sessions, available.
        self.on_available: Callable[[Queue], None] | None = None
        # Called when a session's lock has lapsed.
        self.on_session_lost: Callable[[Queue, Session], None] | None = None
        # Called when the queue was deleted.
        self.on_deleted: Callable[[Any], None] | None = None
        # When its next tick is due, as told to the alarms.
        self.wake_ms = NEVER_MS
        # What it shares with the other queues of the namespace.
        self._commons = commons
        # Numbers and references of bodies; the same as in `_commons`.
        self._bodies = commons.bodies
        # The last sequence number given out.
        self._last_seq = 0
        # Sequence numbers up to this one are written down as used.
        self._reserved_seq = 0
        # Active messages, locked ones included.
        self._active = 0
        # Deferred messages, locked ones included.
        self._deferred_count = 0
        # Bytes of all its messages.
        self._bytes = 0
        # Available messages; unused on a session queue, where each session has its own.
        self._available = Available()
        # Locked messages by token. On a session queue the order means nothing: there the sessions lapse.
        self._locks: Locks[bytes, Message] = Locks()
        # Messages that a receiver gets settled, by sequence number, until their removal is durable.
        self._taken: dict[int, Message] = {}
        # Messages whose body cannot be read, by sequence number.
        self._damaged: dict[int, Message] = {}
        # Deferred messages that are not locked, by sequence number.
        self._deferred: dict[int, Message] = {}
        # Messages that become active later.
        self._schedule = Schedule()
        # Expiry times of active messages.
        self._expiry = Expiry()
        # Ids seen lately; None without duplicate detection.
        self._duplicates: Duplicates | None = None
        # Sessions; None without.
        self._sessions: Sessions | None = None
        # The facts that `_arrivals` waits for; None: none open.
        self._group: Facts | None = None
        # Messages to make visible when those facts are durable.
        self._arrivals: list[Message] = []
        # From the settings, kept apart because every acquire needs it.
        self._lock_duration_ms = settings.lock_duration_ms
        # From the settings: the ceiling for time to live.
        self._default_ttl_ms = settings.default_ttl_ms
        # From the settings: bytes at which sends are refused, the dead-letter queue's included.
        self._quota_bytes = settings.quota_bytes
        # Where its messages are forwarded to; None: they stay.
        self._forward_path: str | None = None
        # The status lets messages in.
        self._sendable = True
        # The status lets messages out.
        self._receivable = True
        if dead_letters is not None:
            if settings.requires_duplicate_detection:
                self._duplicates = Duplicates(entity_id, settings.duplicate_window_ms)
            if settings.requires_session:
                self._sessions = Sessions()
        self._apply(settings)

    @property
    def settings(self) -> Settings:
        return self._settings

    def _apply(self, settings: Settings) -> None:
        """Take over settings."""
        self._settings = settings
        self._lock_duration_ms = settings.lock_duration_ms
        self._default_ttl_ms = settings.default_ttl_ms
        self._quota_bytes = settings.quota_bytes
        self._sendable = settings.status not in (DISABLED, SEND_DISABLED)
        self._receivable = settings.status not in (DISABLED, RECEIVE_DISABLED)
        part = self.entity_id % IDS_PER_ENTITY
        if part == DEAD_LETTER_PART:
            self._forward_path = settings.forward_dead_letters_to
        elif part == MAIN_PART and self._sessions is None:
            # Sessions are never forwarded: their order would be lost.
            self._forward_path = settings.forward_to

    @property
    def counts(self) -> Counts:
        dead_letters = self.dead_letters
        dead = 0 if dead_letters is None else dead_letters._active + dead_letters._deferred_count
        return Counts(self._active, len(self._schedule), self._deferred_count, dead)

    @property
    def size_bytes(self) -> int:
        """Bytes of its messages, those in its dead-letter queues included: they fill the same quota."""
        size = self._bytes
        if self.dead_letters is not None:
            size += self.dead_letters._bytes
        if self.transfer_dead_letters is not None:
            size += self.transfer_dead_letters._bytes
        return size

    @property
    def transfer_dead_letter_count(self) -> int:
        """Messages that could not be forwarded."""
        return 0 if self.transfer_dead_letters is None else self.transfer_dead_letters._active

    def touch(self, now_ms: int) -> None:
        """Somebody uses it: browsing and attaching count, too."""
        self.accessed_ms = now_ms

    # --- locking ----------------------------------------------------------------------------------------------------

    def _check_receivable(self) -> None:
        if self.deleted:
            raise EntityNotFoundError(not_found_text(self.path))
        if not self._receivable:
            raise EntityDisabledError(f"Messaging entity '{self.path}' is currently disabled.")

    def _lock(self, message: Message, until_ms: int) -> None:
        token = self._commons.tokens()
        message.token = token
        message.locked_until_ms = until_ms
        self._locks.held[token] = message
        session = message.session
        if session is not None:
            session.held[token] = message

    def _unlock(self, message: Message) -> None:
        """Take away the lock; the message is nowhere until it returns or leaves."""
        token = message.token
        assert token is not None
        self._locks.remove(token)
        message.token = RETURNING
        message.locked_until_ms = None
        session = message.session
        if session is not None:
            del session.held[token]

    # --- leaving ----------------------------------------------------------------------------------------------------

    def _leave(self, message: Message) -> None:
        """Bookkeeping for a message that leaves this queue for good."""
        if message.state == ACTIVE:
            self._active -= 1
        elif message.state == DEFERRED:
            self._deferred_count -= 1
        message.state = GONE
        message.token = None
        self._bytes -= message.size
        if message.expires_ms is not None:
            self._expiry.forget(message)
        session = message.session
        if session is not None and self._sessions is not None:
            session.members -= 1
            if session.members == 0:
                self._sessions.drop_if_unused(session)

    def _remove(self, message: Message, facts: Facts) -> None:
        """Remove a message and its body."""
        self._leave(message)
        facts.delete(_INDEX, KEY.pack(self.entity_id, message.seq))
        self._bodies.release(message.body, facts)

    def _expire(self, message: Message, facts: Facts) -> None:
        if self._settings.dead_letter_on_expiry:
            self._dead_letter(message, EXPIRED_REASON, EXPIRED_DESCRIPTION, facts)
        else:
            self._remove(message, facts)

    def _dead_letter(self, message: Message, reason: str | None, description: str | None, facts: Facts) -> None:
        """Move a message to the dead-letter queue under its own sequence number; only its index record moves."""
        dead_letters = self.dead_letters
        assert dead_letters is not None
        self._move(message, dead_letters, reason, description, facts)

    def _move(
        self, message: Message, target: Holding, reason: str | None, description: str | None, facts: Facts
    ) -> None:
        """Move a message to one of the entity's own dead-letter queues."""
        changes = dict(message.changes) if message.changes else {}
        if reason is not None:
            changes[DEAD_LETTER_REASON] = reason[:DEAD_LETTER_TEXT_CHARS_MAX]
        if description is not None:
            changes[DEAD_LETTER_DESCRIPTION] = description[:DEAD_LETTER_TEXT_CHARS_MAX]
        self._leave(message)
        facts.delete(_INDEX, KEY.pack(self.entity_id, message.seq))
        target._take_in(moved(message, changes or None), facts)

    def _take_in(self, message: Message, facts: Facts) -> None:
        """Hold a message whose number is given and whose body is stored."""
        raise AssertionError("messages arrive in arriving.py")

    def removed(self, seq: int) -> bool:
        """Whether a message was received and deleted, though its row may still be on disk."""
        message = self._taken.get(seq)
        return message is not None and message.state == GONE

    # --- waking and deleting ----------------------------------------------------------------------------------------

    def _wake(self, at_ms: int) -> None:
        if at_ms < self.wake_ms and not self.deleted:
            self.wake_ms = at_ms
            self._commons.alarms.set(self.entity_id, at_ms)

    def close(self, facts: Facts) -> None:
        """Leave service: every container is handed over for sweeping, and no command finds anything any more."""
        self.deleted = True
        self._commons.alarms.clear(self.entity_id)
        self.wake_ms = NEVER_MS
        sweep = self._commons.sweep
        sweep.add(
            index_rows(
                self.entity_id,
                _messages(self._available, self._locks, self._taken, self._deferred, self._schedule, self._sessions),
            )
        )
        sweep.add(index_rows(self.entity_id, iter(self._damaged.values())))
        if self._sessions is not None:
            sweep.add(_session_rows(self.entity_id, self._sessions))
        if self._duplicates is not None:
            sweep.add(_duplicate_rows(self._duplicates))
        self._available = Available()
        self._locks = Locks()
        self._taken = {}
        self._damaged = {}
        self._deferred = {}
        self._schedule = Schedule()
        self._expiry = Expiry()
        self._sessions = None
        self._duplicates = None
        facts.delete(Table.META, META_SEQUENCE + ENTITY_KEY.pack(self.entity_id))
        # Tells a start that its rows are to be cleared away: rows of an entity that nobody deleted are kept.
        facts.rows[Table.META, META_DELETED + ENTITY_KEY.pack(self.entity_id)] = b""
        facts.then.append((self._tell_deleted, None))

    def _tell_deleted(self, _: None) -> None:
        # Behind its last messages, which were handed to the sweep when the commit showed them.
        mark: Row = (Table.META, META_DELETED + ENTITY_KEY.pack(self.entity_id), 0)
        self._commons.sweep.add(iter([mark]))
        if self.on_deleted is not None:
            self.on_deleted(self)

    def _self(self) -> Queue:
        raise AssertionError("only queues hold messages")


def not_found_text(path: str) -> str:
    return (
        f"The messaging entity '{path}' could not be found. To know more visit https://aka.ms/sbResourceMgrExceptions."
    )


def index_rows(entity_id: int, messages: Iterator[Message]) -> Iterator[Row]:
    """The rows of messages, made one by one: a compiled generator expression would make them all at once."""
    for message in messages:
        yield _INDEX, KEY.pack(entity_id, message.seq), message.body


def _messages(
    available: Available,
    locks: Locks[bytes, Message],
    taken: dict[int, Message],
    deferred: dict[int, Message],
    schedule: Schedule,
    sessions: Sessions | None,
) -> Iterator[Message]:
    """All messages in containers that nobody changes any more."""
    yield from _waiting(available)
    yield from locks.held.values()
    yield from locks.older.values()
    for message in taken.values():
        if message.state != GONE:
            yield message
    yield from deferred.values()
    yield from schedule.messages.values()
    if sessions is not None:
        for session in sessions.by_id.values():
            yield from _waiting(session.available)


def _waiting(available: Available) -> Iterator[Message]:
    for message in available.fresh:
        if message.state != GONE:
            yield message
    for _, message in available.returned:
        if message.state != GONE:
            yield message


def _session_rows(entity_id: int, sessions: Sessions) -> Iterator[Row]:
    for session in sessions.by_id.values():
        if session.state is not None:
            yield Table.SESSIONS, session_key(entity_id, session.id), 0


def _duplicate_rows(duplicates: Duplicates) -> Iterator[Row]:
    for key in duplicates.row_keys():
        yield Table.DUPLICATES, key, 0
