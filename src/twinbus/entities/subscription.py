"""A subscription: the rules that select messages of a topic, and the queue that holds the copies.

Nobody sends to it directly. A copy has its own sequence number and remembers the topic's; all copies share one body.
Each rule has its own row, so adding the thousandth writes one small row.
"""

from __future__ import annotations

import dataclasses
import json
from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, Final

from twinbus.errors import EntityExistsError, FilterEvaluationError
from twinbus.limits import UNLIMITED_MS
from twinbus.store.facts import Facts, Table

from .changes import counted_bytes
from .dead_letter import with_reason
from .expiry import earlier
from .filters import REMOVED
from .forwarding import SESSION_DESCRIPTION, SESSION_REASON
from .message import ACTIVE, SCHEDULED, Relayed
from .queue import Queue
from .records import RULE_KEY
from .refusals import not_found
from .rule import Rule
from .selection import Choice
from .topic_settings import SubscriptionSettings

if TYPE_CHECKING:
    from .topic import Topic
    from .views import StoredView

FILTER_REASON: Final = "FilterEvaluationException"
CHANGES_FULL_TEXT: Final = "The properties changed on messages take as many bytes as they may."


class Subscription:
    """One subscription of a topic."""

    __slots__ = ("_last_rule", "_rules", "_sorted", "queue", "topic")

    def __init__(self, topic: Topic, queue: Queue) -> None:
        self.topic = topic
        # Holds the copies, and handles receivers, locks and dead letters.
        self.queue = queue
        # Rules with their row numbers, by lower-case name.
        self._rules: dict[str, tuple[int, Rule]] = {}
        # Their names in order; None until somebody asks.
        self._sorted: list[str] | None = None
        self._last_rule = 0
        queue.subscription = self
        queue.gate.close_to_senders(f"Messages cannot be sent to the subscription '{queue.path}': send to its topic.")

    def __repr__(self) -> str:
        return f"<Subscription {self.path} {len(self._rules)} rules>"

    @property
    def settings(self) -> SubscriptionSettings:
        settings = self.queue.settings
        assert isinstance(settings, SubscriptionSettings)
        return settings

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def path(self) -> str:
        return self.queue.path

    def update(self, settings: SubscriptionSettings, now_ms: int, facts: Facts) -> None:
        """Apply new settings."""
        self.settings.check_update(settings)
        self.queue.adopt(settings, now_ms, facts)

    # --- rules ------------------------------------------------------------------------------------------------------

    @property
    def rules(self) -> list[Rule]:
        """Its rules by name."""
        return self.rules_from(0, len(self._rules))

    def rules_from(self, skip: int, top: int) -> list[Rule]:
        """Its rules by name, from the one with that number on."""
        if self._sorted is None:
            self._sorted = sorted(self._rules)
        return [self._rules[key][1] for key in self._sorted[skip : skip + top]]

    def rule(self, name: str) -> Rule:
        return self._rule(name)[1]

    def add_rule(self, rule: Rule, now_ms: int, facts: Facts) -> None:
        self._check_exists()
        if rule.name.lower() in self._rules:
            raise EntityExistsError(f"The messaging entity '{self._rule_path(rule.name)}' already exists.")
        self.topic.selection.check_room(rule)
        self.queue.touch(now_ms)
        self.restore_rule(self._last_rule + 1, rule)
        self._write_rule(self._last_rule, rule, facts)

    def update_rule(self, rule: Rule, now_ms: int, facts: Facts) -> None:
        """Replace the rule of the same name."""
        number, before = self._rule(rule.name)
        self.topic.selection.check_room(rule, before)
        self.queue.touch(now_ms)
        self.topic.selection.remove(before)
        renewed = dataclasses.replace(rule, created_ms=before.created_ms)
        self.restore_rule(number, renewed)
        self._write_rule(number, renewed, facts)

    def remove_rule(self, name: str, now_ms: int, facts: Facts) -> None:
        number, rule = self._rule(name)
        self.queue.touch(now_ms)
        key = name.lower()
        del self._rules[key]
        if self._sorted is not None:
            del self._sorted[bisect_left(self._sorted, key)]
        self.topic.selection.remove(rule)
        facts.delete(Table.ENTITIES, RULE_KEY.pack(self.queue.entity_id, number))

    def restore_rule(self, number: int, rule: Rule) -> None:
        """Add a rule whose row is already written."""
        key = rule.name.lower()
        if self._sorted is not None and key not in self._rules:
            insort(self._sorted, key)
        self._rules[key] = (number, rule)
        self._last_rule = max(self._last_rule, number)
        self.topic.selection.add(self, rule)

    def drop_rules(self, facts: Facts) -> None:
        """Remove all rules: the subscription is being deleted."""
        for number, rule in self._rules.values():
            self.topic.selection.remove(rule)
            facts.delete(Table.ENTITIES, RULE_KEY.pack(self.queue.entity_id, number))
        self._rules.clear()
        self._sorted = None

    def _check_exists(self) -> None:
        """Raise if the subscription is deleted: after a restart, the rows of a rule would have no owner."""
        if self.queue.deleted:
            raise not_found(self.path)

    def _rule(self, name: str) -> tuple[int, Rule]:
        found = self._rules.get(name.lower())
        if found is None:
            raise not_found(self._rule_path(name))
        return found

    def _rule_path(self, name: str) -> str:
        return f"{self.path}/Rules/{name[:260]}"

    def _write_rule(self, number: int, rule: Rule, facts: Facts) -> None:
        row = json.dumps(rule.to_json(), separators=(",", ":")).encode()
        facts.rows[Table.ENTITIES, RULE_KEY.pack(self.queue.entity_id, number)] = row

    # --- copies -----------------------------------------------------------------------------------------------------

    def arrive(
        self,
        original: Relayed,
        choice: Choice,
        view: StoredView,
        now_ms: int,
        facts: Facts,
        shown: Facts | None = None,
    ) -> None:
        """Take a copy of a topic's message, whose body reference is already counted. With `shown`, it becomes
        visible when those facts are durable."""
        queue = self.queue
        queue.touch(now_ms)
        changes = original.changes
        error = choice.error
        if choice.changes is not None:
            if queue.messages.changes.room(counted_bytes(choice.changes)):
                changes = choice.changes if changes is None else {**changes, **choice.changes}
            else:
                # The send is already accepted, and a copy without the rule's changes would be wrong.
                error = CHANGES_FULL_TEXT
        copy = Relayed(
            queue.numbers.next(facts),
            original.body_number,
            original.size,
            original.enqueued_ms,
            earlier(original.expires_ms, queue.expires_at(None, original.enqueued_ms)),
            ACTIVE,
            0,
            None,
            changes,
            original.origin_seq,
            original.hops,
            original.dead_letter_source,
        )
        if error is not None:
            self._bury(copy, FILTER_REASON, error, facts, shown)
            return
        if choice.system:
            self._obey(copy, choice.system, now_ms)
        found: str | None = None
        if queue.sessions is not None:
            session_id = choice.system.get("SessionId")
            if session_id is None:
                session_id = _session_of(view)
            if session_id is None or session_id is REMOVED:
                self._bury(copy, SESSION_REASON, SESSION_DESCRIPTION, facts, shown)
                return
            found = str(session_id)
        queue.take_in(copy, found, facts, shown)

    def _obey(self, copy: Relayed, system: dict[str, Any], now_ms: int) -> None:
        """Apply system properties set by an action: the time to live, or the time the copy becomes visible."""
        scheduled_ms = system.get("ScheduledEnqueueTimeUtc")
        if isinstance(scheduled_ms, int) and scheduled_ms > now_ms:
            if copy.expires_ms is not None:
                copy.expires_ms += scheduled_ms - copy.enqueued_ms
            copy.enqueued_ms = scheduled_ms
            copy.state = SCHEDULED
        ttl_ms = system.get("TimeToLive")
        if ttl_ms is not None:
            wanted = ttl_ms if isinstance(ttl_ms, int) else UNLIMITED_MS
            ceiling = self.topic.settings.default_ttl_ms
            copy.expires_ms = self.queue.expires_at(min(max(wanted, 0), ceiling), copy.enqueued_ms)

    def _bury(self, copy: Relayed, reason: str, description: str, facts: Facts, shown: Facts | None) -> None:
        """Dead-letter a copy that cannot be delivered."""
        dead_letters = self.queue.dead_letters
        assert dead_letters is not None
        copy.changes = with_reason(copy, reason, description)
        dead_letters.take_in(copy, None, facts, shown)


def _session_of(view: StoredView) -> str | None:
    """The message's session id, or None. None if undecodable, too: copies exist already, so this must not fail."""
    try:
        session_id = view.system("SessionId")
    except FilterEvaluationError:
        return None
    return None if session_id is None else str(session_id)


def subscription_of(entity: Queue | Topic) -> Subscription | None:
    """The subscription that fills an entity; None for a topic, a queue with senders, or a dead-letter queue."""
    return entity.subscription if isinstance(entity, Queue) else None
