"""Removes the rows of deleted entities in bounded steps.

Deleting a queue deletes its own row at once; the rows of its messages, perhaps a million, follow a few thousand per
commit. A restart in between finds rows without an entity and adds them here again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from twinbus.store.facts import Facts, Table

from .bodies import Bodies
from .records import ENTITY_KEY, META_DELETED

# Table, key and the number of the body to release with an index row (0: none).
Row = tuple[Table, bytes, int]


class Sweep:
    """Rows to be removed."""

    __slots__ = ("_bodies", "_parts")

    def __init__(self, bodies: Bodies) -> None:
        # Deletes a body with its last reference.
        self._bodies = bodies
        # One iterator per source.
        self._parts: deque[Iterator[Row]] = deque()

    def add(self, rows: Iterator[Row]) -> None:
        self._parts.append(rows)

    @property
    def pending(self) -> bool:
        return bool(self._parts)

    def step(self, facts: Facts, limit: int) -> bool:
        """Remove up to `limit` rows; returns True if more remain."""
        count = 0
        while self._parts:
            if count >= limit:
                return True
            row = next(self._parts[0], None)
            if row is None:
                self._parts.popleft()
                continue
            table, key, body = row
            facts.delete(table, key)
            if body:
                self._bodies.release(body, facts)
            count += 1
        return False


def mark_deleted(entity_id: int, facts: Facts) -> None:
    """Mark an entity as deleted, so that a restart sweeps its rows. Rows without an entity or a mark are kept."""
    facts.rows[Table.META, META_DELETED + ENTITY_KEY.pack(entity_id)] = b""


def deleted_rows(entity_id: int) -> Iterator[Row]:
    """The mark itself, which is removed last."""
    yield Table.META, META_DELETED + ENTITY_KEY.pack(entity_id), 0
