"""Writes a namespace as the official emulator's `config.json`. What that format lacks is omitted with a warning."""

from __future__ import annotations

import json
from typing import Any

from twinbus.broker.configuration.export_tree import (
    ExportedEntity,
    ExportedNamespace,
    ExportedSubscription,
    Item,
    is_born_with,
)
from twinbus.durations import format_ms
from twinbus.entities.filters.stored import bare
from twinbus.entities.setting import DURATION, NUMBER, QUEUE, SUBSCRIPTION, TOPIC, Setting
from twinbus.entities.settings import SETTINGS_OF

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
    """The text of the file; `namespace.warnings` gets what could not be expressed."""
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
    return {"Name": path, "Properties": _properties(queue.settings, QUEUE, path, warnings)}


def _topic(topic: ExportedEntity, warnings: list[str]) -> Item:
    path = topic.settings["path"]
    _warn_of_policies(topic.policies, path, warnings)
    return {
        "Name": path,
        "Properties": _properties(topic.settings, TOPIC, path, warnings),
        "Subscriptions": [_subscription(path, each, warnings) for each in topic.subscriptions],
    }


def _subscription(topic: str, subscription: ExportedSubscription, warnings: list[str]) -> Item:
    settings = subscription.settings
    place = f"{topic}/{settings['name']}"
    if not subscription.rules:
        warnings.append(f"{place}: it has no rule and takes nothing; made from config.json it takes everything.")
    return {
        "Name": settings["name"],
        "Properties": _properties(settings, SUBSCRIPTION, place, warnings),
        "Rules": [_rule(place, rule, warnings) for rule in subscription.rules],
    }


def _properties(settings: Item, kind: str, place: str, warnings: list[str]) -> Item:
    """The properties that the emulator reads, plus non-default ones that only Twinbus reads."""
    properties = {}
    for setting in sorted(SETTINGS_OF[kind], key=lambda each: each.azure):
        value, name = settings[setting.name], setting.azure
        if not setting.emulator and value == setting.default:
            continue
        if setting.kind == NUMBER and value % setting.azure_unit:
            warnings.append(f"{place}: {setting.name} {value:,} is no whole number of kilobytes.")
            continue
        properties[name] = _value(setting, value)
        if not setting.emulator:
            warnings.append(f"{place}: {name} is for Twinbus; the emulator itself does not know it.")
    return properties


def _rule(place: str, rule: Item, warnings: list[str]) -> Item:
    chosen = rule["filter"]
    properties: Item
    if chosen["type"] == "correlation":
        fields: Item = {name: chosen[field] for field, name in _CORRELATION.items() if field in chosen}
        values = {name: bare(value) for name, value in chosen["properties"].items()}
        values = {name: value for name, value in values.items() if not isinstance(value, dict)}
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


def _value(setting: Setting, value: Any) -> Any:
    if setting.kind == DURATION:
        return format_ms(value)
    if setting.kind == NUMBER:
        return value // setting.azure_unit
    return "" if value is None else value


def _warn_of_policies(policies: list[Item], place: str, warnings: list[str]) -> None:
    names = [policy["name"] for policy in policies if not is_born_with(policy)]
    if names:
        warnings.append(f"Policies of {place} have no place in config.json: {', '.join(sorted(names))}.")
