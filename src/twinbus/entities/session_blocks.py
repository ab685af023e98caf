"""The sessions of a queue in the order in which they came, in blocks that know how many of theirs a list shows.

A page of the list can therefore start anywhere: whole blocks before it are skipped by their counts. A change of a
session only marks its block, and the next list counts the marked blocks again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .session import MessageSession

BLOCK: Final = 512
# A block that shrinks to this size joins a neighbour that has room for it.
_SMALL: Final = 64
# A block whose sessions must be counted again.
_UNKNOWN: Final = -1
# Blocks counted between two pauses.
_STEP: Final = 4


class SessionBlock:
    """A part of a queue's sessions."""

    __slots__ = ("listed", "sessions", "updates")

    def __init__(self) -> None:
        # A dict, which keeps insertion order and removes in constant time.
        self.sessions: dict[MessageSession, None] = {}
        # How many of them have messages or a state.
        self.listed = 0
        # When their states were set, ascending; None until counted.
        self.updates: list[int] | None = None

    def mark(self) -> None:
        """One of its sessions has changed."""
        self.listed = _UNKNOWN

    def count(self, updated_after_ms: int | None) -> int:
        """How many of its sessions a list shows."""
        if updated_after_ms is not None:
            if self.updates is None:
                self.updates = sorted([session.updated_ms for session in self.sessions])
            return len(self.updates) - bisect_right(self.updates, updated_after_ms)
        if self.listed == _UNKNOWN:
            listed = 0
            for session in self.sessions:
                if is_listed(session, None):
                    listed += 1
            self.listed = listed
        return self.listed


def is_listed(session: MessageSession, updated_after_ms: int | None) -> bool:
    """Whether it has messages or a state; with a time, whether its state was set after it."""
    if updated_after_ms is not None:
        return session.updated_ms > updated_after_ms
    return session.state is not None or session.active


class SessionBlocks:
    """All sessions of a queue."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        # None of them empty.
        self._blocks: list[SessionBlock] = []

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, session: MessageSession) -> None:
        if not self._blocks or len(self._blocks[-1].sessions) >= BLOCK:
            self._blocks.append(SessionBlock())
        block = self._blocks[-1]
        block.sessions[session] = None
        block.mark()
        block.updates = None
        session.block = block

    def remove(self, session: MessageSession) -> None:
        block = session.block
        assert block is not None
        del block.sessions[session]
        block.mark()
        block.updates = None
        session.block = None
        if not block.sessions:
            self._blocks.remove(block)
        elif len(block.sessions) == _SMALL:
            self._join(block)

    def counted(self, updated_after_ms: int | None) -> Iterator[None]:
        """Count the marked blocks in steps: there may be a million sessions."""
        number = 0
        for block in list(self._blocks):
            if (block.listed == _UNKNOWN) if updated_after_ms is None else (block.updates is None):
                block.count(updated_after_ms)
                number += 1
                if number % _STEP == 0:
                    yield None

    def page(self, updated_after_ms: int | None, skip: int, top: int) -> list[str]:
        """Ids of the sessions that a list shows, without the first ones."""
        names: list[str] = []
        for block in self._blocks:
            count = block.count(updated_after_ms)
            if skip >= count:
                skip -= count
                continue
            for session in block.sessions:
                if not is_listed(session, updated_after_ms):
                    continue
                if skip > 0:
                    skip -= 1
                    continue
                names.append(session.id)
                if len(names) == top:
                    return names
        return names

    def _join(self, block: SessionBlock) -> None:
        at = self._blocks.index(block)
        if at + 1 < len(self._blocks) and len(self._blocks[at + 1].sessions) <= BLOCK - _SMALL:
            self._merge(at)
        elif at > 0 and len(self._blocks[at - 1].sessions) <= BLOCK - _SMALL:
            self._merge(at - 1)

    def _merge(self, at: int) -> None:
        """Move the sessions of the next block into this one."""
        block, follower = self._blocks[at], self._blocks.pop(at + 1)
        for session in follower.sessions:
            block.sessions[session] = None
            session.block = block
        block.mark()
        block.updates = None
