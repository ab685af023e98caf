"""Limits what clients make the broker hold in memory, by kind: per connection, per namespace and for the process.

A request that would exceed a limit is rejected; what others already hold is not affected. Messages in queues do not
count, because they are on disk. `/metrics` shows the amounts held.
"""

from __future__ import annotations

import enum
from typing import Final

from twinbus.limits import (
    ANSWER_BYTES_MAX,
    ANSWER_BYTES_NAMESPACE_MAX,
    ANSWER_BYTES_PROCESS_MAX,
    LINK_BYTES_MAX,
    LINK_BYTES_NAMESPACE_MAX,
    LINK_BYTES_PROCESS_MAX,
    PARTIAL_BYTES_MAX,
    PARTIAL_BYTES_NAMESPACE_MAX,
    PARTIAL_BYTES_PROCESS_MAX,
    TRANSACTION_BYTES_MAX,
    TRANSACTION_BYTES_NAMESPACE_MAX,
    TRANSACTION_BYTES_PROCESS_MAX,
)


class MemoryKind(enum.Enum):
    """A kind of memory that clients use."""

    PARTIAL = "partial"  # deliveries of which only a part has come
    ANSWERS = "answers"  # answers that wait for a client's credit
    LINKS = "links"  # what clients say when they attach
    TRANSACTIONS = "transactions"  # messages of transactions that are not discharged


# Per connection, per namespace and for the process.
_BOUNDS: Final = {
    MemoryKind.PARTIAL: (PARTIAL_BYTES_MAX, PARTIAL_BYTES_NAMESPACE_MAX, PARTIAL_BYTES_PROCESS_MAX),
    MemoryKind.ANSWERS: (ANSWER_BYTES_MAX, ANSWER_BYTES_NAMESPACE_MAX, ANSWER_BYTES_PROCESS_MAX),
    MemoryKind.LINKS: (LINK_BYTES_MAX, LINK_BYTES_NAMESPACE_MAX, LINK_BYTES_PROCESS_MAX),
    MemoryKind.TRANSACTIONS: (TRANSACTION_BYTES_MAX, TRANSACTION_BYTES_NAMESPACE_MAX, TRANSACTION_BYTES_PROCESS_MAX),
}


class Account:
    """Bytes of one kind held at one level, and their maximum."""

    __slots__ = ("_parent", "bytes_max", "held_bytes")

    def __init__(self, bytes_max: int, parent: Account | None = None) -> None:
        # The account of the next level, where the bytes count as well; None for the process.
        self._parent = parent
        self.bytes_max = bytes_max
        self.held_bytes = 0

    def take(self, count: int) -> bool:
        """Hold `count` more bytes; False, and nothing is held, if that exceeds the maximum."""
        if self.held_bytes + count > self.bytes_max:
            return False
        if self._parent is not None and not self._parent.take(count):
            return False
        self.held_bytes += count
        return True

    def give(self, count: int) -> None:
        """Release `count` bytes."""
        self.held_bytes -= count
        if self._parent is not None:
            self._parent.give(count)


class Memory:
    """The accounts of the process, of a namespace, or of a connection."""

    __slots__ = ("_accounts", "_level")

    def __init__(self, parent: Memory | None = None) -> None:
        # 2: the process, 1: a namespace, 0: a connection.
        self._level: int = 2 if parent is None else parent._level - 1
        self._accounts = {
            kind: Account(bounds[self._level], None if parent is None else parent[kind])
            for kind, bounds in _BOUNDS.items()
        }

    def __getitem__(self, kind: MemoryKind) -> Account:
        return self._accounts[kind]
