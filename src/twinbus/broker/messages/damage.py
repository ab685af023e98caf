"""Messages whose body is damaged: each is set aside and logged, and the others are still delivered."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

from twinbus.errors import DamagedBodyError, ProtocolError

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.entities.message import QueuedMessage
    from twinbus.entities.queue import Queue
    from twinbus.entities.topic import Topic

logger = logging.getLogger(__name__)

# Errors from rendering a message that was stored intact but has no form a receiver could be sent.
UNREADABLE = (ProtocolError, ValueError, IndexError, TypeError, OverflowError, struct.error)


def put_aside(host: NamespaceHost, queue: Queue | Topic, message: QueuedMessage, why: Exception) -> None:
    """Hide a message from everybody; it stays in the store."""
    if queue.messages.put_aside(message, host.commits.facts):
        logger.error(
            "message %d of %s in namespace %s cannot be read and is set aside: %s",
            message.seq,
            queue.path,
            host.name,
            why,
        )
        host.commits.request()


def put_aside_at_rest(host: NamespaceHost, queue: Queue | Topic, seq: int, why: Exception) -> None:
    """The same for a message that was only peeked; if a receiver holds it, that receiver will find out."""
    message = queue.messages.find_at_rest(seq)
    if message is not None:
        put_aside(host, queue, message, why)


def whole(host: NamespaceHost, queue: Queue, messages: list[QueuedMessage]) -> tuple[list[QueuedMessage], list[bytes]]:
    """The messages with readable bodies, and the bodies; the others are set aside."""
    try:
        return messages, host.store.bodies([message.body_number for message in messages])
    except DamagedBodyError:
        pass
    found: list[QueuedMessage] = []
    bodies: list[bytes] = []
    for message in messages:
        try:
            bodies.append(host.store.body(message.body_number))
        except DamagedBodyError as error:
            put_aside(host, queue, message, error)
        else:
            found.append(message)
    return found, bodies
