"""How rules come to see messages: a view is made by whoever knows what a body is, and reads only what it is asked for.

The rules need one where a subscription's filter, a target's sessions or a target's duplicate detection want to know
what is in a message. Most messages are never looked at.
"""

from __future__ import annotations

import uuid
from typing import Any, Protocol

from .filters import Changes, Properties
from .message import NewMessage, QueuedMessage


class StoredView(Protocol):
    """A `filters.FilterView` of a message that is on its way through the entities."""

    @property
    def properties(self) -> Properties:
        """The user properties; FilterEvaluationError when they do not read."""

    def system(self, name: str) -> Any:
        """The system property of that canonical name; None when the message has none."""

    def new_id(self) -> uuid.UUID:
        """A new identifier."""

    def readable(self) -> bool:
        """Whether there is anything to see: the disk may have damaged it."""

    def place(self, seq: int, enqueued_ms: int, expires_ms: int | None) -> None:
        """Where the message is now: the system properties that no sender gives."""

    def encode(self, changes: Changes) -> dict[str, str | bytes]:
        """An action's changes in the form an index record keeps; FilterEvaluationError when they have none."""


class Views(Protocol):
    """Makes views."""

    def of_new(self, new: NewMessage) -> StoredView:
        """A message that is not stored yet."""

    def of_stored(self, message: QueuedMessage) -> StoredView:
        """A message whose body is durable, with the changes made to it since."""


class BlankView:
    """A message of which nothing can be seen."""

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

    def place(self, seq: int, enqueued_ms: int, expires_ms: int | None) -> None:
        """It shows nothing of it."""

    def encode(self, changes: Changes) -> dict[str, str | bytes]:
        return {}


class BlankViews:
    """For namespaces whose bodies nobody can read: filters see messages without properties."""

    __slots__ = ()

    def of_new(self, new: NewMessage) -> StoredView:
        return BlankView()

    def of_stored(self, message: QueuedMessage) -> StoredView:
        return BlankView()
