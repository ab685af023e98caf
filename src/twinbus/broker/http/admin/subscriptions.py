"""Subscriptions of a topic, as the API sees them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.broker.http.admin import subscription_xml
from twinbus.broker.http.admin.feed import Entry
from twinbus.broker.http.admin.forwarding import check_targets
from twinbus.broker.http.admin.requests import Target
from twinbus.broker.http.admin.resource import Call, in_service_words
from twinbus.broker.http.admin.rules import rule_in
from twinbus.broker.http.admin.xml_in import child_of, text_of
from twinbus.entities.rule import DEFAULT_RULE
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic_settings import SubscriptionSettings
from twinbus.errors import ArgumentError, EntityNotFoundError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from twinbus.broker.host import NamespaceHost


class Subscriptions:
    """The subscriptions of all topics."""

    kind = subscription_xml.KIND
    title = "Subscriptions"

    def __init__(self, host: NamespaceHost) -> None:
        # The namespace.
        self._host = host

    def find(self, target: Target) -> Subscription | None:
        return subscription_at(self._host, target)

    def all(self, target: Target) -> Sequence[Subscription]:
        return self._host.entities.topic(target.entity).subscriptions

    def entry(self, found: Subscription, call: Call) -> Entry:
        return subscription_xml.subscription_entry(found, call.site)

    def state(self, found: Subscription) -> str:
        return f"{found.updated_ms} {found.settings}"

    def create(self, call: Call, description: Element) -> Subscription:
        topic = self._host.entities.topic(call.target.entity)
        values = subscription_xml.subscription_values(description)
        try:
            settings = SubscriptionSettings(topic=topic.path, name=call.target.subscription, **values)
        except ArgumentError as error:
            raise in_service_words(error, subscription_xml.FIELDS) from None
        check_targets(values, None, call.caller.need_send)
        given = child_of(description, "DefaultRuleDescription")
        rule = None
        if given is not None:
            rule = rule_in(text_of(given, "Name") or DEFAULT_RULE, given, call.now_ms)
        return self._host.create_subscription(settings, rule)

    def update(self, found: Subscription, call: Call, description: Element) -> Subscription:
        before = found.settings
        values = subscription_xml.subscription_values(description)
        try:
            settings = dataclasses.replace(before, **values)
            before.check_update(settings)
        except ArgumentError as error:
            raise in_service_words(error, subscription_xml.FIELDS) from None
        check_targets(values, before, call.caller.need_send)
        return self._host.update_subscription(settings)

    def delete(self, found: Subscription) -> None:
        self._host.delete_subscription(found.topic.path, found.name)


def subscription_at(host: NamespaceHost, target: Target) -> Subscription | None:
    try:
        return host.entities.subscription(target.entity, target.subscription)
    except EntityNotFoundError:
        return None
