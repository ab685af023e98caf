"""Removing the rows of deleted entities in bounded steps.

Deleting a queue drops its own row at once; the rows of its messages, a million perhaps, follow a few thousand a
commit. A restart in between finds rows without an entity and hands them in here again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from twinbus.store.facts import Facts, Table

from .bodies import Bodies
from .records import ENTITY_KEY, META_DELETED

# Table, key and, for an index row, the number of the body it points to (0 for other rows).
Row = tuple[Table, bytes, int]


class Sweep:
    """Rows that nobody needs any more."""

    __slots__ = ("_bodies", "_parts")

    def __init__(self, bodies: Bodies) -> None:
        # Where a body's last reference is noticed.
        self._bodies = bodies
        # Rows to remove, a source at a time.
        self._parts: deque[Iterator[Row]] = deque()

    def add(self, rows: Iterator[Row]) -> None:
        self._parts.append(rows)

    @property
    def pending(self) -> bool:
        return bool(self._parts)

    def step(self, facts: Facts, limit: int) -> bool:
        """Remove up to `limit` rows; True when more remain."""
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
            if table == Table.INDEX:
                self._bodies.release(body, facts)
            count += 1
        return False


def mark_deleted(entity_id: int, facts: Facts) -> None:
    """Tell a start that an entity's rows are to be cleared away: rows of an entity that nobody deleted are kept."""
    facts.rows[Table.META, META_DELETED + ENTITY_KEY.pack(entity_id)] = b""


def deleted_rows(entity_id: int) -> Iterator[Row]:
    """The mark itself, the last row to go."""
    yield Table.META, META_DELETED + ENTITY_KEY.pack(entity_id), 0
