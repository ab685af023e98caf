"""Opening LMDB's environment: its options, its tables, the version of the data format.

Tables and format are created in one transaction, so a folder either has all of them or is new.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, TypeAlias

import lmdb

from twinbus.errors import StoreCorruptError, StoreError
from twinbus.store import folder as folders
from twinbus.store.facts import Table

FORMAT: Final = 1
FORMAT_KEY: Final = b"store.format"

_NAMES: Final = {
    Table.BODIES: b"bodies",
    Table.INDEX: b"index",
    Table.ENTITIES: b"entities",
    Table.SESSIONS: b"sessions",
    Table.DUPLICATES: b"duplicates",
    Table.META: b"meta",
}

# LMDB's handle of each table, by its number.
Tables: TypeAlias = "tuple[lmdb._Database, ...]"

# The reasoning about reads without a lock file was made for the 0.9 line, whose file format 1.0 does not share.
# Releases of the binding that carry both take the choice as an option; older ones have 0.9 only.
_ENGINE: Final[dict[str, Any]] = {"lib_version": 0} if hasattr(lmdb.Environment, "lib_version") else {}


def open_environment(
    folder: Path, *, map_bytes: int, sync: bool = True, readonly: bool = False, create: bool = False
) -> tuple[lmdb.Environment, Tables]:
    """Open the environment in a folder that the caller has locked; with `create`, make it if it is not there."""
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
    """Make the file as long as its own records say, with a hole at the end.

    LMDB does not write a page at the end that was freed in the transaction that took it, so a sound file may be
    shorter. Then nothing ever reads the hole. A file that was cut reads zeros there, which is an error; without them
    the kernel would end the process.
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
            tables = tuple(env.open_db(_NAMES[table], txn=txn) for table in Table)
            txn.put(FORMAT_KEY, str(FORMAT).encode(), db=tables[Table.META])
        return tables
    try:
        tables = tuple(env.open_db(_NAMES[table], create=False) for table in Table)
    except lmdb.NotFoundError as error:
        raise StoreCorruptError(f"The store in {folder} lacks a table: {error}.") from error
    with env.begin() as txn:
        found = txn.get(FORMAT_KEY, db=tables[Table.META])
    if found != str(FORMAT).encode():
        name = "no format" if found is None else f"format {found.decode('ascii', 'replace')}"
        raise StoreError(
            f"The store in {folder} has {name}; this release reads format {FORMAT}. "
            "Open it with the release that wrote it."
        )
    return tables
