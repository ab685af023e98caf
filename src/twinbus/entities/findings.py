"""What is wrong with records that were read back: each is named, and the others are not held up by it."""

from __future__ import annotations

from twinbus.errors import StoreCorruptError
from twinbus.store.facts import Finding, Table

_ADVICE = "Run `twinbus check` on the data folder, and restore a backup or use `twinbus check --repair`."


class Findings:
    """Records that are set aside. They stay in the store, and nobody sees them but whoever checks the folder."""

    __slots__ = ("_limit", "_strict", "count", "found")

    def __init__(self, limit: int | None, *, strict: bool) -> None:
        # How many are listed; None: all of them.
        self._limit = limit
        # Records that say what entities there are must be readable: without one, its messages would be out of reach.
        self._strict = strict
        self.count = 0
        # The first of them.
        self.found: list[Finding] = []

    def add(self, table: Table, key: bytes, text: str, value: bytes | None = None) -> None:
        self.count += 1
        if self._limit is None or len(self.found) < self._limit:
            self.found.append(Finding(table, key, text, value))

    def refuse(self, table: Table, key: bytes, text: str) -> None:
        """A record without which the namespace must not be served."""
        if self._strict:
            raise StoreCorruptError(f"{text[:1].upper()}{text[1:]}. {_ADVICE}")
        self.add(table, key, text)
