"""Entities named in the configuration, made at start: what is missing is created, what differs is updated.

Nothing is deleted, and a rule that somebody added stays. Forwarding is set last, when every target is there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twinbus.broker.config import NamespaceConfig, RuleConfig, SubscriptionConfig, TopicConfig
from twinbus.broker.rule_wire import sql_filter
from twinbus.entities.filters import CorrelationFilter, Filter, SqlAction
from twinbus.entities.rule import Rule
from twinbus.entities.settings import QueueSettings
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ConfigError, EntityNotFoundError, ServiceError

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost


def make_entities(host: NamespaceHost, namespace: NamespaceConfig) -> None:
    """Bring the namespace to what its configuration says; ConfigError names the entity that cannot be made."""
    for settings in namespace.queues:
        with _named(namespace, settings.path):
            _make_queue(host, settings)
    for topic in namespace.topics:
        with _named(namespace, topic.path):
            _make_topic(host, topic)
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
                _forward_subscription(host, topic.path, subscription)


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


def _make_topic(host: NamespaceHost, config: TopicConfig) -> None:
    wanted: dict[str, Any] = {
        "duplicate_window_ms": config.duplicate_window_ms,
        "default_ttl_ms": config.default_ttl_ms,
        "requires_duplicate_detection": config.requires_duplicate_detection,
    }
    try:
        existing = host.entities.topic(config.path).settings
    except EntityNotFoundError:
        host.create_topic(TopicSettings(path=config.path, **wanted))
        return
    settings = dataclasses.replace(existing, **wanted)
    if settings != existing:
        host.update_topic(settings)


def _make_subscription(host: NamespaceHost, topic: str, config: SubscriptionConfig) -> None:
    wanted: dict[str, Any] = {
        "lock_duration_ms": config.lock_duration_ms,
        "max_delivery_count": config.max_delivery_count,
        "default_ttl_ms": config.default_ttl_ms,
        "requires_session": config.requires_session,
        "dead_letter_on_expiry": config.dead_letter_on_expiry,
        "dead_letter_on_filter_error": config.dead_letter_on_filter_error,
    }
    rules = [_rule(each, host.clock.now_ms()) for each in config.rules]
    try:
        subscription = host.entities.subscription(topic, config.name)
    except EntityNotFoundError:
        settings = SubscriptionSettings(topic=topic, name=config.name, **wanted)
        host.create_subscription(settings, rules[0] if rules else None)
        rules = rules[1:]
    else:
        settings = dataclasses.replace(subscription.settings, **wanted)
        if settings != subscription.settings:
            host.update_subscription(settings)
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


def _forward_subscription(host: NamespaceHost, topic: str, config: SubscriptionConfig) -> None:
    existing = host.entities.subscription(topic, config.name).settings
    settings = dataclasses.replace(
        existing, forward_to=config.forward_to, forward_dead_letters_to=config.forward_dead_letters_to
    )
    if settings != existing:
        host.update_subscription(settings)


def _rule(config: RuleConfig, now_ms: int) -> Rule:
    action = None if config.action is None else SqlAction(config.action)
    return Rule(config.name, _filter(config), action, now_ms)


def _filter(config: RuleConfig) -> Filter:
    if config.kind == "sql":
        return sql_filter(config.sql or "")
    # The file calls it by the newer name.
    fields = {"label" if name == "subject" else name: text for name, text in config.correlation.items()}
    return CorrelationFilter(**fields, properties=config.correlation_properties)
