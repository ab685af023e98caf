"""Sequence numbers of one entity: ascending, never reused.

A high-water mark is written ahead in blocks, so most numbers cost no row; a restart continues above the mark.
"""

from __future__ import annotations

from typing import Final

from twinbus.limits import SEQUENCE_BLOCK
from twinbus.store.facts import Facts, Table

from .records import ENTITY_KEY, META_SEQUENCE, NUMBER

_META: Final = Table.META


class SequenceNumbers:
    """Hands out sequence numbers for one entity's messages."""

    __slots__ = ("_mark", "_reserved", "last")

    def __init__(self, entity_id: int) -> None:
        # The key of the high-water mark.
        self._mark = META_SEQUENCE + ENTITY_KEY.pack(entity_id)
        # Numbers up to this one are recorded as used.
        self._reserved = 0
        self.last = 0

    def next(self, facts: Facts) -> int:
        seq = self.last + 1
        if seq > self._reserved:
            self._reserved = seq + SEQUENCE_BLOCK - 1
            facts.rows[_META, self._mark] = NUMBER.pack(self._reserved)
        self.last = seq
        return seq

    def reserve(self, seq: int) -> None:
        """Continue above a number that is in use."""
        self.last = max(self.last, seq)
        self._reserved = max(self._reserved, seq)

    def close(self, facts: Facts) -> None:
        """The entity is deleted: delete its mark."""
        facts.delete(_META, self._mark)
