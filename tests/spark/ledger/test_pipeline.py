"""Files into tables, exactly once: compared with a model in plain Python, with repeats, late files, bad lines,
kills."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.listener import StreamingQueryListener

from tests.spark.ledger.made import DAY_MS, START_MS, Writer, make
from tests.spark.ledger.model import Model
from twinbus.errors import ConfigError, StoreError, StoreLockedError
from twinbus.ledger.prices import GIGABYTE, Sheet, Tier, Tiers
from twinbus.ledger.records import ConnectionsRecord, Operations, decode, encode
from twinbus.ledger.words import LedgerSource
from twinbus.spark.ledger import delta, pipeline, schemas
from twinbus.spark.ledger.delta import DeltaFolder
from twinbus.spark.ledger.pipeline import RunSummary, run
from twinbus.spark.ledger.staged import known_files
from twinbus.spark.ledger.tables import LedgerTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # a dozen small Spark jobs each, on a machine that may be busy

STANDARD = Sheet.load("standard")
TABLES = ("operations", "charges", "failovers", "backlog", "latency", "quarantine")


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def check(spark: SparkSession, folder: Path, model: Model) -> None:
    """Every table equals the model's."""
    tables = LedgerTables(spark, folder)
    operations = rows(tables.operations)
    assert {row[:7]: row[7:] for row in operations} == model.operations()
    assert len(operations) == len(model.operations())
    assert {row[:3]: row[3:] for row in rows(tables.backlog)} == model.backlog()
    latency = {row[:4]: (*row[4:7], tuple(row[7])) for row in rows(tables.latency)}
    assert latency == model.latency()
    assert Counter(rows(tables.failovers)) == Counter(model.failovers())
    assert Counter((row[0], row[2]) for row in rows(tables.quarantine)) == Counter(model.quarantine)
    charges = rows(tables.charges)
    assert {(row[0], *row[3:7]): row[7:] for row in charges} == model.charges()
    assert len(charges) == len(model.charges())
    assert {row[1:3] for row in charges} <= {(model.sheet.name, model.sheet.currency)}


def everything(spark: SparkSession, folder: Path) -> dict[str, Counter[str]]:
    tables = LedgerTables(spark, folder)
    return {name: Counter(map(str, rows(getattr(tables, name)))) for name in TABLES}


def ledger(folder: Path, count: int = 100, run_id: str = "ab", at_ms: int = START_MS) -> Path:
    """One file of plain operations."""
    folder.mkdir(exist_ok=True)
    writer = Writer(random.Random(1), LedgerSource.BROKER, run_id)
    lines = []
    while len(lines) < count:
        record = writer.record(at_ms + 1000 * len(lines))
        if isinstance(record, Operations):
            lines.append(encode(record))
    path = folder / f"broker-{run_id}.jsonl"
    path.write_text("".join(lines))
    return path


@pytest.mark.timeout(600)
@settings(
    max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), derandomize=True
)
@given(seed=st.integers(0, 2**32))
def test_the_tables_are_what_the_model_says(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    ledger, tables = tmp_path_factory.mktemp("ledger"), tmp_path_factory.mktemp("tables")
    first, second = make(ledger, seed)
    aside = [path.rename(path.with_suffix(".later")) for path in second]
    done = run(spark, [ledger], tables, STANDARD)
    model = Model(first, STANDARD)
    assert (done.files, done.lines, done.records) == (len(first), model.lines, len(model.records))
    assert done.quarantined == len(model.quarantine)
    assert done.repeated == model.lines - len(model.records) - len(model.quarantine)
    for path in aside:
        path.rename(path.with_suffix(".jsonl"))
    again = run(spark, [ledger], tables, STANDARD)
    both = Model([*first, *second], STANDARD)
    assert done.plus(again).records == len(both.records)
    assert done.plus(again).quarantined == len(both.quarantine)
    check(spark, tables, both)


def test_nothing_new_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    ledger(tmp_path / "ledger")
    run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    before = sorted(str(path) for path in (tmp_path / "tables").rglob("*"))
    done = run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    assert (done.files, done.lines, done.records) == (0, 0, 0)
    assert sorted(str(path) for path in (tmp_path / "tables").rglob("*")) == before


def test_each_run_adds_to_the_months_it_tells_of(spark: SparkSession, tmp_path: Path) -> None:
    folder, tables = tmp_path / "ledger", tmp_path / "tables"
    times = {"ab": START_MS, "cd": START_MS + 3_600_000, "ef": START_MS + 40 * DAY_MS, "0a": START_MS}
    files = []
    for run_id, at_ms in times.items():
        files.append(ledger(folder, 60, run_id, at_ms))
        connected = ConnectionsRecord(
            id=f"c{run_id}-1",
            start_ms=at_ms,
            end_ms=at_ms + 60_000,
            source=LedgerSource.BROKER,
            namespace="contoso",
            entity="",
            peak=7,
        )
        files[-1].write_text(files[-1].read_text() + encode(connected))
        done = run(spark, [folder], tables, STANDARD)
        assert (done.records, done.repeated, done.quarantined) == (61, 0, 0)
        check(spark, tables, Model(files, STANDARD))
    assert LedgerTables(spark, tables).months("days") == LedgerTables(spark, tables).months("charges")
    assert len(LedgerTables(spark, tables).months("days")) == 2


@pytest.mark.parametrize("number", [1, 2])
def test_tables_of_earlier_versions_are_converted(spark: SparkSession, tmp_path: Path, number: int) -> None:
    """`format2.zip` is from the last version with that format: ledger files, and the tables of two runs over them."""
    with zipfile.ZipFile(Path(__file__).with_name("format2.zip")) as archive:
        archive.extractall(tmp_path)
    folder, tables = tmp_path / "ledger", tmp_path / "tables"
    if number == 1:
        # That format kept no daily sums.
        commit = max((tables / "commits").glob("*.json"))
        told = json.loads(commit.read_text()) | {"format": 1}
        del told["days"]
        commit.write_text(json.dumps(told))
        shutil.rmtree(tables / "days")
    with pytest.raises(StoreError, match="earlier version"):
        LedgerTables(spark, tables)
    files = sorted(folder.glob("*.jsonl"))
    old = Model(files, STANDARD)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(spark, [empty], tables, STANDARD).files == 0
    assert sorted(path.name for path in tables.iterdir()) == sorted([*schemas.TABLES, "batch.json", "lock"])
    found = rows(LedgerTables(spark, tables).quarantine)
    assert len(found) == len(old.quarantine)
    old.quarantine = [(row[0], row[2]) for row in found]  # the files were elsewhere, and a reason had other words
    check(spark, tables, old)
    # Every id is known: the same files from here add only their bad lines.
    again = run(spark, [folder], tables, STANDARD)
    assert (again.records, again.quarantined) == (0, len(old.quarantine))


def test_a_file_that_comes_again_adds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    file = ledger(tmp_path / "ledger")
    run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    before = everything(spark, tmp_path / "tables")
    shutil.copy(file, file.with_name("copy.jsonl"))
    # And one with half of it and a new record in the middle, in another folder.
    other = ledger(tmp_path / "other", 120, at_ms=START_MS + DAY_MS)
    lines = file.read_text().splitlines(keepends=True)
    new = ledger(tmp_path / "third", 1, "cd").read_text()
    other.write_text("".join([*lines[:50], new, *lines[50:60]]))
    done = run(spark, [tmp_path / "ledger", tmp_path / "other"], tmp_path / "tables", STANDARD)
    assert (done.files, done.lines, done.records, done.repeated) == (2, 161, 1, 160)
    third = run(spark, [tmp_path / "third"], tmp_path / "tables", STANDARD)
    assert (third.records, third.repeated) == (0, 1)
    after = everything(spark, tmp_path / "tables")
    assert sum(after["operations"].values()) - sum(before["operations"].values()) in (0, 1)
    check(spark, tmp_path / "tables", Model([file, other], STANDARD))


def test_records_of_other_types_come_again_too(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    writer = Writer(random.Random(2), LedgerSource.SYPHON, "ab")
    made = [writer.record(START_MS + 1000 * at) for at in range(40)]
    lines = [encode(each) for each in made if not isinstance(each, Operations)]
    (tmp_path / "ledger" / "one.jsonl").write_text("".join(lines))
    (tmp_path / "ledger" / "two.jsonl").write_text("".join([*lines[:3], "nonsense\n", "nonsense\n"]))
    done = run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    assert (done.records, done.repeated, done.quarantined) == (len(lines), 3, 2)
    check(spark, tmp_path / "tables", Model(sorted((tmp_path / "ledger").iterdir()), STANDARD))


def test_following_takes_what_comes_until_it_is_told_to_stop(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    ledger(folder, count=30)
    stopping = threading.Event()
    turns: list[RunSummary] = []

    def told(summary: RunSummary) -> None:
        turns.append(summary)
        if len(turns) == 1:
            ledger(folder, count=20, run_id="cd", at_ms=START_MS + DAY_MS)
        else:
            stopping.set()

    total = pipeline.follow(spark, [folder], tmp_path / "tables", STANDARD, stopping=stopping, told=told, every_s=0.01)
    assert [each.records for each in turns] == [30, 20]
    assert (total.files, total.records) == (2, 50)
    assert (
        LedgerTables(spark, tmp_path / "tables").operations.selectExpr("count(DISTINCT date(minute))").first()[0] == 2
    )


class Listener(StreamingQueryListener):
    """Collects what Spark reports of its queries."""

    def __init__(self) -> None:
        self.rows: list[tuple[str | None, int]] = []

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        self.rows.append((event.progress.name, event.progress.numInputRows))

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


def test_a_stream_goes_on_whatever_it_finds(spark: SparkSession, tmp_path: Path) -> None:
    """An earlier run, folders with odd names, another ledger, a lost checkpoint, a failure: each record counts once."""
    first, second = tmp_path / "größe [a] {b}*?", tmp_path / "second"
    tables = tmp_path / "tables"
    ledger(first, 30)
    (first / "below").mkdir()
    (first / "below" / "not-ours.jsonl").write_text("nonsense\n")
    assert run(spark, [first], tables, STANDARD).records == 30
    ledger(first, 20, "cd", START_MS + DAY_MS)
    ledger(second, 10, "ef")
    listener = Listener()
    spark.streams.addListener(listener)

    def all_there_is(*folders: Path) -> int:
        total = pipeline.follow(
            spark, folders, tables, STANDARD, stopping=threading.Event(), told=lambda _: None, every_s=None
        )
        return total.records

    try:
        assert all_there_is(first) == 20
        assert all_there_is(first, second) == 10
        shutil.rmtree(tables / "_stream")
        ledger(second, 5, "0a")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeltaFolder, "commit", dying)
            with pytest.raises(ZeroDivisionError):
                all_there_is(first, second)
        assert all_there_is(second, first) == 5
        assert all_there_is(first, second) == 0
    finally:
        spark.streams.removeListener(listener)
    files = [path for folder in (first, second) for path in sorted(folder.glob("*.jsonl"))]
    check(spark, tables, Model(files, STANDARD))
    # One row for each file that Spark found, including the one below.
    assert listener.rows[0] == ("twinbus-ledger", 3)


def dying(*arguments: Any) -> None:
    raise ZeroDivisionError


def test_open_files_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    ledger(tmp_path / "ledger").rename(tmp_path / "ledger" / "broker.open")
    assert run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD).files == 0
    assert [getattr(LedgerTables(spark, tmp_path / "tables"), name).count() for name in TABLES] == [0] * 6


def test_the_columns_are_there_before_the_first_run(spark: SparkSession, tmp_path: Path) -> None:
    ledger(tmp_path / "ledger")
    for _ in range(2):
        tables = LedgerTables(spark, tmp_path / "tables")
        for name in TABLES:
            wanted = spark.createDataFrame([], getattr(schemas, name.upper())).schema
            found = getattr(tables, name).schema
            assert [(each.name, each.dataType) for each in found] == [(each.name, each.dataType) for each in wanted]
        run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)


def test_another_sheet_prices_everything_anew(spark: SparkSession, tmp_path: Path) -> None:
    file = ledger(tmp_path / "ledger")
    run(spark, [tmp_path / "ledger"], tmp_path / "tables", Sheet.load("free"))
    assert LedgerTables(spark, tmp_path / "tables").charges.where("amount <> 0").count() == 0
    assert LedgerTables(spark, tmp_path / "tables").sheet == "free"
    run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    check(spark, tmp_path / "tables", Model([file], STANDARD))


def test_bandwidth_is_charged_at_every_stage(spark: SparkSession, tmp_path: Path) -> None:
    file = ledger(tmp_path / "ledger")
    tiers = Tiers(GIGABYTE, (Tier(100_000, Decimal("0.5")), Tier(None, Decimal(2))))
    carried = replace(STANDARD, name="carried", bandwidth=tiers)
    run(spark, [tmp_path / "ledger"], tmp_path / "tables", carried)
    charges = LedgerTables(spark, tmp_path / "tables").charges.where("stage = 'bandwidth'")
    (total,) = charges.selectExpr("sum(amount) as amount", "sum(units) as units").collect()
    sizes = sum(
        record.bytes
        for record in map(decode, file.read_bytes().splitlines())
        if isinstance(record, Operations) and carried.billed(record.kind, record.outcome)
    )
    assert (total["units"], total["amount"]) == (sizes, carried.bandwidth_cost(0, sizes))
    assert total["amount"] > 0


def test_many_runs_leave_few_files(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "TABLES_VACUUM_BATCHES", 4)
    monkeypatch.setattr(delta, "TABLES_KEPT_HOURS", 0)
    free = Sheet.load("free")
    files = []
    for number in range(4):
        files.append(ledger(tmp_path / "ledger", 20, f"r{number}", START_MS + number * 60_000))
        run(spark, [tmp_path / "ledger"], tmp_path / "tables", free)
    check(spark, tmp_path / "tables", Model(files, free))
    folder = DeltaFolder(tmp_path / "tables")
    for name in schemas.TABLES:
        # One file for each day or month, and no replaced ones.
        assert len(folder.files(name)) <= 1
        found = [path for path in (tmp_path / "tables" / name).rglob("*.parquet") if "_delta_log" not in str(path)]
        assert sorted(map(str, found)) == folder.files(name)
    shutil.copy(files[1], tmp_path / "ledger" / "copy.jsonl")
    done = run(spark, [tmp_path / "ledger"], tmp_path / "tables", free)
    assert (done.records, done.repeated) == (0, 20)


def test_other_readers_of_delta_tables_read_every_table(spark: SparkSession, tmp_path: Path) -> None:
    first, second = make(tmp_path, 11)
    place = tmp_path / "die Tabellen für uns"
    run(spark, [tmp_path], place, STANDARD)
    tables = LedgerTables(spark, place)
    database = duckdb.connect()
    database.sql("SET timezone = 'UTC'")
    for name in schemas.TABLES:
        ours = tables.partitions(name, None)
        wanted = Counter(map(_plain, ours.collect()))
        assert wanted
        table = DeltaTable(str(place / name))
        theirs = table.to_pyarrow_table().select(ours.columns)
        assert Counter(_plain(row.values()) for row in theirs.to_pylist()) == wanted
        # `deltalake` reads the Delta log, DuckDB the files.
        database.register(name, table.to_pyarrow_dataset())
        files = [str(place / name / path) for path in table.get_add_actions().column("path").to_pylist()]
        reading = database.sql(
            "SELECT * FROM read_parquet(?, hive_partitioning = true, hive_types_autocast = false)", params=[files]
        )
        for relation in (database.table(name), reading):
            assert Counter(map(_plain, relation.select(*ours.columns).fetchall())) == wanted
    ((amount,),) = database.sql("SELECT sum(amount) FROM charges").fetchall()
    assert amount == sum(each[2] for each in Model([*first, *second], STANDARD).charges().values())


def _plain(row: Iterable[Any]) -> tuple[str, ...]:
    """A row's values as text: readers differ in time zones and in lists or tuples."""
    return tuple(str(each.astimezone(UTC) if isinstance(each, datetime) else each) for each in row)


def test_a_batch_that_is_half_committed_is_completed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [ledger(tmp_path / "ledger", 40, "ab")]
    run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    files.append(ledger(tmp_path / "ledger", 40, "cd"))
    left = 2
    commit = DeltaTable.create_write_transaction

    def dying(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        commit(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", dying)
        with pytest.raises(KeyboardInterrupt):
            run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    assert run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD).files == 0
    check(spark, tmp_path / "tables", Model(files, STANDARD))
    # Another run changes nothing.
    before = DeltaTable(tmp_path / "tables" / "operations").version()
    run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    assert DeltaTable(tmp_path / "tables" / "operations").version() == before


def test_batches_are_bounded() -> None:
    files = {"a": 3, "b": 3, "c": 9, "d": 1, "e": 1}
    assert list(pipeline.batches(files, 6)) == [{"a": 3, "b": 3}, {"c": 9}, {"d": 1, "e": 1}]


def test_one_run_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    with DeltaFolder(tmp_path / "tables").locked(), pytest.raises(StoreLockedError, match="Another run"):
        run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    with pytest.raises(ConfigError, match="does not exist"):
        run(spark, [tmp_path / "nowhere"], tmp_path / "tables", STANDARD)


def test_summaries_add_up() -> None:
    one = RunSummary(1, 10, 7, 2, 1, 0.5)
    assert one.plus(one) == RunSummary(2, 20, 14, 4, 2, 1.0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("committing", [False, True], ids=["at work", "committing"])
def test_a_run_that_is_killed_is_finished_by_the_next(spark: SparkSession, tmp_path: Path, committing: bool) -> None:
    """Killed in the middle of the second batch's work, or as soon as its commits begin."""
    files = [ledger(tmp_path / "ledger", 40, f"r{number}", START_MS + number * DAY_MS) for number in range(4)]
    command = [sys.executable, "-m", "twinbus.spark.ledger.job", "--ledger", str(tmp_path / "ledger")]
    command += ["--tables", str(tmp_path / "tables"), "--master", "local[2]", "--batch-bytes", "1"]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        folder = DeltaFolder(tmp_path / "tables")
        deadline = time.monotonic() + 200
        while folder.batch().number < (2 if committing else 1) or not (folder.staging / "rows").exists():
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # A batch whose commits had begun is completed; anything else is not visible.
    with folder.locked():
        committed = known_files(folder)
        assert len(committed) == folder.batch().number
    assert 1 <= len(committed) < 4
    check(spark, tmp_path / "tables", Model(map(Path, sorted(committed)), STANDARD))
    done = run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    assert done.files == 4 - len(committed)
    check(spark, tmp_path / "tables", Model(files, STANDARD))
