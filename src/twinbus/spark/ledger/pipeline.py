"""The ledger pipeline: new ledger files into the tables, exactly once.

    summary = run(spark, ["data/ledger"], "data/tables", Sheet.load("standard"))

Rules:
- A run takes the files that no commit names, in batches; each batch is one commit. Killed at any moment, it goes on
  where the last commit left off, and what was not committed never shows.
- Records are known by their ids: a file that comes twice, under whatever name, adds nothing, and late ones are welcome.
- Charges are computed anew for the months that got something; episodes for the entities that got events.
- Small parts are merged into larger ones, so that reading does not get slower with the number of runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from twinbus.clock import Clock, MonotonicClock, SystemClock
from twinbus.errors import ConfigError
from twinbus.ledger.files import complete_files
from twinbus.ledger.prices import Sheet
from twinbus.limits import LEDGER_BATCH_BYTES, TABLES_MERGED_PARTS
from twinbus.spark.ledger import ids
from twinbus.spark.ledger.batch import Batch, Outcome
from twinbus.spark.ledger.catalog import Catalog, Part, State
from twinbus.spark.ledger.charges import charges
from twinbus.spark.ledger.failovers import failovers
from twinbus.spark.ledger.lines import KEYS
from twinbus.spark.ledger.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLLOW_S: Final = 10.0
# Below this the session is opened `brisk`.
BRISK_BYTES: Final = 128 * 1024 * 1024

_SETTINGS: Final = {
    # Thousands of files are listed by the driver in a second; a job for it takes longer.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # The broker removes its oldest files; one that goes while it is read has nothing to add.
    "spark.sql.files.ignoreMissingFiles": "true",
    # The few kinds of rows of a batch are written side by side instead of sorted first.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # A file's minute fills a fraction of a task; opening it costs next to nothing.
    "spark.sql.files.openCostInBytes": "262144",
    "spark.sql.session.timeZone": "UTC",
}


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run did. Every line is a new record, a repeated one, or in quarantine."""

    files: int = 0
    lines: int = 0
    records: int = 0
    repeated: int = 0
    quarantined: int = 0
    seconds: float = 0.0

    def plus(self, other: RunSummary) -> RunSummary:
        return RunSummary(*(a + b for a, b in zip(_values(self), _values(other), strict=True)))


def _values(summary: RunSummary) -> list[Any]:
    return list(asdict(summary).values())


def run(
    spark: SparkSession,
    ledger_folders: Sequence[Path | str],
    tables_folder: Path | str,
    sheet: Sheet,
    *,
    clock: Clock | None = None,
    batch_bytes: int = LEDGER_BATCH_BYTES,
    progress: Callable[[str], None] | None = None,
) -> RunSummary:
    """Process what is new, and return what that was."""
    job = _Job(spark, Catalog(Path(tables_folder)), sheet, clock or SystemClock(), batch_bytes, progress)
    with job.catalog.locked(), _settings(spark):
        return job.run([Path(each) for each in ledger_folders])


def follow(
    spark: SparkSession,
    ledger_folders: Sequence[Path | str],
    tables_folder: Path | str,
    sheet: Sheet,
    *,
    stopping: threading.Event,
    told: Callable[[RunSummary], None],
    every_s: float = FOLLOW_S,
    clock: Clock | None = None,
    batch_bytes: int = LEDGER_BATCH_BYTES,
    progress: Callable[[str], None] | None = None,
) -> RunSummary:
    """Process what is new again and again, until `stopping` is set; `told` gets what each turn did, if anything."""
    job = _Job(spark, Catalog(Path(tables_folder)), sheet, clock or SystemClock(), batch_bytes, progress)
    total = RunSummary()
    with job.catalog.locked(), _settings(spark):
        while not stopping.is_set():
            summary = job.run([Path(each) for each in ledger_folders])
            if summary.files:
                told(summary)
            total = total.plus(summary)
            stopping.wait(every_s)
    return total


def is_small(ledger_folders: Sequence[Path | str], tables_folder: Path | str) -> bool:
    """Whether a run has so little to read that it is done before a JVM that compiles well has warmed up."""
    known = Catalog(Path(tables_folder))
    files = new_files([Path(each) for each in ledger_folders], known.files(known.state().parts))
    return sum(files.values()) < BRISK_BYTES


def new_files(folders: Iterable[Path], known: Mapping[str, int]) -> dict[str, int]:
    """Complete files that are not known, with their sizes, the oldest first."""
    found: dict[str, int] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"There is no folder {folder}: give a ledger's folder with --ledger.")
        for path in complete_files(folder.absolute()):
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                continue  # the broker removed it just now
            if known.get(str(path)) != size:
                found[str(path)] = size
    return found


def batches(files: Mapping[str, int], batch_bytes: int) -> Iterator[dict[str, int]]:
    """The files in groups of about so many bytes."""
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
    """A run's work on one tables folder, which it has to itself."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        sheet: Sheet,
        clock: Clock,
        batch_bytes: int,
        progress: Callable[[str], None] | None,
    ) -> None:
        # Does the work.
        self._spark = spark
        # The folder.
        self.catalog = catalog
        # What things cost.
        self._sheet = sheet
        # The time of day, for commits and quarantine.
        self._clock = clock
        # How much is one commit.
        self._batch_bytes = batch_bytes
        # Told what goes on.
        self._progress = progress or (lambda _: None)

    def run(self, folders: Sequence[Path]) -> RunSummary:
        watch = MonotonicClock()
        begun = watch.now_ms()
        state = self.catalog.state()
        files = new_files(folders, self.catalog.files(state.parts))
        total = RunSummary()
        for number, batch in enumerate(batches(files, self._batch_bytes), 1):
            size = sum(batch.values())
            self._progress(f"batch {number}: {len(batch):,} files, {size:,} bytes")
            state, outcome = self._batch(state, batch)
            total = total.plus(
                RunSummary(len(batch), outcome.lines, outcome.records, outcome.repeated, outcome.quarantined)
            )
            state = self._merge(state)
        if state.version and state.sheet != repr_of(self._sheet):
            self._progress("another price sheet: all charges anew")
            state = self._reprice(state)
        self.catalog.clean(self._clock.now_ms())
        return replace(total, seconds=(watch.now_ms() - begun) / 1000)

    def _batch(self, state: State, files: Mapping[str, int]) -> tuple[State, Outcome]:
        name = self.catalog.begin(state)
        before = Tables(self._spark, self.catalog.folder, state)
        outcome = Batch(self._spark, self.catalog, before, name, self._clock.now_ms()).run(files)
        after = replace(state, parts=(*state.parts, outcome.part))
        tables = Tables(self._spark, self.catalog.folder, after)
        if state.sheet and state.sheet != repr_of(self._sheet):
            after = self._charged(after, name, tables, None, None)
        elif outcome.first_ms is not None:
            after = self._charged(after, name, tables, outcome.first_ms, outcome.last_ms)
        after = replace(after, sheet=repr_of(self._sheet))
        if "failover" in outcome.part.tables:
            after = self._told(after, name, tables, outcome.part)
        return self.catalog.commit(after, self._clock.now_ms()), outcome

    def _reprice(self, state: State) -> State:
        name = self.catalog.begin(state)
        after = self._charged(state, name, Tables(self._spark, self.catalog.folder, state), None, None)
        return self.catalog.commit(replace(after, sheet=repr_of(self._sheet)), self._clock.now_ms())

    def _charged(self, state: State, name: str, tables: Tables, first: int | None, last: int | None) -> State:
        """The charges of the months from one moment to another, computed anew; None: of all."""
        operations, connections = tables.billed, tables.connections
        kept: dict[str, str] = {}
        if first is not None and last is not None:
            low, high = month_start(first), month_start(last, 1)
            within = (F.col("minute") >= F.lit(low)) & (F.col("minute") < F.lit(high))
            operations, connections = operations.where(within), connections.where(within)
            kept = {
                month: folder
                for month, folder in state.charges.items()
                if not f"{low:%Y-%m}" <= month < f"{high:%Y-%m}"
            }
        folder = self.catalog.folder / "charges" / name
        charges(operations, connections, self._sheet).coalesce(1).write.partitionBy("month").parquet(str(folder))
        made = {each.name.partition("=")[2]: f"charges/{name}/{each.name}" for each in folder.glob("month=*")}
        return replace(state, charges=kept | made)

    def _told(self, state: State, name: str, tables: Tables, part: Part) -> State:
        """The episodes of entities that have new events, computed anew."""
        new = Tables(self._spark, self.catalog.folder, State(parts=(part,))).records("failover")
        concerned = new.select("namespace", "entity").distinct()
        found = failovers(tables.records("failover").join(concerned, ["namespace", "entity"], "left_semi"))
        if state.failovers is not None:
            found = found.unionByName(tables.failovers.join(concerned, ["namespace", "entity"], "left_anti"))
        folder = f"failovers/{name}"
        found.coalesce(1).write.parquet(str(self.catalog.folder / folder))
        return replace(state, failovers=folder)

    # --- merging ----------------------------------------------------------------------------------------------------

    def _merge(self, state: State) -> State:
        """Make one part of many of the same level, again and again."""
        while True:
            levels = sorted({part.level for part in state.parts})
            many = [
                (level, parts)
                for level in levels
                if len(parts := [part for part in state.parts if part.level == level]) >= TABLES_MERGED_PARTS
            ]
            if not many:
                return state
            level, parts = many[0]
            self._progress(f"merging {len(parts)} parts")
            name = self.catalog.begin(state)
            part = self._merged(name, level + 1, parts)
            rest = tuple(each for each in state.parts if each not in parts)
            state = self.catalog.commit(replace(state, parts=(*rest, part)), self._clock.now_ms())

    def _merged(self, name: str, level: int, parts: Sequence[Part]) -> Part:
        tables = Tables(self._spark, self.catalog.folder, State(parts=tuple(parts)))
        folder = self.catalog.part(name)
        there = {table for part in parts for table in part.tables}
        if "operations" in there:
            sums = tables.sums.groupBy("minute", *KEYS).agg(
                *(F.sum(each).alias(each) for each in ("count", "bytes", "units", "lines"))
            )
            found = sums.withColumn("file", F.lit(None).cast("string"))
            found.repartitionByRange("minute").sortWithinPartitions("minute").write.parquet(str(folder / "operations"))
        if "seen" in there:
            ids.joined(tables.seen).coalesce(1).write.parquet(str(folder / "seen"))
        for kind in sorted(there - {"operations", "seen"}):
            self._concatenated(tables.records(kind), folder / "records" / f"type={kind}")
        gone = self.catalog.files(parts)
        return self.catalog.complete(name, level, {path: size for path, size in gone.items() if Path(path).exists()})

    def _concatenated(self, records: DataFrame, folder: Path) -> None:
        records.repartitionByRange("start_ms").sortWithinPartitions("start_ms").write.parquet(str(folder))


def repr_of(sheet: Sheet) -> str:
    """All of a sheet as a text, the name first: another text, other charges."""
    kinds = ",".join(sorted(sheet.free_kinds))
    return (
        f"{sheet.name} {sheet.currency} {sheet.base_per_hour} {sheet.operations} {sheet.connections} "
        f"{sheet.step_bytes} {kinds} {sheet.refused}"
    )


def month_start(ms: int, later: int = 0) -> datetime:
    """The start of a moment's month, or of one that is so many months later."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    months = moment.year * 12 + moment.month - 1 + later
    if months >= 10_000 * 12:
        return datetime.max.replace(tzinfo=UTC)
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    """Our settings while the block runs; the session's own afterwards."""
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
