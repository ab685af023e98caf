"""Counts memory that a holder uses, in bytes, with a limit for the holder and for all holders together.

A request that would exceed a limit is rejected; what others already hold is not affected.
"""

from __future__ import annotations

from twinbus.limits import (
    CHANGES_BYTES_NAMESPACE_MAX,
    DUPLICATE_IDS_BYTES_NAMESPACE_MAX,
    RULES_BYTES_NAMESPACE_MAX,
    SESSION_STATES_BYTES_NAMESPACE_MAX,
)


class Account:
    """Bytes of one kind that a holder uses, and their maximum."""

    __slots__ = ("_parent", "bytes_max", "held_bytes")

    def __init__(self, bytes_max: int, parent: Account | None = None) -> None:
        # The account of the next level, where the bytes count as well; None for the process.
        self._parent = parent
        self.bytes_max = bytes_max
        self.held_bytes = 0

    def room(self, count: int) -> bool:
        """Whether `count` more bytes may be held."""
        if self.held_bytes + count > self.bytes_max:
            return False
        return self._parent is None or self._parent.room(count)

    def take(self, count: int) -> bool:
        """Hold `count` more bytes; False, and nothing is held, if that exceeds the maximum."""
        if not self.room(count):
            return False
        self.hold(count)
        return True

    def hold(self, count: int) -> None:
        """Hold `count` more bytes regardless of the maximum, because they were accepted before or come from disk."""
        self.held_bytes += count
        if self._parent is not None:
            self._parent.hold(count)

    def give(self, count: int) -> None:
        """Release `count` bytes."""
        self.held_bytes -= count
        if self._parent is not None:
            self._parent.give(count)

    def close(self) -> None:
        """Release everything, because the holder is gone."""
        self.give(self.held_bytes)


class Accounts:
    """The accounts of a namespace for what its entities hold besides messages."""

    __slots__ = ("changes", "duplicate_ids", "rules", "session_states")

    def __init__(
        self,
        session_states: Account | None = None,
        changes: Account | None = None,
        duplicate_ids: Account | None = None,
        rules: Account | None = None,
    ) -> None:
        self.session_states = session_states or Account(SESSION_STATES_BYTES_NAMESPACE_MAX)
        # Properties changed on messages since they were sent.
        self.changes = changes or Account(CHANGES_BYTES_NAMESPACE_MAX)
        # Message ids that duplicate detection remembers.
        self.duplicate_ids = duplicate_ids or Account(DUPLICATE_IDS_BYTES_NAMESPACE_MAX)
        self.rules = rules or Account(RULES_BYTES_NAMESPACE_MAX)
