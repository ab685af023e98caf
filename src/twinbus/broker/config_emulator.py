"""The official emulator's `config.json`.

Rules:
- It is taken as it is: its keys in any case, an empty text for "not set". Besides the emulator's own keys, the
  service's other queue properties are understood.
- Namespaces have no port in this file: `--namespace NAME:PORT` gives one.
"""

from __future__ import annotations

from typing import Any

from twinbus.broker.config import NamespaceConfig, RuleConfig, SubscriptionConfig, TopicConfig, check_unique
from twinbus.broker.config_section import Section
from twinbus.entities.settings import QueueSettings, check_path
from twinbus.errors import ArgumentError, ConfigError
from twinbus.limits import RULE_NAME_CHARS_MAX, SUBSCRIPTION_NAME_CHARS_MAX

_QUEUE = (
    "AutoDeleteOnIdle",
    "DeadLetteringOnMessageExpiration",
    "DefaultMessageTimeToLive",
    "DuplicateDetectionHistoryTimeWindow",
    "EnableBatchedOperations",
    "EnableExpress",
    "EnablePartitioning",
    "ForwardDeadLetteredMessagesTo",
    "ForwardTo",
    "LockDuration",
    "MaxDeliveryCount",
    "MaxMessageSizeInKilobytes",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "Status",
    "UserMetadata",
)
_TOPIC = ("DefaultMessageTimeToLive", "DuplicateDetectionHistoryTimeWindow", "RequiresDuplicateDetection")
_SUBSCRIPTION = (
    "DeadLetteringOnFilterEvaluationExceptions",
    "DeadLetteringOnMessageExpiration",
    "DefaultMessageTimeToLive",
    "ForwardDeadLetteredMessagesTo",
    "ForwardTo",
    "LockDuration",
    "MaxDeliveryCount",
    "RequiresSession",
)
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
    top = _section(document, f"{file}:", ("UserConfig",))
    if "UserConfig" not in top:
        raise ConfigError(f"{file}: has no 'UserConfig'. Is it the emulator's configuration file?")
    user = _section(top.get("UserConfig"), f"{file}: UserConfig", ("Namespaces", "Logging"))
    if "Logging" in user:
        # Where the emulator writes its log; ours goes where --log-level's reader looks, so only its form is checked.
        _section(user.get("Logging"), user.place("Logging"), ("Type",)).text("Type")
    return [_namespace(values, where) for values, where in _each(user, "Namespaces")]


def _section(values: object, where: str, names: tuple[str, ...]) -> Section:
    return Section(values, where, names, fold_case=True)


def _each(section: Section, name: str) -> list[tuple[Any, str]]:
    return [(values, f"{section.place(name)}[{n}]") for n, values in enumerate(section.items(name))]


def _properties(section: Section, names: tuple[str, ...]) -> Section:
    values = section.get("Properties")
    return _section({} if values is None else values, section.place("Properties"), names)


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
    properties = _properties(section, _QUEUE)
    kilobytes = properties.number("MaxMessageSizeInKilobytes")
    return properties.make(
        QueueSettings,
        path=path,
        lock_duration_ms=properties.duration_ms("LockDuration"),
        max_megabytes=properties.number("MaxSizeInMegabytes"),
        requires_duplicate_detection=properties.flag("RequiresDuplicateDetection"),
        requires_session=properties.flag("RequiresSession"),
        default_ttl_ms=properties.duration_ms("DefaultMessageTimeToLive"),
        dead_letter_on_expiry=properties.flag("DeadLetteringOnMessageExpiration"),
        duplicate_window_ms=properties.duration_ms("DuplicateDetectionHistoryTimeWindow"),
        max_delivery_count=properties.number("MaxDeliveryCount"),
        enable_batched_operations=properties.flag("EnableBatchedOperations"),
        status=properties.text("Status") or None,
        auto_delete_on_idle_ms=properties.duration_ms("AutoDeleteOnIdle"),
        enable_partitioning=properties.flag("EnablePartitioning"),
        enable_express=properties.flag("EnableExpress"),
        forward_to=properties.text("ForwardTo") or None,
        forward_dead_letters_to=properties.text("ForwardDeadLetteredMessagesTo") or None,
        user_metadata=properties.text("UserMetadata") or None,
        max_message_bytes=None if kilobytes is None else kilobytes * 1024,
    )


def _topic(values: object, where: str) -> TopicConfig:
    section = _section(values, where, ("Name", "Properties", "Subscriptions"))
    properties = _properties(section, _TOPIC)
    subscriptions = [_subscription(each, place) for each, place in _each(section, "Subscriptions")]
    return make_topic(
        properties,
        section.need("Name"),
        subscriptions,
        default_ttl_ms=properties.duration_ms("DefaultMessageTimeToLive"),
        duplicate_window_ms=properties.duration_ms("DuplicateDetectionHistoryTimeWindow"),
        requires_duplicate_detection=properties.flag("RequiresDuplicateDetection"),
    )


def _subscription(values: object, where: str) -> SubscriptionConfig:
    section = _section(values, where, ("Name", "Properties", "Rules"))
    properties = _properties(section, _SUBSCRIPTION)
    rules = [_rule(each, place) for each, place in _each(section, "Rules")]
    return make_subscription(
        properties,
        section.need("Name"),
        rules,
        dead_letter_on_filter_error=properties.flag("DeadLetteringOnFilterEvaluationExceptions"),
        lock_duration_ms=properties.duration_ms("LockDuration"),
        max_delivery_count=properties.number("MaxDeliveryCount"),
        default_ttl_ms=properties.duration_ms("DefaultMessageTimeToLive"),
        requires_session=properties.flag("RequiresSession"),
        dead_letter_on_expiry=properties.flag("DeadLetteringOnMessageExpiration"),
        forward_to=properties.text("ForwardTo") or None,
        forward_dead_letters_to=properties.text("ForwardDeadLetteredMessagesTo") or None,
    )


def _rule(values: object, where: str) -> RuleConfig:
    section = _section(values, where, ("Name", "Properties"))
    name = section.need("Name")
    check_name(name, RULE_NAME_CHARS_MAX, section.place("Name"))
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
    # What is there counts; the type decides only when both filters are (tools write "Sql" beside a correlation filter).
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


def make_topic(section: Section, path: str, subscriptions: list[SubscriptionConfig], **fields: Any) -> TopicConfig:
    """A topic, its ranges checked as a queue's are."""
    checked = section.make(QueueSettings, path=path, **fields)
    check_unique([each.name for each in subscriptions], f"{section.where}: Topic {path!r} has the subscription")
    return TopicConfig(
        path=path,
        duplicate_window_ms=checked.duplicate_window_ms,
        default_ttl_ms=checked.default_ttl_ms,
        requires_duplicate_detection=checked.requires_duplicate_detection,
        subscriptions=subscriptions,
    )


def make_subscription(
    section: Section, name: str, rules: list[RuleConfig], dead_letter_on_filter_error: bool | None, **fields: Any
) -> SubscriptionConfig:
    """A subscription, its ranges checked as a queue's are."""
    check_name(name, SUBSCRIPTION_NAME_CHARS_MAX, section.where)
    checked = section.make(QueueSettings, path=name, **fields)
    check_unique([each.name for each in rules], f"{section.where}: Subscription {name!r} has the rule")
    return SubscriptionConfig(
        name=name,
        lock_duration_ms=checked.lock_duration_ms,
        max_delivery_count=checked.max_delivery_count,
        default_ttl_ms=checked.default_ttl_ms,
        requires_session=checked.requires_session,
        dead_letter_on_expiry=checked.dead_letter_on_expiry,
        dead_letter_on_filter_error=dead_letter_on_filter_error is not False,
        forward_to=checked.forward_to,
        forward_dead_letters_to=checked.forward_dead_letters_to,
        rules=rules,
    )


def check_name(name: str, chars_max: int, where: str) -> None:
    """A subscription's or rule's name: short, and one path segment (the default rule is `$Default`)."""
    try:
        if len(name) > chars_max or "/" in name:
            raise ArgumentError(f"The name {name!r} must have 1 to {chars_max} characters and no '/'.")
        check_path(name.removeprefix("$"))
    except ArgumentError as error:
        raise ConfigError(f"{where}: {error}") from None


def plain_values(values: object, where: str) -> dict[str, str | int | float | bool]:
    """The application properties a correlation filter asks for."""
    section = Section(values, where, None)
    found: dict[str, str | int | float | bool] = {}
    for name in section:
        value = section.get(name)
        if not isinstance(value, str | int | float | bool):
            raise ConfigError(f"{section.place(name)} must be a text, a number, true or false.")
        found[name] = value
    return found
