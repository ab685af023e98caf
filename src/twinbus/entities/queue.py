"""A queue: the commands of senders and receivers, and what time does.

1. Every command is (state, command, now) -> facts. It checks first and changes afterwards; a command that raises has
   changed nothing.
2. A change applies in memory at once and is written as facts; a message becomes visible only after the commit.
3. The parts of a queue do not know each other: `messages` knows where each message is; `sessions`, `duplicates`,
   `numbers`, `quota` and `alarm` do what their names say. The queue decides what moves when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from twinbus.errors import NotAllowedError
from twinbus.limits import ACQUIRE_BYTES_MAX, TICK_MESSAGES_MAX, UNLIMITED_MS
from twinbus.store.facts import Facts

from .admission import checked_bytes
from .alarms import Alarm
from .arrivals import Arrivals
from .changes import PropertyChanges, merged
from .chosen import dead_letter_chosen, delete_chosen
from .commons import Commons
from .due import activate_due, expire_due, idle_deadline_ms, lapse_locks, lapse_sessions
from .duplicates import Duplicates
from .effects import Effect, EffectKind, note
from .entity_ids import DEAD_LETTER_PART, IDS_PER_ENTITY, MAIN_PART, TRANSFER_PART
from .expiry import earlier, expires_at
from .forwarding import forward_due
from .gate import Gate
from .message import ACTIVE, SCHEDULED, NewMessage, QueuedMessage, Relayed
from .messages import Counts, Messages, index_rows, sweep_arrivals
from .moves import dead_letter, expire_picked, free_session, give_back, pick
from .quota import Quota
from .receiving import delete_available, receive_by_number
from .records import KEY, pack
from .refusals import NO_SESSIONS_TEXT, SESSION_ID_MISSING_TEXT, SESSION_NEEDED_TEXT, too_large
from .resubmission import Resubmitted, resubmit_dead_letters
from .scheduling import cancel_scheduled, schedule_messages
from .sequence import SequenceNumbers
from .session import MessageSession
from .sessions import Sessions
from .settings import QueueSettings
from .sweep import mark_deleted
from .topic_settings import SubscriptionSettings

if TYPE_CHECKING:
    from .subscription import Subscription
    from .views import StoredView

DEAD_LETTER_SUFFIX: Final = "/$DeadLetterQueue"
TRANSFER_SUFFIX: Final = "/$Transfer/$DeadLetterQueue"


class Queue:
    """One queue, or one dead-letter queue."""

    held: None = None  # only a topic is ever held

    __slots__ = (
        "_bodies",
        "_commons",
        "_default_ttl_ms",
        "_lock_duration_ms",
        "accessed_ms",
        "alarm",
        "arrivals",
        "created_ms",
        "dead_letters",
        "duplicates",
        "entity_id",
        "forward_path",
        "gate",
        "links",
        "messages",
        "numbers",
        "on_available",
        "on_deleted",
        "on_session_lost",
        "owner",
        "path",
        "pings",
        "quota",
        "sessions",
        "settings",
        "subscription",
        "transfer_dead_letters",
        "updated_ms",
    )

    def __init__(
        self,
        settings: QueueSettings | SubscriptionSettings,
        path: str,
        entity_id: int,
        commons: Commons,
        dead_letters: Queue | None,
        now_ms: int,
    ) -> None:
        # Spelled as when it was created.
        self.path = path
        self.entity_id = entity_id
        # Where its dead-lettered messages go; None if it is itself a dead-letter queue.
        self.dead_letters = dead_letters
        # Messages that could not be forwarded; None until one is needed.
        self.transfer_dead_letters: Queue | None = None
        # The queue whose dead-letter or transfer dead-letter queue this is; None for any other queue.
        self.owner: Queue | None = None
        # The subscription that fills it; None if senders do.
        self.subscription: Subscription | None = None
        self.created_ms = self.updated_ms = now_ms
        # When it was last used; idle deletion counts from here.
        self.accessed_ms = now_ms
        # Attached links, maintained by the broker: a queue with links is not idle.
        self.links = 0
        self.pings = 0
        # Called after a commit that made messages or free sessions available.
        self.on_available: Callable[[Queue], None] | None = None
        # Called when a session's lock has expired.
        self.on_session_lost: Callable[[Queue, MessageSession], None] | None = None
        self.on_deleted: Callable[[Any], None] | None = None
        self._commons = commons
        # The same as in `_commons`, because every send needs it.
        self._bodies = commons.bodies
        # None without sessions.
        self.sessions: Sessions | None = None
        # None without duplicate detection.
        self.duplicates: Duplicates | None = None
        if dead_letters is not None:
            if settings.requires_duplicate_detection:
                self.duplicates = Duplicates(entity_id, settings.duplicate_window_ms, commons.accounts)
            if settings.requires_session:
                self.sessions = Sessions(self, commons.accounts)
        self.numbers = SequenceNumbers(entity_id)
        self.messages = Messages(entity_id, commons, self.sessions, dead_letters is not None)
        counted = [self.messages] if dead_letters is None else [self.messages, dead_letters.messages]
        self.quota = Quota(f"Queue: '{path}'", settings.quota_bytes, counted)
        self.alarm = Alarm(commons.alarms, entity_id)
        self.arrivals = Arrivals(self._show)
        # The forwarding target; None if messages stay.
        self.forward_path: str | None = None
        self.gate = Gate(
            path, None if dead_letters is not None else f"Messages cannot be sent to the dead-letter queue '{path}'."
        )
        self._apply(settings)

    def __repr__(self) -> str:
        return f"<Queue {self.path} {self.counts}>"

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def deleted(self) -> bool:
        """It no longer exists; links to it must detach."""
        return self.gate.deleted

    @property
    def parts(self) -> list[Queue]:
        """The queue and its dead-letter queues."""
        return [part for part in (self, self.dead_letters, self.transfer_dead_letters) if part is not None]

    @property
    def counts(self) -> Counts:
        messages = self.messages
        dead = 0
        if self.dead_letters is not None:
            dead = self.dead_letters.messages.active + self.dead_letters.messages.deferred_count
        return Counts(messages.active, len(messages.schedule), messages.deferred_count, dead)

    @property
    def size_bytes(self) -> int:
        """Total size of its messages. Those in its dead-letter queues count too: they share the quota."""
        return self.quota.used_bytes

    @property
    def transfer_dead_letter_count(self) -> int:
        """Messages that could not be forwarded."""
        return 0 if self.transfer_dead_letters is None else self.transfer_dead_letters.messages.active

    @property
    def damaged_count(self) -> int:
        """Messages whose body cannot be read, including those in its dead-letter queues."""
        return sum(len(part.messages.damaged) for part in self.parts)

    def open_transfer(self) -> Queue:
        """Its transfer dead-letter queue, created on first use: most queues never need one."""
        if self.transfer_dead_letters is None:
            made = Queue(
                self.settings,
                self.path + TRANSFER_SUFFIX,
                self.entity_id + TRANSFER_PART,
                self._commons,
                None,
                self.created_ms,
            )
            made.owner = self
            self.transfer_dead_letters = made
            self.quota.count(made.messages)
            self._commons.by_id[made.entity_id] = made
        return self.transfer_dead_letters

    def touch(self, now_ms: int) -> None:
        """Record a use; browsing and attaching count, too."""
        self.accessed_ms = now_ms

    # --- sending ----------------------------------------------------------------------------------------------------

    def send(self, messages: Sequence[NewMessage], now_ms: int, facts: Facts) -> None:
        """Accept all messages or none. Pings are counted and dropped; duplicates are accepted and dropped."""
        # As in `check_send`, inlined: a call is measurable here.
        if not self.gate.sendable:
            self.gate.check_sendable()
        bytes_max = self.settings.max_message_bytes
        self.quota.check(checked_bytes(messages, bytes_max, self.sessions is not None, self.duplicates))
        self.accessed_ms = now_ms
        duplicates = self.duplicates
        for new in messages:
            if new.ping:
                self.pings += 1
            elif duplicates is None:
                self.accept(new, now_ms, facts)
            elif duplicates.find(new.message_id, now_ms) is None:
                duplicates.add(new.message_id, self.accept(new, now_ms, facts), now_ms, facts)

    def reserve_numbers(self, count: int, facts: Facts) -> list[int]:
        """Reserve sequence numbers for messages that may come later."""
        return [self.numbers.next(facts) for _ in range(count)]

    def schedule(
        self, messages: Sequence[NewMessage], now_ms: int, facts: Facts, reserved: Sequence[int] = ()
    ) -> list[int]:
        """Accept messages for later and return their sequence numbers; a duplicate gets that of the first message.
        `reserved` are numbers handed out for them before."""
        return schedule_messages(self, self.accept, messages, now_ms, facts, reserved)

    def cancel(self, sequence_numbers: Sequence[int], now_ms: int, facts: Facts) -> None:
        """Remove scheduled messages: all of them or none."""
        cancel_scheduled(self, sequence_numbers, now_ms, facts)

    def check_send(self, messages: Sequence[NewMessage]) -> None:
        """Raise what `send` would raise."""
        if not self.gate.sendable:
            self.gate.check_sendable()
        bytes_max = self.settings.max_message_bytes
        self.quota.check(checked_bytes(messages, bytes_max, self.sessions is not None, self.duplicates))

    def accept(self, new: NewMessage, now_ms: int, facts: Facts, reserved: int = 0) -> int:
        """Store a checked message and return its sequence number: the reserved one if it is scheduled."""
        enqueued_ms = now_ms
        state = ACTIVE
        if new.scheduled_ms is not None and new.scheduled_ms > now_ms:
            enqueued_ms = new.scheduled_ms
            state = SCHEDULED
        # As in `expires_at`, inlined: a call per message is measurable.
        ttl_ms = new.ttl_ms
        if ttl_ms is None or ttl_ms > self._default_ttl_ms or ttl_ms < 0:
            ttl_ms = self._default_ttl_ms
        expires_ms = enqueued_ms + ttl_ms if ttl_ms < UNLIMITED_MS else None
        session = None
        if self.sessions is not None:
            assert new.session_id is not None
            session = self.sessions.join(new.session_id)
        seq = reserved if reserved and state == SCHEDULED else self.numbers.next(facts)
        bodies = self._bodies
        body = bodies.store(new.body, facts)
        size = bodies.size(new.size)
        message = QueuedMessage(seq, body, size, enqueued_ms, expires_ms, state, 0, session, None)
        # As in `take_in`, inlined: a call is measurable here.
        self.messages.bytes += size
        facts.index[KEY.pack(self.entity_id, seq)] = pack(message, new.session_id if session is not None else None)
        self.arrivals.add(message, facts)
        return seq

    # --- messages that come from other entities ---------------------------------------------------------------------

    def check_relay(self, message: Relayed, view: StoredView) -> None:
        """Raise if a message from another entity cannot be accepted."""
        self.gate.check_open()
        limit = self.settings.max_message_bytes
        if message.size > limit:
            raise too_large(message.size, limit)
        if self.sessions is not None and view.system("SessionId") is None:
            raise NotAllowedError(SESSION_ID_MISSING_TEXT)
        if self.duplicates is not None:
            # `relay` needs it later and cannot fail any more.
            view.system("MessageId")
            self.duplicates.check_room(())
        self.quota.check(message.size)

    def relay(self, message: Relayed, view: StoredView, now_ms: int, facts: Facts) -> int:
        """Accept a checked message from another entity, with its body, as if it were sent now; return the number of
        copies."""
        self.accessed_ms = now_ms
        duplicates = self.duplicates
        message_id = ""
        if duplicates is not None:
            message_id = str(view.system("MessageId") or "")
            if duplicates.find(message_id, now_ms) is not None:
                self._bodies.release(message.body_number, facts)
                return 1
        message.expires_ms = earlier(message.expires_ms, self.expires_at(None, now_ms))
        message.seq = self.numbers.next(facts)
        if duplicates is not None:
            duplicates.add(message_id, message.seq, now_ms, facts)
        self.take_in(message, None if self.sessions is None else str(view.system("SessionId")), facts)
        return 1

    def take_in(self, message: QueuedMessage, session_id: str | None, facts: Facts, shown: Facts | None = None) -> None:
        """Hold a message that has a number and a stored body; it becomes visible when `shown` is durable."""
        if session_id is not None and self.sessions is not None:
            message.session = self.sessions.join(session_id)
        self.messages.take_in(message, facts)
        self.arrivals.add(message, facts if shown is None else shown)

    def resubmit(
        self, part: Queue, sequence_numbers: Sequence[int] | None, after_seq: int, now_ms: int, facts: Facts
    ) -> Resubmitted:
        """Take back unlocked dead letters from one of its own dead-letter queues: those with the given numbers, or
        without numbers a bounded number of those after `after_seq`."""
        return resubmit_dead_letters(self, part, sequence_numbers, after_seq, self._commons.views, now_ms, facts)

    def expires_at(self, ttl_ms: int | None, enqueued_ms: int) -> int | None:
        """When a message with this time to live expires here."""
        return expires_at(ttl_ms, self._default_ttl_ms, enqueued_ms)

    # --- receiving --------------------------------------------------------------------------------------------------

    def has_available(self) -> bool:
        """Whether messages (in a session queue, free sessions) wait for a receiver."""
        if self.sessions is not None:
            return self.sessions.first() is not None
        return len(self.messages.available) > 0

    def acquire(
        self, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX
    ) -> list[QueuedMessage]:
        """Lock the next messages until one reaches the limit. Expired messages leave on the way."""
        if not self.gate.receivable or self.sessions is not None:
            self._refuse_plain_receive()
        self.accessed_ms = now_ms
        messages = self.messages
        picked, expired = messages.available.pick(count, limit_bytes, 0 if self.dead_letters is None else now_ms)
        if expired:
            expire_picked(self, expired, facts)
        if picked:
            until = now_ms + self._lock_duration_ms
            messages.lock(picked, until)
            if until < self.alarm.at_ms:
                self.alarm.wake(until)
        return picked

    def take(self, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX) -> list[QueuedMessage]:
        """Start a receive-and-delete: nobody else gets these messages until `remove_taken` or `return_taken`."""
        if not self.gate.receivable or self.sessions is not None:
            self._refuse_plain_receive()
        self.accessed_ms = now_ms
        picked = pick(self, self.messages.available, count, now_ms, facts, limit_bytes)
        self.messages.take(picked)
        return picked

    def remove_taken(self, messages: list[QueuedMessage], facts: Facts) -> None:
        """Finish a receive-and-delete: the receiver has the messages, so they are deleted."""
        if self.gate.deleted:
            return
        told = self.messages.remove_taken(messages, facts)
        if told:
            self._announce(told)

    def return_taken(self, messages: list[QueuedMessage], now_ms: int, facts: Facts) -> None:
        """Cancel a receive-and-delete: the receiver left before it got the messages. No delivery is counted."""
        if self.gate.deleted:
            return
        for message in messages:
            self.messages.untake(message)
            give_back(self, message, False, False, now_ms, facts)

    def receive_deferred(
        self, sequence_numbers: Sequence[int], now_ms: int, facts: Facts, *, session: MessageSession | None
    ) -> list[QueuedMessage]:
        """Lock deferred messages by number. All must exist; expired ones leave and are not returned."""
        return receive_by_number(self, sequence_numbers, now_ms, facts, session)

    def delete_batch(self, count: int, before_ms: int, now_ms: int, facts: Facts, session_id: str | None = None) -> int:
        """Delete up to `count` available messages, in order until one is not older; return how many."""
        return delete_available(self, count, before_ms, now_ms, facts, session_id)

    def delete_chosen(self, sequence_numbers: Sequence[int], now_ms: int, facts: Facts) -> list[int]:
        """Delete unlocked messages by number; return the numbers of those deleted."""
        return delete_chosen(self, sequence_numbers, now_ms, facts)

    def dead_letter_chosen(
        self, sequence_numbers: Sequence[int], now_ms: int, facts: Facts, reason: str | None, description: str | None
    ) -> list[int]:
        """Dead-letter unlocked messages by number; return the numbers of those moved."""
        return dead_letter_chosen(self, sequence_numbers, now_ms, facts, reason, description)

    # --- settling ---------------------------------------------------------------------------------------------------
    # A token is valid until its lock expires, is settled or is released; after that every use fails with lock-lost.

    def complete(self, token: bytes, now_ms: int, facts: Facts) -> None:
        """Delete the message."""
        messages = self.messages
        message = messages.locked(token, now_ms)
        self.accessed_ms = now_ms
        messages.unlock(message)
        messages.remove(message, facts)

    def abandon(self, token: bytes, now_ms: int, facts: Facts, changes: PropertyChanges | None = None) -> None:
        """Return the message, counting a delivery."""
        message = self._unlocked(token, now_ms, changes)
        give_back(self, message, True, True, now_ms, facts)

    def defer(self, token: bytes, now_ms: int, facts: Facts, changes: PropertyChanges | None = None) -> None:
        """Set the message aside, counting a delivery: from now on it is received only by its sequence number."""
        message = self._unlocked(token, now_ms, changes)
        if self.dead_letters is not None:
            # No maximum applies: a message that its receiver wants to keep is not dead-lettered.
            message.delivery_count += 1
        self.messages.defer(message)
        give_back(self, message, False, True, now_ms, facts)

    def dead_letter(
        self,
        token: bytes,
        now_ms: int,
        facts: Facts,
        reason: str | None,
        description: str | None,
        changes: PropertyChanges | None = None,
    ) -> None:
        """Move the message to the dead-letter queue."""
        self.messages.locked(token, now_ms)
        if self.dead_letters is None:
            raise NotAllowedError("A message in a dead-letter queue cannot be dead-lettered again.")
        message = self._unlocked(token, now_ms, changes)
        dead_letter(self, message, self.dead_letters, reason, description, facts)

    def release(self, token: bytes, now_ms: int, facts: Facts) -> None:
        """Return the message unchanged, without counting a delivery."""
        give_back(self, self._unlocked(token, now_ms, None), False, False, now_ms, facts)

    def drop(self, token: bytes, now_ms: int, facts: Facts) -> None:
        """The receiver's connection broke: return the message, counting a delivery. This is not a use of the queue."""
        message = self.messages.locked(token, now_ms)
        self.messages.unlock(message)
        give_back(self, message, True, False, now_ms, facts)

    def renew(self, token: bytes, now_ms: int) -> int:
        """Extend the lock to a full duration from now. A message in a session is locked as long as the session."""
        message = self.messages.locked(token, now_ms)
        self.accessed_ms = now_ms
        session = message.session
        if session is not None:
            assert session.locked_until_ms is not None
            return session.locked_until_ms
        until = now_ms + self._lock_duration_ms
        message.locked_until_ms = until
        self.messages.locks.renew(token, message)
        return until

    def check_lock(self, token: bytes, now_ms: int, changes: PropertyChanges | None = None) -> None:
        """Raise what settling this token with these changes would raise."""
        merged(self.messages.locked(token, now_ms), changes)

    # --- sessions ---------------------------------------------------------------------------------------------------
    # When a session's lock expires or is released, its locked messages return, each counting a delivery. Later messages
    # of the session wait until that is durable.

    def accept_session(self, session_id: str | None, now_ms: int) -> MessageSession | None:
        """Lock a session by id, with or without messages; for None, the longest-waiting free session with messages."""
        self.gate.check_receivable()
        until = now_ms + self._lock_duration_ms
        session = self._need_sessions().accept(session_id, until)
        if session is not None:
            self.accessed_ms = now_ms
            self.alarm.wake(until)
        return session

    def release_session(self, session: MessageSession, now_ms: int, facts: Facts) -> None:
        """Release a session; does nothing if it is no longer held."""
        if not session.locked or self.sessions is None:
            return
        self.accessed_ms = now_ms
        free_session(self, session, now_ms, facts)
        facts.then.append((self._session_freed, session))

    def renew_session(self, session_id: str, now_ms: int) -> int:
        """Extend the session's lock to a full duration from now."""
        session = self.held_session(session_id, now_ms)
        self.accessed_ms = now_ms
        until = now_ms + self._lock_duration_ms
        self._need_sessions().renew(session, until)
        return until

    def held_session(self, session_id: str, now_ms: int) -> MessageSession:
        return self._need_sessions().held(session_id, now_ms)

    def get_session_state(self, session_id: str) -> bytes | None:
        return self._need_sessions().state(session_id)

    def set_session_state(self, session_id: str, state: bytes | None, now_ms: int, facts: Facts) -> None:
        """Set the state; None or an empty state removes it."""
        self._need_sessions().set_state(session_id, state, now_ms, facts)
        self.accessed_ms = now_ms

    def list_sessions(self, updated_after_ms: int | None, skip: int, top: int) -> list[str]:
        """Ids of sessions with messages or a state; with a time, of those whose state was set after it."""
        return self._need_sessions().names(updated_after_ms, skip, top)

    def peek_session(self, session_id: str, from_seq: int, count: int, now_ms: int) -> list[QueuedMessage]:
        """Browse a session's messages in any place, by sequence number."""
        self.accessed_ms = now_ms
        session = self._need_sessions().by_id.get(session_id)
        return [] if session is None else session.browse(from_seq, count)

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, facts: Facts) -> list[Effect]:
        """Do what is due, in bounded amounts of each kind; the rest is due again at once."""
        self.alarm.rang()
        effects: list[Effect] = []
        if self.sessions is not None:
            note(effects, EffectKind.SESSIONS_LOST, self, lapse_sessions(self, self.sessions, now_ms, facts))
        else:
            note(effects, EffectKind.LOCKS_LAPSED, self, lapse_locks(self, now_ms, facts))
        note(effects, EffectKind.EXPIRED, self, expire_due(self, now_ms, facts))
        note(effects, EffectKind.ACTIVATED, self, activate_due(self, now_ms, facts))
        if self.forward_path is not None and self.gate.receivable:
            forwarded = forward_due(self, self.forward_path, self._commons, now_ms, facts)
            note(effects, EffectKind.FORWARDED, self, forwarded)
        if self.duplicates is not None:
            forgotten = self.duplicates.purge(now_ms, TICK_MESSAGES_MAX, facts)
            note(effects, EffectKind.IDS_FORGOTTEN, self, forgotten)
        self.arm(now_ms)
        return effects

    def idle(self, now_ms: int) -> bool:
        """Whether it has been unused for its auto-delete time."""
        at_ms = idle_deadline_ms(self, now_ms)
        return at_ms is not None and at_ms <= now_ms

    def arm(self, now_ms: int) -> None:
        """Set the alarm to the earliest deadline."""
        self._arm_timers()
        self.alarm.wake((self.messages.locks if self.sessions is None else self.sessions.locks).deadline_ms())
        self.alarm.wake(idle_deadline_ms(self, now_ms))
        if self.forward_path is not None and self.gate.receivable and len(self.messages.available):
            self.alarm.wake(now_ms)

    def shift(self, step_ms: int) -> None:
        """The clock was set: intervals move with it, dates do not. The caller arms the alarm again."""
        self.messages.locks.shift(step_ms)
        if self.sessions is not None:
            self.sessions.locks.shift(step_ms)
        if self.duplicates is not None:
            self.duplicates.shift(step_ms)
        self.accessed_ms += step_ms
        self.alarm.clear()

    # --- settings and deletion --------------------------------------------------------------------------------------

    def update(self, settings: QueueSettings, now_ms: int, facts: Facts) -> None:
        """Apply new settings."""
        before = self.settings
        assert isinstance(before, QueueSettings)
        before.check_update(settings)
        self.adopt(settings, now_ms, facts)

    def adopt(self, settings: QueueSettings | SubscriptionSettings, now_ms: int, facts: Facts) -> None:
        """Apply checked settings; existing messages keep their expiry time and their locks."""
        for part in self.parts:
            part._adopt(settings, now_ms, facts)

    def close(self, facts: Facts) -> None:
        """Delete the queue: pass all rows to the sweep. Later commands find nothing."""
        self.gate.close()
        self.alarm.close()
        sweep = self._commons.sweep
        self.messages.close(sweep)
        if self.sessions is not None:
            self.sessions.close(self.entity_id, sweep)
        if self.duplicates is not None:
            self.duplicates.close(sweep)
        self.sessions = self.duplicates = None
        self.messages = Messages(self.entity_id, self._commons, None, self.dead_letters is not None)
        self.numbers.close(facts)
        mark_deleted(self.entity_id, facts)
        facts.then.append((self._tell_deleted, None))

    def _tell_deleted(self, _: None) -> None:
        # After its last messages, which went to the sweep when the commit would have shown them.
        sweep_arrivals(self.arrivals, self.entity_id, self._commons.sweep)
        if self.on_deleted is not None:
            self.on_deleted(self)
        # Drop the references to break cycles; otherwise only the garbage collector could free it, and it runs rarely.
        self.owner = self.subscription = None
        self.on_available = self.on_session_lost = self.on_deleted = None

    def _adopt(self, settings: QueueSettings | SubscriptionSettings, now_ms: int, facts: Facts) -> None:
        if self._lock_duration_ms != settings.lock_duration_ms:
            self.messages.locks.duration_changed()
            if self.sessions is not None:
                self.sessions.locks.duration_changed()
        if self.duplicates is not None:
            self.duplicates.window_ms = settings.duplicate_window_ms
        self._apply(settings)
        self.updated_ms = now_ms
        self.accessed_ms = now_ms
        self.arm(now_ms)
        facts.then.append((self.announce_again, None))

    def _apply(self, settings: QueueSettings | SubscriptionSettings) -> None:
        # A dead-letter queue uses the settings of its queue.
        self.settings = settings
        # Copied because every acquire and every send needs them.
        self._lock_duration_ms = settings.lock_duration_ms
        self._default_ttl_ms = settings.default_ttl_ms
        self.quota.limit_bytes = settings.quota_bytes
        self.gate.set_status(settings.status)
        part = self.entity_id % IDS_PER_ENTITY
        if part == DEAD_LETTER_PART:
            self.forward_path = settings.forward_dead_letters_to
        elif part == MAIN_PART and self.sessions is None:
            # Sessions are never forwarded: their order would be lost.
            self.forward_path = settings.forward_to

    def _unlocked(self, token: bytes, now_ms: int, changes: PropertyChanges | None) -> QueuedMessage:
        """Unlock the message behind a valid token and apply the changes."""
        messages = self.messages
        message = messages.locked(token, now_ms)
        changed = merged(message, changes) if changes else message.changes
        self.accessed_ms = now_ms
        messages.unlock(message)
        messages.change(message, changed)
        return message

    # --- what waits for a commit ------------------------------------------------------------------------------------

    def _show(self, arrivals: list[QueuedMessage]) -> None:
        if self.gate.deleted:
            self._commons.sweep.add(index_rows(self.entity_id, iter(arrivals)))
            return
        told = self.messages.show(arrivals)
        self._arm_timers()
        if self.forward_path is not None and len(self.messages.available):
            self.alarm.wake(0)
        if self.sessions is not None:
            self._announce(told)
        elif self.on_available is not None and len(self.messages.available):
            self.on_available(self)

    def _announce(self, told: dict[MessageSession, None]) -> None:
        """Wake the receivers that wait: the holder of a session for its messages, the others for free sessions."""
        if self.sessions is not None and self.sessions.announce(told) and self.on_available is not None:
            self.on_available(self)

    def announce_again(self, session: MessageSession | None) -> None:
        """Announce existing messages that have become receivable."""
        if session is not None:
            self._announce({session: None})
        elif self.on_available is not None and self.has_available():
            self.on_available(self)

    def session_lost(self, session: MessageSession) -> None:
        session.leaving = False
        if self.on_session_lost is not None:
            self.on_session_lost(self, session)
        self._session_freed(session)

    def _session_freed(self, session: MessageSession) -> None:
        if self.sessions is not None:
            self._announce({session: None})
            self.sessions.drop_if_unused(session)

    # --- what is due ------------------------------------------------------------------------------------------------

    def _arm_timers(self) -> None:
        """Request a tick at the first expiry, scheduled time or purge."""
        alarm = self.alarm
        at_ms = self.messages.expiry.deadline_ms()
        if at_ms is not None and at_ms < alarm.at_ms:
            alarm.wake(at_ms)
        at_ms = self.messages.schedule.deadline_ms()
        if at_ms is not None and at_ms < alarm.at_ms:
            alarm.wake(at_ms)
        if self.duplicates is not None:
            alarm.wake(self.duplicates.deadline_ms())

    def _refuse_plain_receive(self) -> None:
        self.gate.check_receivable()
        raise NotAllowedError(SESSION_NEEDED_TEXT)

    def _need_sessions(self) -> Sessions:
        if self.sessions is None:
            raise NotAllowedError(NO_SESSIONS_TEXT)
        return self.sessions
