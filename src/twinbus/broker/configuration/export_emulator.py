"""A namespace as the official emulator's `config.json`. What that file cannot say is left out with a warning."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twinbus.broker.configuration.export_tree import (
    ExportedEntity,
    ExportedNamespace,
    ExportedSubscription,
    Item,
    is_born_with,
)
from twinbus.durations import format_ms
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings

# A setting's name in the file, by the field it shows.
_QUEUE = {
    "auto_delete_on_idle_ms": "AutoDeleteOnIdle",
    "dead_letter_on_expiry": "DeadLetteringOnMessageExpiration",
    "default_ttl_ms": "DefaultMessageTimeToLive",
    "duplicate_window_ms": "DuplicateDetectionHistoryTimeWindow",
    "enable_batched_operations": "EnableBatchedOperations",
    "enable_express": "EnableExpress",
    "enable_partitioning": "EnablePartitioning",
    "forward_dead_letters_to": "ForwardDeadLetteredMessagesTo",
    "forward_to": "ForwardTo",
    "lock_duration_ms": "LockDuration",
    "max_delivery_count": "MaxDeliveryCount",
    "max_megabytes": "MaxSizeInMegabytes",
    "max_message_bytes": "MaxMessageSizeInKilobytes",
    "requires_duplicate_detection": "RequiresDuplicateDetection",
    "requires_session": "RequiresSession",
    "status": "Status",
    "user_metadata": "UserMetadata",
}
# What the emulator itself reads.
_QUEUE_OWN = (
    "dead_letter_on_expiry",
    "default_ttl_ms",
    "duplicate_window_ms",
    "forward_dead_letters_to",
    "forward_to",
    "lock_duration_ms",
    "max_delivery_count",
    "requires_duplicate_detection",
    "requires_session",
)
_TOPIC = {
    **{field: name for field, name in _QUEUE.items() if field in TopicSettings.__dataclass_fields__},
    "filter_before_publishing": "FilteringMessagesBeforePublishing",
    "support_ordering": "SupportOrdering",
}
_TOPIC_OWN = ("default_ttl_ms", "duplicate_window_ms", "requires_duplicate_detection")
_SUBSCRIPTION = {
    **{field: name for field, name in _QUEUE.items() if field in SubscriptionSettings.__dataclass_fields__},
    "dead_letter_on_filter_error": "DeadLetteringOnFilterEvaluationExceptions",
}
_SUBSCRIPTION_OWN = (
    "dead_letter_on_expiry",
    "default_ttl_ms",
    "forward_dead_letters_to",
    "forward_to",
    "lock_duration_ms",
    "max_delivery_count",
    "requires_session",
)
_CORRELATION = {
    "content_type": "ContentType",
    "correlation_id": "CorrelationId",
    "label": "Label",
    "message_id": "MessageId",
    "reply_to": "ReplyTo",
    "reply_to_session_id": "ReplyToSessionId",
    "session_id": "SessionId",
    "to": "To",
}


def write_emulator(namespace: ExportedNamespace) -> str:
    """The file's text; `namespace.warnings` gets what it could not say."""
    warnings = namespace.warnings
    if namespace.sku != "Standard":
        warnings.append(f"The sku {namespace.sku!r} has no place in config.json.")
    if namespace.jwt:
        warnings.append("How JSON web tokens are checked has no place in config.json.")
    _warn_of_policies(namespace.policies, "the namespace", warnings)
    document = {
        "UserConfig": {
            "Namespaces": [
                {
                    "Name": namespace.name,
                    "Queues": [_queue(queue, warnings) for queue in namespace.queues],
                    "Topics": [_topic(topic, warnings) for topic in namespace.topics],
                }
            ],
            "Logging": {"Type": "File"},
        }
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _queue(queue: ExportedEntity, warnings: list[str]) -> Item:
    path = queue.settings["path"]
    _warn_of_policies(queue.policies, path, warnings)
    defaults = QueueSettings(path=path).to_json()
    return {"Name": path, "Properties": _properties(queue.settings, defaults, _QUEUE, _QUEUE_OWN, path, warnings)}


def _topic(topic: ExportedEntity, warnings: list[str]) -> Item:
    path = topic.settings["path"]
    _warn_of_policies(topic.policies, path, warnings)
    defaults = TopicSettings(path=path).to_json()
    return {
        "Name": path,
        "Properties": _properties(topic.settings, defaults, _TOPIC, _TOPIC_OWN, path, warnings),
        "Subscriptions": [_subscription(path, each, warnings) for each in topic.subscriptions],
    }


def _subscription(topic: str, subscription: ExportedSubscription, warnings: list[str]) -> Item:
    settings = subscription.settings
    defaults = SubscriptionSettings(topic=topic, name=settings["name"]).to_json()
    place = f"{topic}/{settings['name']}"
    if not subscription.rules:
        warnings.append(f"{place}: it has no rule and takes nothing; made from config.json it takes everything.")
    return {
        "Name": settings["name"],
        "Properties": _properties(settings, defaults, _SUBSCRIPTION, _SUBSCRIPTION_OWN, place, warnings),
        "Rules": [_rule(place, rule, warnings) for rule in subscription.rules],
    }


def _properties(
    settings: Item, defaults: Item, names: Mapping[str, str], own: Sequence[str], place: str, warnings: list[str]
) -> Item:
    """What the emulator itself reads, and what is not the default: that only we read back."""
    properties = {}
    for field, name in names.items():
        value = settings[field]
        if field not in own and value == defaults[field]:
            continue
        if field == "max_message_bytes" and value % 1024:
            warnings.append(f"{place}: max_message_bytes {value:,} is no whole number of kilobytes.")
            continue
        properties[name] = _value(field, value)
        if field not in own:
            warnings.append(f"{place}: {name} is for Twinbus; the emulator itself does not know it.")
    return properties


def _rule(place: str, rule: Item, warnings: list[str]) -> Item:
    chosen = rule["filter"]
    properties: Item
    if chosen["type"] == "correlation":
        fields: Item = {name: chosen[field] for field, name in _CORRELATION.items() if field in chosen}
        values = {name: value for name, value in chosen["properties"].items() if not isinstance(value, dict)}
        for name in chosen["properties"].keys() - values.keys():
            warnings.append(f"{place}/{rule['name']}: the value of property {name!r} has no form in JSON.")
        if values:
            fields["Properties"] = values
        properties = {"FilterType": "Correlation", "CorrelationFilter": fields}
    else:
        expression = {"true": "1=1", "false": "1=0"}.get(chosen["type"]) or chosen["expression"]
        properties = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}
    action = rule["action"]
    if action is not None:
        properties["Action"] = {"SqlExpression": action["expression"]}
    for text in (chosen, action or {}):
        if text.get("parameters"):
            warnings.append(f"{place}/{rule['name']}: the parameters of its SQL have no place in config.json.")
    return {"Name": rule["name"], "Properties": properties}


def _value(field: str, value: Any) -> Any:
    if field.endswith("_ms"):
        return format_ms(value)
    if field == "max_message_bytes":
        return value // 1024
    return "" if value is None else value


def _warn_of_policies(policies: list[Item], place: str, warnings: list[str]) -> None:
    names = [policy["name"] for policy in policies if not is_born_with(policy)]
    if names:
        warnings.append(f"Policies of {place} have no place in config.json: {', '.join(sorted(names))}.")
