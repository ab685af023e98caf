"""What one group commit writes: the store's vocabulary, without the store.

The rules collect facts, and the store writes them in one transaction: all or none. The last fact about a row wins:
deletes are applied before puts, and a delete cancels an earlier put of the same commit. This file is pure and the only
part of the store that the rules may import.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

_BODY_KEY: Final = struct.Struct(">Q")
_INDEX_KEY: Final = struct.Struct(">IQ")


class Table(enum.IntEnum):
    """The tables of a data folder. The numbers are part of the data format: never reuse one."""

    BODIES = 0
    INDEX = 1
    ENTITIES = 2
    SESSIONS = 3
    DUPLICATES = 4
    META = 5


# The value of a row that does not match its checksum; no record is this short.
DAMAGED: Final = b"\xff"

# The value of a row that is being deleted; no record is this short either.
GONE_ROW: Final = b""

_BODIES: Final = Table.BODIES
_INDEX: Final = Table.INDEX


def body_key(number: int) -> bytes:
    """Return the key of a body: 8 bytes, big-endian, so that keys sort like numbers."""
    return _BODY_KEY.pack(number)


def body_number(key: bytes) -> int:
    """The inverse of `body_key`."""
    number: int = _BODY_KEY.unpack(key)[0]
    return number


def index_key(entity_id: int, sequence_number: int) -> bytes:
    """Return the key of an index row: the rows of an entity lie together, in sequence order."""
    return _INDEX_KEY.pack(entity_id, sequence_number)


def index_numbers(key: bytes) -> tuple[int, int]:
    """The inverse of `index_key`: entity id and sequence number."""
    entity_id, sequence_number = _INDEX_KEY.unpack(key)
    return entity_id, sequence_number


class Finding(NamedTuple):
    """A row that is wrong, found by code that knows what rows mean."""

    table: Table
    key: bytes
    # What is wrong, for the reader of the report.
    text: str
    # The value the row should have; None if it should not exist.
    value: bytes | None = None


class Facts:
    """Everything one group commit writes, atomically."""

    __slots__ = ("_gone", "_looked", "bodies", "deletes", "index", "rows", "then")

    def __init__(self) -> None:
        # New bodies by `body_key`, ascending unless a large batch was accepted in steps. The store adds the checksums.
        self.bodies: dict[bytes, bytes] = {}
        # New or changed index rows by `index_key`: opaque values.
        self.index: dict[bytes, bytes] = {}
        # Puts to the other tables.
        self.rows: dict[tuple[Table, bytes], bytes] = {}
        # Rows to delete, applied before all puts; filled only by `delete`. Deleting a missing row is not an error.
        self.deletes: list[tuple[Table, bytes]] = []
        # Callbacks with their argument, called in order on the owner's thread once the commit is durable, not by the
        # store.
        self.then: list[tuple[Callable[[Any], None], Any]] = []
        # Index rows among the first `_looked` deletes; filled only when somebody asks.
        self._gone: set[bytes] = set()
        self._looked = 0

    def delete(self, table: Table, key: bytes) -> None:
        """Delete a row of any table, including one that these same facts put."""
        if table is _INDEX:
            self.index.pop(key, None)
        elif table is _BODIES:
            self.bodies.pop(key, None)
        else:
            self.rows.pop((table, key), None)
        self.deletes.append((table, key))

    def index_row(self, key: bytes) -> bytes | None:
        """What these facts do to an index row: its new value, GONE_ROW if they delete it, None if they leave it."""
        value = self.index.get(key)
        if value is not None:
            return value
        if self._looked < len(self.deletes):
            for table, deleted in self.deletes[self._looked :]:
                if table is _INDEX:
                    self._gone.add(deleted)
            self._looked = len(self.deletes)
        return GONE_ROW if key in self._gone else None

    @property
    def empty(self) -> bool:
        """True if there is nothing to write. There may still be callbacks, which then need no commit."""
        return not (self.bodies or self.index or self.rows or self.deletes)
