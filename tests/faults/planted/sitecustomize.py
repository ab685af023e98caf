"""A planted fault, loaded by a broker that starts with this folder in its path: recovery forgets some messages.

The kill test must go red on it; a test that cannot fail proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from twinbus.store.facts import Table
from twinbus.store.lmdb_store import Store

FORGOTTEN_EACH = 50

_scan = Store.scan


def forgetful(
    self: Store, table: Table, start: bytes = b"", stop: bytes | None = None
) -> Iterator[tuple[bytes, bytes]]:
    rows = _scan(self, table, start, stop)
    if table is not Table.INDEX:
        return rows
    return (row for number, row in enumerate(rows, 1) if number % FORGOTTEN_EACH)


Store.scan = forgetful  # type: ignore[method-assign]
