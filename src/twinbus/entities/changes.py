"""Application properties that receivers set on a message when they settle it."""

from __future__ import annotations

from typing import Final

from twinbus.errors import ArgumentError
from twinbus.limits import APPLICATION_PROPERTIES_BYTES_MAX

from .message import QueuedMessage

# By name: str is a string to encode, bytes an encoded AMQP value.
PropertyChanges = dict[str, str | bytes]

# What a property takes in memory besides its name and its value.
_ENTRY_BYTES: Final = 100
# What the changes of any message may take without being counted: the reason of a dead letter, as the rules give it.
_FREE_BYTES: Final = 512


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


def counted_bytes(changes: PropertyChanges | None) -> int:
    """What changes take in memory, beyond what those of any message may."""
    if changes is None:
        return 0
    size = len(changes) * _ENTRY_BYTES - _FREE_BYTES
    for name, value in changes.items():
        size += text_bytes(name) + (text_bytes(value) if isinstance(value, str) else len(value))
    return size if size > 0 else 0


def text_bytes(text: str) -> int:
    """What the characters of a text take in memory, at most."""
    return len(text) if text.isascii() else 4 * len(text)
