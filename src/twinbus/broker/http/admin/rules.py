"""The rules of a subscription in the administration API."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.broker.http.admin import rule_xml
from twinbus.broker.http.admin.feed import Entry
from twinbus.broker.http.admin.requests import RequestTarget
from twinbus.broker.http.admin.resource import Call
from twinbus.entities.rule import Rule
from twinbus.entities.subscription import Subscription
from twinbus.errors import EntityNotFoundError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from twinbus.broker.host import NamespaceHost


@dataclasses.dataclass(frozen=True)
class FoundRule:
    """A rule and its subscription."""

    subscription: Subscription
    rule: Rule


class Rules:
    """The rules of all subscriptions."""

    kind = rule_xml.KIND
    title = "Rules"

    def __init__(self, host: NamespaceHost) -> None:
        self._host = host

    def find(self, target: RequestTarget) -> FoundRule | None:
        try:
            subscription = self._subscription(target)
            return FoundRule(subscription, subscription.rule(target.rule))
        except EntityNotFoundError:
            return None

    def all(self, target: RequestTarget) -> Sequence[FoundRule]:
        subscription = self._subscription(target)
        return [FoundRule(subscription, rule) for rule in subscription.rules]

    def entry(self, found: FoundRule, call: Call) -> Entry:
        rule, subscription = found.rule, found.subscription
        content = rule_xml.rule_content(rule.name, rule.filter, rule.action, rule.created_ms)
        return Entry(f"{subscription.path}/Rules/{rule.name}", rule.name, rule.created_ms, rule.created_ms, content)

    def state(self, found: FoundRule) -> str:
        rule = found.rule
        return rule_xml.rule_content(rule.name, rule.filter, rule.action, rule.created_ms)

    def create(self, call: Call, description: Element) -> FoundRule:
        subscription = self._subscription(call.target)
        rule = rule_in(call.target.rule, description, call.now_ms)
        subscription.add_rule(rule, call.now_ms, self._host.commits.facts)
        return FoundRule(subscription, rule)

    def update(self, found: FoundRule, call: Call, description: Element) -> FoundRule:
        rule = rule_in(found.rule.name, description, found.rule.created_ms)
        found.subscription.update_rule(rule, call.now_ms, self._host.commits.facts)
        return FoundRule(found.subscription, rule)

    def delete(self, found: FoundRule) -> None:
        found.subscription.remove_rule(found.rule.name, self._host.clock.now_ms(), self._host.commits.facts)

    def _subscription(self, target: RequestTarget) -> Subscription:
        return self._host.entities.subscription(target.entity, target.subscription)


def rule_in(name: str, description: Element, created_ms: int) -> Rule:
    """The rule in a description, under the given name."""
    return Rule(name, rule_xml.filter_in(description), rule_xml.action_in(description), created_ms)
