"""Limits what clients make the broker hold in memory, by kind: per connection, per namespace and for the process.

For data that outlives a connection, the first limit is per entity instead.

A request that would exceed a limit is rejected; what others already hold is not affected. Messages in queues do not
count, because they are on disk. `/metrics` shows the amounts held.
"""

from __future__ import annotations

import enum
from typing import Final

from twinbus.entities.account import Account
from twinbus.limits import (
    ANSWER_BYTES_MAX,
    ANSWER_BYTES_NAMESPACE_MAX,
    ANSWER_BYTES_PROCESS_MAX,
    CHANGES_BYTES_MAX,
    CHANGES_BYTES_NAMESPACE_MAX,
    CHANGES_BYTES_PROCESS_MAX,
    DUPLICATE_IDS_BYTES_MAX,
    DUPLICATE_IDS_BYTES_NAMESPACE_MAX,
    DUPLICATE_IDS_BYTES_PROCESS_MAX,
    LINK_BYTES_MAX,
    LINK_BYTES_NAMESPACE_MAX,
    LINK_BYTES_PROCESS_MAX,
    PARTIAL_BYTES_MAX,
    PARTIAL_BYTES_NAMESPACE_MAX,
    PARTIAL_BYTES_PROCESS_MAX,
    RULES_BYTES_MAX,
    RULES_BYTES_NAMESPACE_MAX,
    RULES_BYTES_PROCESS_MAX,
    SESSION_STATES_BYTES_MAX,
    SESSION_STATES_BYTES_NAMESPACE_MAX,
    SESSION_STATES_BYTES_PROCESS_MAX,
    TRANSACTION_BYTES_MAX,
    TRANSACTION_BYTES_NAMESPACE_MAX,
    TRANSACTION_BYTES_PROCESS_MAX,
)


class MemoryKind(enum.Enum):
    """A kind of memory that clients use."""

    PARTIAL = "partial"  # deliveries of which only a part has come
    ANSWERS = "answers"  # answers that wait for a client's credit
    LINKS = "links"  # links, sessions and tokens
    TRANSACTIONS = "transactions"  # messages and settlements of transactions that are not discharged
    SESSION_STATES = "session-states"
    CHANGES = "changes"  # properties changed on messages since they were sent
    DUPLICATE_IDS = "duplicate-ids"  # message ids that duplicate detection remembers
    RULES = "rules"


# Per connection or entity, per namespace and for the process.
_BOUNDS: Final = {
    MemoryKind.PARTIAL: (PARTIAL_BYTES_MAX, PARTIAL_BYTES_NAMESPACE_MAX, PARTIAL_BYTES_PROCESS_MAX),
    MemoryKind.ANSWERS: (ANSWER_BYTES_MAX, ANSWER_BYTES_NAMESPACE_MAX, ANSWER_BYTES_PROCESS_MAX),
    MemoryKind.LINKS: (LINK_BYTES_MAX, LINK_BYTES_NAMESPACE_MAX, LINK_BYTES_PROCESS_MAX),
    MemoryKind.TRANSACTIONS: (TRANSACTION_BYTES_MAX, TRANSACTION_BYTES_NAMESPACE_MAX, TRANSACTION_BYTES_PROCESS_MAX),
    MemoryKind.SESSION_STATES: (
        SESSION_STATES_BYTES_MAX,
        SESSION_STATES_BYTES_NAMESPACE_MAX,
        SESSION_STATES_BYTES_PROCESS_MAX,
    ),
    MemoryKind.CHANGES: (CHANGES_BYTES_MAX, CHANGES_BYTES_NAMESPACE_MAX, CHANGES_BYTES_PROCESS_MAX),
    MemoryKind.DUPLICATE_IDS: (
        DUPLICATE_IDS_BYTES_MAX,
        DUPLICATE_IDS_BYTES_NAMESPACE_MAX,
        DUPLICATE_IDS_BYTES_PROCESS_MAX,
    ),
    MemoryKind.RULES: (RULES_BYTES_MAX, RULES_BYTES_NAMESPACE_MAX, RULES_BYTES_PROCESS_MAX),
}
# Held by entities, independent of connections.
OF_ENTITIES: Final = (MemoryKind.SESSION_STATES, MemoryKind.CHANGES, MemoryKind.DUPLICATE_IDS, MemoryKind.RULES)


class Memory:
    """The accounts of the process, of a namespace, or of a connection."""

    __slots__ = ("_accounts", "_level")

    def __init__(self, parent: Memory | None = None) -> None:
        # 2: the process, 1: a namespace, 0: a connection.
        self._level: int = 2 if parent is None else parent._level - 1
        self._accounts = {
            kind: Account(bounds[self._level], None if parent is None else parent[kind])
            for kind, bounds in _BOUNDS.items()
            if self._level or kind not in OF_ENTITIES
        }

    def __getitem__(self, kind: MemoryKind) -> Account:
        return self._accounts[kind]
