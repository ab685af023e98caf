"""What somebody makes the broker hold in memory, in bytes, with a bound for the holder and for all holders together.

Whatever would pass a bound is refused to whoever asks for it; what others hold already stays untouched.
"""

from __future__ import annotations

from twinbus.limits import (
    CHANGES_BYTES_NAMESPACE_MAX,
    DUPLICATE_IDS_BYTES_NAMESPACE_MAX,
    SESSION_STATES_BYTES_NAMESPACE_MAX,
)


class Account:
    """Bytes of one kind that somebody holds, and how many may be."""

    __slots__ = ("_parent", "bytes_max", "held_bytes")

    def __init__(self, bytes_max: int, parent: Account | None = None) -> None:
        # The account that everything counts in as well; None: the process's own.
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
        """Hold `count` more bytes whatever the maximum: they were accepted before, or come from the disk."""
        self.held_bytes += count
        if self._parent is not None:
            self._parent.hold(count)

    def give(self, count: int) -> None:
        """Release `count` bytes."""
        self.held_bytes -= count
        if self._parent is not None:
            self._parent.give(count)

    def close(self) -> None:
        """The holder is gone, and all that it held."""
        self.give(self.held_bytes)


class Accounts:
    """What the entities of a namespace hold besides messages."""

    __slots__ = ("changes", "duplicate_ids", "session_states")

    def __init__(
        self,
        session_states: Account | None = None,
        changes: Account | None = None,
        duplicate_ids: Account | None = None,
    ) -> None:
        self.session_states = session_states or Account(SESSION_STATES_BYTES_NAMESPACE_MAX)
        # Properties that were changed on messages since they were sent.
        self.changes = changes or Account(CHANGES_BYTES_NAMESPACE_MAX)
        # Message ids that duplicate detection remembers.
        self.duplicate_ids = duplicate_ids or Account(DUPLICATE_IDS_BYTES_NAMESPACE_MAX)
