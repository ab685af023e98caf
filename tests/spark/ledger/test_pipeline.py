"""Files into tables, exactly once: beside a model in plain Python, over repeats, late files, bad lines and kills."""

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
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.spark.ledger.made import DAY_MS, START_MS, Writer, make
from tests.spark.ledger.model import Model
from twinbus.clock import SteppedClock
from twinbus.errors import ConfigError, StoreLockedError
from twinbus.ledger.prices import GIGABYTE, Sheet, Tier, Tiers
from twinbus.ledger.records import ConnectionPeak, Operations, decode, encode
from twinbus.ledger.words import LedgerSource
from twinbus.limits import TABLES_KEPT_MS
from twinbus.spark.ledger import pipeline, schemas
from twinbus.spark.ledger.catalog import Catalog
from twinbus.spark.ledger.pipeline import RunSummary, run
from twinbus.spark.ledger.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # a dozen small Spark jobs each, on a machine that may be busy

STANDARD = Sheet.load("standard")
TABLES = ("operations", "charges", "failovers", "backlog", "latency", "quarantine")


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def check(spark: SparkSession, folder: Path, model: Model) -> None:
    """Every table is what the model says."""
    tables = Tables(spark, folder)
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
    tables = Tables(spark, folder)
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
        connected = ConnectionPeak(
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
    state = Catalog(tables).state()
    assert set(state.days) == set(state.charges)
    assert len(state.days) == 2


def test_tables_without_days_get_them(spark: SparkSession, tmp_path: Path) -> None:
    folder, tables = tmp_path / "ledger", tmp_path / "tables"
    files = [ledger(folder, 60, "ab"), ledger(folder, 60, "cd", START_MS + 40 * DAY_MS)]
    run(spark, [folder], tables, STANDARD)
    # As the first version of the format wrote it.
    commit = next((tables / "commits").glob("*.json"))
    told = json.loads(commit.read_text()) | {"format": 1}
    del told["days"]
    commit.write_text(json.dumps(told))
    shutil.rmtree(tables / "days")
    dearer = replace(STANDARD, name="dearer", base_per_hour=Decimal("0.5"))
    run(spark, [folder], tables, dearer)
    check(spark, tables, Model(files, dearer))
    files.append(ledger(folder, 60, "ef"))
    run(spark, [folder], tables, STANDARD)
    check(spark, tables, Model(files, STANDARD))


def test_a_file_that_comes_again_adds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    file = ledger(tmp_path / "ledger")
    run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    before = everything(spark, tmp_path / "tables")
    shutil.copy(file, file.with_name("copy.jsonl"))
    # And one with half of it, a new record in the middle, in another folder.
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
    assert Tables(spark, tmp_path / "tables").operations.selectExpr("count(DISTINCT date(minute))").first()[0] == 2


def test_open_files_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    ledger(tmp_path / "ledger").rename(tmp_path / "ledger" / "broker.open")
    assert run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD).files == 0
    assert [getattr(Tables(spark, tmp_path / "tables"), name).count() for name in TABLES] == [0] * 6


def test_the_columns_are_there_before_the_first_run(spark: SparkSession, tmp_path: Path) -> None:
    ledger(tmp_path / "ledger")
    for _ in range(2):
        tables = Tables(spark, tmp_path / "tables")
        for name in TABLES:
            wanted = spark.createDataFrame([], getattr(schemas, name.upper())).schema
            found = getattr(tables, name).schema
            assert [(each.name, each.dataType) for each in found] == [(each.name, each.dataType) for each in wanted]
        run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)


def test_another_sheet_prices_everything_anew(spark: SparkSession, tmp_path: Path) -> None:
    file = ledger(tmp_path / "ledger")
    run(spark, [tmp_path / "ledger"], tmp_path / "tables", Sheet.load("free"))
    assert Tables(spark, tmp_path / "tables").charges.where("amount <> 0").count() == 0
    assert Tables(spark, tmp_path / "tables").sheet == "free"
    run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    check(spark, tmp_path / "tables", Model([file], STANDARD))


def test_bandwidth_is_charged_at_every_stage(spark: SparkSession, tmp_path: Path) -> None:
    file = ledger(tmp_path / "ledger")
    tiers = Tiers(GIGABYTE, (Tier(100_000, Decimal("0.5")), Tier(None, Decimal(2))))
    carried = replace(STANDARD, name="carried", bandwidth=tiers)
    run(spark, [tmp_path / "ledger"], tmp_path / "tables", carried)
    charges = Tables(spark, tmp_path / "tables").charges.where("stage = 'bandwidth'")
    (total,) = charges.selectExpr("sum(amount) as amount", "sum(units) as units").collect()
    sizes = sum(
        record.bytes
        for record in map(decode, file.read_bytes().splitlines())
        if isinstance(record, Operations) and carried.billed(record.kind, record.outcome)
    )
    assert (total["units"], total["amount"]) == (sizes, carried.bandwidth_cost(0, sizes))
    assert total["amount"] > 0


def test_many_runs_become_few_parts(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteppedClock()
    files = []
    many = 3
    monkeypatch.setattr(pipeline, "TABLES_MERGED_PARTS", many)
    for number in range(many):
        files.append(ledger(tmp_path / "ledger", 20, f"r{number}", START_MS + number * DAY_MS))
        run(spark, [tmp_path / "ledger"], tmp_path / "tables", Sheet.load("free"), clock=clock)
    catalog = Catalog(tmp_path / "tables")
    (part,) = catalog.state().parts
    assert part.level == 1
    assert set(catalog.files([part])) == {str(path) for path in files}
    check(spark, tmp_path / "tables", Model(files, Sheet.load("free")))
    # What was merged stays for readers, for a while.
    assert len(list((tmp_path / "tables" / "parts").iterdir())) == many + 1
    clock.step(ms=TABLES_KEPT_MS)
    assert run(spark, [tmp_path / "ledger"], tmp_path / "tables", Sheet.load("free"), clock=clock).files == 0
    assert [path.name for path in (tmp_path / "tables" / "parts").iterdir()] == [part.name]
    # What was merged is still known.
    shutil.copy(files[1], tmp_path / "ledger" / "copy.jsonl")
    done = run(spark, [tmp_path / "ledger"], tmp_path / "tables", Sheet.load("free"), clock=clock)
    assert (done.records, done.repeated) == (0, 20)


def test_batches_are_bounded() -> None:
    files = {"a": 3, "b": 3, "c": 9, "d": 1, "e": 1}
    assert list(pipeline.batches(files, 6)) == [{"a": 3, "b": 3}, {"c": 9}, {"d": 1, "e": 1}]


def test_one_run_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    with Catalog(tmp_path / "tables").locked(), pytest.raises(StoreLockedError, match="Another run"):
        run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    with pytest.raises(ConfigError, match="no folder"):
        run(spark, [tmp_path / "nowhere"], tmp_path / "tables", STANDARD)


def test_summaries_add_up() -> None:
    one = RunSummary(1, 10, 7, 2, 1, 0.5)
    assert one.plus(one) == RunSummary(2, 20, 14, 4, 2, 1.0)


@pytest.mark.timeout(240)
def test_a_run_that_is_killed_is_finished_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    """Killed for good between two batches' commits, in the middle of the second batch's work."""
    files = [ledger(tmp_path / "ledger", 40, f"r{number}", START_MS + number * DAY_MS) for number in range(4)]
    command = [sys.executable, "-m", "twinbus.spark.ledger.job", "--ledger", str(tmp_path / "ledger")]
    command += ["--tables", str(tmp_path / "tables"), "--master", "local[2]", "--batch-bytes", "1"]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        second = tmp_path / "tables" / "parts" / "000000000002"
        deadline = time.monotonic() + 200
        while not (second / "staging").exists():
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    committed = Catalog(tmp_path / "tables").state()
    assert 1 <= committed.version < 4
    check(
        spark,
        tmp_path / "tables",
        Model(map(Path, sorted(Catalog(tmp_path / "tables").files(committed.parts))), STANDARD),
    )
    done = run(spark, [tmp_path / "ledger"], tmp_path / "tables", STANDARD)
    assert done.files == 4 - committed.version
    check(spark, tmp_path / "tables", Model(files, STANDARD))
