"""A planted fault: one damaged body withholds the messages that were read with it from everyone."""

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
