"""Reads the official emulator's `config.json`.

- Keys are case-insensitive, and an empty string means "not set". Besides the emulator's own keys, the service's other
  queue properties are accepted.
- Omitted settings have the emulator's defaults: 3 deliveries, a time to live of one hour.
- The file has no ports: a single namespace gets the emulator's, or that of `--namespace NAME:PORT`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twinbus.broker.configuration.config import (
    NamespaceConfig,
    RuleConfig,
    SubscriptionConfig,
    TopicConfig,
    check_unique,
)
from twinbus.broker.configuration.section import Section
from twinbus.entities.filters.numbers import sized
from twinbus.entities.setting import QUEUE, SUBSCRIPTION, TOPIC
from twinbus.entities.settings import SETTINGS_OF, QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings, check_name
from twinbus.errors import ConfigError
from twinbus.limits import RULE_NAME_CHARS_MAX

# The emulator's defaults where they differ from the service's.
_DEFAULTS = {"default_ttl_ms": 3_600_000, "duplicate_window_ms": 20_000, "max_delivery_count": 3}
_CORRELATION = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "subject",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "Subject": "subject",
    "To": "to",
}


def read_emulator(document: object, file: str) -> list[NamespaceConfig]:
    """The namespaces of a parsed `config.json`; `file` is its name, for errors."""
    # `$schema` is for editors.
    top = _section(document, f"{file}:", ("UserConfig", "$schema"))
    if "UserConfig" not in top:
        raise ConfigError(f"{file}: has no 'UserConfig'. Is it the emulator's configuration file?")
    user = _section(top.get("UserConfig"), f"{file}: UserConfig", ("Namespaces", "Logging"))
    if "Logging" in user:
        # The emulator's log target. Our log is set with --log-level, so only the form of this section is checked.
        _section(user.get("Logging"), user.place("Logging"), ("Type",)).text("Type")
    return [_namespace(values, where) for values, where in _each(user, "Namespaces")]


def _section(values: object, where: str, names: Iterable[str]) -> Section:
    return Section(values, where, names, fold_case=True)


def _each(section: Section, name: str) -> list[tuple[Any, str]]:
    return [(values, f"{section.place(name)}[{n}]") for n, values in enumerate(section.items(name))]


def _properties(section: Section, names: Iterable[str]) -> Section:
    values = section.get("Properties")
    return _section({} if values is None else values, section.place("Properties"), names)


def _settings(section: Section, kind: str) -> tuple[Section, dict[str, Any]]:
    """The section with an entity's properties, and the settings in it."""
    properties = _properties(section, [setting.azure for setting in SETTINGS_OF[kind]])
    fields = {}
    for setting in SETTINGS_OF[kind]:
        value = properties.value(setting.azure, setting.kind)
        if value is None:
            fields[setting.name] = _DEFAULTS.get(setting.name)
        else:
            fields[setting.name] = value if setting.azure_unit == 1 else value * setting.azure_unit
    return properties, fields


def _namespace(values: object, where: str) -> NamespaceConfig:
    section = _section(values, where, ("Name", "Queues", "Topics"))
    return section.make(
        NamespaceConfig,
        name=section.need("Name"),
        queues=[_queue(each, place) for each, place in _each(section, "Queues")],
        topics=[_topic(each, place) for each, place in _each(section, "Topics")],
    )


def _queue(values: object, where: str) -> QueueSettings:
    section = _section(values, where, ("Name", "Properties"))
    path = section.need("Name")
    properties, fields = _settings(section, QUEUE)
    return properties.make(QueueSettings, path=path, **fields)


def _topic(values: object, where: str) -> TopicConfig:
    section = _section(values, where, ("Name", "Properties", "Subscriptions"))
    path = section.need("Name")
    properties, fields = _settings(section, TOPIC)
    settings = properties.make(TopicSettings, path=path, **fields)
    subscriptions = [_subscription(path, each, place) for each, place in _each(section, "Subscriptions")]
    return make_topic(properties, settings, subscriptions)


def _subscription(topic: str, values: object, where: str) -> SubscriptionConfig:
    section = _section(values, where, ("Name", "Properties", "Rules"))
    properties, fields = _settings(section, SUBSCRIPTION)
    settings = properties.make(SubscriptionSettings, topic=topic, name=section.need("Name"), **fields)
    return make_subscription(properties, settings, [_rule(each, place) for each, place in _each(section, "Rules")])


def _rule(values: object, where: str) -> RuleConfig:
    section = _section(values, where, ("Name", "Properties"))
    name = section.need("Name")
    section.make(check_name, name=name, chars_max=RULE_NAME_CHARS_MAX, what="rule")
    properties = _properties(section, ("FilterType", "CorrelationFilter", "SqlFilter", "Action"))
    kind = (properties.text("FilterType") or "").lower().removesuffix("filter")
    if kind not in ("", "sql", "correlation"):
        raise ConfigError(f'{properties.place("FilterType")} must be "Sql" or "Correlation".')
    has_sql, has_correlation = "SqlFilter" in properties, "CorrelationFilter" in properties
    if not has_sql and not has_correlation:
        raise ConfigError(f"{properties.where} has neither 'SqlFilter' nor 'CorrelationFilter'.")
    action = None
    if "Action" in properties:
        action = _section(properties.get("Action"), properties.place("Action"), ("SqlExpression",)).text(
            "SqlExpression"
        )
    # The filter that is present counts; the type decides only if both are (tools write "Sql" for correlation filters).
    if has_sql and (kind == "sql" or not has_correlation):
        sql = _section(properties.get("SqlFilter"), properties.place("SqlFilter"), ("SqlExpression",))
        return RuleConfig(name=name, kind="sql", sql=sql.need("SqlExpression"), action=action or None)
    place = properties.place("CorrelationFilter")
    correlation = _section(properties.get("CorrelationFilter"), place, (*_CORRELATION, "Properties"))
    values = correlation.get("Properties")
    return RuleConfig(
        name=name,
        kind="correlation",
        correlation={field: text for key, field in _CORRELATION.items() if (text := correlation.text(key))},
        correlation_properties=plain_values({} if values is None else values, correlation.place("Properties")),
        action=action or None,
    )


def make_topic(section: Section, settings: TopicSettings, subscriptions: list[SubscriptionConfig]) -> TopicConfig:
    """Create a topic; raises if two subscriptions have the same name."""
    text = f"{section.where}: Topic {settings.path!r} has the subscription"
    check_unique([each.name for each in subscriptions], text)
    return TopicConfig(settings=settings, subscriptions=subscriptions)


def make_subscription(section: Section, settings: SubscriptionSettings, rules: list[RuleConfig]) -> SubscriptionConfig:
    """Create a subscription; raises if two rules have the same name."""
    check_unique([each.name for each in rules], f"{section.where}: Subscription {settings.name!r} has the rule")
    return SubscriptionConfig(settings=settings, rules=rules)


def plain_values(values: object, where: str) -> dict[str, str | int | float | bool]:
    """The application properties that a correlation filter requires."""
    section = Section(values, where, None)
    found: dict[str, str | int | float | bool] = {}
    for name in section:
        value = section.get(name)
        if not isinstance(value, str | int | float | bool):
            raise ConfigError(f"{section.place(name)} must be a text, a number, true or false.")
        found[name] = sized(value) if type(value) is int else value
    return found
