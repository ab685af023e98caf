"""A planted fault: one damaged body keeps the messages that were read with it from everybody."""

from __future__ import annotations

from twinbus.broker.host import NamespaceHost
from twinbus.broker.links import consumer
from twinbus.entities.message import QueuedMessage
from twinbus.entities.queue import Queue


def stopped(
    host: NamespaceHost, queue: Queue, messages: list[QueuedMessage]
) -> tuple[list[QueuedMessage], list[bytes]]:
    return messages, host.store.bodies([message.body_number for message in messages])


consumer.whole = stopped
