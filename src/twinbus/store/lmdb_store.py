"""The store: one LMDB environment in one data folder, one owner's thread, one commit at a time.

The owner's thread begins and reads; `Prepared.commit` runs on any one thread and is the only thing that does.
A read sees the last durable commit; `snapshot` makes several see the same one. No read spans a `begin`: a scan that
does fails, it never returns wrong rows.
When a commit cannot be made durable the store stops for good; what was committed before is intact on reopening.

Why reading while a commit runs is safe without LMDB's own lock file (`lock=False`, MDB_NOLOCK), from mdb.c of LMDB 0.9:

- LMDB never overwrites a live page. Write transaction N takes its pages from the end of the file or from the free
  list, whose records are keyed by the transaction that freed the pages. mdb_page_alloc stops at the first record for
  which `oldest <= key`, and mdb_find_oldest, having no reader table to look at, returns N-1: only pages freed by N-2 or
  earlier are reused. Such pages belong to no snapshot later than N-3. So while N is filled, spilled, flushed, aborted
  or tried again, the snapshots N-1 and N-2 stay whole. Our readers are on N-1, and all of them end before N+1 begins:
  they keep one snapshot more distance than LMDB needs.
- What is not safe is to *begin* a read transaction while a commit writes its meta page. Without a reader table LMDB
  picks the newer of two meta pages by looking at both in the map (mdb_env_pick_meta) and copies the tree roots from it,
  while pwrite() may be half way through that page. So the read transaction is begun by `begin`, before the commit can
  start, and is exchanged for a newer one only after the commit has ended.
- The pages themselves are written by pwrite to the file that is mapped: one page cache, no second copy to go stale.

docs/decisions/0002-lmdb-store.md has the figures.
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
from twinbus.store.body_rows import read_bodies, sealed_bodies
from twinbus.store.checksums import sealed, sealed_rows, unsealed, unsealed_rows
from twinbus.store.environment import FORMAT_KEY, Tables, open_environment
from twinbus.store.facts import Facts, Table
from twinbus.store.space import Space

logger = logging.getLogger(__name__)

# What a write to a full disk, a used-up quota or a limited file answers. LMDB reports a short write as EIO, which is
# how a disk says that it has just become full; trying again is safe after any of them, because the second try writes
# every page of the transaction anew and earlier transactions were synced before.
_REFUSALS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

# Below this much address space behind the file, `begin` adds up what it is about to write and grows the map if need be.
_TAIL_BYTES_LOW: Final = 1024**3


class Prepared:
    """A filled write transaction, to be committed once, on any thread."""

    __slots__ = ("_facts", "_store", "_txn")

    def __init__(self, store: Store, facts: Facts, txn: lmdb.Transaction[bytes] | None) -> None:
        # Whose it is.
        self._store = store
        # Kept until durable: a disk that refuses the first try is given them a second time.
        self._facts = facts
        # The open write transaction; None when there is nothing to write, or when the commit has been started.
        self._txn = txn

    def commit(self) -> None:
        """Make the facts durable, all of them; StoreError when that fails, and none of them is then."""
        txn = self._txn
        if txn is None:
            return
        self._txn = None
        self._store._commit(txn, self._facts)

    def _abort(self) -> bool:
        """Drop the transaction; False when its commit has been started."""
        txn = self._txn
        if txn is None:
            return False
        self._txn = None
        txn.abort()
        return True


class Store:
    """A data folder, open. See the rules at the top of this file."""

    def __init__(
        self, folder: Path, lock: folders.FolderLock, env: lmdb.Environment, tables: Tables, space: Space
    ) -> None:
        # Where the data lies.
        self.folder = folder
        # Held until close.
        self._lock = lock
        # LMDB's environment.
        self._env = env
        # LMDB's handle of each table, by its number.
        self._tables = tables.handles
        # Says when sends are to be refused.
        self._space = space
        # Bytes in a page of the file.
        self._page_bytes: int = env.stat()["psize"]
        # Size of LMDB's map, which `begin` grows.
        self._map_bytes: int = env.info()["map_size"]
        # The begun commit, None when none is under way.
        self._prepared: Prepared | None = None
        # Why the store stopped, None while it works.
        self._failure: str | None = None
        # The snapshot that reads use.
        self._reader: lmdb.Transaction[bytes] = self._begin_read()
        # Set by the committing thread: a newer snapshot than the reader's is durable.
        self._stale = False
        # How many `snapshot` blocks are open: the reader is not exchanged inside one.
        self._pins = 0
        # Snapshots that scans were started on since the last begin, which ends them.
        self._scanned: list[lmdb.Transaction[bytes]] = []
        # The highest body key committed: keys above it may be appended.
        self._body_key_last = self._find_last_body_key()
        # The same, once the filled transaction is committed.
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
        """Open a data folder, or create it.

        `map_bytes` bounds the live data, `reserve_bytes` is held back on the disk by a ballast file. `sync=False` is
        for tests: a power cut then loses commits; there is no ballast then unless it is asked for.
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
        """Let go of the folder. A prepared commit that was not started is dropped; a running one must end first."""
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
        """Sends are to be refused; everything else goes on."""
        if self._space.full and self._prepared is None and self._failure is None and self._space.due:
            self._judge()
        return self._space.full

    @property
    def file_bytes(self) -> int:
        """How large its file has become; room freed in it is used again, never given back."""
        return (int(self._env.info()["last_pgno"]) + 1) * self._page_bytes

    @property
    def last_body(self) -> int:
        """The highest number of a body that is there, 0 when there is none."""
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
            # Before the commit can start: see the top of this file.
            self._reader = self._begin_read()
        except Exception as error:
            self._stale = True
            raise self._fail(error) from error
        self._prepared = Prepared(self, facts, txn)
        return self._prepared

    def commit(self, facts: Facts) -> None:
        """Begin and commit at once: for recovery, tools and tests."""
        self.begin(facts).commit()

    def _commit(self, txn: lmdb.Transaction[bytes], facts: Facts) -> None:
        """On the committing thread."""
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
            # The order counts: the owner looks at both without a lock.
            self._stale = True
            self._prepared = None

    def _filled(self, facts: Facts) -> lmdb.Transaction[bytes]:
        """A write transaction with all the facts in it."""
        txn = self._env.begin(write=True)
        try:
            tables = self._tables
            if facts.deletes:
                delete = txn.delete
                for table, key in facts.deletes:
                    delete(key, db=tables[table])
            if facts.bodies:
                self._put_bodies(txn, facts.bodies)
            if facts.index:
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
        values = sealed_bodies(bodies)
        keys = list(bodies)
        ascending = keys[0] > self._body_key_last and keys == sorted(keys)
        # Appending keeps pages full. A key that is not the highest cannot be appended: LMDB would leave it out, and say
        # so only in the count.
        _, added = txn.cursor(self._tables[Table.BODIES]).putmulti(values, append=ascending)
        if added != len(values):
            raise StoreError(f"{len(values) - added} of {len(values)} bodies were not written.")
        self._space.wrote(sum(map(len, bodies.values())))
        self._body_key_next = max(self._body_key_last, keys[-1] if ascending else max(keys))

    def _ensure_tail(self, facts: Facts) -> None:
        """Have address space behind the file for all the facts: neither filling nor committing may find the map full.

        `full` says when the map's bound is reached; this is about what still goes on then, or was under way. The map
        can grow only while no transaction is open, which is here.
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
        """Look at the room left. Not while a commit runs: LMDB's figures come from the meta page it writes."""
        reader = self._current()
        pages = 0
        for stat in (self._env.stat(), *map(reader.stat, self._tables)):
            pages += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        file_pages = self._env.info()["last_pgno"] + 1
        self._space.judge(pages * self._page_bytes, file_pages * self._page_bytes)

    def _fail(self, error: Exception) -> StoreError:
        """Stop for good: the owner's state is ahead of the disk's, and only reopening brings them together."""
        self._failure = (
            f"The store in {self.folder} cannot write: {error}. Nothing more is accepted; what was confirmed is safe. "
            "Look at the disk and free space if it is full, then start again."
        )
        logger.error("%s", self._failure)
        return StoreError(self._failure)

    # --- reading ----------------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads in the block see the same commit.

        Without it, a commit that ends between two reads shows in the second: an index row's body may be gone by then.
        """
        self._current()
        self._pins += 1
        try:
            yield
        finally:
            self._pins -= 1

    def body(self, number: int) -> bytes:
        """The bytes of one message, checked."""
        return self.bodies((number,))[0]

    def bodies(self, numbers: Sequence[int]) -> list[bytes]:
        """The bytes of many messages, of one snapshot, checked."""
        try:
            return read_bodies(self._current().get, numbers)
        except lmdb.Error as error:
            raise self._unreadable(error) from error

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value of one row, None when there is none; DAMAGED when it does not match its checksum."""
        try:
            stored = self._current().get(key, db=self._tables[table])
        except lmdb.Error as error:
            raise self._unreadable(error) from error
        return None if stored is None else unsealed(key, stored)

    def scan(self, table: Table, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The rows with start <= key < stop, in order, of one snapshot. The next begin ends it.

        A row that does not match its checksum has the value DAMAGED. Bodies come with their checksum, unchecked.
        """
        try:
            reader = self._current()
            if not self._scanned or self._scanned[-1] is not reader:
                self._scanned.append(reader)
            cursor = reader.cursor(self._tables[table])
            if stop is not None and cursor.last() and cursor.key() < stop:
                stop = None  # nothing lies behind: no row needs comparing
            found = cursor.set_range(start) if start else cursor.first()
        except lmdb.Error as error:
            raise self._unreadable(error) from error
        return self._rows(cursor, table, stop) if found else iter(())

    def page(self, table: Table, start: bytes, stop: bytes | None, count: int) -> list[tuple[bytes, bytes]]:
        """The first `count` rows of a scan."""
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
        """The newest durable snapshot that may be looked at."""
        if self._stale and not self._pins:
            # The commit that set this has ended, and the next one cannot have begun: that happens on this thread.
            self._stale = False
            self._reader = self._begin_read()
        return self._reader

    def _begin_read(self) -> lmdb.Transaction[bytes]:
        return self._env.begin(self._tables[Table.BODIES])

    def _end_reads(self) -> None:
        """End every snapshot, those of unfinished scans too: their next row is an error then."""
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
    """No less than what these facts can add to the file: every row on a page of its own, every page copied."""
    count = 4 * 1024 * 1024
    for stored in facts.bodies.values():
        count += len(stored) + 8192
    for value in facts.index.values():
        count += len(value) + 8192
    for value in facts.rows.values():
        count += len(value) + 8192
    return count + 8192 * len(facts.deletes)
