"""The namespace's own management node: making, listing and deleting entities over AMQP.

Requests go to `$management` at the root and need the Manage right. They take and give the fields of `QueueSettings`,
`TopicSettings` and `SubscriptionSettings`; a rule is described as `add-rule` describes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from twinbus.amqp.types import Int
from twinbus.broker.nodes.export import export_page
from twinbus.broker.nodes.policy_requests import delete_policy, list_policies, rotate_key, set_policy
from twinbus.broker.nodes.requests import Request
from twinbus.broker.nodes.rule_wire import described, rule_of
from twinbus.entities.queue import Queue
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic import Topic
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ArgumentError, UnsupportedError
from twinbus.spelling import did_you_mean

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

S = TypeVar("S", QueueSettings, TopicSettings, SubscriptionSettings)


class Directory:
    """Answers requests about a namespace's entities."""

    __slots__ = ("_host",)

    def __init__(self, host: NamespaceHost) -> None:
        self._host = host

    def handle(self, request: Request) -> None:
        operation = request.operation.removeprefix("twinbus:")
        asked = _QUESTIONS.get(operation)
        if asked is not None:
            request.answer_management(200, "OK", asked(self, request))
            return
        command = _COMMANDS.get(operation)
        if command is None:
            known = ", ".join(f"twinbus:{name}" for name in (*_COMMANDS, *_QUESTIONS))
            raise UnsupportedError(
                f"The operation '{request.operation[:64]}' is not known to the namespace. Known: {known}."
            )
        body = command(self, request)
        self._host.commits.facts.then.append((_answer, (request, body)))

    # --- queues -----------------------------------------------------------------------------------------------------

    def create_queue(self, request: Request) -> dict[str, Any]:
        return {"queue": description(self._host.create_queue(settings_of(QueueSettings, request.arguments)))}

    def update_queue(self, request: Request) -> dict[str, Any]:
        return {"queue": description(self._host.update_queue(settings_of(QueueSettings, request.arguments)))}

    def delete_queue(self, request: Request) -> dict[str, Any]:
        self._host.delete_queue(_text(request, "name"))
        return {}

    def get_queue(self, request: Request) -> dict[str, Any]:
        return {"queue": description(self._host.entities.queue(_text(request, "name")))}

    def list_queues(self, request: Request) -> dict[str, Any]:
        return {"queues": [description(queue) for queue in self._host.entities.queues()]}

    # --- topics -----------------------------------------------------------------------------------------------------

    def create_topic(self, request: Request) -> dict[str, Any]:
        return {"topic": topic_description(self._host.create_topic(settings_of(TopicSettings, request.arguments)))}

    def update_topic(self, request: Request) -> dict[str, Any]:
        return {"topic": topic_description(self._host.update_topic(settings_of(TopicSettings, request.arguments)))}

    def delete_topic(self, request: Request) -> dict[str, Any]:
        self._host.delete_topic(_text(request, "name"))
        return {}

    def get_topic(self, request: Request) -> dict[str, Any]:
        return {"topic": topic_description(self._host.entities.topic(_text(request, "name")))}

    def list_topics(self, request: Request) -> dict[str, Any]:
        return {"topics": [topic_description(topic) for topic in self._host.entities.topics()]}

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def create_subscription(self, request: Request) -> dict[str, Any]:
        made = self._host.create_subscription(settings_of(SubscriptionSettings, request.arguments))
        return {"subscription": description(made.queue)}

    def update_subscription(self, request: Request) -> dict[str, Any]:
        updated = self._host.update_subscription(settings_of(SubscriptionSettings, request.arguments))
        return {"subscription": description(updated.queue)}

    def delete_subscription(self, request: Request) -> dict[str, Any]:
        self._host.delete_subscription(_text(request, "topic"), _text(request, "name"))
        return {}

    def get_subscription(self, request: Request) -> dict[str, Any]:
        found = self._host.entities.subscription(_text(request, "topic"), _text(request, "name"))
        return {"subscription": description(found.queue)}

    def list_subscriptions(self, request: Request) -> dict[str, Any]:
        topic = self._host.entities.topic(_text(request, "topic"))
        return {"subscriptions": [description(each.queue) for each in topic.subscriptions]}

    # --- rules ------------------------------------------------------------------------------------------------------

    def create_rule(self, request: Request) -> dict[str, Any]:
        now_ms = self._host.clock.now_ms()
        rule = rule_of(_text(request, "name"), request.arguments.get("rule-description"), now_ms)
        self._host.add_rule(_text(request, "topic"), _text(request, "subscription"), rule)
        return {}

    def delete_rule(self, request: Request) -> dict[str, Any]:
        self._host.remove_rule(_text(request, "topic"), _text(request, "subscription"), _text(request, "name"))
        return {}

    def list_rules(self, request: Request) -> dict[str, Any]:
        found = self._host.entities.subscription(_text(request, "topic"), _text(request, "subscription"))
        return {"rules": [{"rule-description": described(rule)} for rule in found.rules]}


def settings_of(kind: type[S], fields: dict[Any, Any]) -> S:
    """Settings from a request's map; an unknown field is an error that names the nearest known one."""
    what = kind.__name__.removesuffix("Settings").lower()
    known = tuple(kind.__dataclass_fields__)
    for name in fields:
        if name not in known:
            shown = str(name)[:64]
            raise ArgumentError(f"A {what} has no setting '{shown}'.{did_you_mean(shown, known)}")
    plain = {str(name): _plain(value) for name, value in fields.items() if value is not None}
    for name in ("topic", "name") if kind is SubscriptionSettings else ("path",):
        if name not in plain:
            raise ArgumentError(f"A {what} needs its '{name}'.")
    return kind.from_json(plain)


def description(queue: Queue) -> dict[str, Any]:
    """A queue's or subscription's settings and numbers."""
    counts = queue.counts
    return {
        **queue.settings.to_json(),
        "created_ms": queue.created_ms,
        "updated_ms": queue.updated_ms,
        "accessed_ms": queue.accessed_ms,
        "size_bytes": queue.size_bytes,
        "active_messages": Int(counts.active),
        "scheduled_messages": Int(counts.scheduled),
        "deferred_messages": Int(counts.deferred),
        "dead_letter_messages": Int(counts.dead_letter),
        "transfer_dead_letter_messages": Int(queue.transfer_dead_letter_count),
    }


def topic_description(topic: Topic) -> dict[str, Any]:
    """A topic's settings and numbers."""
    return {
        **topic.settings.to_json(),
        "created_ms": topic.created_ms,
        "updated_ms": topic.updated_ms,
        "accessed_ms": topic.accessed_ms,
        "size_bytes": topic.size_bytes,
        "scheduled_messages": Int(topic.scheduled_count),
        "subscriptions": Int(topic.subscription_count),
    }


def _plain(value: Any) -> Any:
    """AMQP numbers and symbols as the settings want them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    return str(value) if isinstance(value, str) else value


def _text(request: Request, field: str) -> str:
    text = request.arguments.get(field)
    if not isinstance(text, str) or not text:
        raise ArgumentError(f"The request needs the '{field}' as a string.")
    return str(text)


def _answer(answer: tuple[Request, dict[str, Any]]) -> None:
    request, body = answer
    request.answer_management(200, "OK", body)


_Operation = Callable[[Directory, Request], dict[str, Any]]

# Answered when what they do is on disk.
_COMMANDS: dict[str, _Operation] = {
    "create-queue": Directory.create_queue,
    "update-queue": Directory.update_queue,
    "delete-queue": Directory.delete_queue,
    "create-topic": Directory.create_topic,
    "update-topic": Directory.update_topic,
    "delete-topic": Directory.delete_topic,
    "create-subscription": Directory.create_subscription,
    "update-subscription": Directory.update_subscription,
    "delete-subscription": Directory.delete_subscription,
    "create-rule": Directory.create_rule,
    "delete-rule": Directory.delete_rule,
    "set-policy": lambda directory, request: set_policy(directory._host, request),
    "rotate-key": lambda directory, request: rotate_key(directory._host, request),
    "delete-policy": lambda directory, request: delete_policy(directory._host, request),
}

# Answered at once.
_QUESTIONS: dict[str, _Operation] = {
    "get-queue": Directory.get_queue,
    "list-queues": Directory.list_queues,
    "get-topic": Directory.get_topic,
    "list-topics": Directory.list_topics,
    "get-subscription": Directory.get_subscription,
    "list-subscriptions": Directory.list_subscriptions,
    "list-rules": Directory.list_rules,
    "list-policies": lambda directory, request: list_policies(directory._host, request),
    "export": lambda directory, request: export_page(directory._host, request),
}
