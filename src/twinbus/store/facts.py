"""What one group commit writes: the store's vocabulary, without the store.

Facts are collected by the rules and written by the store in one transaction: all of them or none.
The last word for a row holds: deletes are applied before puts, and a delete takes back the put of the same commit.
This file is pure; it is the only part of the store that the rules may import.
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


# What a row reads as that does not match its checksum: no record is so short.
DAMAGED: Final = b"\xff"

_BODIES: Final = Table.BODIES
_INDEX: Final = Table.INDEX


def body_key(number: int) -> bytes:
    """The key of a body: 8 bytes, big-endian, so that keys sort as numbers do."""
    return _BODY_KEY.pack(number)


def body_number(key: bytes) -> int:
    """The inverse of `body_key`."""
    number: int = _BODY_KEY.unpack(key)[0]
    return number


def index_key(entity_id: int, sequence_number: int) -> bytes:
    """The key of an index row: all rows of one entity lie together, in sequence order."""
    return _INDEX_KEY.pack(entity_id, sequence_number)


def index_numbers(key: bytes) -> tuple[int, int]:
    """The inverse of `index_key`: entity id and sequence number."""
    entity_id, sequence_number = _INDEX_KEY.unpack(key)
    return entity_id, sequence_number


class Finding(NamedTuple):
    """A row with which something is wrong, found by whoever knows what rows mean."""

    table: Table
    key: bytes
    # What is wrong, for people.
    text: str
    # What the row should hold; None: no copy should have the row.
    value: bytes | None = None


class Facts:
    """Everything one group commit writes, atomically."""

    __slots__ = ("bodies", "deletes", "index", "rows", "then")

    def __init__(self) -> None:
        # New bodies by `body_key`, ascending: stored message bytes. The store adds the checksum.
        self.bodies: dict[bytes, bytes] = {}
        # New or changed index rows by `index_key`: opaque values.
        self.index: dict[bytes, bytes] = {}
        # Puts to the other tables.
        self.rows: dict[tuple[Table, bytes], bytes] = {}
        # Rows to remove, applied before all puts; filled by `delete` only. A row that does not exist is no error.
        self.deletes: list[tuple[Table, bytes]] = []
        # Called in order, each with its argument, on the owner's thread once the commit is durable. Not the store's.
        self.then: list[tuple[Callable[[Any], None], Any]] = []

    def delete(self, table: Table, key: bytes) -> None:
        """Remove a row of any table, also one that was put by these same facts."""
        if table is _INDEX:
            self.index.pop(key, None)
        elif table is _BODIES:
            self.bodies.pop(key, None)
        else:
            self.rows.pop((table, key), None)
        self.deletes.append((table, key))

    @property
    def empty(self) -> bool:
        """Nothing to write. Continuations may still wait: they need no commit."""
        return not (self.bodies or self.index or self.rows or self.deletes)
