"""Topics, as the API sees them."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.broker.http.admin import topic_xml
from twinbus.broker.http.admin.authorization_xml import policies_in
from twinbus.broker.http.admin.feed import Entry
from twinbus.broker.http.admin.requests import Target
from twinbus.broker.http.admin.resource import Call, in_service_words, message_bytes, partition_sizes
from twinbus.entities.topic import Topic
from twinbus.entities.topic_settings import TopicSettings
from twinbus.errors import ArgumentError, EntityNotFoundError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from twinbus.broker.host import NamespaceHost


class Topics:
    """The topics of a namespace."""

    kind = topic_xml.KIND
    title = "Topics"

    def __init__(self, host: NamespaceHost) -> None:
        # The namespace.
        self._host = host

    def find(self, target: Target) -> Topic | None:
        return topic_at(self._host, target.entity)

    def all(self, target: Target) -> Sequence[Topic]:
        return self._host.entities.topics()

    def entry(self, found: Topic, call: Call) -> Entry:
        return topic_xml.topic_entry(found, self._host.policies.scoped(found.path), call.site)

    def state(self, found: Topic) -> str:
        policies = [(policy, policy.keys) for policy in self._host.policies.scoped(found.path)]
        return f"{found.updated_ms} {found.settings} {policies}"

    def create(self, call: Call, description: Element) -> Topic:
        path = call.target.entity
        values = message_bytes(topic_xml.topic_values(description), None, self._host.sku)
        values = partition_sizes(values, None, self._host.sku)
        try:
            settings = TopicSettings(path=path, **values)
        except ArgumentError as error:
            raise in_service_words(error, topic_xml.FIELDS) from None
        policies = policies_in(description, path, (), call.now_ms, secrets.token_bytes)
        self._host.keyring.check(path, policies)
        topic = self._host.create_topic(settings)
        if policies is not None:
            self._host.set_policies(path, policies)
        return topic

    def update(self, found: Topic, call: Call, description: Element) -> Topic:
        before = found.settings
        values = message_bytes(topic_xml.topic_values(description), before.max_message_bytes, self._host.sku)
        values = partition_sizes(values, before, self._host.sku)
        try:
            settings = dataclasses.replace(before, **values)
            before.check_update(settings)
        except ArgumentError as error:
            raise in_service_words(error, topic_xml.FIELDS) from None
        held = self._host.policies.scoped(found.path)
        policies = policies_in(description, found.path, held, call.now_ms, secrets.token_bytes)
        self._host.keyring.check(found.path, policies)
        topic = self._host.update_topic(settings)
        if policies is not None and policies != held:
            self._host.set_policies(found.path, policies)
        return topic

    def delete(self, found: Topic) -> None:
        self._host.delete_topic(found.path)


def topic_at(host: NamespaceHost, path: str) -> Topic | None:
    try:
        return host.entities.topic(path)
    except EntityNotFoundError:
        return None
