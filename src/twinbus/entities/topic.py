"""A topic: accepts messages and gives each subscription that selects one a copy.

A message is stored once: its copies are index records that share the body. The topic itself holds only scheduled
messages, which are copied when they are due, by the rules in force then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twinbus.errors import FilterEvaluationError, QuotaExceededError, ServerBusyError
from twinbus.limits import (
    COPY_US,
    FAN_OUT_COPIES_MAX,
    SELECT_US_MAX,
    SLICE_EVENTS,
    SUBSCRIPTIONS_PER_TOPIC_MAX,
    TICK_MESSAGES_MAX,
    UNLIMITED_MS,
)
from twinbus.store.facts import Facts

from .admission import checked_bytes
from .alarms import Alarm
from .arrivals import Arrivals
from .commons import Commons
from .duplicates import Duplicates
from .effects import Effect, EffectKind, note
from .expiry import earlier, expires_at
from .fan_out import FanOut
from .gate import Gate
from .message import ACTIVE, SCHEDULED, NewMessage, QueuedMessage, Relayed
from .messages import Counts, Messages, index_rows, sweep_arrivals
from .quota import Quota
from .refusals import too_large
from .scheduling import cancel_scheduled, schedule_messages
from .selection import Choice, Choosing, Selection
from .sequence import SequenceNumbers
from .sweep import mark_deleted
from .topic_settings import TopicSettings

if TYPE_CHECKING:
    from .queue import Queue
    from .subscription import Subscription
    from .views import StoredView


class Topic:
    """One topic and its subscriptions."""

    __slots__ = (
        "_arrivals",
        "_by_name",
        "_choosing",
        "_commons",
        "_copies_bytes_max",
        "accessed_ms",
        "alarm",
        "created_ms",
        "duplicates",
        "entity_id",
        "gate",
        "held",
        "links",
        "messages",
        "numbers",
        "on_deleted",
        "path",
        "pings",
        "quota",
        "selection",
        "settings",
        "updated_ms",
    )

    def __init__(self, settings: TopicSettings, entity_id: int, commons: Commons, now_ms: int) -> None:
        self.settings = settings
        # Spelled as when it was created.
        self.path = settings.path
        self.entity_id = entity_id
        self.created_ms = now_ms
        self.updated_ms = now_ms
        # When it was last used; idle deletion counts from here.
        self.accessed_ms = now_ms
        # Attached links, maintained by the broker: a topic with links is not idle.
        self.links = 0
        # Pings accepted and dropped.
        self.pings = 0
        # Set during a fan-out in steps: senders that wait, maintained by the broker.
        self.held: list[Any] | None = None
        self.on_deleted: Callable[[Any], None] | None = None
        self._commons = commons
        self.gate = Gate(settings.path)
        self.gate.set_status(settings.status)
        self._by_name: dict[str, Subscription] = {}
        # All rules of all subscriptions.
        self.selection = Selection(commons.accounts.rules)
        # Selections that take several ticks, by the entity whose message it is: itself, or one that forwards to it.
        self._choosing: dict[Queue | Topic, Choosing] = {}
        self.numbers = SequenceNumbers(entity_id)
        # Only scheduled messages, including damaged ones.
        self.messages = Messages(entity_id, commons, None, False)
        # None without duplicate detection.
        self.duplicates: Duplicates | None = None
        if settings.requires_duplicate_detection:
            self.duplicates = Duplicates(entity_id, settings.duplicate_window_ms, commons.accounts)
        self.quota = Quota(f"Topic: '{settings.path}'", settings.quota_bytes, [self.messages])
        # An upper bound for the bytes of all copies: adding them up would cost more than the send itself.
        self._copies_bytes_max = 0
        self.alarm = Alarm(commons.alarms, entity_id)
        self._arrivals = Arrivals(self._show)

    def __repr__(self) -> str:
        return f"<Topic {self.path} {len(self._by_name)} subscriptions>"

    @property
    def deleted(self) -> bool:
        """It no longer exists; links to it must detach."""
        return self.gate.deleted

    def touch(self, now_ms: int) -> None:
        """Record a use; attaching counts, too."""
        self.accessed_ms = now_ms

    # --- subscriptions ----------------------------------------------------------------------------------------------

    @property
    def subscriptions(self) -> list[Subscription]:
        """Its subscriptions by name."""
        return [self._by_name[key] for key in sorted(self._by_name)]

    @property
    def subscription_count(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Subscription | None:
        """The subscription of that name, ignoring case."""
        return self._by_name.get(name.lower())

    def check_subscription_room(self) -> None:
        if len(self._by_name) >= SUBSCRIPTIONS_PER_TOPIC_MAX:
            raise QuotaExceededError(f"A topic has at most {SUBSCRIPTIONS_PER_TOPIC_MAX} subscriptions.")

    def adopt(self, subscription: Subscription, now_ms: int) -> None:
        self._by_name[subscription.name.lower()] = subscription
        self.touch(now_ms)

    def release(self, subscription: Subscription, now_ms: int) -> None:
        self._by_name.pop(subscription.name.lower(), None)
        self.touch(now_ms)

    # --- what it holds ----------------------------------------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        return Counts(0, self.scheduled_count, 0, 0)

    @property
    def scheduled_count(self) -> int:
        return len(self.messages.schedule)

    @property
    def size_bytes(self) -> int:
        """Bytes of the scheduled messages and of all copies."""
        return self.quota.used_bytes + sum(subscription.queue.size_bytes for subscription in self._by_name.values())

    @property
    def damaged_count(self) -> int:
        """Scheduled messages whose body cannot be read."""
        return len(self.messages.damaged)

    # --- sending ----------------------------------------------------------------------------------------------------

    def send(self, messages: Sequence[NewMessage], now_ms: int, facts: Facts) -> None:
        """Accept all messages or none. Pings are counted and dropped; duplicates are accepted and dropped."""
        if self.held is not None:
            raise ServerBusyError(f"The topic '{self.path}' is handing out a large batch. Try again later.")
        self.check_send(messages)
        self.accessed_ms = now_ms
        duplicates = self.duplicates
        for new in messages:
            if new.ping:
                self.pings += 1
            elif duplicates is None:
                self.accept(new, now_ms, facts)
            elif duplicates.find(new.message_id, now_ms) is None:
                duplicates.add(new.message_id, self.accept(new, now_ms, facts), now_ms, facts)

    @property
    def costly(self) -> bool:
        """Whether a message may cost far more than on a queue."""
        return len(self._by_name) > SLICE_EVENTS or self.selection.looks

    def hands_out_long(self, messages: Sequence[NewMessage]) -> bool:
        """Whether these messages make so many copies, or so much work for the rules, that `hand_out` must be used."""
        selection = self.selection
        if len(messages) * (len(self._by_name) + selection.acting_count) > FAN_OUT_COPIES_MAX:
            return True
        if not selection.looks:
            return False
        # Most messages are small enough, whatever their properties are; and to look at many would itself take long.
        if selection.cost_us(len(messages), sum([message.size for message in messages])) <= SELECT_US_MAX:
            return False
        if len(messages) > SLICE_EVENTS:
            return True
        of_new = self._commons.views.of_new
        return selection.cost_us(len(messages), sum([of_new(each).looked_bytes() for each in messages])) > SELECT_US_MAX

    def hand_out(self, messages: Sequence[NewMessage], now_ms: int) -> FanOut:
        """Accept all messages or none, and copy them in steps; the topic is held until `let_go`."""
        self.check_send(messages)
        self.accessed_ms = now_ms
        self.held = []
        return FanOut(self, self._commons, messages, now_ms)

    def let_go(self, now_ms: int) -> list[Any]:
        """End a fan-out in steps: others may send again. Returns the senders that waited."""
        waiting, self.held = self.held, None
        self.arm(now_ms)
        return waiting or []

    def count_copies(self, more: int) -> None:
        """Account for copies of this many bytes."""
        self._copies_bytes_max += more

    def reserve_numbers(self, count: int, facts: Facts) -> list[int]:
        """Reserve sequence numbers for messages that may come later."""
        return [self.numbers.next(facts) for _ in range(count)]

    def schedule(
        self, messages: Sequence[NewMessage], now_ms: int, facts: Facts, reserved: Sequence[int] = ()
    ) -> list[int]:
        """Accept messages for later and return their sequence numbers; a duplicate gets that of the first message.
        `reserved` are numbers handed out for them before."""
        if self.held is not None and self.duplicates is not None:
            # The message it may duplicate is not on disk yet.
            raise ServerBusyError(f"The topic '{self.path}' is handing out a large batch. Try again later.")
        return schedule_messages(self, self.keep, messages, now_ms, facts, reserved)

    def cancel(self, sequence_numbers: Sequence[int], now_ms: int, facts: Facts) -> None:
        """Remove scheduled messages: all of them or none."""
        cancel_scheduled(self, sequence_numbers, now_ms, facts)

    def check_send(self, messages: Sequence[NewMessage]) -> None:
        """Raise what `send` would raise."""
        if not self.gate.sendable:
            self.gate.check_sendable()
        self._check_room(checked_bytes(messages, self.settings.max_message_bytes, False, self.duplicates))

    def accept(self, new: NewMessage, now_ms: int, facts: Facts, reserved: int = 0) -> int:
        """Copy a checked message to the subscriptions, or keep it until it is due; return its number in the topic."""
        if new.scheduled_ms is not None and new.scheduled_ms > now_ms:
            return self.keep(new, now_ms, facts, reserved)
        seq = self.numbers.next(facts)
        bodies = self._commons.bodies
        size = bodies.size(new.size)
        view = self._commons.views.of_new(new)
        expires_ms = expires_at(new.ttl_ms, self.settings.default_ttl_ms, now_ms)
        view.place(seq, now_ms, expires_ms)
        choices = self.selection.select(view)
        if choices:
            body = bodies.store(new.body, facts)
            original = Relayed(0, body, size, now_ms, expires_ms, ACTIVE, 0, None, None, seq, 0, None)
            self._hand_out(original, choices, view, now_ms, facts)
        return seq

    def keep(self, new: NewMessage, now_ms: int, facts: Facts, reserved: int = 0) -> int:
        """Keep a checked message until it is due; a tick then makes the copies, a bounded number at once."""
        seq = reserved or self.numbers.next(facts)
        at_ms = now_ms if new.scheduled_ms is None else max(new.scheduled_ms, now_ms)
        expires_ms = expires_at(new.ttl_ms, self.settings.default_ttl_ms, at_ms)
        bodies = self._commons.bodies
        body = bodies.store(new.body, facts)
        message = QueuedMessage(seq, body, bodies.size(new.size), at_ms, expires_ms, SCHEDULED, 0, None, None)
        self.messages.take_in(message, facts)
        self._arrivals.add(message, facts)
        return seq

    def check_relay(self, message: Relayed, view: StoredView) -> None:
        """Raise if a message from another entity cannot be accepted."""
        self.gate.check_open()
        limit = self.settings.max_message_bytes
        if message.size > limit:
            raise too_large(message.size, limit)
        if self.duplicates is not None:
            # `relay` needs it later and cannot fail any more.
            view.system("MessageId")
            self.duplicates.check_room(())
        self._check_room(message.size)
        if self.selection.looks and not view.readable():
            raise FilterEvaluationError("The message cannot be read.")

    def choose(
        self,
        source: Queue | Topic,
        message: QueuedMessage,
        expires_ms: int | None,
        view: StoredView,
        now_ms: int,
        facts: Facts,
    ) -> Choosing | None:
        """Select for a message on its way from an entity; None if that takes further ticks."""
        choosing = self._choosing.get(source)
        if choosing is None or choosing.message is not message:
            for gone in [each for each in self._choosing if each.deleted]:
                del self._choosing[gone]
            seq = self.numbers.next(facts)
            view.place(seq, now_ms, earlier(expires_ms, expires_at(None, self.settings.default_ttl_ms, now_ms)))
            choosing = self._choosing[source] = Choosing(self.selection, message, view, seq)
        if not choosing.advance():
            return None
        del self._choosing[source]
        return choosing

    def relay(
        self, message: Relayed, view: StoredView, now_ms: int, facts: Facts, chosen: Choosing | None = None
    ) -> int:
        """Accept a checked message from another entity, with its body, as if it were sent now; return the number of
        copies."""
        self.accessed_ms = now_ms
        seq = self.numbers.next(facts) if chosen is None else chosen.seq
        if self.duplicates is not None:
            message_id = str(view.system("MessageId") or "")
            if self.duplicates.find(message_id, now_ms) is not None:
                self._commons.bodies.release(message.body_number, facts)
                return 1
            self.duplicates.add(message_id, seq, now_ms, facts)
        message.expires_ms = earlier(message.expires_ms, expires_at(None, self.settings.default_ttl_ms, now_ms))
        return self._pass_on(message, seq, view, now_ms, facts, chosen)

    def _check_room(self, more: int) -> None:
        if self.messages.bytes + self._copies_bytes_max + more <= self.quota.limit_bytes:
            return
        size = self.size_bytes
        self._copies_bytes_max = size - self.messages.bytes
        if size + more > self.quota.limit_bytes:
            self.quota.refuse(size + more)

    def _pass_on(
        self, original: Relayed, seq: int, view: StoredView, now_ms: int, facts: Facts, chosen: Choosing | None
    ) -> int:
        """Copy a message whose body is already stored; return the number of copies."""
        view.place(seq, now_ms, original.expires_ms)
        if chosen is None:
            choices = self.selection.select(view)
        else:
            choices = [choice for choice in chosen.choices if not choice.subscription.queue.deleted]
        if choices:
            self._hand_out(original, choices, view, now_ms, facts)
        else:
            self._commons.bodies.release(original.body_number, facts)
        return len(choices)

    def _hand_out(self, original: Relayed, choices: list[Choice], view: StoredView, now_ms: int, facts: Facts) -> None:
        if len(choices) > 1:
            self._commons.bodies.share(original.body_number, len(choices) - 1)
        self.count_copies(original.size * len(choices))
        for choice in choices:
            choice.subscription.arrive(original, choice, view, now_ms, facts)

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, facts: Facts) -> list[Effect]:
        """Do what is due, in bounded amounts of each kind; the rest is due again at once."""
        self.alarm.rang()
        effects: list[Effect] = []
        damaged = self.damaged_count
        note(effects, EffectKind.ACTIVATED, self, self._activate_due(now_ms, facts))
        note(effects, EffectKind.DAMAGED, self, self.damaged_count - damaged)
        if self.duplicates is not None:
            forgotten = self.duplicates.purge(now_ms, TICK_MESSAGES_MAX, facts)
            note(effects, EffectKind.IDS_FORGOTTEN, self, forgotten)
        self.arm(now_ms)
        return effects

    def idle(self, now_ms: int) -> bool:
        """Whether the topic and all its subscriptions have been unused for the auto-delete time."""
        at_ms = self._idle_deadline_ms(now_ms)
        return at_ms is not None and at_ms <= now_ms

    def arm(self, now_ms: int) -> None:
        """Set the alarm to the earliest deadline."""
        self._arm_timers()
        self.alarm.wake(self._idle_deadline_ms(now_ms))

    def shift(self, step_ms: int) -> None:
        """The clock was set: intervals move with it, dates do not. The caller arms the alarm again."""
        if self.duplicates is not None:
            self.duplicates.shift(step_ms)
        self.accessed_ms += step_ms
        self.alarm.clear()

    def _arm_timers(self) -> None:
        if self.held is None:
            self.alarm.wake(self.messages.schedule.deadline_ms())
        if self.duplicates is not None:
            self.alarm.wake(self.duplicates.deadline_ms())

    def _activate_due(self, now_ms: int, facts: Facts) -> int:
        """Deliver due scheduled messages under a new sequence number, as if they were sent now."""
        copies = 0
        while copies < TICK_MESSAGES_MAX and self.held is None:
            message = self.messages.schedule.first_due(now_ms)
            if message is None:
                break
            view = self._commons.views.of_stored(message)
            if self.selection.looks and not view.readable():
                # No rule would select it, and a message that no rule selects is deleted.
                self.messages.put_aside(message, facts)
                copies += 1
                continue
            expires_ms = message.expires_ms
            if expires_ms is not None:
                expires_ms += now_ms - message.enqueued_ms
            chosen: Choosing | None = None
            if self.selection.looks:
                cost_us = self.selection.cost_us(1, view.looked_bytes())
                if cost_us > SELECT_US_MAX:
                    chosen = self.choose(self, message, expires_ms, view, now_ms, facts)
                    if chosen is None:
                        copies = TICK_MESSAGES_MAX
                        break
                copies += cost_us // COPY_US
            self.messages.schedule.remove(message.seq)
            self.messages.hand_over(message, facts)
            seq = self.numbers.next(facts) if chosen is None else chosen.seq
            original = Relayed(
                0, message.body_number, message.size, now_ms, expires_ms, ACTIVE, 0, None, None, seq, 0, None
            )
            copies += 1 + self._pass_on(original, seq, view, now_ms, facts, chosen)
        self._commons.tick_work += copies
        return copies

    def _idle_deadline_ms(self, now_ms: int) -> int | None:
        """When the topic and all its subscriptions will have been idle long enough."""
        limit_ms = self.settings.auto_delete_on_idle_ms
        if limit_ms >= UNLIMITED_MS:
            return None
        if self.links > 0 or len(self.messages.schedule):
            return now_ms + limit_ms
        used_ms = self.accessed_ms
        for subscription in self._by_name.values():
            for part in subscription.queue.parts:
                if part.links > 0:
                    return now_ms + limit_ms
                used_ms = max(used_ms, part.accessed_ms)
        return used_ms + limit_ms

    def _show(self, arrivals: list[QueuedMessage]) -> None:
        """Scheduled messages are durable."""
        if self.gate.deleted:
            self._commons.sweep.add(index_rows(self.entity_id, iter(arrivals)))
            return
        self.messages.show(arrivals)
        self._arm_timers()

    # --- settings and deletion --------------------------------------------------------------------------------------

    def update(self, settings: TopicSettings, now_ms: int, facts: Facts) -> None:
        """Apply new settings; existing messages keep their expiry time."""
        self.settings.check_update(settings)
        if self.duplicates is not None:
            self.duplicates.window_ms = settings.duplicate_window_ms
        self.settings = settings
        self.gate.set_status(settings.status)
        self.quota.limit_bytes = settings.quota_bytes
        self.updated_ms = now_ms
        self.accessed_ms = now_ms
        self.arm(now_ms)

    def close(self, facts: Facts) -> None:
        """Delete the topic: pass all rows to the sweep. Later commands find nothing."""
        self.gate.close()
        self.alarm.close()
        sweep = self._commons.sweep
        self.messages.close(sweep)
        if self.duplicates is not None:
            self.duplicates.close(sweep)
        self.duplicates = None
        self.messages = Messages(self.entity_id, self._commons, None, False)
        self.numbers.close(facts)
        mark_deleted(self.entity_id, facts)
        facts.then.append((self._tell_deleted, None))
        self._by_name.clear()
        self._choosing.clear()

    def _tell_deleted(self, _: None) -> None:
        # After its last messages, which went to the sweep when the commit would have shown them.
        sweep_arrivals(self._arrivals, self.entity_id, self._commons.sweep)
        if self.on_deleted is not None:
            self.on_deleted(self)
