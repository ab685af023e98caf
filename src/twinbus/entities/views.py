"""How entities see into messages: the broker, which can decode a body, provides views that read only what is asked.

A view is needed for subscription filters, and when a forwarding target has sessions or duplicate detection. Most
messages are never looked at.
"""

from __future__ import annotations

import uuid
from typing import Any, Protocol

from .filters import Changes, Properties
from .message import NewMessage, QueuedMessage


class StoredView(Protocol):
    """A `filters.FilterView` of a message on its way through the entities."""

    @property
    def properties(self) -> Properties:
        """The user properties; raises FilterEvaluationError if they cannot be decoded."""

    def system(self, name: str) -> Any:
        """The system property of that canonical name; None if the message has none."""

    def new_id(self) -> uuid.UUID:
        """A new identifier."""

    def readable(self) -> bool:
        """Whether the message can be read; the disk may have damaged it."""

    def looked_bytes(self) -> int:
        """About how many bytes rules may look at: those of all properties."""

    def place(self, seq: int, enqueued_ms: int, expires_ms: int | None) -> None:
        """Set the system properties that the broker assigns."""

    def encode(self, changes: Changes) -> dict[str, str | bytes]:
        """Encode an action's changes as index records store them; raises FilterEvaluationError if it cannot."""


class Views(Protocol):
    """Creates views."""

    def of_new(self, new: NewMessage) -> StoredView:
        """A view of a message that is not stored yet."""

    def of_stored(self, message: QueuedMessage) -> StoredView:
        """A view of a message whose body is durable, including later changes."""


class BlankView:
    """A view without any properties."""

    __slots__ = ()

    @property
    def properties(self) -> Properties:
        return Properties({})

    def system(self, name: str) -> Any:
        return None

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(int=0)

    def readable(self) -> bool:
        return True

    def looked_bytes(self) -> int:
        return 0

    def place(self, seq: int, enqueued_ms: int, expires_ms: int | None) -> None:
        """Ignored: a blank view shows nothing."""

    def encode(self, changes: Changes) -> dict[str, str | bytes]:
        return {}


class BlankViews:
    """For a namespace whose bodies nobody decodes: filters see messages without properties."""

    __slots__ = ()

    def of_new(self, new: NewMessage) -> StoredView:
        return BlankView()

    def of_stored(self, message: QueuedMessage) -> StoredView:
        return BlankView()
