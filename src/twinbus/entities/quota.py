"""An entity's quota in bytes. Messages in its dead-letter queues count too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.errors import QuotaExceededError

if TYPE_CHECKING:
    from .messages import Messages


class Quota:
    """How many bytes an entity holds and may hold."""

    __slots__ = ("_counted", "_entity", "limit_bytes")

    def __init__(self, entity: str, limit_bytes: int, counted: list[Messages]) -> None:
        # Kind and name of the entity, for the error.
        self._entity = entity
        # Sends beyond this are rejected.
        self.limit_bytes = limit_bytes
        self._counted = counted

    @property
    def used_bytes(self) -> int:
        used = 0
        for messages in self._counted:
            used += messages.bytes
        return used

    def count(self, messages: Messages) -> None:
        """Count these messages against the quota, too."""
        self._counted.append(messages)

    def check(self, more_bytes: int) -> None:
        """Raise if these bytes would exceed the quota."""
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
