"""A topic: takes messages and hands each subscription that wants one a copy.

A message is stored once: its copies are index records that share the body. The topic holds nothing itself but what is
scheduled; a scheduled message is handed out when its time comes, to the rules of that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinbus.errors import FilterEvaluationError, QuotaExceededError
from twinbus.limits import SUBSCRIPTIONS_PER_TOPIC_MAX, TICK_MESSAGES_MAX, UNLIMITED_MS
from twinbus.store.facts import Facts, Table

from .alarms import NEVER_MS
from .commons import Commons
from .duplicates import Duplicates
from .effects import Effect, EffectKind
from .forwarding import earlier
from .message import ACTIVE, SCHEDULED, Message, NewMessage, Relayed
from .records import KEY, pack
from .selection import Choice, Selection
from .sending import Sending
from .topic_settings import TopicSettings

if TYPE_CHECKING:
    from .subscription import Subscription
    from .views import StoredView

_INDEX: Final = Table.INDEX


class Topic(Sending):
    """One topic."""

    __slots__ = ("_by_name", "_size_guess", "selection")

    def __init__(self, settings: TopicSettings, entity_id: int, commons: Commons, now_ms: int) -> None:
        super().__init__(settings, settings.path, entity_id, commons, None, now_ms)
        # Its subscriptions by lower-case name.
        self._by_name: dict[str, Subscription] = {}
        # All rules of all of them.
        self.selection = Selection()
        # No less than the bytes of all copies: adding them up for each send would cost more than sending.
        self._size_guess = 0
        if settings.requires_duplicate_detection:
            self._duplicates = Duplicates(entity_id, settings.duplicate_window_ms)

    def __repr__(self) -> str:
        return f"<Topic {self.path} {len(self._by_name)} subscriptions>"

    @property
    def settings(self) -> TopicSettings:
        settings = self._settings
        assert isinstance(settings, TopicSettings)
        return settings

    def update(self, settings: TopicSettings, now_ms: int, facts: Facts) -> None:
        """Take over new settings."""
        self.settings.check_update(settings)
        self._adopt(settings, now_ms, facts)

    def close(self, facts: Facts) -> None:
        super().close(facts)
        self._by_name.clear()

    def _announce_again(self, _: object) -> None:
        """Nobody waits for messages here."""

    # --- subscriptions ----------------------------------------------------------------------------------------------

    @property
    def subscriptions(self) -> list[Subscription]:
        """Its subscriptions by name."""
        return [self._by_name[key] for key in sorted(self._by_name)]

    @property
    def subscription_count(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Subscription | None:
        """The subscription of that name, in any case."""
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

    # --- size -------------------------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """Bytes of what is scheduled and of all copies."""
        return self._bytes + sum(subscription.size_bytes for subscription in self._by_name.values())

    def _check_room(self, more: int) -> None:
        if self._bytes + self._size_guess + more <= self._quota_bytes:
            return
        size = self.size_bytes
        self._size_guess = size - self._bytes
        if size + more > self._quota_bytes:
            raise QuotaExceededError(
                f"The maximum entity size has been reached or exceeded for Topic: '{self.path}'. "
                f"Size of entity in bytes:{size + more}, Max entity size in bytes:{self._quota_bytes}."
            )

    # --- sending ----------------------------------------------------------------------------------------------------

    def _accept(self, new: NewMessage, now_ms: int, facts: Facts, reserved: int = 0) -> int:
        """Hand out a message that was checked, or keep it for its time; return its number in the topic."""
        scheduled = new.scheduled_ms is not None and new.scheduled_ms > now_ms
        seq = reserved if reserved and scheduled else self._next_seq(facts)
        size = self._bodies.size(new.size)
        if new.scheduled_ms is not None and scheduled:
            expires_ms = self._expires_ms(new.ttl_ms, new.scheduled_ms)
            body = self._bodies.store(new.body, facts)
            message = Message(seq, body, size, new.scheduled_ms, expires_ms, SCHEDULED, 0, None, None)
            self._bytes += size
            facts.index[KEY.pack(self.entity_id, seq)] = pack(message)
            self._show_after(message, facts)
            return seq
        view = self._commons.views.of_new(new)
        expires_ms = self._expires_ms(new.ttl_ms, now_ms)
        view.place(seq, now_ms, expires_ms)
        choices = self.selection.select(view)
        if choices:
            body = self._bodies.store(new.body, facts)
            original = Relayed(0, body, size, now_ms, expires_ms, ACTIVE, 0, None, None, seq, 0, None)
            self._hand_out(original, choices, view, now_ms, facts)
        return seq

    def check_relay(self, message: Relayed, view: StoredView) -> None:
        super().check_relay(message, view)
        if self.selection.looks and not view.readable():
            raise FilterEvaluationError("The message cannot be read.")

    def relay(self, message: Relayed, view: StoredView, now_ms: int, facts: Facts) -> int:
        """Take a message that another entity forwards."""
        self.accessed_ms = now_ms
        seq = self._next_seq(facts)
        if self._duplicates is not None:
            message_id = str(view.system("MessageId") or "")
            if self._duplicates.find(message_id, now_ms) is not None:
                self._bodies.release(message.body, facts)
                return 1
            self._duplicates.add(message_id, seq, now_ms, facts)
        message.expires_ms = earlier(message.expires_ms, self._expires_ms(None, now_ms))
        return self._pass_on(message, seq, view, now_ms, facts)

    def _pass_on(self, original: Relayed, seq: int, view: StoredView, now_ms: int, facts: Facts) -> int:
        """Hand out a message whose body is stored already."""
        view.place(seq, now_ms, original.expires_ms)
        choices = self.selection.select(view)
        if choices:
            self._hand_out(original, choices, view, now_ms, facts)
        else:
            self._bodies.release(original.body, facts)
        return len(choices)

    def _hand_out(self, original: Relayed, choices: list[Choice], view: StoredView, now_ms: int, facts: Facts) -> None:
        if len(choices) > 1:
            self._bodies.share(original.body, len(choices) - 1)
        self._size_guess += original.size * len(choices)
        for choice in choices:
            choice.subscription.arrive(original, choice, view, now_ms, facts)

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, facts: Facts) -> list[Effect]:
        self.wake_ms = NEVER_MS
        effects: list[Effect] = []
        damaged = len(self._damaged)
        self._note(effects, EffectKind.ACTIVATED, self._activate_due(now_ms, facts))
        self._note(effects, EffectKind.DAMAGED, len(self._damaged) - damaged)
        if self._duplicates is not None:
            forgotten = self._duplicates.purge(now_ms, TICK_MESSAGES_MAX, facts)
            self._note(effects, EffectKind.IDS_FORGOTTEN, forgotten)
        self.arm(now_ms)
        return effects

    def _activate_due(self, now_ms: int, facts: Facts) -> int:
        """Scheduled messages are handed out under a new sequence number, as if they were sent now."""
        copies = 0
        while copies < TICK_MESSAGES_MAX:
            due = self._schedule.due(now_ms, 1)
            if not due:
                break
            message = due[0]
            view = self._commons.views.of_stored(message)
            if self.selection.looks and not view.readable():
                # No rule would select it, and what nobody selects is removed.
                self.put_aside(message, facts)
                copies += 1
                continue
            self._leave(message)
            facts.delete(_INDEX, KEY.pack(self.entity_id, message.seq))
            expires_ms = message.expires_ms
            if expires_ms is not None:
                expires_ms += now_ms - message.enqueued_ms
            seq = self._next_seq(facts)
            original = Relayed(0, message.body, message.size, now_ms, expires_ms, ACTIVE, 0, None, None, seq, 0, None)
            copies += 1 + self._pass_on(original, seq, view, now_ms, facts)
        return copies

    def _idle_deadline_ms(self, now_ms: int) -> int | None:
        """When it will have been idle for long enough; so must all its subscriptions be."""
        limit_ms = self._settings.auto_delete_on_idle_ms
        if limit_ms >= UNLIMITED_MS:
            return None
        if self.links > 0 or len(self._schedule):
            return now_ms + limit_ms
        used_ms = self.accessed_ms
        for subscription in self._by_name.values():
            for part in subscription.parts:
                if part.links > 0:
                    return now_ms + limit_ms
                used_ms = max(used_ms, part.accessed_ms)
        return used_ms + limit_ms
