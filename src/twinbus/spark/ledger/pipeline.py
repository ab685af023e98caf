"""The ledger pipeline: adds new ledger files to the tables, exactly once.

    summary = run(spark, ["data/ledger"], "data/tables", Sheet.load("standard"))

- A run processes the files that the table `files` does not list, in batches. If it is killed, the next run continues
  after the last committed batch; uncommitted work never shows.
- Records are identified by id: a file that comes twice, under any name, adds nothing, and late files are fine.
- A batch rewrites each partition that it adds to, a day or a month, so a table has one file per partition, however many
  runs there were. Charges are recomputed for the affected months, episodes from all events.
- A small batch in a fresh session should be fast. There the time goes into planning and compiling queries, one core
  each, so there are few queries, and independent ones run in parallel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from twinbus.clock import Clock, MonotonicClock, SystemClock
from twinbus.errors import ConfigError
from twinbus.ledger.prices import Sheet
from twinbus.limits import LEDGER_BATCH_BYTES
from twinbus.spark.ledger import migration
from twinbus.spark.ledger.charges import charges
from twinbus.spark.ledger.delta import DeltaFolder, partition_of
from twinbus.spark.ledger.failovers import failovers
from twinbus.spark.ledger.folds import FOLDS
from twinbus.spark.ledger.following import LedgerStream, RunSummary
from twinbus.spark.ledger.schemas import TABLES
from twinbus.spark.ledger.staged import StagedRows, known_files, known_ids, write_rows
from twinbus.spark.ledger.tables import LedgerTables, frame_of
from twinbus.spark.store_path import AnyPath, StorePath, ledger_files, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from twinbus.spark.ledger.number_set import NumberSet

FOLLOW_S: Final = 10.0
# Smaller runs use a `brisk` session.
BRISK_BYTES: Final = 128 * 1024 * 1024

_SETTINGS: Final = {
    # Delta's timestamps; Spark's default is another Parquet type.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The driver lists thousands of files in a second; a Spark job for that takes longer.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Write the few kinds of rows of a batch at the same time instead of sorting them first.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.sql.session.timeZone": "UTC",
    # Lower-case entity names with Java: loading ICU's tables takes longer than the charges of a small batch.
    "spark.sql.icu.caseMappings.enabled": "false",
}


def run(
    spark: SparkSession,
    ledger_folders: Sequence[AnyPath | str],
    tables_folder: AnyPath | str,
    sheet: Sheet,
    *,
    clock: Clock | None = None,
    batch_bytes: int = LEDGER_BATCH_BYTES,
    progress: Callable[[str], None] | None = None,
) -> RunSummary:
    """Process new files and return a summary."""
    job = _Job(spark, DeltaFolder(path_of(tables_folder)), sheet, clock or SystemClock(), batch_bytes, progress)
    with _settings(spark), job.delta.locked():
        return job.run([path_of(each) for each in ledger_folders])


def follow(
    spark: SparkSession,
    ledger_folders: Sequence[AnyPath | str],
    tables_folder: AnyPath | str,
    sheet: Sheet,
    *,
    stopping: threading.Event,
    told: Callable[[RunSummary], None],
    every_s: float | None = FOLLOW_S,
    clock: Clock | None = None,
    batch_bytes: int = LEDGER_BATCH_BYTES,
    progress: Callable[[str], None] | None = None,
) -> RunSummary:
    """Process new files as a stream until `stopping` is set; `told` gets the summary of each batch that did
    anything."""
    job = _Job(spark, DeltaFolder(path_of(tables_folder)), sheet, clock or SystemClock(), batch_bytes, progress)
    folders = [path_of(each) for each in ledger_folders]
    with _settings(spark), job.delta.locked():
        new_files(folders, {})
        job.convert()
        job.price()
        stream = LedgerStream(spark, folders, job.delta.folder / "_stream", job.take)
        return stream.follow(every_s, stopping, told)


def is_small(ledger_folders: Sequence[AnyPath | str], tables_folder: AnyPath | str) -> bool:
    """Whether a run reads so little that it finishes before an optimising JVM has warmed up."""
    files = new_files([path_of(each) for each in ledger_folders], known_files(DeltaFolder(path_of(tables_folder))))
    return sum(files.values()) < BRISK_BYTES


def new_files(folders: Iterable[AnyPath], known: Mapping[str, int]) -> dict[str, int]:
    """Complete files that are not known, with their sizes, oldest first."""
    found: dict[str, int] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"Folder {folder} does not exist: give a ledger's folder with --ledger.")
        for path in ledger_files(folder.absolute()):
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                continue  # the broker has just deleted it
            if known.get(str(path)) != size:
                found[str(path)] = size
    return found


def still_there(files: Mapping[str, int]) -> dict[str, int]:
    """The files that still exist, from one listing per folder."""
    folders = {str(parent): parent for parent in (path_of(path).parent for path in files)}
    found = {str(path) for folder in folders.values() for path in ledger_files(folder)}
    return {path: size for path, size in files.items() if path in found}


def batches(files: Mapping[str, int], batch_bytes: int) -> Iterator[dict[str, int]]:
    """The files in groups of about this many bytes."""
    batch: dict[str, int] = {}
    total = 0
    for path, size in files.items():
        if batch and total + size > batch_bytes:
            yield batch
            batch, total = {}, 0
        batch[path] = size
        total += size
    if batch:
        yield batch


class _Job:
    """A run's work on one locked tables folder."""

    def __init__(
        self,
        spark: SparkSession,
        delta: DeltaFolder,
        sheet: Sheet,
        clock: Clock,
        batch_bytes: int,
        progress: Callable[[str], None] | None,
    ) -> None:
        self._spark = spark
        self.delta = delta
        self._sheet = sheet
        self._clock = clock
        self._batch_bytes = batch_bytes
        self._progress = progress or (lambda _: None)

    def run(self, folders: Sequence[AnyPath]) -> RunSummary:
        watch = MonotonicClock()
        begun = watch.now_ms()
        files = new_files(folders, {})
        self.convert()
        total = self.take(files)
        self.price()
        return replace(total, seconds=(watch.now_ms() - begun) / 1000)

    def price(self) -> None:
        """Recompute all charges if the price sheet changed."""
        last = self.delta.batch()
        if last.number and last.sheet != repr_of(self._sheet):
            self._progress("the price sheet changed: computing all charges again")
            self._commit(StagedRows(self._spark, self.delta.stage()), {}, {})

    def take(self, files: Mapping[str, int]) -> RunSummary:
        """Process the files that are not known."""
        watch = MonotonicClock()
        begun = watch.now_ms()
        known = known_files(self.delta)
        new = {path: size for path, size in files.items() if known.get(path) != size}
        total = RunSummary()
        for number, batch in enumerate(batches(new, self._batch_bytes), 1):
            size = sum(batch.values())
            self._progress(f"batch {number}: {len(batch):,} files, {size:,} bytes")
            total = total.plus(self._batch(batch))
        return replace(total, seconds=(watch.now_ms() - begun) / 1000)

    def _batch(self, files: Mapping[str, int]) -> RunSummary:
        rows = StagedRows(self._spark, self.delta.stage())
        rows.read(files)
        seen = known_ids(self.delta)
        records = rows.keep_new(files, seen)
        lines, quarantined = rows.lines()
        self._commit(rows, files, seen)
        return RunSummary(len(files), lines, records, lines - records - quarantined, quarantined)

    def convert(self) -> None:
        """Convert the tables of an earlier version."""
        if isinstance(self.delta.folder, StorePath):
            return  # earlier versions had no tables there
        old = migration.OldTables(self.delta.folder)
        if not old.exists:
            return
        if not self.delta.batch().number:
            self._progress("converting the tables to Delta tables")
            rows = StagedRows(self._spark, self.delta.stage())
            old.stage(self._spark, rows)
            self._commit(rows, old.files(), old.ids())
        old.remove()

    # --- from rows to tables ----------------------------------------------------------------------------------------

    def _commit(self, rows: StagedRows, files: Mapping[str, int], seen: Mapping[str, NumberSet]) -> None:
        """Write what the rows add to the tables, and commit it. Without rows only the charges are recomputed."""
        last = self.delta.batch()
        if not last.number:
            self.delta.create()
        tables = LedgerTables(self._spark, self.delta.folder) if last.number else None
        replaced: dict[str, Iterable[str] | None] = {}
        with ThreadPoolExecutor(2) as pool:
            costing = pool.submit(self._costs, rows, tables, last.sheet)
            telling = pool.submit(self._facts, rows, tables)
            replaced |= costing.result() | telling.result()
        number = last.number + 1
        if files:
            kept = still_there(known_files(self.delta))
            write_rows(self.delta, "files", [(path, size, number) for path, size in (kept | dict(files)).items()])
            write_rows(self.delta, "seen", [(run, *range_) for run, ranges in seen.items() for range_ in ranges])
            replaced |= {"files": None, "seen": None}
        self.delta.commit(number, self._clock.now_ms(), repr_of(self._sheet), replaced)

    def _costs(self, rows: StagedRows, tables: LedgerTables | None, sheet: str) -> dict[str, Iterable[str] | None]:
        """Write days, hours of connections, and charges."""
        replaced = self._folded(rows, tables, "days") | self._folded(rows, tables, "connections")
        months = {month for found in replaced.values() for month in found or ()}
        if tables is not None and sheet != repr_of(self._sheet):
            months |= tables.months("days") | tables.months("connections")
        if not months:
            return replaced
        days, hours = (self._after(tables, name, months) for name in ("days", "connections"))
        self._write(charges(days, hours, self._sheet), "charges", months)
        return {**replaced, "charges": months}

    def _facts(self, rows: StagedRows, tables: LedgerTables | None) -> dict[str, Iterable[str] | None]:
        """Write the tables without prices."""
        replaced: dict[str, Iterable[str] | None] = {}
        for name in [name for name in FOLDS if name not in ("days", "connections")]:
            replaced |= self._folded(rows, tables, name)
        if "events" in replaced:
            months = {*(replaced["events"] or ()), *(tables.months("events") if tables is not None else ())}
            self._write(failovers(self._after(tables, "events", months)), "failovers", None)
            replaced["failovers"] = None
        if rows.has("quarantine"):
            at = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
            found = rows.part("quarantine").select(
                F.col("run").alias("file"), F.lit(None).cast("bigint").alias("line"), "reason", "text",
                F.lit(at).alias("at"), F.lit(f"{at:%Y-%m}").alias("month"),
            )  # fmt: skip
            self._write(self._with_old(found, tables, "quarantine", [f"{at:%Y-%m}"]), "quarantine", [f"{at:%Y-%m}"])
            replaced["quarantine"] = [f"{at:%Y-%m}"]
        return replaced

    def _folded(self, rows: StagedRows, tables: LedgerTables | None, name: str) -> dict[str, Iterable[str] | None]:
        """Write the partitions of a table that the rows add to, and return which."""
        part, new, fold = FOLDS[name]
        if not rows.has(part):
            return {}
        days = rows.days(part)
        partitions = days if TABLES[name].partition == "day" else {day[:7] for day in days}
        found = self._with_old(new(rows.part(part)), tables, name, partitions)
        self._write(fold(_gathered(found, TABLES[name].partition, partitions)), name, partitions)
        return {name: partitions}

    def _with_old(self, new: DataFrame, tables: LedgerTables | None, name: str, partitions: Iterable[str]) -> DataFrame:
        columns = self._spark.createDataFrame([], TABLES[name].all_columns).columns
        found = new.select(*columns)
        return found if tables is None else found.unionByName(tables.partitions(name, partitions))

    def _after(self, tables: LedgerTables | None, name: str, partitions: Iterable[str]) -> DataFrame:
        """A table's partitions after the batch: those just written, and the unchanged ones."""
        staged = [str(path) for path in self.delta.staged(name)]
        new = frame_of(self._spark, name, self.delta.staging / "tables" / name, staged)
        if tables is None:
            return new
        written = {partition_of(path) for path in staged}
        return new.unionByName(tables.partitions(name, set(partitions) - written))

    def _write(self, rows: DataFrame, name: str, partitions: Iterable[str] | None) -> None:
        spec = TABLES[name]
        columns = self._spark.createDataFrame([], spec.all_columns).columns
        found = rows.select(*columns)
        writer = (found if name in FOLDS else found.coalesce(1)).write
        folder = str(self.delta.staging / "tables" / name)
        (writer.partitionBy(spec.partition) if partitions is not None else writer).parquet(folder)


def _gathered(rows: DataFrame, partition: str, partitions: Iterable[str]) -> DataFrame:
    """The rows of each partition in one task, so that it becomes one file."""
    return rows.coalesce(1) if len(set(partitions)) == 1 else rows.repartition(partition)


def repr_of(sheet: Sheet) -> str:
    """A sheet as text, its name first; a different text means different charges."""
    kinds = ",".join(sorted(sheet.free_kinds))
    return (
        f"{sheet.name} {sheet.currency} {sheet.base_per_hour} {sheet.operations} {sheet.connections} "
        f"{sheet.step_bytes} {kinds} {sheet.refused} {sheet.bandwidth}"
    )


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    """Apply our settings during the block, and restore the session's afterwards."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    try:
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
