"""Application properties that receivers set on a message when they settle it."""

from __future__ import annotations

from typing import Final

from twinbus.errors import ArgumentError
from twinbus.limits import APPLICATION_PROPERTIES_BYTES_MAX

from .message import QueuedMessage

# By name: str is a string to encode, bytes an encoded AMQP value.
PropertyChanges = dict[str, str | bytes]

# Memory of a property besides its name and its value.
_ENTRY_BYTES: Final = 100
# Every message may have this much uncounted: it covers the dead-letter reason that the broker itself sets.
_FREE_BYTES: Final = 512


def merged(message: QueuedMessage, changes: PropertyChanges | None) -> PropertyChanges | None:
    """The message's changes with the new ones on top. Raises, before anything changes, if they grow too large."""
    if not changes:
        return message.changes
    result = dict(message.changes) if message.changes else {}
    result.update(changes)
    check_size(result)
    return result


def check_size(changes: PropertyChanges) -> None:
    """Raise if the changes are too large for one message."""
    size = 0
    for name, value in changes.items():
        text = name if isinstance(value, bytes) else name + value
        size += len(text.encode("utf-8", "surrogatepass")) + (len(value) if isinstance(value, bytes) else 0)
    if size >= APPLICATION_PROPERTIES_BYTES_MAX:
        raise ArgumentError(
            f"The properties to modify take {size} bytes, the limit is {APPLICATION_PROPERTIES_BYTES_MAX - 1}."
        )


def counted_bytes(changes: PropertyChanges | None) -> int:
    """The memory of the changes, beyond the part that is free for every message."""
    if changes is None:
        return 0
    size = len(changes) * _ENTRY_BYTES - _FREE_BYTES
    for name, value in changes.items():
        size += text_bytes(name) + (text_bytes(value) if isinstance(value, str) else len(value))
    return size if size > 0 else 0


def text_bytes(text: str) -> int:
    """The maximum memory of a text's characters."""
    return len(text) if text.isascii() else 4 * len(text)
