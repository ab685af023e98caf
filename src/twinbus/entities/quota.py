"""The quota of an entity: the bytes of its messages, those in its dead-letter queues included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.errors import QuotaExceededError

if TYPE_CHECKING:
    from .messages import Messages


class Quota:
    """How many bytes an entity holds, and how many it may hold."""

    __slots__ = ("_counted", "_entity", "limit_bytes")

    def __init__(self, entity: str, limit_bytes: int, counted: list[Messages]) -> None:
        # The kind and the name of the entity, for the error.
        self._entity = entity
        # Sends that would go above it are refused.
        self.limit_bytes = limit_bytes
        # Everything that fills it.
        self._counted = counted

    @property
    def used_bytes(self) -> int:
        used = 0
        for messages in self._counted:
            used += messages.bytes
        return used

    def count(self, messages: Messages) -> None:
        """Let these messages fill it, too."""
        self._counted.append(messages)

    def check(self, more_bytes: int) -> None:
        """Refuse bytes that do not fit in."""
        size = more_bytes
        for messages in self._counted:
            size += messages.bytes
        if size > self.limit_bytes:
            self.refuse(size)

    def refuse(self, size: int) -> None:
        raise QuotaExceededError(
            f"The maximum entity size has been reached or exceeded for {self._entity}. "
            f"Size of entity in bytes:{size}, Max entity size in bytes:{self.limit_bytes}."
        )
