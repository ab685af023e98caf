"""Messages that wait for a commit: none becomes visible before its facts are durable.

All messages of one commit become visible in one call.
"""

from __future__ import annotations

from collections.abc import Callable

from twinbus.store.facts import Facts

from .message import QueuedMessage


class Arrivals:
    """Messages of one entity that become visible with a commit."""

    __slots__ = ("_facts", "_messages", "_show")

    def __init__(self, show: Callable[[list[QueuedMessage]], None]) -> None:
        # Called with all messages of a commit once it is durable.
        self._show = show
        # The facts that are still open; None when no message waits.
        self._facts: Facts | None = None
        # The messages that wait for them.
        self._messages: list[QueuedMessage] = []

    def add(self, message: QueuedMessage, facts: Facts) -> None:
        """Show a message once these facts are durable."""
        if self._facts is facts:
            self._messages.append(message)
        else:
            self._facts = facts
            self._messages = [message]
            facts.then.append((self.durable, self._messages))

    def durable(self, messages: list[QueuedMessage]) -> None:
        """The facts of these messages are durable."""
        if self._messages is messages:
            self._facts = None
            self._messages = []
        self._show(messages)

    def close(self) -> None:
        """The entity is deleted. Drop the reference to it; it accepts no more messages."""
        self._show = _show_nobody


def _show_nobody(messages: list[QueuedMessage]) -> None:
    """Never called with a message: a deleted entity accepts none."""
