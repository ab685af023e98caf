"""A namespace as the official emulator's `config.json`. What that file cannot say is left out with a warning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twinbus.broker.durations import format_ms
from twinbus.broker.export_tree import ExportedEntity, ExportedNamespace, ExportedSubscription, Item, is_born_with
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
# What the emulator itself reads; the rest is written only when it is not the default, and it is ours that reads it.
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
    "default_ttl_ms": "DefaultMessageTimeToLive",
    "duplicate_window_ms": "DuplicateDetectionHistoryTimeWindow",
    "requires_duplicate_detection": "RequiresDuplicateDetection",
}
_SUBSCRIPTION = {
    "dead_letter_on_expiry": "DeadLetteringOnMessageExpiration",
    "dead_letter_on_filter_error": "DeadLetteringOnFilterEvaluationExceptions",
    "default_ttl_ms": "DefaultMessageTimeToLive",
    "forward_dead_letters_to": "ForwardDeadLetteredMessagesTo",
    "forward_to": "ForwardTo",
    "lock_duration_ms": "LockDuration",
    "max_delivery_count": "MaxDeliveryCount",
    "requires_session": "RequiresSession",
}
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
    properties = {}
    for field, name in _QUEUE.items():
        value = queue.settings[field]
        if field not in _QUEUE_OWN and value == defaults[field]:
            continue
        if field == "max_message_bytes" and value % 1024:
            warnings.append(f"{path}: max_message_bytes {value:,} is no whole number of kilobytes.")
            continue
        properties[name] = _value(field, value)
    return {"Name": path, "Properties": properties}


def _topic(topic: ExportedEntity, warnings: list[str]) -> Item:
    path = topic.settings["path"]
    _warn_of_policies(topic.policies, path, warnings)
    _warn_of_settings(topic.settings, TopicSettings(path=path).to_json(), _TOPIC, path, warnings)
    return {
        "Name": path,
        "Properties": {name: _value(field, topic.settings[field]) for field, name in _TOPIC.items()},
        "Subscriptions": [_subscription(path, each, warnings) for each in topic.subscriptions],
    }


def _subscription(topic: str, subscription: ExportedSubscription, warnings: list[str]) -> Item:
    settings = subscription.settings
    defaults = SubscriptionSettings(topic=topic, name=settings["name"]).to_json()
    place = f"{topic}/{settings['name']}"
    _warn_of_settings(settings, {**defaults, "topic": settings["topic"]}, _SUBSCRIPTION, place, warnings)
    if not subscription.rules:
        warnings.append(f"{place}: it has no rule and takes nothing; made from config.json it takes everything.")
    return {
        "Name": settings["name"],
        "Properties": {name: _value(field, settings[field]) for field, name in _SUBSCRIPTION.items()},
        "Rules": [_rule(place, rule, warnings) for rule in subscription.rules],
    }


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


def _warn_of_settings(
    settings: Item, defaults: Item, known: Mapping[str, str], place: str, warnings: list[str]
) -> None:
    for field, value in settings.items():
        if field not in known and value != defaults.get(field):
            warnings.append(f"{place}: {field} {value!r} has no place in config.json.")


def _warn_of_policies(policies: list[Item], place: str, warnings: list[str]) -> None:
    names = [policy["name"] for policy in policies if not is_born_with(policy)]
    if names:
        warnings.append(f"Policies of {place} have no place in config.json: {', '.join(sorted(names))}.")
