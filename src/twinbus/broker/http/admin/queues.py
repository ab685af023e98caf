"""Queues, as the API sees them."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.broker.http.admin import queue_xml
from twinbus.broker.http.admin.authorization_xml import policies_in
from twinbus.broker.http.admin.feed import Entry
from twinbus.broker.http.admin.forwarding import check_targets
from twinbus.broker.http.admin.requests import Target
from twinbus.broker.http.admin.resource import Call, in_service_words, message_bytes, partition_sizes
from twinbus.entities.queue import Queue
from twinbus.entities.settings import QueueSettings
from twinbus.entities.subscription import Subscription
from twinbus.errors import ArgumentError, EntityNotFoundError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from twinbus.broker.host import NamespaceHost


class Queues:
    """The queues of a namespace."""

    kind = queue_xml.KIND
    title = "Queues"

    def __init__(self, host: NamespaceHost) -> None:
        # The namespace.
        self._host = host

    def find(self, target: Target) -> Queue | None:
        return queue_at(self._host, target.entity)

    def all(self, target: Target) -> Sequence[Queue]:
        return self._host.entities.queues()

    def entry(self, found: Queue, call: Call) -> Entry:
        return queue_xml.queue_entry(found, self._host.policies.scoped(found.path), call.site)

    def state(self, found: Queue) -> str:
        policies = [(policy, policy.keys) for policy in self._host.policies.scoped(found.path)]
        return f"{found.updated_ms} {found.settings} {policies}"

    def create(self, call: Call, description: Element) -> Queue:
        values = message_bytes(queue_xml.queue_values(description), None, self._host.sku)
        values = partition_sizes(values, None, self._host.sku)
        path = call.target.entity
        try:
            settings = QueueSettings(path=path, **values)
        except ArgumentError as error:
            raise in_service_words(error, queue_xml.FIELDS) from None
        check_targets(values, None, call.caller.need_send)
        policies = policies_in(description, path, (), call.now_ms, secrets.token_bytes)
        self._host.keyring.check(path, policies)
        queue = self._host.create_queue(settings)
        if policies is not None:
            self._host.set_policies(path, policies)
        return queue

    def update(self, found: Queue, call: Call, description: Element) -> Queue:
        before = found.settings
        assert isinstance(before, QueueSettings), "subscriptions are administered through their topic"
        values = message_bytes(queue_xml.queue_values(description), before.max_message_bytes, self._host.sku)
        values = partition_sizes(values, before, self._host.sku)
        try:
            settings = dataclasses.replace(before, **values)
            before.check_update(settings)
        except ArgumentError as error:
            raise in_service_words(error, queue_xml.FIELDS) from None
        check_targets(values, before, call.caller.need_send)
        held = self._host.policies.scoped(found.path)
        policies = policies_in(description, found.path, held, call.now_ms, secrets.token_bytes)
        self._host.keyring.check(found.path, policies)
        queue = self._host.update_queue(settings)
        if policies is not None and policies != held:
            self._host.set_policies(found.path, policies)
        return queue

    def delete(self, found: Queue) -> None:
        self._host.delete_queue(found.path)


def queue_at(host: NamespaceHost, path: str) -> Queue | None:
    """A queue by its own path: dead-letter queues are parts of theirs, and subscriptions have paths of another kind."""
    if "$" in path:
        return None
    try:
        queue = host.entities.queue(path)
    except EntityNotFoundError:
        return None
    return None if isinstance(queue, Subscription) else queue
