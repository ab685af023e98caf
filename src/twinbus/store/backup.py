"""Copy a live store while it is in use: rows are copied in pieces, and every commit made meanwhile follows them.

The result is an exact copy although the pieces come from different commits, because a fact states the new value of a
row, not a change to it. A row that no commit touched reads the same in every piece; for one that was touched, its
latest facts are written after its piece. So once the last piece and the commit it saw are written, every row is as that
commit left it.

A single thread writes everything, in the order given.
"""

from __future__ import annotations

import os
import threading
import zlib
from pathlib import Path
from queue import SimpleQueue

from twinbus.errors import StoreCorruptError, StoreError
from twinbus.limits import BACKUP_PIECE_BYTES, BACKUP_WAITING_BYTES_MAX
from twinbus.store import folder as folders
from twinbus.store.facts import DAMAGED, Facts, Table, body_number
from twinbus.store.lmdb_store import Store


class StorePieces:
    """Reads a live store piece by piece, on its owner's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tables = list(Table)
        # The first key not read yet.
        self._start = b""
        self.rows = 0

    def next(self) -> Facts | None:
        """Return the next rows as facts, with every checksum verified; None after the last."""
        while self._tables:
            facts = self._piece(self._tables[0])
            if facts is not None:
                return facts
            self._tables.pop(0)
            self._start = b""
        return None

    def _piece(self, table: Table) -> Facts | None:
        facts = Facts()
        size = 0
        key = b""
        for key, value in self._store.scan(table, self._start):
            if value is DAMAGED or (table is Table.BODIES and not _whole(value)):
                what = f"Body {body_number(key)}" if table is Table.BODIES else f"A record of {table.name}"
                raise StoreCorruptError(f"{what} does not match its checksum: stop the broker and run `twinbus check`.")
            if table is Table.BODIES:
                facts.bodies[key] = value[4:]
            elif table is Table.INDEX:
                facts.index[key] = value
            else:
                facts.rows[table, key] = value
            self.rows += 1
            size += len(key) + len(value)
            if size >= BACKUP_PIECE_BYTES:
                break
        if not size:
            return None
        self._start = key + b"\0"
        return facts


class FollowingStore:
    """The copy being written. The live store's owner calls `put`; a thread of its own writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Facts to write; None ends the thread.
        self._work: SimpleQueue[Facts | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        # Why the copy failed; None while all is well.
        self.error: StoreError | None = None
        # Opened here and not by the thread, so that a folder which is removed later stays removed.
        self._store = self._opened()
        self._thread = threading.Thread(target=self._serve, name="backup", daemon=True)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def put(self, facts: Facts) -> None:
        """Write these facts next. If too much waits for the disk, the copy fails rather than the broker."""
        with self._lock:
            self._waiting_bytes += _size(facts)
        if self._waiting_bytes > BACKUP_WAITING_BYTES_MAX and self.error is None:
            self.error = StoreError("The backup's disk is too slow for the current load: try again when less is sent.")
        if self.error is None:
            self._work.put(facts)

    def finish(self) -> None:
        """Write what is queued and sync it to disk; raise StoreError if anything failed."""
        self._work.put(None)
        self._thread.join()
        if self.error is not None:
            raise self.error
        handle = os.open(self._folder / folders.DATA_NAME, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        folders.sync_folder(self._folder)

    def _opened(self) -> Store | None:
        try:
            # Without its parents.
            self._folder.mkdir(mode=0o700, exist_ok=True)
            return Store.open(self._folder, sync=False)
        except (StoreError, OSError) as error:
            self._fail(error)
            return None

    def _serve(self) -> None:
        if self._store is None:
            return
        try:
            with self._store as store:
                while (facts := self._work.get()) is not None:
                    if self.error is None:
                        store.commit(facts)
                    with self._lock:
                        self._waiting_bytes -= _size(facts)
        except (StoreError, OSError) as error:
            self._fail(error)

    def _fail(self, error: StoreError | OSError) -> None:
        # The store's own text is about a broker that has to stop; its cause is about the disk.
        reason = str(error.__cause__ or error).rstrip(".")
        self.error = StoreError(f"The backup cannot be written to {self._folder}: {reason}. Is the disk full?")


def _size(facts: Facts) -> int:
    return sum(map(len, facts.bodies.values())) + sum(map(len, facts.index.values()))


def _whole(value: bytes) -> bool:
    return len(value) >= 4 and zlib.crc32(value[4:]) == int.from_bytes(value[:4], "big")
