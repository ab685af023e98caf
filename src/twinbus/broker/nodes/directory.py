"""The namespace's own management node: creates, lists and deletes entities over AMQP.

Requests go to `$management` at the root and need the Manage right. They use the fields of `QueueSettings`,
`TopicSettings` and `SubscriptionSettings`; a rule has the form of `add-rule`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from twinbus.amqp.types import Int
from twinbus.broker.nodes.activity import ACTIVITY_QUESTIONS
from twinbus.broker.nodes.export import export_page
from twinbus.broker.nodes.policy_requests import delete_policy, list_policies, rotate_key, set_policy
from twinbus.broker.nodes.requests import Request
from twinbus.broker.nodes.rule_wire import described, rule_of
from twinbus.entities.queue import Queue
from twinbus.entities.rule import DEFAULT_RULE
from twinbus.entities.setting import QUEUE, SUBSCRIPTION, TOPIC
from twinbus.entities.settings import QueueSettings
from twinbus.entities.subscription import Subscription
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

    # --- rules ------------------------------------------------------------------------------------------------------

    def create_rule(self, request: Request) -> dict[str, Any]:
        now_ms = self._host.clock.now_ms()
        rule = rule_of(_text(request, "name"), request.arguments.get("rule-description"), now_ms)
        self._host.add_rule(_text(request, "topic"), _text(request, "subscription"), rule)
        return {}

    def update_rule(self, request: Request) -> dict[str, Any]:
        now_ms = self._host.clock.now_ms()
        rule = rule_of(_text(request, "name"), request.arguments.get("rule-description"), now_ms)
        self._host.update_rule(_text(request, "topic"), _text(request, "subscription"), rule)
        return {}

    def create_subscription(self, request: Request) -> dict[str, Any]:
        """Create it with its first rule, if given, so that no other rule selects messages in between."""
        fields = dict(request.arguments)
        described_rule = fields.pop("rule-description", None)
        name = fields.pop("rule-name", None)
        rule = None
        if described_rule is not None:
            rule = rule_of(str(name or DEFAULT_RULE), described_rule, self._host.clock.now_ms())
        made = self._host.create_subscription(settings_of(SubscriptionSettings, fields), rule)
        return {SUBSCRIPTION: description(made)}

    def delete_rule(self, request: Request) -> dict[str, Any]:
        self._host.remove_rule(_text(request, "topic"), _text(request, "subscription"), _text(request, "name"))
        return {}

    def list_rules(self, request: Request) -> dict[str, Any]:
        found = self._host.entities.subscription(_text(request, "topic"), _text(request, "subscription"))
        return {"rules": [{"rule-description": described(rule)} for rule in found.rules]}


def settings_of(kind: type[S], fields: dict[Any, Any]) -> S:
    """Settings from a request's map; the error for an unknown field suggests the nearest known one."""
    what = kind.__name__.removesuffix("Settings").lower()
    known = tuple(name for name in kind.__dataclass_fields__ if name != "affinity")
    for name in fields:
        if name not in known:
            shown = str(name)[:64]
            raise ArgumentError(f"A {what} has no setting '{shown}'.{did_you_mean(shown, known)}")
    plain = {str(name): _plain(value) for name, value in fields.items() if value is not None}
    for name in ("topic", "name") if kind is SubscriptionSettings else ("path",):
        if name not in plain:
            raise ArgumentError(f"A {what} needs its '{name}'.")
    return kind.from_json(plain)


def description(entity: Queue | Subscription | Topic) -> dict[str, Any]:
    """An entity's settings and counts."""
    if isinstance(entity, Subscription):
        entity = entity.queue
    counts = entity.counts
    told = {
        **entity.settings.to_json(),
        "created_ms": entity.created_ms,
        "updated_ms": entity.updated_ms,
        "accessed_ms": entity.accessed_ms,
        "size_bytes": entity.size_bytes,
    }
    if isinstance(entity, Topic):
        counted = {"scheduled_messages": counts.scheduled, "subscriptions": entity.subscription_count}
        return told | {name: Int(count) for name, count in counted.items()}
    return told | {
        "active_messages": Int(counts.active),
        "scheduled_messages": Int(counts.scheduled),
        "deferred_messages": Int(counts.deferred),
        "dead_letter_messages": Int(counts.dead_letter),
        "transfer_dead_letter_messages": Int(entity.transfer_dead_letter_count),
    }


def _plain(value: Any) -> Any:
    """Convert AMQP numbers and symbols to plain types."""
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


def _names(kind: str, request: Request) -> list[str]:
    """The names that identify an entity of that kind."""
    return [_text(request, field) for field in (("topic", "name") if kind == SUBSCRIPTION else ("name",))]


def _commands(kind: str) -> dict[str, _Operation]:
    """Operations that create, update and delete an entity of that kind; the host has a method for each."""

    def changed(verb: str) -> _Operation:
        def run(directory: Directory, request: Request) -> dict[str, Any]:
            settings = settings_of(_SETTINGS[kind], request.arguments)
            return {kind: description(getattr(directory._host, f"{verb}_{kind}")(settings))}

        return run

    def delete(directory: Directory, request: Request) -> dict[str, Any]:
        getattr(directory._host, f"delete_{kind}")(*_names(kind, request))
        return {}

    return {f"create-{kind}": changed("create"), f"update-{kind}": changed("update"), f"delete-{kind}": delete}


def _questions(kind: str) -> dict[str, _Operation]:
    def get(directory: Directory, request: Request) -> dict[str, Any]:
        return {kind: description(getattr(directory._host.entities, kind)(*_names(kind, request)))}

    def found(directory: Directory, request: Request) -> dict[str, Any]:
        entities = directory._host.entities
        if kind == SUBSCRIPTION:
            listed: Iterable[Queue | Subscription | Topic] = entities.topic(_text(request, "topic")).subscriptions
        else:
            listed = entities.queues() if kind == QUEUE else entities.topics()
        return {f"{kind}s": [description(each) for each in listed]}

    return {f"get-{kind}": get, f"list-{kind}s": found}


def _of_host(question: Callable[[NamespaceHost, Request], dict[str, Any]]) -> _Operation:
    return lambda directory, request: question(directory._host, request)


_SETTINGS: dict[str, type[Any]] = {QUEUE: QueueSettings, TOPIC: TopicSettings, SUBSCRIPTION: SubscriptionSettings}

# Answered once their effect is on disk.
_COMMANDS: dict[str, _Operation] = {
    **_commands(QUEUE),
    **_commands(TOPIC),
    **_commands(SUBSCRIPTION),
    "create-subscription": Directory.create_subscription,
    "create-rule": Directory.create_rule,
    "update-rule": Directory.update_rule,
    "delete-rule": Directory.delete_rule,
    "set-policy": lambda directory, request: set_policy(directory._host, request),
    "rotate-key": lambda directory, request: rotate_key(directory._host, request),
    "delete-policy": lambda directory, request: delete_policy(directory._host, request),
}

# Answered at once.
_QUESTIONS: dict[str, _Operation] = {
    **_questions(QUEUE),
    **_questions(TOPIC),
    **_questions(SUBSCRIPTION),
    "list-rules": Directory.list_rules,
    "list-policies": lambda directory, request: list_policies(directory._host, request),
    "export": lambda directory, request: export_page(directory._host, request),
    **{name: _of_host(question) for name, question in ACTIVITY_QUESTIONS.items()},
}
