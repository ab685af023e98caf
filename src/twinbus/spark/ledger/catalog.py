"""The tables folder: which parts are in force, and how that changes.

    commits/000000000007.json   what is in force since the seventh commit
    parts/000000000007/         sums, records and ids of a batch of files, or of several; files.json says which files
    days/000000000007/          sums of days, of the months that a batch added to
    charges/000000000007/       the months that were computed anew
    failovers/000000000007/     all episodes

Rules:
- A commit is a file that appears by one rename, after everything it names is on disk. What no commit names is not
  there: a run that was killed leaves nothing but rubbish, which the next one removes.
- One run at a time has the folder; readers need no lock. What a commit no longer names stays for a while, for those who
  are reading it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from twinbus.errors import StoreCorruptError, StoreLockedError
from twinbus.limits import TABLES_KEPT_MS

# 1 had no days.
_FORMAT: Final = 2
_PLACES: Final = ("parts", "days", "charges", "failovers")


@dataclass(frozen=True, slots=True)
class Part:
    """A folder of rows. Parts of one level are merged into one of the next."""

    name: str
    level: int
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class State:
    """What is in force."""

    version: int = 0
    committed_ms: int = 0
    parts: tuple[Part, ...] = ()
    # Folders of sums of days and of charges by month, as in `2026-10`.
    days: dict[str, str] = field(default_factory=dict)
    charges: dict[str, str] = field(default_factory=dict)
    # The folder of the episodes; None before the first.
    failovers: str | None = None
    # The price sheet that the charges are by, as a text; empty before the first.
    sheet: str = ""


class Catalog:
    """One tables folder."""

    def __init__(self, folder: Path) -> None:
        # Where it is; absolute, because Spark's workers have other working folders.
        self.folder = folder.absolute()

    # --- reading ----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """What the last commit says."""
        commits = self._commits()
        return self._load(commits[-1]) if commits else State()

    def paths(self, state: State, table: str) -> list[str]:
        """The folders that a table's rows are in: `operations`, `seen` or a type of records."""
        inner = table if table in ("operations", "seen") else f"records/type={table}"
        return [str(self.part(part.name) / inner) for part in state.parts if table in part.tables]

    def part(self, name: str) -> Path:
        return self.folder / "parts" / name

    def files(self, parts: Iterable[Part]) -> dict[str, int]:
        """The ledger files that these parts are of, with their sizes."""
        found: dict[str, int] = {}
        for part in parts:
            found.update(json.loads((self.part(part.name) / "files.json").read_text()))
        return found

    # --- writing ----------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Have the folder to oneself."""
        (self.folder / "commits").mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreLockedError(
                    f"Another run works on the tables in {self.folder}: wait for its end, or give another --tables."
                ) from None
            yield
        finally:
            os.close(handle)

    def begin(self, state: State) -> str:
        """The name of what the next commit adds. Rubbish of that name is removed."""
        name = f"{state.version + 1:012d}"
        self.discard(name, *_PLACES)
        self.part(name).mkdir(parents=True)
        return name

    def discard(self, name: str, *places: str) -> None:
        """Remove what was made for the next commit in some places: it will be made again."""
        for place in places:
            shutil.rmtree(self.folder / place / name, ignore_errors=True)

    def complete(self, name: str, level: int, files: dict[str, int]) -> Part:
        """A part whose rows are written."""
        folder = self.part(name)
        shutil.rmtree(folder / "staging", ignore_errors=True)
        (folder / "files.json").write_text(json.dumps(files))
        tables = [table for table in ("operations", "seen") if (folder / table).is_dir()]
        tables += sorted(each.name.partition("=")[2] for each in folder.glob("records/type=*"))
        return Part(name, level, tuple(tables))

    def commit(self, state: State, now_ms: int) -> State:
        """Put the state in force, as the next version."""
        state = replace(state, version=state.version + 1, committed_ms=now_ms)
        name = f"{state.version:012d}"
        for place in _PLACES:
            _sync(self.folder / place / name)
        commits = self.folder / "commits"
        new = commits / f"{name}.new"
        with new.open("w") as file:
            json.dump({"format": _FORMAT, **asdict(state)}, file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(commits / f"{name}.json")
        _sync_folder(commits)
        return state

    def clean(self, now_ms: int) -> None:
        """Remove what is no longer in force, and what no commit ever named; not what somebody may still be reading."""
        commits = self._commits()
        states = {path: self._load(path) for path in commits}
        kept = {
            path
            for path, following in zip_longest(commits, commits[1:])
            if following is None or now_ms - states[following].committed_ms < TABLES_KEPT_MS
        }
        named = {
            place
            for path in kept
            for place in (
                *(f"parts/{part.name}" for part in states[path].parts),
                *(folder.rpartition("/")[0] for folder in states[path].days.values()),
                *(folder.rpartition("/")[0] for folder in states[path].charges.values()),
                states[path].failovers,
            )
        }
        for place in _PLACES:
            for folder in (self.folder / place).glob("*"):
                if f"{place}/{folder.name}" not in named:
                    shutil.rmtree(folder, ignore_errors=True)
        for path in commits:
            if path not in kept:
                path.unlink()

    # --- commits ----------------------------------------------------------------------------------------------------

    def _commits(self) -> list[Path]:
        return sorted((self.folder / "commits").glob("*.json"))

    def _load(self, path: Path) -> State:
        try:
            found: dict[str, Any] = json.loads(path.read_text())
            if found.pop("format") > _FORMAT:
                raise StoreCorruptError(f"The tables in {self.folder} were written by a newer version: use that one.")
            found["parts"] = tuple(Part(each["name"], each["level"], tuple(each["tables"])) for each in found["parts"])
            return State(**found)
        except (ValueError, KeyError, TypeError):
            raise StoreCorruptError(
                f"{path} does not read: remove the tables folder and run again, the ledger files are all it needs."
            ) from None


def _sync(folder: Path) -> None:
    """Have everything in a folder on disk."""
    for path in [folder, *folder.rglob("*")] if folder.exists() else []:
        _sync_folder(path)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
