"""Exported items arranged as a tree, which the writers of both formats walk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from twinbus.auth.policies import ROOT_KEY_NAME

Item = dict[str, Any]


@dataclass
class ExportedSubscription:
    settings: Item
    rules: list[Item] = field(default_factory=list)


@dataclass
class ExportedEntity:
    """A queue, or a topic with its subscriptions."""

    settings: Item
    policies: list[Item] = field(default_factory=list, repr=False)
    subscriptions: list[ExportedSubscription] = field(default_factory=list)


@dataclass
class ExportedNamespace:
    """A whole namespace; `warnings` collects what a format cannot express."""

    name: str
    sku: str
    jwt: bool = False
    policies: list[Item] = field(default_factory=list, repr=False)
    queues: list[ExportedEntity] = field(default_factory=list)
    topics: list[ExportedEntity] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def tree_of(namespace: Item, items: Iterable[Item]) -> ExportedNamespace:
    """Build the tree from items in the order the broker lists them."""
    made = ExportedNamespace(str(namespace["name"]), str(namespace["sku"]), bool(namespace["jwt"]))
    entities: dict[str, ExportedEntity] = {}
    subscriptions: dict[tuple[str, str], ExportedSubscription] = {}
    for item in items:
        fields = dict(item)
        kind = fields.pop("kind")
        if kind in ("queue", "topic"):
            entity = entities[fields["path"].lower()] = ExportedEntity(fields)
            (made.queues if kind == "queue" else made.topics).append(entity)
        elif kind == "subscription":
            subscription = ExportedSubscription(fields)
            subscriptions[fields["topic"].lower(), fields["name"].lower()] = subscription
            entities[fields["topic"].lower()].subscriptions.append(subscription)
        elif kind == "rule":
            subscriptions[fields.pop("topic").lower(), fields.pop("subscription").lower()].rules.append(fields)
        elif not fields["entity"]:
            made.policies.append(fields)
        elif fields["entity"].lower() in entities:
            entities[fields["entity"].lower()].policies.append(fields)
    return made


def is_born_with(policy: Item) -> bool:
    """Whether every namespace has this policy by default."""
    return not policy["entity"] and str(policy["name"]) == ROOT_KEY_NAME and "primary_key" not in policy
