"""Check a data folder that is not in use: is every record intact, and does every reference resolve?

Every function holds the folder's lock, so a store in use is refused. None changes a record of the folder it reads. This
file does not know what records mean: the caller passes a function that reads the body number from an index row, and one
that audits all records together.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar

import lmdb

from twinbus.errors import StoreCorruptError, StoreError
from twinbus.limits import STORE_FINDINGS_MAX
from twinbus.store import folder as folders
from twinbus.store.checksums import sealed_rows
from twinbus.store.environment import Tables, open_environment
from twinbus.store.facts import DAMAGED, Finding, Table, body_number, index_key, index_numbers

_T = TypeVar("_T")

# Called with rows done and rows in total, from time to time and at the end.
Progress = Callable[[int, int], None]

BodyOf = Callable[[bytes], int]


class Audited(Protocol):
    """The result of an audit."""

    @property
    def findings(self) -> list[Finding]: ...

    # Entity paths by id, for output.
    @property
    def paths(self) -> dict[int, str]: ...


_Work = Callable[["lmdb.Transaction[bytes]", Tables], object]
# Audits all records together, given the rows of each table and the highest body number.
Auditor = Callable[[Callable[[Table], Iterable[tuple[bytes, bytes]]], int], Audited]

_PROGRESS_ROWS: Final = 10_000
_COPY_BYTES: Final = 32 * 1024 * 1024
_MAP_SLACK_BYTES: Final = 64 * 1024 * 1024


@dataclass
class CheckReport:
    """The result of `verify`. Findings are counted in full and listed up to a limit."""

    rows: dict[Table, int]
    # Bytes of all message bodies, without their checksums.
    body_bytes: int = 0
    # Bodies that do not match their checksum, and their numbers.
    bad_bodies: int = 0
    bad_body_numbers: list[int] = field(default_factory=list)
    # Index rows that cannot be decoded, and their keys: entity id and sequence number.
    bad_index: int = 0
    bad_index_keys: list[tuple[int, int]] = field(default_factory=list)
    # Index rows whose body is missing, and their entity id, sequence number and body number.
    dangling: int = 0
    dangling_keys: list[tuple[int, int, int]] = field(default_factory=list)
    # How many of them each entity has, by entity id.
    dangling_counts: dict[int, int] = field(default_factory=dict)
    # Bodies that no index row refers to, and their numbers. They waste space but are harmless.
    orphans: int = 0
    orphan_numbers: list[int] = field(default_factory=list)
    # Messages whose body is damaged: entity id, sequence number, body number.
    damaged_keys: list[tuple[int, int, int]] = field(default_factory=list)
    # Rows that contradict others, and what is wrong with each.
    faults: int = 0
    findings: list[Finding] = field(default_factory=list)
    # Entity paths by id.
    paths: dict[int, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if every message can be delivered as it was sent."""
        return not (self.bad_bodies or self.bad_index or self.dangling or self.faults)


def verify(
    folder: Path, body_of: BodyOf, progress: Progress | None = None, audit: Auditor | None = None
) -> CheckReport:
    """Verify every checksum and every reference; `body_of` reads the body number from an index row's value.

    Rows that `body_of` cannot read are left to `audit`, if given.
    """
    lock = _lock(folder, lambda txn, tables: _verify(txn, tables, body_of, audit, _silent, STORE_FINDINGS_MAX))
    try:
        env, tables = open_environment(folder, map_bytes=_map_bytes(folder), readonly=True)
        try:
            with env.begin() as txn:
                return _verify(txn, tables, body_of, audit, progress or _silent, STORE_FINDINGS_MAX)
        except (lmdb.Error, struct.error) as error:
            raise StoreCorruptError(f"The store in {folder} has damaged pages: {error}.") from error
        finally:
            env.close()
    finally:
        lock.release()


def compact(
    folder: Path,
    to: Path,
    progress: Progress | None = None,
    body_of: BodyOf | None = None,
    audit: Auditor | None = None,
) -> tuple[int, int]:
    """Write a copy without free space to a new folder; return the file's size before and after.

    Any damage stops it, including what `body_of` and `audit` find: a copy must not make damage look sound.
    """

    def choose(txn: lmdb.Transaction[bytes], tables: Tables) -> Choose:
        if body_of is not None:
            report = _verify(txn, tables, body_of, audit, _silent, STORE_FINDINGS_MAX)
            if not report.ok and not report.bad_bodies:
                raise StoreCorruptError(
                    f"The store in {folder} has inconsistent records, which a compact copy would keep. "
                    "Run `twinbus check` on it, and `twinbus check --repair` for a copy without them."
                )
        return _all_whole

    _copy_to(folder, to, progress or _silent, choose)
    return (folder / folders.DATA_NAME).stat().st_size, (to / folders.DATA_NAME).stat().st_size


def repair(
    folder: Path, to: Path, body_of: BodyOf, audit: Auditor, progress: Progress | None = None
) -> tuple[CheckReport, list[str]]:
    """Write a sound copy to a new folder; return the report and a list of what the copy omits or changes."""
    found: list[CheckReport] = []
    lines: list[str] = []

    def choose(txn: lmdb.Transaction[bytes], tables: Tables) -> Choose:
        report = _verify(txn, tables, body_of, audit, _silent, None)
        found.append(report)
        lines.extend(left_out(report))
        return _Sound(report, txn, tables, body_of, lines)

    _copy_to(folder, to, progress or _silent, choose)
    return found[0], lines


def left_out(report: CheckReport) -> list[str]:
    """Describe every finding of a report."""
    lines = [f"body {number} does not match its checksum" for number in report.bad_body_numbers]
    lines += [
        f"message {seq} of {_place(report, entity)} has the damaged body {body}"
        for entity, seq, body in report.damaged_keys
    ]
    lines += [f"message {seq} of {_place(report, entity)} cannot be decoded" for entity, seq in report.bad_index_keys]
    lines += [
        f"{_place(report, entity)} still lists {count:,} message{'s' if count > 1 else ''} without a body"
        for entity, count in sorted(report.dangling_counts.items())
    ]
    lines += [
        f"message {seq} of {_place(report, entity)} has lost its body {body}"
        for entity, seq, body in report.dangling_keys
    ]
    return lines + [finding.text for finding in report.findings]


def _place(report: CheckReport, entity_id: int) -> str:
    return report.paths.get(entity_id, f"entity {entity_id}")


# Returns the row's value in the copy, or None to leave the row out.
Choose = Callable[[Table, bytes, bytes], bytes | None]


def _all_whole(table: Table, key: bytes, value: bytes) -> bytes | None:
    if table is Table.BODIES and not _whole(value):
        raise StoreCorruptError(f"Body {body_number(key)} does not match its checksum: check the folder first.")
    if value is DAMAGED:
        raise StoreCorruptError(f"A record in {table.name} does not match its checksum: check the folder first.")
    return value


class _Sound:
    """Leaves out rows that are damaged, belong to nothing, or have lost their counterpart."""

    def __init__(
        self, report: CheckReport, txn: lmdb.Transaction[bytes], tables: Tables, body_of: BodyOf, lines: list[str]
    ) -> None:
        # Rows to leave out (None) or to write with another value.
        self._changed = {(finding.table, finding.key): finding.value for finding in report.findings}
        self._bad = set(report.bad_body_numbers)
        self._body_of = body_of
        # Looks up whether an index row's body exists.
        self._bodies = txn.cursor(tables.handles[Table.BODIES])
        # Bodies that a message in the copy refers to.
        self._wanted = {
            self._body_of(kept)
            for key, value in tables.rows(txn, Table.INDEX)
            if (kept := self._index(key, value)) is not None
        }
        # Collects the bodies dropped because their messages were.
        self._lines = lines

    def __call__(self, table: Table, key: bytes, value: bytes) -> bytes | None:
        if table is Table.INDEX:
            return self._index(key, value)
        if table is Table.BODIES:
            number = body_number(key)
            if number in self._wanted:
                return value
            if number not in self._bad:
                self._lines.append(f"body {number} belongs to no message of the copy")
            return None
        return self._changed.pop((table, key), value)

    def missing(self, table: Table) -> list[tuple[bytes, bytes]]:
        """Return rows that the copy needs and the original lacks; called when the table is copied."""
        return [(key, value) for (of, key), value in self._changed.items() if of is table and value is not None]

    def _index(self, key: bytes, value: bytes) -> bytes | None:
        chosen = self._changed.get((Table.INDEX, key), value)
        if chosen is None:
            return None
        number = self._body_of(chosen)
        return chosen if number not in self._bad and self._bodies.set_key(struct.pack(">Q", number)) else None


def _copy_to(
    folder: Path,
    to: Path,
    progress: Progress,
    choose: Callable[[lmdb.Transaction[bytes], Tables], Choose],
) -> None:
    """Copy rows to a new folder, which appears under its name only once it is complete and on disk."""
    if to.exists():
        raise StoreError(f"The folder {to} exists: a copy goes to a new one.")
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
                # Rows are appended in order, so pages are full: twice the size of the source is always enough.
                _copy(txn, tables, unfinished, 2 * _map_bytes(folder), progress, choose(txn, tables))
        except (lmdb.Error, OSError) as error:
            raise StoreError(f"The copy to {to} failed: {error}.") from error
        finally:
            env.close()
        unfinished.rename(to)
        folders.sync_folder(to.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        lock.release()


def _lock(folder: Path, work: _Work | None = None) -> folders.FolderLock:
    if not (folder / folders.DATA_NAME).exists() and not folders.had_store(folder):
        raise StoreError(f"There is no store in {folder}.")
    lock = folders.FolderLock(folder)
    try:
        _probe(folder, work)
    except BaseException:
        lock.release()
        raise
    return lock


def _probe(folder: Path, work: _Work | None) -> None:
    """Read every row and do the work in a child process first, because LMDB kills the process on some damaged pages. A
    page that only raises an error must not keep the child from the others."""
    child = os.fork()
    if child == 0:
        try:
            # LMDB prints its findings before it kills the process.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            env, tables = open_environment(folder, map_bytes=_map_bytes(folder), readonly=True)
            for handle in tables.handles:
                # After one bad page a transaction reads no other.
                with suppress(lmdb.Error), env.begin() as txn:
                    deque(txn.cursor(handle).iternext(), maxlen=0)
            if work is not None:
                with env.begin() as txn:
                    work(txn, tables)
        finally:
            # The parent meets the same errors and reports them.
            os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise StoreCorruptError(
            f"The store in {folder} has damaged pages: LMDB cannot read one of them "
            f"({signal.Signals(os.WTERMSIG(status)).name}). Restore a backup of the folder."
        )


def _map_bytes(folder: Path) -> int:
    return (folder / folders.DATA_NAME).stat().st_size + _MAP_SLACK_BYTES


def _silent(done: int, total: int) -> None:
    pass


def _verify(
    txn: lmdb.Transaction[bytes],
    tables: Tables,
    body_of: BodyOf,
    audit: Auditor | None,
    progress: Progress,
    limit: int | None,
) -> CheckReport:
    report = CheckReport({table: txn.stat(tables.handles[table])["entries"] for table in Table})

    def note(found: list[_T], item: _T) -> None:
        if limit is None or len(found) < limit:
            found.append(item)

    total = report.rows[Table.INDEX] + report.rows[Table.BODIES]
    done = 0
    bodies = txn.cursor(tables.handles[Table.BODIES])
    wanted = array("Q")
    for key, value in tables.rows(txn, Table.INDEX):
        done += 1
        if done % _PROGRESS_ROWS == 0:
            progress(done, total)
        numbers = index_numbers(key) if len(key) == 12 else (0, 0)
        try:
            number = body_of(value)
        except Exception:
            if audit is None:
                report.bad_index += 1
                note(report.bad_index_keys, numbers)
            continue
        if bodies.set_key(struct.pack(">Q", number)):
            wanted.append(number)
        else:
            report.dangling += 1
            report.dangling_counts[numbers[0]] = report.dangling_counts.get(numbers[0], 0) + 1
            note(report.dangling_keys, (*numbers, number))
    ascending = iter(sorted(wanted))
    want = next(ascending, None)
    for key, value in tables.rows(txn, Table.BODIES):
        done += 1
        if done % _PROGRESS_ROWS == 0:
            progress(done, total)
        number = body_number(key)
        if not _whole(value):
            report.bad_bodies += 1
            note(report.bad_body_numbers, number)
        report.body_bytes += max(len(value) - 4, 0)
        if want != number:
            report.orphans += 1
            note(report.orphan_numbers, number)
        while want == number:
            want = next(ascending, None)
    if report.bad_bodies:
        _name_damaged(txn, tables, body_of, report, note)
    if audit is not None:
        last = bodies.key() if bodies.last() else b""
        audited = audit(lambda table: tables.rows(txn, table), int.from_bytes(last, "big"))
        # Do not report a message twice that is already named for its body.
        named = {index_key(entity_id, seq) for entity_id, seq, _ in (*report.damaged_keys, *report.dangling_keys)}
        found = [each for each in audited.findings if each.table is not Table.INDEX or each.key not in named]
        report.paths = audited.paths
        report.faults = len(found)
        report.findings = found[:limit]
    progress(total, total)
    return report


def _name_damaged(
    txn: lmdb.Transaction[bytes],
    tables: Tables,
    body_of: BodyOf,
    report: CheckReport,
    note: Callable[[list[tuple[int, int, int]], tuple[int, int, int]], None],
) -> None:
    damaged = set(report.bad_body_numbers)
    for key, value in tables.rows(txn, Table.INDEX):
        try:
            number = body_of(value)
        except Exception:  # noqa: S112 -- already reported
            continue
        if number in damaged and len(key) == 12:
            note(report.damaged_keys, (*index_numbers(key), number))


def _whole(value: bytes) -> bool:
    return len(value) >= 4 and zlib.crc32(value[4:]) == int.from_bytes(value[:4], "big")


def _copy(
    txn: lmdb.Transaction[bytes], tables: Tables, to: Path, map_bytes: int, progress: Progress, choose: Choose
) -> None:
    # The format row is not copied.
    total = sum(txn.stat(handle)["entries"] for handle in tables.handles) - 1
    done = 0
    copy, copies = open_environment(to, map_bytes=map_bytes, sync=False, create=True)
    try:
        for table in Table:
            for rows in _batches(txn, tables, table, choose):
                with copy.begin(write=True) as writing:
                    # META of the new store already has its format row, so rows cannot be appended.
                    cursor = writing.cursor(copies.handles[table])
                    cursor.putmulti(_as_stored(table, rows), append=table is not Table.META)
                done += len(rows)
                progress(done, total)
        if isinstance(choose, _Sound):
            with copy.begin(write=True) as writing:
                writing.cursor(copies.handles[Table.META]).putmulti(sealed_rows(choose.missing(Table.META)))
        copy.sync(True)
    finally:
        copy.close()
    os.chmod(to / folders.DATA_NAME, 0o600)
    folders.sync_folder(to)


def _as_stored(table: Table, rows: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return rows if table is Table.BODIES else sealed_rows(rows)


def _batches(
    txn: lmdb.Transaction[bytes], tables: Tables, table: Table, choose: Choose
) -> Iterator[list[tuple[bytes, bytes]]]:
    rows: list[tuple[bytes, bytes]] = []
    count = 0
    for key, value in tables.rows(txn, table):
        kept = choose(table, key, value)
        if kept is None:
            continue
        rows.append((key, kept))
        count += len(kept) + 64
        if count >= _COPY_BYTES:
            yield rows
            rows = []
            count = 0
    if rows:
        yield rows
