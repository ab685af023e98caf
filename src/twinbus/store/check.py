"""Looking over a data folder at rest: is every record whole, and does every reference lead somewhere?

Both functions hold the folder's lock: a store that is in use is not looked at. Neither changes a record of the folder
it reads.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import lmdb

from twinbus.errors import StoreCorruptError, StoreError
from twinbus.limits import STORE_FINDINGS_MAX
from twinbus.store import folder as folders
from twinbus.store.environment import Tables, open_environment
from twinbus.store.facts import Table, body_number, index_numbers

_T = TypeVar("_T")

# Called with rows done and rows in all, now and then and at the end.
Progress = Callable[[int, int], None]

_PROGRESS_ROWS: Final = 10_000
_COPY_BYTES: Final = 32 * 1024 * 1024
_MAP_SLACK_BYTES: Final = 64 * 1024 * 1024


@dataclass
class Report:
    """What `verify` found. Findings are counted in full and listed up to a bound."""

    # Rows of each table.
    rows: dict[Table, int]
    # Bytes of all message bodies, without their checksums.
    body_bytes: int = 0
    # Bodies that do not match their checksum.
    bad_bodies: int = 0
    # Their numbers.
    bad_body_numbers: list[int] = field(default_factory=list)
    # Index rows that do not read back.
    bad_index: int = 0
    # Their keys: entity id and sequence number.
    bad_index_keys: list[tuple[int, int]] = field(default_factory=list)
    # Index rows whose body is not there.
    dangling: int = 0
    # Their keys and the body they want: entity id, sequence number, body number.
    dangling_keys: list[tuple[int, int, int]] = field(default_factory=list)
    # Bodies that no index row points to: they cost space and harm nothing.
    orphans: int = 0
    # Their numbers.
    orphan_numbers: list[int] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Every message can be delivered as it was sent."""
        return not (self.bad_bodies or self.bad_index or self.dangling)


def verify(folder: Path, body_of: Callable[[bytes], int], progress: Progress | None = None) -> Report:
    """Check every checksum and every reference; `body_of` reads the body number out of an index row's value."""
    lock = _lock(folder)
    try:
        env, tables = open_environment(folder, map_bytes=_map_bytes(folder), readonly=True)
        try:
            with env.begin() as txn:
                return _verify(txn, tables, body_of, progress or _silent)
        except (lmdb.Error, struct.error) as error:
            raise StoreCorruptError(f"The store in {folder} is damaged beyond its records: {error}.") from error
        finally:
            env.close()
    finally:
        lock.release()


def compact(folder: Path, to: Path, progress: Progress | None = None) -> tuple[int, int]:
    """Write a copy without free space to a new folder; the bytes of the file before and after.

    The copy appears under its name only when it is complete and on disk. A body that does not match its checksum stops
    it: a copy must not make damage look whole.
    """
    if to.exists():
        raise StoreError(f"The folder {to} exists: a compact copy goes to a new one.")
    lock = _lock(folder)
    unfinished = to.with_name(to.name + ".unfinished")
    try:
        env, tables = open_environment(folder, map_bytes=_map_bytes(folder), readonly=True)
        try:
            folders.prepare(to.parent)
            if unfinished.exists():
                shutil.rmtree(unfinished)
            unfinished.mkdir(mode=0o700)
            with env.begin() as txn:
                # Appended in order, its pages are full: twice the source is more than it can need.
                _copy(txn, tables, unfinished, 2 * _map_bytes(folder), progress or _silent)
        except (lmdb.Error, OSError) as error:
            raise StoreError(f"The compact copy to {to} failed: {error}.") from error
        finally:
            env.close()
        unfinished.rename(to)
        folders.sync_folder(to.parent)
        return (folder / folders.DATA_NAME).stat().st_size, (to / folders.DATA_NAME).stat().st_size
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        lock.release()


def _lock(folder: Path) -> folders.FolderLock:
    if not (folder / folders.DATA_NAME).exists() and not folders.had_store(folder):
        raise StoreError(f"There is no store in {folder}.")
    return folders.FolderLock(folder)


def _map_bytes(folder: Path) -> int:
    return (folder / folders.DATA_NAME).stat().st_size + _MAP_SLACK_BYTES


def _silent(done: int, total: int) -> None:
    pass


def _verify(
    txn: lmdb.Transaction[bytes], tables: Tables, body_of: Callable[[bytes], int], progress: Progress
) -> Report:
    report = Report({table: txn.stat(tables[table])["entries"] for table in Table})
    total = report.rows[Table.INDEX] + report.rows[Table.BODIES]
    done = 0
    bodies = txn.cursor(tables[Table.BODIES])
    wanted = array("Q")
    for key, value in txn.cursor(tables[Table.INDEX]).iternext():
        done += 1
        if done % _PROGRESS_ROWS == 0:
            progress(done, total)
        numbers = index_numbers(key) if len(key) == 12 else (0, 0)
        try:
            number = body_of(value)
        except Exception:
            report.bad_index += 1
            _list(report.bad_index_keys, numbers)
            continue
        if bodies.set_key(struct.pack(">Q", number)):
            wanted.append(number)
        else:
            report.dangling += 1
            _list(report.dangling_keys, (*numbers, number))
    ascending = iter(sorted(wanted))
    want = next(ascending, None)
    for key, value in txn.cursor(tables[Table.BODIES]).iternext():
        done += 1
        if done % _PROGRESS_ROWS == 0:
            progress(done, total)
        number = body_number(key)
        if not _whole(value):
            report.bad_bodies += 1
            _list(report.bad_body_numbers, number)
        report.body_bytes += max(len(value) - 4, 0)
        if want != number:
            report.orphans += 1
            _list(report.orphan_numbers, number)
        while want == number:
            want = next(ascending, None)
    progress(total, total)
    return report


def _whole(value: bytes) -> bool:
    return len(value) >= 4 and zlib.crc32(value[4:]) == int.from_bytes(value[:4], "big")


def _list(found: list[_T], item: _T) -> None:
    if len(found) < STORE_FINDINGS_MAX:
        found.append(item)


def _copy(txn: lmdb.Transaction[bytes], tables: Tables, to: Path, map_bytes: int, progress: Progress) -> None:
    total = sum(txn.stat(table)["entries"] for table in tables)
    done = 0
    copy, copies = open_environment(to, map_bytes=map_bytes, sync=False, create=True)
    try:
        for table in Table:
            for rows in _batches(txn, tables, table):
                with copy.begin(write=True) as writing:
                    if table is Table.META:
                        # The new store's own row is there already.
                        for key, value in rows:
                            writing.put(key, value, db=copies[table])
                    else:
                        writing.cursor(copies[table]).putmulti(rows, append=True)
                done += len(rows)
                progress(done, total)
        copy.sync(True)
    finally:
        copy.close()
    os.chmod(to / folders.DATA_NAME, 0o600)
    folders.sync_folder(to)


def _batches(txn: lmdb.Transaction[bytes], tables: Tables, table: Table) -> Iterator[list[tuple[bytes, bytes]]]:
    rows: list[tuple[bytes, bytes]] = []
    count = 0
    for key, value in txn.cursor(tables[table]).iternext():
        if table is Table.BODIES and not _whole(value):
            raise StoreCorruptError(f"Body {body_number(key)} does not match its checksum: check the folder first.")
        rows.append((key, value))
        count += len(value) + 64
        if count >= _COPY_BYTES:
            yield rows
            rows = []
            count = 0
    if rows:
        yield rows
