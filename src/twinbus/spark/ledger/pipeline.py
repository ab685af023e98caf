"""The ledger pipeline: new ledger files into the tables, exactly once.

    summary = run(spark, ["data/ledger"], "data/tables", Sheet.load("standard"))

Rules:
- A run takes the files that no commit names, in batches; each batch is one commit. Killed at any moment, it goes on
  where the last commit left off, and what was not committed never shows.
- Records are known by their ids: a file that comes twice, under whatever name, adds nothing, and late ones are welcome.
- Charges are computed anew for the months that got something; episodes for the entities that got events.
- A small batch in a session that has just begun is what matters to those who wait, and there the time goes into making
  and compiling queries, each by one core: queries that do not need each other are made side by side.
- Small parts are merged into larger ones, so that reading does not get slower with the number of runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from twinbus.clock import Clock, MonotonicClock, SystemClock
from twinbus.errors import ConfigError
from twinbus.ledger.files import complete_files
from twinbus.ledger.prices import Sheet
from twinbus.ledger.records import ConnectionPeak
from twinbus.limits import LEDGER_BATCH_BYTES, TABLES_MERGED_PARTS
from twinbus.spark.ledger import ids
from twinbus.spark.ledger.batch import Batch, Counted, Outcome
from twinbus.spark.ledger.catalog import Catalog, Part, State
from twinbus.spark.ledger.charges import charges, daily, hourly, month, together
from twinbus.spark.ledger.failovers import failovers
from twinbus.spark.ledger.lines import KEYS
from twinbus.spark.ledger.months import EVER, Months
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
    # Names of entities in lower case by Java: loading ICU's tables for it takes longer than a small batch's charges.
    "spark.sql.icu.caseMappings.enabled": "false",
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
        self._spark = spark
        self.catalog = catalog
        self._sheet = sheet
        # The time of day, for commits and quarantine.
        self._clock = clock
        self._batch_bytes = batch_bytes
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
        batch = Batch(self._spark, self.catalog, self._tables(state), name, self._clock.now_ms())
        batch.stage(files)
        # Nearly always what is staged is the part, and what it costs can be told while its ids are looked up.
        with ThreadPoolExecutor(1) as other:
            looking_up = other.submit(batch.look_up)
            counted = batch.count()
            after = None if batch.is_odd else self._costs(state, name, batch.sums, batch.connections, counted)
            repeated = looking_up.result()
        if after is None or repeated:
            self.catalog.discard(name, "days", "charges")
            outcome = batch.sort_out(counted, repeated=repeated)
            new = self._tables(State(parts=(outcome.part,)))
            after = self._costs(state, name, new.sums, new.records(ConnectionPeak.type), outcome)
        else:
            outcome = batch.accept(counted)
        after = replace(after, parts=(*state.parts, outcome.part))
        if "failover" in outcome.part.tables:
            after = self._told(after, name, outcome.part)
        return self.catalog.commit(after, self._clock.now_ms()), outcome

    def _reprice(self, state: State) -> State:
        name = self.catalog.begin(state)
        after = self._charged(state, name, EVER, self._days(state), self._tables(state).records(ConnectionPeak.type))
        return self.catalog.commit(replace(after, sheet=repr_of(self._sheet)), self._clock.now_ms())

    def _tables(self, state: State) -> Tables:
        return Tables(self._spark, self.catalog.folder, state)

    def _days(self, state: State) -> DataFrame:
        """The days of all parts; made of their sums where none were kept."""
        tables = self._tables(state)
        return tables.days if state.days else daily(tables.sums)

    def _costs(
        self, state: State, name: str, sums: DataFrame, connections: DataFrame, told: Counted | Outcome
    ) -> State:
        """The state with what new sums and connections add to days and charges. All charges are computed anew where
        the sheet is another one."""
        after = replace(state, sheet=repr_of(self._sheet))
        repriced = bool(state.sheet) and state.sheet != after.sheet
        connections = connections.unionByName(self._tables(state).records(ConnectionPeak.type))
        if told.first_ms is None or told.last_ms is None:
            return self._charged(after, name, EVER, self._days(state), connections) if repriced else after
        span = Months(told.first_ms, told.last_ms)
        if not state.days:  # before the first batch, and in tables that kept none
            span, sums = EVER, sums.unionByName(self._tables(state).sums)
        days = daily(sums)
        if known := span.of(state.days):
            days = together(days, self._tables(State(days=known)).days)
        # The charges do not wait for the days to be written: making a query takes longer than making a few days twice.
        with ThreadPoolExecutor(1) as other:
            writing = other.submit(self._by_month, days.withColumn("month", month(F.col("date"))), "days", name)
            if repriced:
                rest = self._tables(State(days=span.others(state.days))).days
                after = self._charged(after, name, EVER, days.unionByName(rest), connections)
            else:
                after = self._charged(after, name, span, days, connections)
            return replace(after, days=span.others(state.days) | writing.result())

    def _charged(self, state: State, name: str, span: Months, days: DataFrame, connections: DataFrame) -> State:
        """The charges of these months, computed anew."""
        hours = hourly(connections.where(F.col("start_ms").between(span.first_ms, span.last_ms)))
        made = self._by_month(charges(days, hours, self._sheet), "charges", name)
        return replace(state, charges=span.others(state.charges) | made)

    def _by_month(self, rows: DataFrame, place: str, name: str) -> dict[str, str]:
        """Rows with a `month` written to a folder for each, and these folders."""
        folder = self.catalog.folder / place / name
        rows.coalesce(1).write.partitionBy("month").parquet(str(folder))
        return {each.name.partition("=")[2]: f"{place}/{name}/{each.name}" for each in folder.glob("month=*")}

    def _told(self, state: State, name: str, part: Part) -> State:
        """The episodes of entities that have new events, computed anew."""
        new = self._tables(State(parts=(part,))).records("failover")
        concerned = new.select("namespace", "entity").distinct()
        tables = self._tables(state)
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
        tables = self._tables(State(parts=tuple(parts)))
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
        f"{sheet.step_bytes} {kinds} {sheet.refused} {sheet.bandwidth}"
    )


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
