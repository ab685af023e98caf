"""Application properties that receivers set on a message when they settle it."""

from __future__ import annotations

from twinbus.errors import ArgumentError
from twinbus.limits import APPLICATION_PROPERTIES_BYTES_MAX

from .message import QueuedMessage

# By name: str is a string to encode, bytes an encoded AMQP value.
PropertyChanges = dict[str, str | bytes]


def merged(message: QueuedMessage, changes: PropertyChanges | None) -> PropertyChanges | None:
    """The message's changes with the new ones on top. Raises, before anything changes, if they grow too large."""
    if not changes:
        return message.changes
    result = dict(message.changes) if message.changes else {}
    result.update(changes)
    size = 0
    for name, value in result.items():
        text = name if isinstance(value, bytes) else name + value
        size += len(text.encode("utf-8", "surrogatepass")) + (len(value) if isinstance(value, bytes) else 0)
    if size >= APPLICATION_PROPERTIES_BYTES_MAX:
        raise ArgumentError(
            f"The properties to modify take {size} bytes, the limit is {APPLICATION_PROPERTIES_BYTES_MAX - 1}."
        )
    return result
