"""Creates the entities named in the configuration at start, and updates those that differ.

Nothing is deleted, and rules added by others stay. Forwarding is set last, when every target exists.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twinbus.broker.configuration.config import NamespaceConfig, RuleConfig, SubscriptionConfig
from twinbus.broker.nodes.rule_wire import sql_filter
from twinbus.entities.filters import CorrelationFilter, Filter, SqlAction
from twinbus.entities.rule import Rule
from twinbus.entities.settings import QueueSettings
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic_settings import TopicSettings
from twinbus.errors import ConfigError, EntityNotFoundError, ServiceError

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost


def make_entities(host: NamespaceHost, namespace: NamespaceConfig) -> None:
    """Apply the configuration to the namespace; a ConfigError names the entity that cannot be created."""
    for settings in namespace.queues:
        with _named(namespace, settings.path):
            _make_queue(host, settings)
    for topic in namespace.topics:
        with _named(namespace, topic.path):
            _make_topic(host, topic.settings)
        for subscription in topic.subscriptions:
            with _named(namespace, f"{topic.path}/Subscriptions/{subscription.name}"):
                _make_subscription(host, topic.path, subscription)
    for settings in namespace.queues:
        with _named(namespace, settings.path):
            if host.entities.queue(settings.path).settings != settings:
                host.update_queue(settings)
    for topic in namespace.topics:
        for subscription in topic.subscriptions:
            with _named(namespace, f"{topic.path}/Subscriptions/{subscription.name}"):
                if host.entities.subscription(topic.path, subscription.name).settings != subscription.settings:
                    host.update_subscription(subscription.settings)


@contextmanager
def _named(namespace: NamespaceConfig, path: str) -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        raise ConfigError(f"Namespace {namespace.name!r}, entity {path!r}: {error.text}") from error


def _make_queue(host: NamespaceHost, settings: QueueSettings) -> None:
    try:
        host.entities.queue(settings.path)
    except EntityNotFoundError:
        host.create_queue(dataclasses.replace(settings, forward_to=None, forward_dead_letters_to=None))


def _make_topic(host: NamespaceHost, settings: TopicSettings) -> None:
    try:
        existing = host.entities.topic(settings.path).settings
    except EntityNotFoundError:
        host.create_topic(settings)
        return
    if settings != existing:
        host.update_topic(settings)


def _make_subscription(host: NamespaceHost, topic: str, config: SubscriptionConfig) -> None:
    rules = [configured_rule(each, host.clock.now_ms()) for each in config.rules]
    try:
        host.entities.subscription(topic, config.name)
    except EntityNotFoundError:
        unforwarded = dataclasses.replace(config.settings, forward_to=None, forward_dead_letters_to=None)
        host.create_subscription(unforwarded, rules[0] if rules else None)
        rules = rules[1:]
    for rule in rules:
        _make_rule(host, host.entities.subscription(topic, config.name), rule)


def _make_rule(host: NamespaceHost, subscription: Subscription, rule: Rule) -> None:
    topic, name = subscription.topic.path, subscription.name
    try:
        existing = subscription.rule(rule.name)
    except EntityNotFoundError:
        host.add_rule(topic, name, rule)
        return
    if (existing.filter, existing.action) != (rule.filter, rule.action):
        host.update_rule(topic, name, rule)


def configured_rule(config: RuleConfig, now_ms: int) -> Rule:
    action = None if config.action is None else SqlAction(config.action)
    return Rule(config.name, _filter(config), action, now_ms)


def _filter(config: RuleConfig) -> Filter:
    if config.kind == "sql":
        return sql_filter(config.sql or "")
    # The file uses the newer name.
    fields = {"label" if name == "subject" else name: text for name, text in config.correlation.items()}
    return CorrelationFilter(**fields, properties=config.correlation_properties)
