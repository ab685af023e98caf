"""Messages that wait for a commit: none becomes visible before its facts are durable.

All messages of one commit become visible in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twinbus.store.facts import Facts

from .message import RETURNING, QueuedMessage


class Arrivals:
    """Messages of one entity that become visible with a commit."""

    __slots__ = ("_facts", "_messages", "_show", "_unseen")

    def __init__(self, show: Callable[[list[QueuedMessage]], None]) -> None:
        # Called with all messages of a commit once it is durable.
        self._show = show
        # The facts that are still open; None when no message waits.
        self._facts: Facts | None = None
        # The messages that wait for them.
        self._messages: list[QueuedMessage] = []
        # All lists of messages that wait, by id(): those of a large batch wait for its last commit.
        self._unseen: dict[int, list[QueuedMessage]] = {}

    def add(self, message: QueuedMessage, facts: Facts) -> None:
        """Show a message once these facts are durable."""
        if self._facts is facts:
            self._messages.append(message)
        else:
            self._facts = facts
            self._messages = [message]
            self._unseen[id(self._messages)] = self._messages
            facts.then.append((self.durable, self._messages))

    def durable(self, messages: list[QueuedMessage]) -> None:
        """The facts of these messages are durable."""
        self.withdraw(messages)
        self._show(messages)

    def withdraw(self, messages: list[QueuedMessage]) -> None:
        """These messages wait no longer."""
        self._unseen.pop(id(messages), None)
        if self._messages is messages:
            self._facts = None
            self._messages = []

    def returning(self) -> Iterator[QueuedMessage]:
        """Those that were visible before."""
        for messages in self._unseen.values():
            for message in messages:
                if message.token == RETURNING:
                    yield message

    def close(self) -> list[list[QueuedMessage]]:
        """The entity is deleted, and its deletion is durable. Drop the reference to it; returns the messages that still
        wait and will never be shown."""
        self._show = _show_nobody
        unseen = list(self._unseen.values())
        self._unseen.clear()
        return unseen


def _show_nobody(messages: list[QueuedMessage]) -> None:
    """Never called with a message: a deleted entity accepts none."""
