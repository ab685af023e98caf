"""A queue: the commands of senders, receivers and time.

Every command is (state, command, now) -> facts: it checks, raises if it must, then changes memory and writes facts.
What it makes visible is seen after the commit. `holding.py` has the rules that the commands are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twinbus.errors import ArgumentError, MessageNotFoundError, NotAllowedError
from twinbus.limits import ACQUIRE_BYTES_MAX, BATCH_DELETE_MESSAGES_MAX, TICK_MESSAGES_MAX
from twinbus.store.facts import Facts

from .accepting import SESSION_NEEDED_TEXT
from .alarms import NEVER_MS
from .available import Available
from .effects import Effect, EffectKind
from .holding import TRANSFER_PART
from .message import Message
from .resubmitting import Resubmitting
from .session import Session
from .settings import QueueSettings
from .topic_settings import SubscriptionSettings, TopicSettings

DEAD_LETTER_SUFFIX: Final = "/$DeadLetterQueue"
TRANSFER_SUFFIX: Final = "/$Transfer/$DeadLetterQueue"


class Queue(Resubmitting):
    """One queue, or one dead-letter queue."""

    __slots__ = ()

    def _self(self) -> Queue:
        return self

    @property
    def settings(self) -> QueueSettings | SubscriptionSettings:
        settings = self._settings
        assert not isinstance(settings, TopicSettings)
        return settings

    @property
    def parts(self) -> list[Queue]:
        """The queue and its dead-letter queues."""
        return [part for part in (self, self.dead_letters, self.transfer_dead_letters) if part is not None]

    def open_transfer(self) -> Queue:
        """Its transfer dead-letter queue, made when it is first asked for: most queues never need one."""
        if self.transfer_dead_letters is None:
            made = Queue(
                self._settings,
                self.path + TRANSFER_SUFFIX,
                self.entity_id + TRANSFER_PART,
                self._commons,
                None,
                self.created_ms,
            )
            made.owner = self
            self.transfer_dead_letters = made
            self._commons.by_id[made.entity_id] = made
        return self.transfer_dead_letters

    def __repr__(self) -> str:
        return f"<Queue {self.path} {self.counts}>"

    # --- receiving --------------------------------------------------------------------------------------------------

    def has_available(self) -> bool:
        """Messages, or on a session queue free sessions, wait for a receiver."""
        if self._sessions is not None:
            return self._sessions.first() is not None
        return len(self._available) > 0

    def acquire(self, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX) -> list[Message]:
        """Lock the next messages, up to one that reaches the limit. Those that have expired leave on the way."""
        self._check_plain_receive()
        self.accessed_ms = now_ms
        picked = self._pick(self._available, count, now_ms, facts, limit_bytes)
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

    def take(self, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX) -> list[Message]:
        """Receive and delete, first half: nobody else gets these messages until `remove_taken` or `return_taken`."""
        self._check_plain_receive()
        self.accessed_ms = now_ms
        return self._taken_out(self._pick(self._available, count, now_ms, facts, limit_bytes))

    def receive_deferred(
        self, sequence_numbers: Sequence[int], now_ms: int, facts: Facts, *, session: Session | None
    ) -> list[Message]:
        """Lock deferred messages by number: all must be there. Expired ones leave and are not returned."""
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
            self._lock(message, until)
            received.append(message)
        self._wake(until)
        return received

    def delete_batch(self, count: int, before_ms: int, now_ms: int, facts: Facts, session_id: str | None = None) -> int:
        """Delete up to `count` available messages enqueued before a time, in order up to the first that was not; return
        how many."""
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
        self._note(effects, EffectKind.FORWARDED, self._forward_due(now_ms, facts))
        if self._duplicates is not None:
            forgotten = self._duplicates.purge(now_ms, TICK_MESSAGES_MAX, facts)
            self._note(effects, EffectKind.IDS_FORGOTTEN, forgotten)
        self.arm(now_ms)
        return effects

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

    # --- settings ---------------------------------------------------------------------------------------------------

    def update(self, settings: QueueSettings, now_ms: int, facts: Facts) -> None:
        """Take over new settings."""
        before = self._settings
        assert isinstance(before, QueueSettings)
        before.check_update(settings)
        self._adopt_all(settings, now_ms, facts)

    def _adopt_all(self, settings: QueueSettings | SubscriptionSettings, now_ms: int, facts: Facts) -> None:
        for queue in self.parts:
            queue._adopt(settings, now_ms, facts)
