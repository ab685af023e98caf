"""The store: one LMDB environment in one data folder, one owner thread, one commit at a time.

The owner's thread begins commits and reads. Only `Prepared.commit` runs elsewhere, on any one thread. A read sees the
last durable commit; `snapshot` makes several reads see the same one. No read spans a `begin`: a scan that does fails,
it never returns wrong rows. If a commit cannot be made durable, the store stops for good; everything committed before
is intact on reopening.

Why it is safe to read during a commit without LMDB's lock file (`lock=False`, MDB_NOLOCK), according to mdb.c of LMDB
0.9:

- LMDB never overwrites a live page. Write transaction N takes its pages from the end of the file or from the free
  list, whose records are keyed by the transaction that freed the pages. mdb_page_alloc stops at the first record for
  which `oldest <= key`, and mdb_find_oldest, having no reader table to look at, returns N-1: only pages freed by N-2 or
  earlier are reused. Such pages belong to no snapshot later than N-3. So while N is filled, spilled, flushed, aborted
  or retried, the snapshots N-1 and N-2 stay intact. Our readers are on N-1, and all of them end before N+1 begins,
  one snapshot more than LMDB needs.
- What is not safe is to *begin* a read transaction while a commit writes its meta page. Without a reader table LMDB
  picks the newer of two meta pages by looking at both in the map (mdb_env_pick_meta) and copies the tree roots from it,
  while pwrite() may be half way through that page. So `begin` begins the read transaction, before the commit can
  start, and a newer one replaces it only after the commit has ended.
- Pages are written with pwrite to the mapped file: there is one page cache, and no second copy that could be stale.

docs/decisions/0002-lmdb-store.md has the measurements.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final

import lmdb

from twinbus.clock import Clock, SystemClock
from twinbus.errors import StoreCorruptError, StoreError
from twinbus.limits import STORE_MAP_BYTES_DEFAULT, STORE_RESERVE_BYTES
from twinbus.store import folder as folders
from twinbus.store.body_rows import read_bodies, sealed_bodies, sealed_body
from twinbus.store.checksums import sealed, sealed_rows, unsealed, unsealed_rows
from twinbus.store.environment import FORMAT_KEY, Tables, open_environment
from twinbus.store.facts import Facts, Table
from twinbus.store.space import Space

logger = logging.getLogger(__name__)

# Errors of a write to a full disk, an exhausted quota or a size-limited file. LMDB reports a short write as EIO, which
# is how a disk signals that it has just filled up. Retrying is safe after any of them: the retry writes every page of
# the transaction again, and earlier transactions are already synced.
_REFUSALS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

# With less address space than this after the file, `begin` sums up what it will write and grows the map if necessary.
_TAIL_BYTES_LOW: Final = 1024**3


class Prepared:
    """A filled write transaction, to be committed once, on any thread."""

    __slots__ = ("_facts", "_store", "_txn")

    def __init__(self, store: Store, facts: Facts, txn: lmdb.Transaction[bytes] | None) -> None:
        self._store = store
        # Kept until durable, for a retry if the disk refuses the first attempt.
        self._facts = facts
        # The open write transaction; None if there is nothing to write or the commit has started.
        self._txn = txn

    def commit(self) -> None:
        """Make all the facts durable; if that fails, raise StoreError and keep none."""
        txn = self._txn
        if txn is None:
            return
        self._txn = None
        self._store._commit(txn, self._facts)

    def _abort(self) -> bool:
        """Drop the transaction; return False if its commit has started."""
        txn = self._txn
        if txn is None:
            return False
        self._txn = None
        txn.abort()
        return True


class Store:
    """An open data folder. See the rules at the top of this file."""

    def __init__(
        self, folder: Path, lock: folders.FolderLock, env: lmdb.Environment, tables: Tables, space: Space
    ) -> None:
        self.folder = folder
        self._lock = lock
        self._env = env
        # LMDB's table handles, indexed by table number.
        self._tables = tables.handles
        # Decides when to refuse sends.
        self._space = space
        self._page_bytes: int = env.stat()["psize"]
        # Size of LMDB's map; `begin` grows it.
        self._map_bytes: int = env.info()["map_size"]
        # The commit in progress, if any.
        self._prepared: Prepared | None = None
        # Why the store stopped; None while it works.
        self._failure: str | None = None
        # The snapshot used for reads.
        self._reader: lmdb.Transaction[bytes] = self._begin_read()
        # Set by the committing thread once a newer snapshot than the reader's is durable.
        self._stale = False
        # Open `snapshot` blocks; while there are any, the reader is not replaced.
        self._pins = 0
        # Snapshots of scans started since the last `begin`; the next one ends them.
        self._scanned: list[lmdb.Transaction[bytes]] = []
        # The highest committed body key; keys above it may be appended.
        self._body_key_last = self._find_last_body_key()
        # The same, as of the prepared commit.
        self._body_key_next = self._body_key_last
        self._judge()

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        map_bytes: int = STORE_MAP_BYTES_DEFAULT,
        reserve_bytes: int | None = None,
        sync: bool = True,
        clock: Clock | None = None,
    ) -> Store:
        """Open a data folder, creating it if necessary.

        `map_bytes` bounds the live data; a ballast file holds `reserve_bytes` of disk space in reserve. `sync=False` is
        for tests: a power cut then loses commits, and there is no ballast unless requested.
        """
        if reserve_bytes is None:
            reserve_bytes = STORE_RESERVE_BYTES if sync else 0
        folders.prepare(folder)
        lock = folders.FolderLock(folder, create=True)
        try:
            env, tables = open_environment(folder, map_bytes=map_bytes + reserve_bytes, sync=sync, create=lock.fresh)
            try:
                lock.finish()
                space = Space(folder, map_bytes=map_bytes, reserve_bytes=reserve_bytes, clock=clock or SystemClock())
                return cls(folder, lock, env, tables, space)
            except lmdb.Error as error:
                env.close()
                raise StoreCorruptError(f"The store in {folder} is damaged: {error}. Check the folder.") from error
            except BaseException:
                env.close()
                raise
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Release the folder. A prepared commit that has not started is dropped; a running one must end first."""
        if self._prepared is not None and not self._prepared._abort():
            raise StoreError("A commit is still running: close the store after it.")
        self._prepared = None
        self._failure = "The store is closed."
        self._end_reads()
        self._env.close()
        self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- writing ----------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """True if sends must be refused; everything else still works."""
        if self._space.full and self._prepared is None and self._failure is None and self._space.due:
            self._judge()
        return self._space.full

    @property
    def file_bytes(self) -> int:
        """Size of the data file. Freed space in it is reused but never returned to the disk."""
        return (int(self._env.info()["last_pgno"]) + 1) * self._page_bytes

    @property
    def last_body(self) -> int:
        """The highest body number in the store, or 0."""
        return int.from_bytes(self._body_key_last, "big")

    def begin(self, facts: Facts) -> Prepared:
        """Fill one write transaction with the facts, which must not change until it is committed."""
        if self._failure is not None:
            raise StoreError(self._failure)
        if self._prepared is not None:
            raise StoreError("A commit is still running: begin the next one after it.")
        if self._pins:
            raise StoreError("A snapshot is being read: begin a commit after it.")
        if facts.empty:
            return Prepared(self, facts, None)
        try:
            if self._space.due:
                self._judge()
            self._end_reads()
            self._ensure_tail(facts)
            try:
                txn = self._filled(facts)
            except lmdb.MapFullError:
                self._grow_map(_bytes_needed(facts))
                txn = self._filled(facts)
            except lmdb.Error as error:
                if not _refusal(error):
                    raise
                self._space.refused()
                txn = self._filled(facts)
            # Must precede the start of the commit: see the top of this file.
            self._reader = self._begin_read()
        except Exception as error:
            self._stale = True
            raise self._fail(error) from error
        self._prepared = Prepared(self, facts, txn)
        return self._prepared

    def commit(self, facts: Facts) -> None:
        """Begin and commit at once, for recovery, tools and tests."""
        self.begin(facts).commit()

    def _commit(self, txn: lmdb.Transaction[bytes], facts: Facts) -> None:
        """Commit, on the committing thread; retry once with the ballast released if the disk is full."""
        try:
            try:
                txn.commit()
            except lmdb.Error as error:
                if not _refusal(error):
                    raise
                self._space.refused()
                self._filled(facts).commit()
            self._body_key_last = self._body_key_next
        except Exception as error:
            raise self._fail(error) from error
        finally:
            # The order matters: the owner reads both without a lock.
            self._stale = True
            self._prepared = None

    def _filled(self, facts: Facts) -> lmdb.Transaction[bytes]:
        """Begin a write transaction and write all the facts into it."""
        txn = self._env.begin(write=True)
        try:
            tables = self._tables
            if facts.deletes:
                delete = txn.delete
                for table, key in facts.deletes:
                    delete(key, b"", tables[table])
            if facts.bodies:
                self._put_bodies(txn, facts.bodies)
            if facts.index:
                if len(facts.index) == 1:
                    [(key, value)] = facts.index.items()
                    txn.put(key, sealed(key, value), db=tables[Table.INDEX])
                else:
                    txn.cursor(tables[Table.INDEX]).putmulti(sealed_rows(facts.index.items()))
            if facts.rows:
                put = txn.put
                for (table, key), value in facts.rows.items():
                    put(key, sealed(key, value), db=tables[table])
        except BaseException:
            txn.abort()
            raise
        return txn

    def _put_bodies(self, txn: lmdb.Transaction[bytes], bodies: dict[bytes, bytes]) -> None:
        if len(bodies) == 1:
            # Often somebody waits for just this commit, so it goes without lists and a cursor.
            [(key, stored)] = bodies.items()
            added = self._put_body(txn, key, stored)
        else:
            added = self._put_many_bodies(txn, bodies)
        # Appending keeps pages full. LMDB silently skips an appended key that is not the highest and shows it only in
        # the count.
        if added != len(bodies):
            raise StoreError(f"{len(bodies) - added} of {len(bodies)} bodies were not written.")

    def _put_body(self, txn: lmdb.Transaction[bytes], key: bytes, stored: bytes) -> int:
        self._space.wrote(len(stored))
        ascending = key > self._body_key_last
        self._body_key_next = key if ascending else self._body_key_last
        return int(txn.put(key, sealed_body(stored), append=ascending, db=self._tables[Table.BODIES]))

    def _put_many_bodies(self, txn: lmdb.Transaction[bytes], bodies: dict[bytes, bytes]) -> int:
        self._space.wrote(sum(map(len, bodies.values())))
        keys = list(bodies)
        ascending = keys[0] > self._body_key_last and keys == sorted(keys)
        self._body_key_next = max(self._body_key_last, keys[-1] if ascending else max(keys))
        _, added = txn.cursor(self._tables[Table.BODIES]).putmulti(sealed_bodies(bodies), append=ascending)
        return added

    def _ensure_tail(self, facts: Facts) -> None:
        """Ensure enough address space after the file for all the facts: neither filling nor committing may find the map
        full.

        `full` reports when the configured bound is reached; this is for what continues or was in progress then. The map
        can grow only while no transaction is open, as here.
        """
        tail_bytes = self._map_bytes - (self._env.info()["last_pgno"] + 1) * self._page_bytes
        if tail_bytes < _TAIL_BYTES_LOW:
            needed_bytes = _bytes_needed(facts)
            if tail_bytes < needed_bytes:
                self._grow_map(needed_bytes)

    def _grow_map(self, count: int) -> None:
        file_bytes = (self._env.info()["last_pgno"] + 1) * self._page_bytes
        self._map_bytes = max(self._map_bytes, file_bytes) + count
        self._env.set_mapsize(self._map_bytes)

    def _judge(self) -> None:
        """Measure the space left. Not during a commit: LMDB's figures come from the meta page that it writes."""
        reader = self._current()
        pages = 0
        for stat in (self._env.stat(), *map(reader.stat, self._tables)):
            pages += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        file_pages = self._env.info()["last_pgno"] + 1
        self._space.judge(pages * self._page_bytes, file_pages * self._page_bytes)

    def _fail(self, error: Exception) -> StoreError:
        """Stop for good: the owner's state is ahead of the disk, and only reopening reconciles them."""
        self._failure = (
            f"The store in {self.folder} cannot write: {error}. Nothing more is accepted; what was confirmed is safe. "
            "Look at the disk and free space if it is full, then start again."
        )
        logger.error("%s", self._failure)
        return StoreError(self._failure)

    # --- reading ----------------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Make all reads in the block see the same commit.

        Otherwise a commit that ends between two reads is visible to the second: an index row's body may be gone by
        then.
        """
        self._current()
        self._pins += 1
        try:
            yield
        finally:
            self._pins -= 1

    def body(self, number: int) -> bytes:
        """Return the bytes of one message, with the checksum verified."""
        return self.bodies((number,))[0]

    def bodies(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the bytes of many messages from one snapshot, with the checksums verified."""
        try:
            return read_bodies(self._current().get, numbers)
        except lmdb.Error as error:
            raise self._unreadable(error) from error

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of a row, None if there is none, or DAMAGED if it does not match its checksum."""
        try:
            stored = self._current().get(key, db=self._tables[table])
        except lmdb.Error as error:
            raise self._unreadable(error) from error
        return None if stored is None else unsealed(key, stored)

    def scan(self, table: Table, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows with start <= key < stop, in order, from one snapshot. The next `begin` ends the scan.

        A row that does not match its checksum has the value DAMAGED. Bodies include their checksum, unverified.
        """
        try:
            reader = self._current()
            if not self._scanned or self._scanned[-1] is not reader:
                self._scanned.append(reader)
            cursor = reader.cursor(self._tables[table])
            if stop is not None and cursor.last() and cursor.key() < stop:
                stop = None  # no row lies beyond, so none needs comparing
            found = cursor.set_range(start) if start else cursor.first()
        except lmdb.Error as error:
            raise self._unreadable(error) from error
        return self._rows(cursor, table, stop) if found else iter(())

    def page(self, table: Table, start: bytes, stop: bytes | None, count: int) -> list[tuple[bytes, bytes]]:
        """Return the first `count` rows of a scan."""
        return list(islice(self.scan(table, start, stop), count))

    def _rows(self, cursor: lmdb.Cursor[bytes], table: Table, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        try:
            rows = cursor.iternext() if table is Table.BODIES else unsealed_rows(cursor.iternext())
            if stop is None and table is not Table.META:
                yield from rows
                return
            for row in rows:
                if stop is not None and row[0] >= stop:
                    return
                if row[0] != FORMAT_KEY:
                    yield row
        except lmdb.Error as error:
            raise self._unreadable(error) from error

    def _current(self) -> lmdb.Transaction[bytes]:
        """Return the newest durable snapshot that may be read."""
        if self._stale and not self._pins:
            # The commit that set this has ended, and the next cannot have begun, because `begin` runs on this thread.
            self._stale = False
            self._reader = self._begin_read()
        return self._reader

    def _begin_read(self) -> lmdb.Transaction[bytes]:
        return self._env.begin(self._tables[Table.BODIES])

    def _end_reads(self) -> None:
        """End every snapshot, including those of unfinished scans, whose next row then raises an error."""
        self._stale = False
        self._reader.abort()
        for reader in self._scanned:
            reader.abort()
        self._scanned.clear()

    def _find_last_body_key(self) -> bytes:
        cursor = self._reader.cursor(self._tables[Table.BODIES])
        return cursor.key() if cursor.last() else b""

    def _unreadable(self, error: lmdb.Error) -> StoreError:
        if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError):
            return StoreCorruptError(f"The store in {self.folder} is damaged: {error}. Check the folder.")
        return StoreError(f"The store in {self.folder} cannot be read: {error}.")


def _refusal(error: lmdb.Error) -> bool:
    return isinstance(error, lmdb.DiskError) or getattr(error, "code", 0) in _REFUSALS


def _bytes_needed(facts: Facts) -> int:
    """Return an upper bound on what these facts add to the file: every row on its own page, every page copied."""
    count = 4 * 1024 * 1024
    for stored in facts.bodies.values():
        count += len(stored) + 8192
    for value in facts.index.values():
        count += len(value) + 8192
    for value in facts.rows.values():
        count += len(value) + 8192
    return count + 8192 * len(facts.deletes)
