"""Open the LMDB environment: its options, its tables and the version of the data format.

Tables and format are created in one transaction, so a folder has either all of them or none. Format 1 has no row
checksums; opening such a folder for writing adds them in one transaction.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import lmdb

from twinbus.errors import StoreCorruptError, StoreError
from twinbus.store import folder as folders
from twinbus.store.checksums import sealed_rows, unsealed_rows
from twinbus.store.facts import Table

logger = logging.getLogger(__name__)

FORMAT: Final = 2
# The META row that holds the format. It has no checksum, because it must be readable before the format is known.
FORMAT_KEY: Final = b"store.format"

_UNSEALED_FORMAT: Final = 1
_UPGRADE_ROWS: Final = 10_000

_NAMES: Final = {
    Table.BODIES: b"bodies",
    Table.INDEX: b"index",
    Table.ENTITIES: b"entities",
    Table.SESSIONS: b"sessions",
    Table.DUPLICATES: b"duplicates",
    Table.META: b"meta",
}

# LMDB's table handles, indexed by table number.
Handles: TypeAlias = "tuple[lmdb._Database, ...]"


class Tables(NamedTuple):
    """The tables of an open environment."""

    handles: Handles
    # Whether rows carry checksums; False for a format 1 folder opened read-only.
    sealed: bool

    def rows(self, txn: lmdb.Transaction[bytes], table: Table) -> Iterator[tuple[bytes, bytes]]:
        """Return all rows of a table as they were given to the store; bodies include their checksum."""
        rows = txn.cursor(self.handles[table]).iternext()
        if table is Table.META:
            rows = (row for row in rows if row[0] != FORMAT_KEY)
        return unsealed_rows(rows) if self.sealed and table is not Table.BODIES else rows


# Reading without a lock file is safe with LMDB 0.9 (see lmdb_store.py); version 1.0 has another file format. Bindings
# that bundle both versions take the choice as an option; older ones have only 0.9.
_ENGINE: Final[dict[str, Any]] = {"lib_version": 0} if hasattr(lmdb.Environment, "lib_version") else {}


def open_environment(
    folder: Path, *, map_bytes: int, sync: bool = True, readonly: bool = False, create: bool = False
) -> tuple[lmdb.Environment, Tables]:
    """Open the environment in a folder that the caller has locked; with `create`, create a missing one."""
    try:
        env = lmdb.open(
            str(folder),
            map_size=map_bytes,
            max_dbs=len(Table),
            max_spare_txns=1,
            mode=0o600,
            lock=False,
            readahead=False,
            sync=sync,
            metasync=sync,
            readonly=readonly,
            **_ENGINE,
        )
    except (lmdb.InvalidError, lmdb.CorruptedError, lmdb.VersionMismatchError) as error:
        raise StoreCorruptError(f"The file {folder / folders.DATA_NAME} is not a store: {error}.") from error
    except lmdb.Error as error:
        raise StoreError(f"The store in {folder} cannot be opened: {error}.") from error
    try:
        _extend(folder, env)
        tables = _open_tables(folder, env, create)
        if not tables.sealed and not readonly:
            tables = _seal(folder, env, tables)
        if create and sync:
            folders.sync_folder(folder)
    except (lmdb.CorruptedError, lmdb.PageNotFoundError) as error:
        env.close()
        raise StoreCorruptError(f"The store in {folder} is damaged: {error}.") from error
    except lmdb.Error as error:
        env.close()
        raise StoreError(f"The store in {folder} cannot be opened: {error}.") from error
    except BaseException:
        env.close()
        raise
    return env, tables


def _extend(folder: Path, env: lmdb.Environment) -> None:
    """Extend the file to the length its own records imply, with a hole at the end.

    LMDB does not write a last page that was freed in the transaction that allocated it, so a sound file may be shorter;
    nothing ever reads that hole. In a truncated file the hole reads as zeros, which LMDB reports as an error; without
    the hole the kernel would kill the process.
    """
    path = folder / folders.DATA_NAME
    expected_bytes = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if path.stat().st_size < expected_bytes:
        os.truncate(path, expected_bytes)


def _open_tables(folder: Path, env: lmdb.Environment, create: bool) -> Tables:
    with env.begin() as txn:
        new = txn.stat()["entries"] == 0
    if new and not create:
        raise StoreError(folders.lost_text(folder) if folders.had_store(folder) else f"There is no store in {folder}.")
    if new:
        with env.begin(write=True) as txn:
            handles = tuple(env.open_db(_NAMES[table], txn=txn) for table in Table)
            txn.put(FORMAT_KEY, str(FORMAT).encode(), db=handles[Table.META])
        return Tables(handles, sealed=True)
    try:
        handles = tuple(env.open_db(_NAMES[table], create=False) for table in Table)
    except lmdb.NotFoundError as error:
        raise StoreCorruptError(f"The store in {folder} lacks a table: {error}.") from error
    with env.begin() as txn:
        found = txn.get(FORMAT_KEY, db=handles[Table.META])
    if found == str(FORMAT).encode():
        return Tables(handles, sealed=True)
    if found == str(_UNSEALED_FORMAT).encode():
        return Tables(handles, sealed=False)
    name = "no format" if found is None else f"format {found.decode('ascii', 'replace')}"
    raise StoreError(
        f"The store in {folder} has {name}; this release reads formats {_UNSEALED_FORMAT} and {FORMAT}. "
        "Open it with the release that wrote it."
    )


def _seal(folder: Path, env: lmdb.Environment, tables: Tables) -> Tables:
    """Add a checksum to every row of a format 1 folder: to all rows or, if interrupted, to none."""
    logger.info("Adding checksums to the records in %s: this happens once.", folder)
    info, stat = env.info(), env.stat()
    file_bytes = (info["last_pgno"] + 1) * stat["psize"]
    # In the worst case every page is rewritten, and no transaction may find the map full.
    env.set_mapsize(max(info["map_size"], 3 * file_bytes))
    with env.begin(write=True) as txn:
        for table in Table:
            if table is Table.BODIES:
                continue
            start = b""
            while rows := _page(txn, tables.handles[table], start):
                txn.cursor(tables.handles[table]).putmulti(sealed_rows(rows))
                start = rows[-1][0] + b"\0"
        txn.put(FORMAT_KEY, str(FORMAT).encode(), db=tables.handles[Table.META])
    return Tables(tables.handles, sealed=True)


def _page(txn: lmdb.Transaction[bytes], handle: lmdb._Database, start: bytes) -> list[tuple[bytes, bytes]]:
    """Return the next rows from a key on. A cursor kept open would be moved by the writes that follow."""
    cursor = txn.cursor(handle)
    return list(islice(cursor.iternext(), _UPGRADE_ROWS)) if cursor.set_range(start) else []
