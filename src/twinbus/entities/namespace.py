"""A namespace: its entities by path, its deadlines, and restoring it from the store.

1. Entity ids come in blocks of four: the entity itself, its dead-letter queue, its transfer dead-letter queue, and a
   spare. Ids are never reused, so rows left by a deleted entity can never belong to another.
2. A queue and a topic cannot share a path; names are case-insensitive.
3. A forwarding target must exist when forwarding is set, and may be deleted later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from twinbus.errors import ArgumentError, EntityExistsError, QuotaExceededError
from twinbus.limits import ENTITIES_MAX, TICK_MESSAGES_MAX
from twinbus.store.facts import Facts, Table

from .account import Accounts
from .affinity import is_entity_name
from .bodies import Bodies
from .commons import Commons
from .effects import Effect, EffectKind
from .entity_ids import DEAD_LETTER_PART, IDS_PER_ENTITY
from .findings import Findings
from .queue import DEAD_LETTER_SUFFIX, TRANSFER_SUFFIX, Queue
from .records import ENTITY_KEY, META_ENTITIES, NUMBER
from .refusals import not_found
from .rule import Rule, default_rule
from .settings import QueueSettings
from .subscription import Subscription
from .topic import Topic
from .topic_settings import SUBSCRIPTIONS, SubscriptionSettings, TopicSettings
from .views import BlankViews, Views

Rows = Iterable[tuple[bytes, bytes]]

_DEAD_KEY: Final = DEAD_LETTER_SUFFIX.lower()
_TRANSFER_KEY: Final = TRANSFER_SUFFIX.lower()
_SUBSCRIPTIONS_KEY: Final = SUBSCRIPTIONS.lower()

QUEUE: Final = "queue"
TOPIC: Final = "topic"
SUBSCRIPTION: Final = "subscription"


class Namespace:
    """All entities of one namespace."""

    def __init__(
        self,
        name: str,
        *,
        tokens: Callable[[], bytes],
        reserved_bodies: int = 0,
        views: Views | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        self.name = name
        self._commons = Commons(tokens, Bodies(reserved_bodies), BlankViews() if views is None else views, accounts)
        # Queues and topics by lower-case path. Dead-letter queues belong to their queue, subscriptions to their topic.
        self._entities = self._commons.targets
        # Queues and topics sorted by path; None after one was added or removed.
        self._ordered: list[Queue | Topic] | None = None
        # Entities and dead-letter queues by entity id.
        self._by_id = self._commons.by_id
        # Queues and topics that exist as long as the connection that made them, by lower-case path.
        self.temporary: dict[str, Queue | Topic] = {}
        # Subscriptions that links made, by the key of their affinity.
        self.affine: dict[tuple[str | None, str, bool], Subscription] = {}
        # The last block of entity ids handed out.
        self._last_id = 0
        # Records that could not be restored.
        self.set_aside = Findings(0, strict=True)

    @classmethod
    def restore(
        cls,
        name: str,
        entities: Rows,
        index: Rows,
        sessions: Rows,
        duplicates: Rows,
        meta: Rows,
        now_ms: int,
        tokens: Callable[[], bytes],
        views: Views | None = None,
        last_body: int = 0,
        findings: Findings | None = None,
        accounts: Accounts | None = None,
    ) -> Namespace:
        """Restore a namespace. Locks are released; schedules, sessions and the duplicates window continue.

        `last_body` is the highest body number in the store. With `findings`, everything unreadable is reported there;
        without it, an unreadable entity record is an error.
        """
        from .restore import restore

        return restore(
            cls, name, entities, index, sessions, duplicates, meta, now_ms, tokens, views, last_body, findings, accounts
        )

    # --- queues -----------------------------------------------------------------------------------------------------

    def create_queue(self, settings: QueueSettings, now_ms: int, facts: Facts, *, temporary: bool = False) -> Queue:
        self._check_new(settings.path)
        self._check_targets(settings, None)
        queue = self._add_queue(settings, self._next_id(facts), now_ms)
        if temporary:
            self.temporary[settings.path.lower()] = queue
        self._write(queue, QUEUE, facts)
        return queue

    def update_queue(self, settings: QueueSettings, now_ms: int, facts: Facts) -> Queue:
        queue = self._entities.get(settings.path.lower())
        if not isinstance(queue, Queue):
            raise not_found(settings.path)
        self._check_targets(settings, queue.settings)
        queue.update(settings, now_ms, facts)
        self._write(queue, QUEUE, facts)
        return queue

    def delete_queue(self, path: str, now_ms: int, facts: Facts) -> None:
        """Delete a queue and its dead-letter queues; `sweep` later removes the rows of their messages."""
        queue = self._entities.get(path.lower())
        if not isinstance(queue, Queue):
            raise not_found(path)
        del self._entities[path.lower()]
        self.temporary.pop(path.lower(), None)
        self._ordered = None
        self._close(queue, facts)

    def queue(self, path: str) -> Queue:
        """A queue or, by `<topic>/Subscriptions/<name>`, a subscription; with a suffix, one of its dead-letter queues.
        Names are case-insensitive."""
        key = path.lower()
        entity = self._entities.get(key)
        if isinstance(entity, Queue):
            return entity
        found: Queue | None
        if key.endswith(_TRANSFER_KEY):
            parent = self._holder(key[: -len(_TRANSFER_KEY)])
            found = None if parent is None else parent.open_transfer()
        elif key.endswith(_DEAD_KEY):
            parent = self._holder(key[: -len(_DEAD_KEY)])
            found = None if parent is None else parent.dead_letters
        else:
            found = self._holder(key)
        if found is None:
            raise not_found(path)
        return found

    def queues(self) -> list[Queue]:
        """All queues by path, excluding dead-letter queues and subscriptions."""
        return [entity for entity in self._in_order() if isinstance(entity, Queue)]

    def entity(self, path: str) -> Queue | Topic:
        """A queue, a topic, a subscription, or one of their dead-letter queues."""
        topic = self._entities.get(path.lower())
        return topic if isinstance(topic, Topic) else self.queue(path)

    def _holder(self, key: str) -> Queue | None:
        """The queue or subscription at a lower-case path."""
        entity = self._entities.get(key)
        if entity is not None:
            return entity if isinstance(entity, Queue) else None
        topic_key, found, name = key.rpartition(_SUBSCRIPTIONS_KEY)
        topic = self._entities.get(topic_key) if found else None
        subscription = topic.find(name) if isinstance(topic, Topic) else None
        return None if subscription is None else subscription.queue

    # --- topics -----------------------------------------------------------------------------------------------------

    def create_topic(self, settings: TopicSettings, now_ms: int, facts: Facts, *, temporary: bool = False) -> Topic:
        self._check_new(settings.path)
        topic = self._add_topic(settings, self._next_id(facts), now_ms)
        if temporary:
            self.temporary[settings.path.lower()] = topic
        self._write(topic, TOPIC, facts)
        return topic

    def update_topic(self, settings: TopicSettings, now_ms: int, facts: Facts) -> Topic:
        topic = self.topic(settings.path)
        topic.update(settings, now_ms, facts)
        self._write(topic, TOPIC, facts)
        return topic

    def delete_topic(self, path: str, now_ms: int, facts: Facts) -> None:
        """Delete a topic and all its subscriptions."""
        topic = self.topic(path)
        del self._entities[path.lower()]
        self.temporary.pop(path.lower(), None)
        self._ordered = None
        for subscription in topic.subscriptions:
            self._close_subscription(subscription, now_ms, facts)
        facts.delete(Table.ENTITIES, ENTITY_KEY.pack(topic.entity_id))
        del self._by_id[topic.entity_id]
        topic.close(facts)

    def topic(self, path: str) -> Topic:
        topic = self._entities.get(path.lower())
        if not isinstance(topic, Topic):
            raise not_found(path)
        return topic

    def topics(self) -> list[Topic]:
        """All topics by path."""
        return [entity for entity in self._in_order() if isinstance(entity, Topic)]

    def _in_order(self) -> list[Queue | Topic]:
        """Queues and topics by path. Cached, because a listing asks for it with each page."""
        if self._ordered is None:
            self._ordered = [self._entities[key] for key in sorted(self._entities)]
        return self._ordered

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def create_subscription(
        self, settings: SubscriptionSettings, now_ms: int, facts: Facts, rule: Rule | None = None
    ) -> Subscription:
        """Create a subscription with one rule: the given one, or the default that selects everything."""
        topic = self.topic(settings.topic)
        if topic.find(settings.name) is not None:
            raise EntityExistsError(f"The messaging entity '{settings.path}' already exists.")
        if settings.affinity is None and is_entity_name(settings.name):
            raise ArgumentError(
                f"The subscription name {settings.name!r} is one that only the link of a receiver makes."
            )
        topic.check_subscription_room()
        self._check_targets(settings, None)
        first = default_rule(now_ms) if rule is None else rule
        topic.selection.check_room(first)
        subscription = self._add_subscription(topic, settings, self._next_id(facts), now_ms)
        self._write(subscription.queue, SUBSCRIPTION, facts)
        subscription.add_rule(first, now_ms, facts)
        return subscription

    def update_subscription(self, settings: SubscriptionSettings, now_ms: int, facts: Facts) -> Subscription:
        subscription = self.subscription(settings.topic, settings.name)
        if subscription.settings.affinity is not None:
            # An administrator does not name whose it is, and cannot change that.
            settings = replace(settings, affinity=subscription.settings.affinity)
        self._check_targets(settings, subscription.settings)
        subscription.update(settings, now_ms, facts)
        self._write(subscription.queue, SUBSCRIPTION, facts)
        return subscription

    def delete_subscription(self, topic_path: str, name: str, now_ms: int, facts: Facts) -> None:
        self._close_subscription(self.subscription(topic_path, name), now_ms, facts)

    def subscription(self, topic_path: str, name: str) -> Subscription:
        subscription = self.topic(topic_path).find(name)
        if subscription is None:
            raise not_found(topic_path + SUBSCRIPTIONS + name)
        return subscription

    def _close_subscription(self, subscription: Subscription, now_ms: int, facts: Facts) -> None:
        affinity = subscription.settings.affinity
        if affinity is not None and self.affine.get(affinity.key) is subscription:
            del self.affine[affinity.key]
        subscription.drop_rules(facts)
        subscription.topic.release(subscription, now_ms)
        self._close(subscription.queue, facts)

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, facts: Facts) -> list[Effect]:
        """Do what is due, in bounded amounts; the rest is due again at once."""
        effects: list[Effect] = []
        budget = TICK_MESSAGES_MAX
        while budget > 0:
            entity_id = self._commons.alarms.pop(now_ms)
            if entity_id is None:
                break
            entity = self._by_id[entity_id]
            if entity.idle(now_ms):
                self._delete_idle(entity, now_ms, facts)
                effects.append(Effect(EffectKind.IDLE_DELETED, entity, 1))
                budget -= 1
                continue
            before = self._commons.tick_work
            done = entity.tick(now_ms, facts)
            budget -= 1 + max(sum(effect.count for effect in done), self._commons.tick_work - before)
            effects.extend(done)
        return effects

    def _delete_idle(self, entity: Queue | Topic, now_ms: int, facts: Facts) -> None:
        if isinstance(entity, Topic):
            self.delete_topic(entity.path, now_ms, facts)
        elif entity.subscription is not None:
            self._close_subscription(entity.subscription, now_ms, facts)
        else:
            self.delete_queue(entity.path, now_ms, facts)

    def clock_set(self, step_ms: int, now_ms: int) -> None:
        """The time of day jumped by `step_ms` to `now_ms`."""
        for entity in self._by_id.values():
            entity.shift(step_ms)
        # A queue's idle time depends on its dead-letter queue, a topic's on its subscriptions: shift all, then arm.
        for entity in self._by_id.values():
            entity.arm(now_ms)

    def next_deadline(self) -> int | None:
        """When the next tick is due."""
        return self._commons.alarms.next_ms()

    def tell_deadlines(self, on_earlier: Callable[[], None]) -> None:
        """Call `on_earlier` whenever the next tick may be due earlier than before."""
        self._commons.alarms.on_earlier = on_earlier

    def sweep(self, facts: Facts, limit: int = TICK_MESSAGES_MAX) -> bool:
        """Remove up to `limit` rows that deleted entities left; True when more remain."""
        return self._commons.sweep.step(facts, limit)

    @property
    def sweep_pending(self) -> bool:
        """Whether rows of deleted entities wait for `sweep`."""
        return self._commons.sweep.pending

    # --- parts ------------------------------------------------------------------------------------------------------

    def _check_new(self, path: str) -> None:
        if not {".", ".."}.isdisjoint(path.split("/")):
            # Not in `check_path`: an entity that an older release accepted must be restored.
            raise ArgumentError(
                f"The entity path {path!r} has the part '.' or '..': HTTP clients resolve those, and would address "
                "another entity."
            )
        if path.lower() in self._entities:
            raise EntityExistsError(f"The messaging entity '{path}' already exists.")
        if len(self._entities) >= ENTITIES_MAX:
            raise QuotaExceededError(f"The namespace has {len(self._entities)} entities, the limit is {ENTITIES_MAX}.")

    def _check_targets(
        self, settings: QueueSettings | SubscriptionSettings, before: QueueSettings | SubscriptionSettings | None
    ) -> None:
        """Raise unless every new forwarding target exists."""
        for name in ("forward_to", "forward_dead_letters_to"):
            target = getattr(settings, name)
            known = None if before is None else getattr(before, name)
            if target is not None and target != known and target.lower() not in self._entities:
                raise ArgumentError(
                    f"{name} names '{target[:260]}', which is neither a queue nor a topic of this namespace."
                )

    def _next_id(self, facts: Facts) -> int:
        entity_id = self._last_id + IDS_PER_ENTITY
        facts.rows[Table.META, META_ENTITIES] = NUMBER.pack(entity_id)
        return entity_id

    def _add_queue(self, settings: QueueSettings, entity_id: int, now_ms: int) -> Queue:
        dead_letters = self._make_dead_letters(settings, settings.path, entity_id, now_ms)
        queue = Queue(settings, settings.path, entity_id, self._commons, dead_letters, now_ms)
        self._entities[settings.path.lower()] = queue
        self._ordered = None
        self._register(queue, dead_letters, now_ms)
        return queue

    def _add_topic(self, settings: TopicSettings, entity_id: int, now_ms: int) -> Topic:
        topic = Topic(settings, entity_id, self._commons, now_ms)
        self._entities[settings.path.lower()] = topic
        self._ordered = None
        self._by_id[entity_id] = topic
        self._last_id = max(self._last_id, entity_id)
        topic.arm(now_ms)
        return topic

    def _add_subscription(
        self, topic: Topic, settings: SubscriptionSettings, entity_id: int, now_ms: int
    ) -> Subscription:
        dead_letters = self._make_dead_letters(settings, settings.path, entity_id, now_ms)
        queue = Queue(settings, settings.path, entity_id, self._commons, dead_letters, now_ms)
        subscription = Subscription(topic, queue)
        topic.adopt(subscription, now_ms)
        self._register(queue, dead_letters, now_ms)
        if settings.affinity is not None:
            self.affine[settings.affinity.key] = subscription
        return subscription

    def _make_dead_letters(
        self, settings: QueueSettings | SubscriptionSettings, path: str, entity_id: int, now_ms: int
    ) -> Queue:
        dead_path = path + DEAD_LETTER_SUFFIX
        return Queue(settings, dead_path, entity_id + DEAD_LETTER_PART, self._commons, None, now_ms)

    def _register(self, queue: Queue, dead_letters: Queue, now_ms: int) -> None:
        dead_letters.owner = queue
        self._by_id[queue.entity_id] = queue
        self._by_id[dead_letters.entity_id] = dead_letters
        self._last_id = max(self._last_id, queue.entity_id)
        queue.arm(now_ms)

    def _close(self, queue: Queue, facts: Facts) -> None:
        facts.delete(Table.ENTITIES, ENTITY_KEY.pack(queue.entity_id))
        for part in queue.parts:
            del self._by_id[part.entity_id]
            part.close(facts)

    def _write(self, entity: Queue | Topic, kind: str, facts: Facts) -> None:
        fields: dict[str, Any] = {
            "kind": kind,
            "settings": entity.settings.to_json(),
            "created_ms": entity.created_ms,
            "updated_ms": entity.updated_ms,
        }
        if entity.path.lower() in self.temporary:
            fields["temporary"] = True
        row = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        facts.rows[Table.ENTITIES, ENTITY_KEY.pack(entity.entity_id)] = row
