"""A queue: the commands of senders, receivers and time.

Every command is (state, command, now) -> facts: it checks, raises if it must, then changes memory and writes facts.
What it makes visible is seen after the commit. `holding.py` has the rules that the commands are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twinbus.errors import (
    ArgumentError,
    EntityDisabledError,
    EntityNotFoundError,
    MessageNotFoundError,
    MessageTooLargeError,
    NotAllowedError,
    QuotaExceededError,
)
from twinbus.limits import (
    BATCH_DELETE_MESSAGES_MAX,
    MESSAGE_ID_CHARS_MAX,
    PARTITION_KEY_CHARS_MAX,
    SESSION_ID_CHARS_MAX,
    TICK_MESSAGES_MAX,
    UNLIMITED_MS,
)
from twinbus.store.facts import Facts, Table

from .accepting import SESSION_NEEDED_TEXT, Accepting
from .alarms import NEVER_MS
from .available import Available
from .effects import Effect, EffectKind
from .holding import not_found_text
from .message import ACTIVE, SCHEDULED, Message, NewMessage
from .records import KEY, pack
from .session import Session
from .settings import QueueSettings

_INDEX: Final = Table.INDEX

SESSION_ID_MISSING_TEXT: Final = (
    "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session support "
    "enabled can only receive messages that have the SessionId set to a valid value."
)


class Queue(Accepting):
    """One queue, or one dead-letter queue."""

    __slots__ = ()

    def _self(self) -> Queue:
        return self

    def __repr__(self) -> str:
        return f"<Queue {self.path} {self.counts}>"

    # --- sending ----------------------------------------------------------------------------------------------------

    def send(self, messages: Sequence[NewMessage], now_ms: int, facts: Facts) -> None:
        """Accept all messages or none. Pings are counted and dropped; duplicates are accepted and dropped."""
        self.check_send(messages)
        self.accessed_ms = now_ms
        duplicates = self._duplicates
        for new in messages:
            if new.ping:
                self.pings += 1
            elif duplicates is None:
                self._accept(new, now_ms, facts)
            elif duplicates.find(new.message_id, now_ms) is None:
                duplicates.add(new.message_id, self._accept(new, now_ms, facts), now_ms, facts)

    def schedule(self, messages: Sequence[NewMessage], now_ms: int, facts: Facts) -> list[int]:
        """Accept messages for later and return their sequence numbers; of a duplicate, that of the first one."""
        self.check_send(messages)
        self.accessed_ms = now_ms
        duplicates = self._duplicates
        numbers: list[int] = []
        for new in messages:
            if new.ping:
                self.pings += 1
                numbers.append(self._next_seq(facts))
                continue
            seq = None if duplicates is None else duplicates.find(new.message_id, now_ms)
            if seq is None:
                seq = self._accept(new, now_ms, facts)
                if duplicates is not None:
                    duplicates.add(new.message_id, seq, now_ms, facts)
            numbers.append(seq)
        return numbers

    def cancel(self, sequence_numbers: Sequence[int], now_ms: int, facts: Facts) -> None:
        """Remove scheduled messages: all of them or none."""
        scheduled = self._schedule.messages
        for seq in sequence_numbers:
            if seq not in scheduled:
                raise MessageNotFoundError(f"No scheduled message has the sequence number {seq}.")
        self.accessed_ms = now_ms
        for seq in dict.fromkeys(sequence_numbers):
            message = self._schedule.remove(seq)
            if message.session is not None:
                del message.session.aside[seq]
            self._remove(message, facts)

    def check_send(self, messages: Sequence[NewMessage]) -> None:
        """Raise what `send` would raise."""
        if self.deleted:
            raise EntityNotFoundError(not_found_text(self.path))
        if self.dead_letters is None:
            raise NotAllowedError(f"Messages cannot be sent to the dead-letter queue '{self.path}'.")
        if not self._sendable:
            raise EntityDisabledError(f"Messaging entity '{self.path}' is currently disabled.")
        total = 0
        limit = self.settings.max_message_bytes
        for new in messages:
            if new.ping:
                continue
            size = new.size
            if size > limit:
                raise MessageTooLargeError(
                    f"The received message (size:{size} bytes) exceeds the limit ({limit} bytes) currently allowed."
                )
            total += size
            if len(new.message_id) > MESSAGE_ID_CHARS_MAX:
                raise _too_long("message id", new.message_id, MESSAGE_ID_CHARS_MAX)
            if new.session_id is not None:
                self._check_session_id(new, new.session_id)
            elif self._sessions is not None:
                raise NotAllowedError(SESSION_ID_MISSING_TEXT)
            elif new.partition_key is not None and len(new.partition_key) > PARTITION_KEY_CHARS_MAX:
                raise _too_long("partition key", new.partition_key, PARTITION_KEY_CHARS_MAX)
        size = self._bytes + self.dead_letters._bytes
        if size + total > self._quota_bytes:
            raise QuotaExceededError(
                f"The maximum entity size has been reached or exceeded for Queue: '{self.path}'. "
                f"Size of entity in bytes:{size + total}, Max entity size in bytes:{self._quota_bytes}."
            )

    def _check_session_id(self, new: NewMessage, session_id: str) -> None:
        if len(session_id) > SESSION_ID_CHARS_MAX:
            raise _too_long("session id", session_id, SESSION_ID_CHARS_MAX)
        if new.partition_key is not None and new.partition_key != session_id:
            raise ArgumentError(
                f"The partition key '{new.partition_key[:PARTITION_KEY_CHARS_MAX]}' must equal "
                f"the session id '{session_id}'."
            )

    def _accept(self, new: NewMessage, now_ms: int, facts: Facts) -> int:
        """Store a message that was checked and return its sequence number."""
        enqueued_ms = now_ms
        state = ACTIVE
        if new.scheduled_ms is not None and new.scheduled_ms > now_ms:
            enqueued_ms = new.scheduled_ms
            state = SCHEDULED
        ttl_ms = new.ttl_ms
        if ttl_ms is None or ttl_ms > self._default_ttl_ms or ttl_ms < 0:
            ttl_ms = self._default_ttl_ms
        expires_ms = enqueued_ms + ttl_ms if ttl_ms < UNLIMITED_MS else None
        session = None
        session_id = None
        sessions = self._sessions
        if sessions is not None:
            session_id = new.session_id
            assert session_id is not None
            session = sessions.open(self, session_id)
            session.members += 1
        seq = self._next_seq(facts)
        body = self._bodies.store(new.body, facts)
        size = self._bodies.size(new.size)
        message = Message(seq, body, size, enqueued_ms, expires_ms, state, 0, session, None)
        self._bytes += size
        facts.index.append((KEY.pack(self.entity_id, seq), pack(message, session_id)))
        self._show_after(message, facts)
        return seq

    # --- receiving --------------------------------------------------------------------------------------------------

    def has_available(self) -> bool:
        """Messages, or on a session queue free sessions, wait for a receiver."""
        if self._sessions is not None:
            return self._sessions.first() is not None
        return len(self._available) > 0

    def acquire(self, count: int, now_ms: int, facts: Facts) -> list[Message]:
        """Lock the next messages. Those that have expired leave on the way."""
        self._check_plain_receive()
        self.accessed_ms = now_ms
        picked = self._pick(self._available, count, now_ms, facts)
        if picked:
            until = now_ms + self._lock_duration_ms
            tokens = self._commons.tokens
            held = self._locks.held
            for message in picked:
                token = tokens()
                message.token = token
                message.locked_until_ms = until
                held[token] = message
            if until < self.wake_ms:
                self._wake(until)
        return picked

    def take(self, count: int, now_ms: int, facts: Facts) -> list[Message]:
        """Receive and delete: the bodies are to be read before the commit, and delivered after it."""
        self._check_plain_receive()
        self.accessed_ms = now_ms
        picked = self._pick(self._available, count, now_ms, facts)
        for message in picked:
            self._remove(message, facts)
        return picked

    def receive_deferred(
        self, sequence_numbers: Sequence[int], now_ms: int, facts: Facts, *, lock: bool, session: Session | None
    ) -> list[Message]:
        """Receive deferred messages by number: all must be there. Expired ones leave and are not returned."""
        self._check_receivable()
        if self._sessions is not None:
            if session is None:
                raise NotAllowedError(SESSION_NEEDED_TEXT)
            session.check(now_ms)
        found: list[Message] = []
        for seq in dict.fromkeys(sequence_numbers):
            message = self._deferred.get(seq)
            if message is None or message.session is not session:
                raise MessageNotFoundError(f"No deferred message has the sequence number {seq}.")
            found.append(message)
        self.accessed_ms = now_ms
        until = now_ms + self._lock_duration_ms
        if session is not None:
            assert session.locked_until_ms is not None
            until = session.locked_until_ms
        received: list[Message] = []
        for message in found:
            del self._deferred[message.seq]
            if session is not None:
                del session.aside[message.seq]
            if self.dead_letters is not None and message.expires_ms is not None and message.expires_ms <= now_ms:
                self._expire(message, facts)
                continue
            if lock:
                self._lock(message, until)
            else:
                self._remove(message, facts)
            received.append(message)
        if lock:
            self._wake(until)
        return received

    def delete_batch(self, count: int, before_ms: int, now_ms: int, facts: Facts, session_id: str | None = None) -> int:
        """Delete up to `count` available messages enqueued before a time, oldest first; return how many."""
        if not 1 <= count <= BATCH_DELETE_MESSAGES_MAX:
            raise ArgumentError(f"The message count {count} is out of range: 1 to {BATCH_DELETE_MESSAGES_MAX}.")
        self._check_receivable()
        self.accessed_ms = now_ms
        sources: list[Available] = [self._available]
        if self._sessions is not None:
            if session_id is None:
                sources = [session.available for session in self._sessions.by_id.values()]
            else:
                session = self._sessions.by_id.get(session_id)
                sources = [] if session is None else [session.available]
        deleted = 0
        for available in sources:
            while deleted < count:
                message = available.first()
                if message is None or message.enqueued_ms >= before_ms:
                    break
                available.pop()
                self._remove(message, facts)
                deleted += 1
        return deleted

    def _check_plain_receive(self) -> None:
        if self.deleted or not self._receivable:
            self._check_receivable()
        if self._sessions is not None:
            raise NotAllowedError(SESSION_NEEDED_TEXT)

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, facts: Facts) -> list[Effect]:
        """Do what is due, a bounded amount of each kind; what remains is due at once again."""
        self.wake_ms = NEVER_MS
        effects: list[Effect] = []
        if self._sessions is not None:
            self._note(
                effects,
                EffectKind.SESSIONS_LOST,
                self._lapse_sessions(self._sessions, now_ms, TICK_MESSAGES_MAX, facts),
            )
        else:
            self._note(effects, EffectKind.LOCKS_LAPSED, self._lapse_locks(now_ms, facts))
        self._note(effects, EffectKind.EXPIRED, self._expire_due(now_ms, facts))
        self._note(effects, EffectKind.ACTIVATED, self._activate_due(now_ms, facts))
        if self._duplicates is not None:
            forgotten = self._duplicates.purge(now_ms, TICK_MESSAGES_MAX, facts)
            self._note(effects, EffectKind.IDS_FORGOTTEN, forgotten)
        self.arm(now_ms)
        return effects

    def idle(self, now_ms: int) -> bool:
        """Nobody has used it for its auto-delete time."""
        at_ms = self._idle_deadline_ms(now_ms)
        return at_ms is not None and at_ms <= now_ms

    def arm(self, now_ms: int) -> None:
        """Set the alarm to the earliest deadline there is."""
        deadlines = [self._expiry.deadline_ms(), self._schedule.deadline_ms()]
        deadlines.append(self._locks.deadline_ms() if self._sessions is None else self._sessions.locks.deadline_ms())
        if self._duplicates is not None:
            deadlines.append(self._duplicates.deadline_ms())
        deadlines.append(self._idle_deadline_ms(now_ms))
        for at_ms in deadlines:
            if at_ms is not None:
                self._wake(at_ms)

    def _idle_deadline_ms(self, now_ms: int) -> int | None:
        """When it will have been idle for long enough: links and scheduled messages keep it in use."""
        limit_ms = self.settings.auto_delete_on_idle_ms
        dead_letters = self.dead_letters
        if limit_ms >= UNLIMITED_MS or dead_letters is None:
            return None
        if self.links > 0 or dead_letters.links > 0 or len(self._schedule):
            return now_ms + limit_ms
        return max(self.accessed_ms, dead_letters.accessed_ms) + limit_ms

    def _lapse_locks(self, now_ms: int, facts: Facts) -> int:
        lapsed = self._locks.lapsed(now_ms, TICK_MESSAGES_MAX)
        for message in lapsed:
            self._unlock(message)
            self._return(message, True, False, now_ms, facts)
        return len(lapsed)

    def _expire_due(self, now_ms: int, facts: Facts) -> int:
        due = self._expiry.due(now_ms, TICK_MESSAGES_MAX)
        for message in due:
            available = self._available if message.session is None else message.session.available
            self._expire(message, facts)
            available.note_gone()
        return len(due)

    def _activate_due(self, now_ms: int, facts: Facts) -> int:
        """Scheduled messages become active under a new sequence number, as if they were sent now."""
        due = self._schedule.due(now_ms, TICK_MESSAGES_MAX)
        for message in due:
            facts.deletes.append((_INDEX, KEY.pack(self.entity_id, message.seq)))
            session = message.session
            if session is not None:
                del session.aside[message.seq]
            if message.expires_ms is not None:
                message.expires_ms += now_ms - message.enqueued_ms
            message.enqueued_ms = now_ms
            message.seq = self._next_seq(facts)
            message.state = ACTIVE
            self._write(message, facts)
            self._show_after(message, facts)
        return len(due)

    def _note(self, effects: list[Effect], kind: EffectKind, count: int) -> None:
        if count:
            effects.append(Effect(kind, self, count))

    # --- settings ---------------------------------------------------------------------------------------------------

    def update(self, settings: QueueSettings, now_ms: int, facts: Facts) -> None:
        """Take over new settings; messages already here keep their expiry and their locks."""
        self.settings.check_update(settings)
        for queue in (self, self.dead_letters):
            if queue is None:
                continue
            if queue._lock_duration_ms != settings.lock_duration_ms:
                queue._locks.duration_changed()
                if queue._sessions is not None:
                    queue._sessions.locks.duration_changed()
            if queue._duplicates is not None:
                queue._duplicates.window_ms = settings.duplicate_window_ms
            queue._apply(settings)
            queue.updated_ms = now_ms
            queue.accessed_ms = now_ms
            queue.arm(now_ms)
            facts.then.append((queue._announce_again, None))


def _too_long(what: str, value: str, limit: int) -> ArgumentError:
    return ArgumentError(f"The {what} has {len(value)} characters, the limit is {limit}.")
