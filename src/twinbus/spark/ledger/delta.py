"""A folder of Delta tables that change together, batch by batch.

    operations/_delta_log/   each table is a Delta table, for every reader of the format
    batch.json               the last batch: its number, the price sheet, what it adds and replaces in each table
    _staging/                files that a batch is writing

- Spark writes Parquet files, and the driver commits them with `deltalake`. Delta has no commit across tables, so each
  commit carries the batch number: committing a batch twice changes nothing.
- batch.json is renamed into place when all files of the batch are on disk and before the first commit. If a run is
  killed between two commits, the next run completes them; if it is killed before, its files are in no log.
- One run at a time locks the folder; readers need no lock. Replaced files stay for a while for those who are reading
  them, and are vacuumed later. In an object store nothing locks the folder: the caller starts one run at a time.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from twinbus.errors import StoreCorruptError, StoreLockedError
from twinbus.limits import TABLES_KEPT_HOURS, TABLES_VACUUM_BATCHES
from twinbus.spark.ledger.schemas import TABLES, TableSpec
from twinbus.spark.store_path import AnyPath, StorePath, move, path_of, remove_all, replace_text, sync

_APPLICATION: Final = "twinbus.ledger"
_BATCH: Final = "batch.json"
_SETTINGS: Final = {
    # A reader replays at most this many commits.
    "delta.checkpointInterval": "10",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": f"interval {TABLES_KEPT_HOURS} hours",
}


@dataclass(frozen=True, slots=True)
class TableChange:
    """Files that a batch adds to a table, and the partitions whose other files it removes; None means all
    partitions."""

    added: list[str]
    replaced: list[str] | None


@dataclass(frozen=True, slots=True)
class Batch:
    """The last batch. `sheet` is the price sheet behind the charges, as text; empty before the first batch."""

    number: int = 0
    at_ms: int = 0
    sheet: str = ""
    changes: dict[str, TableChange] = field(default_factory=dict)


class DeltaFolder:
    """One folder of tables."""

    def __init__(self, folder: AnyPath) -> None:
        # Absolute, because Spark's workers have other working directories.
        self.folder = path_of(folder).absolute()
        self.staging = self.folder / "_staging"

    # --- reading ----------------------------------------------------------------------------------------------------

    def batch(self) -> Batch:
        path = self.folder / _BATCH
        if not path.exists():
            return Batch()
        try:
            found: dict[str, Any] = json.loads(path.read_text())
            changes = {name: TableChange(**each) for name, each in found.pop("changes").items()}
            return Batch(**found, changes=changes)
        except (ValueError, KeyError, TypeError):
            raise StoreCorruptError(
                f"{path} is unreadable: remove the tables folder and run again, the ledger files are all it needs."
            ) from None

    def files(self, table: str, partitions: Iterable[str] | None = None) -> list[str]:
        """A table's files, in some partitions or all."""
        try:
            actions = DeltaTable(str(self.folder / table)).get_add_actions()
        except TableNotFoundError:
            return []
        # Not as URLs, which escape spaces in folder names.
        paths = [self.folder / table / each for each in actions.column("path").to_pylist()]
        wanted = None if partitions is None else set(partitions)
        return sorted(str(path) for path in paths if wanted is None or partition_of(path) in wanted)

    # --- writing ----------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, and complete a batch that a killed run left half committed."""
        if isinstance(self.folder, StorePath):
            self._apply(self.batch())
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreLockedError(
                    f"Another run works on the tables in {self.folder}: wait for its end, or give another --tables."
                ) from None
            self._apply(self.batch())
            yield
        finally:
            os.close(handle)

    def stage(self) -> AnyPath:
        """An empty folder for a batch's files, which no reader sees."""
        remove_all(self.staging)
        self.staging.mkdir()
        return self.staging

    def staged(self, table: str) -> list[AnyPath]:
        return sorted((self.staging / "tables" / table).rglob("*.parquet"), key=str)

    def commit(self, number: int, at_ms: int, sheet: str, replaced: dict[str, Iterable[str] | None]) -> None:
        """Commit the staged files of these tables, replacing the named partitions; None replaces the whole table."""
        changes = {}
        for table, partitions in replaced.items():
            added = []
            for path in self.staged(table):
                name = _below(path, self.staging / "tables" / table)
                target = self.folder / table / name
                target.parent.mkdir(parents=True, exist_ok=True)
                move(path, target)
                added.append(name)
            changes[table] = TableChange(added, None if partitions is None else sorted(partitions))
        batch = Batch(number, at_ms, sheet, changes)
        replace_text(self.folder / _BATCH, json.dumps(asdict(batch)))
        self._apply(batch)
        remove_all(self.staging)
        if number % TABLES_VACUUM_BATCHES == 0:
            self.vacuum()

    def vacuum(self) -> None:
        """Delete files that no table references any more."""
        for table in TABLES:
            DeltaTable(str(self.folder / table)).vacuum(
                TABLES_KEPT_HOURS, dry_run=False, enforce_retention_duration=False, full=True
            )

    def _apply(self, batch: Batch) -> None:
        """Commit the batch to the tables that do not have it yet."""
        for name, change in batch.changes.items():
            table = self._table(name)
            if (table.transaction_version(_APPLICATION) or 0) >= batch.number:
                continue
            known = {_below(path_of(path), self.folder / name) for path in self.files(name)}
            gone = [
                path
                for path in sorted(known - set(change.added))
                if change.replaced is None or partition_of(path) in change.replaced
            ]
            table.create_write_transaction(
                [
                    *(self._added(name, path, batch.at_ms) for path in change.added),
                    *(RemoveAction(path, True, batch.at_ms, None, _values(path)) for path in gone),
                ],
                "append",
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=CommitProperties(app_transactions=[Transaction(_APPLICATION, batch.number)]),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=True),
            )
            if isinstance(self.folder, Path):
                for path in sorted((self.folder / name / "_delta_log").glob("*.json"))[-1:]:
                    sync(path)
                    sync(path.parent)

    def _added(self, table: str, path: str, at_ms: int) -> AddAction:
        from pyarrow.parquet import read_metadata

        file = self.folder / table / path
        if isinstance(file, StorePath):
            rows = read_metadata(file.key, filesystem=file.filesystem).num_rows
        else:
            rows = read_metadata(file).num_rows
        stats = json.dumps({"numRecords": rows})
        return AddAction(path, file.stat().st_size, _values(path), at_ms, True, stats)

    def _table(self, name: str) -> DeltaTable:
        try:
            return DeltaTable(str(self.folder / name))
        except TableNotFoundError:
            return self._created(name, TABLES[name])

    def create(self) -> None:
        """Create every table, so that readers find its columns before its first row."""
        for name in TABLES:
            self._table(name)

    def _created(self, name: str, spec: TableSpec) -> DeltaTable:
        from pyspark.sql.types import StructType

        schema = Schema.from_json(StructType.fromDDL(spec.all_columns).json())
        partitions = [spec.partition] if spec.partition else None
        return DeltaTable.create(
            str(self.folder / name), schema, mode="ignore", partition_by=partitions, configuration=_SETTINGS
        )


def partition_of(path: str | PurePath | StorePath) -> str:
    """The value in `month=2026-10`, the folder of a file; empty if the table has no partitions."""
    return PurePosixPath(str(path)).parent.name.partition("=")[2]


def _values(path: str) -> dict[str, str | None]:
    name, _, value = PurePosixPath(path).parent.name.partition("=")
    return {name: value} if value else {}


def _below(path: AnyPath, folder: AnyPath) -> str:
    return str(path).removeprefix(f"{folder}/")
