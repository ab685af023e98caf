"""Problems found in restored records. Each one is reported, and the other records are still loaded."""

from __future__ import annotations

from twinbus.errors import StoreCorruptError
from twinbus.store.facts import Finding, Table

_ADVICE = "Run `twinbus check` on the data folder, and restore a backup or use `twinbus check --repair`."


class Findings:
    """Records that were set aside. They stay in the store, visible only to `twinbus check`."""

    __slots__ = ("_limit", "_strict", "count", "found")

    def __init__(self, limit: int | None, *, strict: bool) -> None:
        # How many are listed; None lists all.
        self._limit = limit
        # Unreadable entity records are errors: without its record, an entity's messages would be unreachable.
        self._strict = strict
        self.count = 0
        # The first of them, up to the limit.
        self.found: list[Finding] = []

    def add(self, table: Table, key: bytes, text: str, value: bytes | None = None) -> None:
        self.count += 1
        if self._limit is None or len(self.found) < self._limit:
            self.found.append(Finding(table, key, text, value))

    def refuse(self, table: Table, key: bytes, text: str) -> None:
        """Report a record without which the namespace must not be served."""
        if self._strict:
            raise StoreCorruptError(f"{text[:1].upper()}{text[1:]}. {_ADVICE}")
        self.add(table, key, text)
