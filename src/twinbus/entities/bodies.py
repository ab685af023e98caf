"""Message bodies: numbering them, and deleting each with its last reference.

Numbers ascend and are never reused: a high-water mark is written ahead in blocks, and a restart continues above it.
Most bodies have one reference; only those with more are counted.
"""

from __future__ import annotations

from typing import Final

from twinbus.limits import SEQUENCE_BLOCK
from twinbus.store.facts import Facts, Table

from .records import BODY_KEY, META_BODIES, NUMBER

_BODIES: Final = Table.BODIES
_SIZES_MAX: Final = 10_000


class Bodies:
    """The bodies of a namespace."""

    __slots__ = ("_last", "_reserved", "_sizes", "references")

    def __init__(self, reserved: int = 0) -> None:
        # The last number given out.
        self._last = reserved
        # Numbers up to this one are recorded as used.
        self._reserved = reserved
        # Recent sizes: equal sizes share one int object, which saves 32 bytes a message.
        self._sizes: dict[int, int] = {}
        # Reference counts of the bodies that have more than one.
        self.references: dict[int, int] = {}

    def store(self, body: bytes, facts: Facts) -> int:
        """Write a body, with one reference, and return its number."""
        number = self._last + 1
        if number > self._reserved:
            self._reserved = number + SEQUENCE_BLOCK - 1
            facts.rows[Table.META, META_BODIES] = NUMBER.pack(self._reserved)
        self._last = number
        facts.bodies[BODY_KEY.pack(number)] = body
        return number

    def reserve(self, count: int, facts: Facts) -> int:
        """Reserve numbers for bodies that may be written later; return the first."""
        first = self._last + 1
        self._last += count
        if self._last > self._reserved:
            self._reserved = self._last
            facts.rows[Table.META, META_BODIES] = NUMBER.pack(self._reserved)
        return first

    def size(self, size: int) -> int:
        """The same number, as one object shared by all bodies of that size."""
        found = self._sizes.get(size)
        if found is None:
            if len(self._sizes) == _SIZES_MAX:
                self._sizes.clear()
            self._sizes[size] = size
            return size
        return found

    def share(self, number: int, more: int = 1) -> None:
        """Count further references to a body."""
        self.references[number] = self.references.get(number, 1) + more

    def shared(self, number: int) -> bool:
        return number in self.references

    def release(self, number: int, facts: Facts) -> None:
        """Drop one reference, and the body with the last one."""
        if self.references:
            count = self.references.get(number)
            if count is not None:
                if count > 2:
                    self.references[number] = count - 1
                else:
                    del self.references[number]
                return
        # As in `Facts.delete`; a call for each message would be felt.
        key = BODY_KEY.pack(number)
        facts.bodies.pop(key, None)
        facts.deletes.append((_BODIES, key))
