"""Writes a namespace as our TOML. Defaults are omitted: the file stays short, and later defaults apply to it.

Policies have no keys unless the items contain them; whoever reads such a file generates new ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
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
from twinbus.entities.setting import DURATION, QUEUE, SUBSCRIPTION, TOPIC
from twinbus.entities.settings import SETTINGS_OF
from twinbus.limits import UNLIMITED_MS


def write_toml(namespace: ExportedNamespace) -> str:
    """The text of the file; `namespace.warnings` gets what could not be expressed."""
    lines: list[str] = []
    where = ("namespaces", namespace.name)
    _table(lines, where, {"sku": namespace.sku} if namespace.sku != "Standard" else {})
    if namespace.jwt:
        namespace.warnings.append(
            "How JSON web tokens are checked and people sign in is not exported: it names files of the broker's."
        )
    _policies(lines, where, namespace.policies)
    for queue in namespace.queues:
        place = (*where, "queues", queue.settings["path"])
        _table(lines, place, _changed(queue.settings, QUEUE))
        _policies(lines, place, queue.policies)
    for topic in namespace.topics:
        _topic(lines, (*where, "topics", topic.settings["path"]), topic, namespace.warnings)
    return "\n".join(lines).strip() + "\n"


def _topic(lines: list[str], where: tuple[str, ...], topic: ExportedEntity, warnings: list[str]) -> None:
    path = topic.settings["path"]
    _table(lines, where, _changed(topic.settings, TOPIC))
    _policies(lines, where, topic.policies)
    for subscription in topic.subscriptions:
        _subscription(lines, where, path, subscription, warnings)


def _subscription(
    lines: list[str], where: tuple[str, ...], topic: str, subscription: ExportedSubscription, warnings: list[str]
) -> None:
    settings = subscription.settings
    place = (*where, "subscriptions", settings["name"])
    _table(lines, place, _changed(settings, SUBSCRIPTION))
    if not subscription.rules:
        warnings.append(
            f"{topic}/{settings['name']}: it has no rule and takes nothing; made from this file it takes everything."
        )
    for rule in subscription.rules:
        _table(lines, (*place, "rules", rule["name"]), _rule(f"{topic}/{settings['name']}", rule, warnings))


def _rule(place: str, rule: Item, warnings: list[str]) -> Item:
    chosen, action = rule["filter"], rule["action"]
    shown: Item = {}
    if chosen["type"] == "correlation":
        fields = {name: value for name, value in chosen.items() if name not in ("type", "properties", "label")}
        if "label" in chosen:
            fields["subject"] = chosen["label"]
        values = {name: bare(value) for name, value in chosen["properties"].items()}
        values = {name: value for name, value in values.items() if not isinstance(value, dict)}
        for name in sorted(chosen["properties"].keys() - values.keys()):
            warnings.append(f"{place}/{rule['name']}: the value of property {name!r} has no form in TOML.")
        shown["correlation"] = {**fields, **({"properties": values} if values else {})}
    else:
        shown["sql"] = {"true": "1=1", "false": "1=0"}.get(chosen["type"]) or chosen["expression"]
    if action is not None:
        shown["action"] = action["expression"]
    for text in (chosen, action or {}):
        if text.get("parameters"):
            warnings.append(f"{place}/{rule['name']}: the parameters of its SQL have no place in the file.")
    return shown


def _policies(lines: list[str], where: tuple[str, ...], policies: Iterable[Item]) -> None:
    for policy in policies:
        if is_born_with(policy):
            continue
        fields = {"rights": list(policy["rights"])}
        fields |= {name: policy[name] for name in ("primary_key", "secondary_key") if policy.get(name)}
        _table(lines, (*where, "policies", policy["name"]), fields)


def _changed(settings: Item, kind: str) -> Item:
    """The settings that differ from the default, under their names in the file."""
    changed = [(each, settings[each.name]) for each in SETTINGS_OF[kind] if settings[each.name] != each.default]
    return {each.key: _duration(value) if each.kind == DURATION else value for each, value in changed}


def _duration(ms: int) -> str:
    return "never" if ms >= UNLIMITED_MS else format_ms(ms)


def _table(lines: list[str], where: tuple[str, ...], fields: Item) -> None:
    lines.append(f"[{'.'.join(map(_key, where))}]")
    lines += [f"{_key(name)} = {_value(value)}" for name, value in fields.items()]
    lines.append("")


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if plain else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML accepts JSON's escapes, but also requires one for DEL.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(name)} = {_value(each)}' for name, each in value.items())} }}"
    return repr(float(value)) if isinstance(value, float) else str(int(value))
