"""Sending to an entity, and what time does to every entity: the commands that queues and topics have in common.

A send is checked whole before anything is changed. What is accepted gets its sequence number at once and is seen after
the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

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
    MESSAGE_ID_CHARS_MAX,
    PARTITION_KEY_CHARS_MAX,
    SESSION_ID_CHARS_MAX,
    TICK_MESSAGES_MAX,
    UNLIMITED_MS,
)
from twinbus.store.facts import Facts, Table

from .alarms import NEVER_MS
from .arriving import Arriving
from .effects import Effect, EffectKind
from .holding import not_found_text
from .message import ACTIVE, SCHEDULED, Message, NewMessage, Relayed
from .records import KEY, pack
from .topic_settings import Settings

if TYPE_CHECKING:
    from .views import StoredView

_INDEX: Final = Table.INDEX

SESSION_ID_MISSING_TEXT: Final = (
    "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session support "
    "enabled can only receive messages that have the SessionId set to a valid value."
)


class Sending(Arriving):
    """What takes messages."""

    __slots__ = ()

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

    def reserve_numbers(self, count: int, facts: Facts) -> list[int]:
        """Sequence numbers for messages that come later, if they come."""
        return [self._next_seq(facts) for _ in range(count)]

    def schedule(
        self, messages: Sequence[NewMessage], now_ms: int, facts: Facts, reserved: Sequence[int] = ()
    ) -> list[int]:
        """Accept messages for later and return their sequence numbers; of a duplicate, that of the first one.
        `reserved` are numbers that were given out for them before."""
        self.check_send(messages)
        self.accessed_ms = now_ms
        duplicates = self._duplicates
        numbers: list[int] = []
        for at, new in enumerate(messages):
            if new.ping:
                self.pings += 1
                numbers.append(self._next_seq(facts))
                continue
            seq = None if duplicates is None else duplicates.find(new.message_id, now_ms)
            if seq is None:
                seq = self._accept(new, now_ms, facts, reserved[at] if reserved else 0)
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
        if self.deleted or self.owner is not None or not self._sendable:
            self._check_open()
        self._check_room(self._checked_bytes(messages))

    def check_relay(self, message: Relayed, view: StoredView) -> None:
        """Raise what stands against taking a message from another entity."""
        self._check_open()
        limit = self._settings.max_message_bytes
        if message.size > limit:
            raise _too_large(message.size, limit)
        if self._sessions is not None and view.system("SessionId") is None:
            raise NotAllowedError(SESSION_ID_MISSING_TEXT)
        if self._duplicates is not None:
            # What `relay` will ask for must read: it has no way back.
            view.system("MessageId")
        self._check_room(message.size)

    def relay(self, message: Relayed, view: StoredView, now_ms: int, facts: Facts) -> int:
        """Take a message from another entity, checked already, with its body; return how many copies that made."""
        raise AssertionError("only queues and topics take messages")

    def _check_open(self) -> None:
        if self.deleted:
            raise EntityNotFoundError(not_found_text(self.path))
        if self.owner is not None:
            raise NotAllowedError(f"Messages cannot be sent to the dead-letter queue '{self.path}'.")
        if not self._sendable:
            raise EntityDisabledError(f"Messaging entity '{self.path}' is currently disabled.")

    def _check_room(self, more: int) -> None:
        dead_letters = self.dead_letters
        if self.transfer_dead_letters is not None or dead_letters is None:
            size = self.size_bytes
        else:
            size = self._bytes + dead_letters._bytes
        if size + more > self._quota_bytes:
            raise QuotaExceededError(
                f"The maximum entity size has been reached or exceeded for Queue: '{self.path}'. "
                f"Size of entity in bytes:{size + more}, Max entity size in bytes:{self._quota_bytes}."
            )

    def _checked_bytes(self, messages: Sequence[NewMessage]) -> int:
        """The bytes of messages that can be taken one by one."""
        total = 0
        limit = self._settings.max_message_bytes
        for new in messages:
            if new.ping:
                continue
            size = new.size
            if size > limit:
                raise _too_large(size, limit)
            total += size
            if len(new.message_id) > MESSAGE_ID_CHARS_MAX:
                raise _too_long("message id", new.message_id, MESSAGE_ID_CHARS_MAX)
            if new.session_id is not None:
                self._check_session_id(new, new.session_id)
            elif self._sessions is not None:
                raise NotAllowedError(SESSION_ID_MISSING_TEXT)
            elif new.partition_key is not None and len(new.partition_key) > PARTITION_KEY_CHARS_MAX:
                raise _too_long("partition key", new.partition_key, PARTITION_KEY_CHARS_MAX)
        return total

    def _check_session_id(self, new: NewMessage, session_id: str) -> None:
        if len(session_id) > SESSION_ID_CHARS_MAX:
            raise _too_long("session id", session_id, SESSION_ID_CHARS_MAX)
        if new.partition_key is not None and new.partition_key != session_id:
            raise ArgumentError(
                f"The partition key '{new.partition_key[:PARTITION_KEY_CHARS_MAX]}' must equal "
                f"the session id '{session_id}'."
            )

    def _accept(self, new: NewMessage, now_ms: int, facts: Facts, reserved: int = 0) -> int:
        """Store a message that was checked and return its sequence number: the reserved one, if it is scheduled."""
        enqueued_ms = now_ms
        state = ACTIVE
        if new.scheduled_ms is not None and new.scheduled_ms > now_ms:
            enqueued_ms = new.scheduled_ms
            state = SCHEDULED
        # As in `_expires_ms`; a call for each message would be felt.
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
            session = sessions.open(self._self(), session_id)
            session.members += 1
        seq = reserved if reserved and state == SCHEDULED else self._next_seq(facts)
        body = self._bodies.store(new.body, facts)
        size = self._bodies.size(new.size)
        message = Message(seq, body, size, enqueued_ms, expires_ms, state, 0, session, None)
        self._bytes += size
        facts.index[KEY.pack(self.entity_id, seq)] = pack(message, session_id)
        self._show_after(message, facts)
        return seq

    def _expires_ms(self, ttl_ms: int | None, enqueued_ms: int) -> int | None:
        """When a message expires: the entity's default is also the ceiling."""
        if ttl_ms is None or ttl_ms > self._default_ttl_ms or ttl_ms < 0:
            ttl_ms = self._default_ttl_ms
        return enqueued_ms + ttl_ms if ttl_ms < UNLIMITED_MS else None

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, facts: Facts) -> list[Effect]:
        """Do what is due, a bounded amount of each kind; what remains is due at once again."""
        raise AssertionError("only queues and topics have a time")

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
        if self._forward_path is not None and self._receivable and len(self._available):
            deadlines.append(now_ms)
        for at_ms in deadlines:
            if at_ms is not None:
                self._wake(at_ms)

    def shift(self, step_ms: int) -> None:
        """The time of day jumped: the ends of intervals move with it, dates stay. Whoever calls arms it again."""
        self._locks.shift(step_ms)
        if self._sessions is not None:
            self._sessions.locks.shift(step_ms)
        if self._duplicates is not None:
            self._duplicates.shift(step_ms)
        self.accessed_ms += step_ms
        self.wake_ms = NEVER_MS
        self._commons.alarms.clear(self.entity_id)

    def _idle_deadline_ms(self, now_ms: int) -> int | None:
        """When it will have been idle for long enough: links and scheduled messages keep it in use."""
        limit_ms = self._settings.auto_delete_on_idle_ms
        dead_letters = self.dead_letters
        if limit_ms >= UNLIMITED_MS or dead_letters is None:
            return None
        if self.links > 0 or dead_letters.links > 0 or len(self._schedule):
            return now_ms + limit_ms
        return max(self.accessed_ms, dead_letters.accessed_ms) + limit_ms

    def _activate_due(self, now_ms: int, facts: Facts) -> int:
        """Scheduled messages become active under a new sequence number, as if they were sent now."""
        due = self._schedule.due(now_ms, TICK_MESSAGES_MAX)
        for message in due:
            facts.delete(_INDEX, KEY.pack(self.entity_id, message.seq))
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

    def _adopt(self, settings: Settings, now_ms: int, facts: Facts) -> None:
        """Take over new settings; messages already here keep their expiry and their locks."""
        if self._lock_duration_ms != settings.lock_duration_ms:
            self._locks.duration_changed()
            if self._sessions is not None:
                self._sessions.locks.duration_changed()
        if self._duplicates is not None:
            self._duplicates.window_ms = settings.duplicate_window_ms
        self._apply(settings)
        self.updated_ms = now_ms
        self.accessed_ms = now_ms
        self.arm(now_ms)
        facts.then.append((self._announce_again, None))


def _too_long(what: str, value: str, limit: int) -> ArgumentError:
    return ArgumentError(f"The {what} has {len(value)} characters, the limit is {limit}.")


def _too_large(size: int, limit: int) -> MessageTooLargeError:
    return MessageTooLargeError(
        f"The received message (size:{size} bytes) exceeds the limit ({limit} bytes) currently allowed."
    )
