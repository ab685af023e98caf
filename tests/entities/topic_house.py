"""A namespace with topics for tests of the entities: a body is JSON, which a view can read."""

from __future__ import annotations

import json
import uuid
from typing import Any

from rules_house import House

from twinbus.entities.filters import REMOVED, Changes, Properties, SqlAction, SqlFilter
from twinbus.entities.message import NewMessage, QueuedMessage
from twinbus.entities.queue import Queue
from twinbus.entities.rule import Rule
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import FilterEvaluationError
from twinbus.store.facts import Table, body_key


class JsonView:
    """A message whose body is `{"name", "properties", "system"}`, and whose changes are JSON as well."""

    def __init__(self, body: bytes, changes: dict[str, str | bytes] | None) -> None:
        fields = json.loads(body)
        self._properties: dict[str, Any] = fields["properties"]
        self._system: dict[str, Any] = fields["system"]
        for name, value in (changes or {}).items():
            target = self._system if name.startswith("\0") else self._properties
            if value == b"":
                target.pop(name.lstrip("\0"), None)
            else:
                target[name.lstrip("\0")] = json.loads(value) if isinstance(value, bytes) else value

    @property
    def properties(self) -> Properties:
        if "unreadable" in self._properties:
            raise FilterEvaluationError("unreadable")
        return Properties(self._properties)

    def system(self, name: str) -> Any:
        if "unreadable" in self._system:
            raise FilterEvaluationError("unreadable")
        return self._system.get(name)

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(int=0)

    def readable(self) -> bool:
        return True

    def looked_bytes(self) -> int:
        return len(json.dumps(self._properties))

    def place(self, seq: int, enqueued_ms: int, expires_ms: int | None) -> None:
        self._system |= {"SequenceNumber": seq, "EnqueuedTimeUtc": enqueued_ms, "ExpiresAtUtc": expires_ms}

    def encode(self, changes: Changes) -> dict[str, str | bytes]:
        named = {**changes.properties, **{f"\0{name}": value for name, value in changes.system.items()}}
        return {name: b"" if value is REMOVED else json.dumps(value).encode() for name, value in named.items()}


class JsonViews:
    """Reads bodies from the house's tables."""

    def __init__(self, house: TopicHouse) -> None:
        self._house = house

    def of_new(self, new: NewMessage) -> JsonView:
        return JsonView(new.body, None)

    def of_stored(self, message: QueuedMessage) -> JsonView:
        return JsonView(self._house.tables.rows[Table.BODIES][body_key(message.body_number)], message.changes)


class TopicHouse(House):
    """A topic `t` in addition to the queue `q`."""

    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.namespace.create_topic(TopicSettings(path="t", **settings), self.now, self.facts)  # type: ignore[arg-type]
        self.commit()

    def views(self) -> JsonViews:
        return JsonViews(self)

    @property
    def topic(self) -> Topic:
        return self.namespace.topic("t")

    def subscription(self, name: str) -> Subscription:
        return self.namespace.subscription("t", name)

    def sub(self, name: str) -> Queue:
        """The queue of a subscription."""
        return self.subscription(name).queue

    def subscribe(self, name: str, filter: Any = None, action: str | None = None, **settings: Any) -> Queue:
        """Create a subscription with one rule, `$Default`; returns its queue."""
        made = None if filter is None else rule("$Default", filter, action, self.now)
        wanted = SubscriptionSettings(topic="t", name=name, **settings)
        subscription = self.namespace.create_subscription(wanted, self.now, self.facts, made)
        self.listen(subscription.queue)
        self.commit()
        return subscription.queue

    def add_rule(self, name: str, rule_name: str, filter: Any, action: str | None = None) -> None:
        self.subscription(name).add_rule(rule(rule_name, filter, action, self.now), self.now, self.facts)
        self.commit()

    def publish(self, *names: str, **fields: Any) -> None:
        self.topic.send([post(name, **fields) for name in names], self.now, self.facts)
        self.commit()

    def taken(self, queue: Queue) -> list[QueuedMessage]:
        """Lock all messages of a queue, while their bodies still exist."""
        return queue.acquire(1000, self.now, self.facts)

    def finish(self, queue: Queue) -> list[str]:
        """Receive and complete everything; returns the names."""
        messages = self.taken(queue)
        names = self.titles(messages)
        for message in messages:
            assert message.token
            queue.complete(message.token, self.now, self.facts)
        self.commit()
        return names

    def titles(self, messages: list[QueuedMessage]) -> list[str]:
        return [self.title(message) for message in messages]

    def title(self, message: QueuedMessage) -> str:
        return str(json.loads(self.tables.rows[Table.BODIES][body_key(message.body_number)])["name"])

    @property
    def bodies(self) -> int:
        return len(self.tables.rows[Table.BODIES])

    def sweep(self) -> None:
        while self.namespace.sweep(self.facts):
            self.commit()
        self.commit()


def rule(name: str, filter: Any, action: str | None = None, now_ms: int = 0) -> Rule:
    condition = SqlFilter(filter) if isinstance(filter, str) else filter
    return Rule(name, condition, None if action is None else SqlAction(action), now_ms)


def post(
    name: str = "m",
    *,
    size: int = 100,
    system: dict[str, Any] | None = None,
    session_id: str | None = None,
    ttl_ms: int | None = None,
    scheduled_ms: int | None = None,
    ping: bool = False,
    message_id: str | None = None,
    **properties: Any,
) -> NewMessage:
    """A message with properties; its id is its name."""
    known = {"MessageId": message_id or name, "SessionId": session_id, **(system or {})}
    body = json.dumps({"name": name, "properties": properties, "system": known}).encode()
    return NewMessage(
        message_id or name,
        body,
        size,
        session_id=session_id,
        ttl_ms=ttl_ms,
        scheduled_ms=scheduled_ms,
        ping=ping,
    )
