"""Queues, topics and subscriptions in the administration API."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from twinbus.auth.policies import Policy
from twinbus.broker.http.admin.authorization_xml import policies_in
from twinbus.broker.http.admin.entity_xml import element_of, entry_of, settings_in
from twinbus.broker.http.admin.feed import Entry
from twinbus.broker.http.admin.forwarding import check_targets
from twinbus.broker.http.admin.requests import RequestTarget
from twinbus.broker.http.admin.resource import Call, in_service_words, message_bytes, partition_sizes
from twinbus.broker.http.admin.rules import rule_in
from twinbus.broker.http.admin.xml_in import child_of, child_text
from twinbus.entities.queue import Queue
from twinbus.entities.rule import DEFAULT_RULE
from twinbus.entities.setting import QUEUE, SUBSCRIPTION, TOPIC
from twinbus.entities.settings import SETTINGS_OF, EntitySettings, QueueSettings
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ArgumentError, EntityNotFoundError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from twinbus.broker.host import NamespaceHost

_E = TypeVar("_E")
_S = TypeVar("_S", bound=EntitySettings)


class Queues:
    """The queues of a namespace."""

    kind = element_of(QUEUE)
    title = "Queues"

    def __init__(self, host: NamespaceHost) -> None:
        self._host = host

    def find(self, target: RequestTarget) -> Queue | None:
        """A queue by its own path. Dead-letter queues belong to their queue, and subscriptions have other paths."""
        queue = None if "$" in target.entity else _found(self._host.entities.queue, target.entity)
        return queue if queue is not None and queue.subscription is None else None

    def all(self, target: RequestTarget) -> Sequence[Queue]:
        return self._host.entities.queues()

    def entry(self, found: Queue, call: Call) -> Entry:
        return entry_of(found, self._host.policies.scoped(found.path), call.site)

    def state(self, found: Queue) -> str:
        return _state(self._host, found)

    def create(self, call: Call, description: Element) -> Queue:
        names = {"path": call.target.entity}
        settings = new_settings(QueueSettings, QUEUE, names, call, description, self._host.sku)
        return _with_policies(
            self._host, settings.path, (), call, description, lambda: self._host.create_queue(settings)
        )

    def update(self, found: Queue, call: Call, description: Element) -> Queue:
        before = found.settings
        assert isinstance(before, QueueSettings), "subscriptions are administered through their topic"
        settings = changed_settings(before, call, description, self._host.sku)
        held = self._host.policies.scoped(found.path)
        return _with_policies(
            self._host, found.path, held, call, description, lambda: self._host.update_queue(settings)
        )

    def delete(self, found: Queue) -> None:
        self._host.delete_queue(found.path)


class Topics:
    """The topics of a namespace."""

    kind = element_of(TOPIC)
    title = "Topics"

    def __init__(self, host: NamespaceHost) -> None:
        self._host = host

    def find(self, target: RequestTarget) -> Topic | None:
        return _found(self._host.entities.topic, target.entity)

    def all(self, target: RequestTarget) -> Sequence[Topic]:
        return self._host.entities.topics()

    def entry(self, found: Topic, call: Call) -> Entry:
        return entry_of(found, self._host.policies.scoped(found.path), call.site)

    def state(self, found: Topic) -> str:
        return _state(self._host, found)

    def create(self, call: Call, description: Element) -> Topic:
        names = {"path": call.target.entity}
        settings = new_settings(TopicSettings, TOPIC, names, call, description, self._host.sku)
        return _with_policies(
            self._host, settings.path, (), call, description, lambda: self._host.create_topic(settings)
        )

    def update(self, found: Topic, call: Call, description: Element) -> Topic:
        settings = changed_settings(found.settings, call, description, self._host.sku)
        held = self._host.policies.scoped(found.path)
        return _with_policies(
            self._host, found.path, held, call, description, lambda: self._host.update_topic(settings)
        )

    def delete(self, found: Topic) -> None:
        self._host.delete_topic(found.path)


class Subscriptions:
    """The subscriptions of all topics."""

    kind = element_of(SUBSCRIPTION)
    title = "Subscriptions"

    def __init__(self, host: NamespaceHost) -> None:
        self._host = host

    def find(self, target: RequestTarget) -> Subscription | None:
        return _found(self._host.entities.subscription, target.entity, target.subscription)

    def all(self, target: RequestTarget) -> Sequence[Subscription]:
        return self._host.entities.topic(target.entity).subscriptions

    def entry(self, found: Subscription, call: Call) -> Entry:
        return entry_of(found.queue, (), call.site)

    def state(self, found: Subscription) -> str:
        return f"{found.queue.updated_ms} {found.settings}"

    def create(self, call: Call, description: Element) -> Subscription:
        topic = self._host.entities.topic(call.target.entity)
        names = {"topic": topic.path, "name": call.target.subscription}
        settings = new_settings(SubscriptionSettings, SUBSCRIPTION, names, call, description, self._host.sku)
        given = child_of(description, "DefaultRuleDescription")
        rule = None
        if given is not None:
            rule = rule_in(child_text(given, "Name") or DEFAULT_RULE, given, call.now_ms)
        return self._host.create_subscription(settings, rule)

    def update(self, found: Subscription, call: Call, description: Element) -> Subscription:
        return self._host.update_subscription(changed_settings(found.settings, call, description, self._host.sku))

    def delete(self, found: Subscription) -> None:
        self._host.delete_subscription(found.topic.path, found.name)


def new_settings(
    made: Callable[..., _S], kind: str, names: dict[str, str], call: Call, description: Element, sku: str
) -> _S:
    """The settings of a new entity, from its description."""
    values = _values(description, kind, None, sku)
    try:
        settings = made(**names, **values)
    except ArgumentError as error:
        raise in_service_words(error, SETTINGS_OF[kind]) from None
    check_targets(values, None, call.caller.need_send)
    return settings


def changed_settings(before: _S, call: Call, description: Element, sku: str) -> _S:
    """An entity's settings after an update."""
    values = _values(description, before.kind, before, sku)
    try:
        settings = dataclasses.replace(before, **values)
        before.check_update(settings)
    except ArgumentError as error:
        raise in_service_words(error, SETTINGS_OF[before.kind]) from None
    check_targets(values, before, call.caller.need_send)
    return settings


def _values(description: Element, kind: str, before: EntitySettings | None, sku: str) -> dict[str, Any]:
    values = settings_in(description, kind)
    if kind == SUBSCRIPTION:
        return values
    values = message_bytes(values, None if before is None else before.max_message_bytes, sku)
    return partition_sizes(values, before, sku)


def _with_policies(
    host: NamespaceHost, path: str, held: Sequence[Policy], call: Call, description: Element, make: Callable[[], _E]
) -> _E:
    """Create or change an entity, and its policies if the description has any."""
    policies = policies_in(description, path, held, call.now_ms, secrets.token_bytes)
    host.keyring.check(path, policies)
    made = make()
    if policies is not None and policies != held:
        host.set_policies(path, policies)
    return made


def _state(host: NamespaceHost, found: Queue | Topic) -> str:
    policies = [(policy, policy.keys) for policy in host.policies.scoped(found.path)]
    return f"{found.updated_ms} {found.settings} {policies}"


def _found(look: Callable[..., _E], *names: str) -> _E | None:
    try:
        return look(*names)
    except EntityNotFoundError:
        return None
