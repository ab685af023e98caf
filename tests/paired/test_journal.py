"""The ledger of a client: operations are summed by interval, and written exactly."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from twinbus.clock import SteppedClock
from twinbus.ledger import files
from twinbus.ledger.records import LATENCY_BOUNDS_MS, Backlog, FailoverEvent, Latency, Operations, decode
from twinbus.ledger.words import Event, Kind, LedgerSource, Stage
from twinbus.limits import LEDGER_LINE_BYTES_MAX
from twinbus.paired.journal import Journal

START_MS = 1_700_000_000_000


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(START_MS)


@pytest.fixture
def journal(tmp_path: Path, clock: SteppedClock) -> Journal:
    made = Journal(tmp_path, "run", clock)
    # No thread: the test writes.
    made._stopping.set()
    return made


def written(journal: Journal, folder: Path) -> list[object]:
    journal.close()
    return [
        decode(line) for path in sorted(folder.glob("*.jsonl")) for line in files.lines(path, LEDGER_LINE_BYTES_MAX)
    ]


def test_operations_are_summed(journal: Journal, clock: SteppedClock, tmp_path: Path) -> None:
    for count, size_bytes in ((1, 10), (3, 70_000)):
        journal.operation("a", "q", Kind.SEND, Stage.DIRECT, count=count, size_bytes=size_bytes)
    journal.operation("a", "q", Kind.SEND, Stage.DIRECT, outcome="amqp:not-found")
    clock.step(ms=500)
    ok, bad = [record for record in written(journal, tmp_path) if isinstance(record, Operations)]
    # 70,000 bytes are two units, three messages are three.
    assert (ok.count, ok.bytes, ok.units, ok.outcome) == (4, 70_010, 4, "ok")
    assert (ok.namespace, ok.entity, ok.kind, ok.stage) == ("a", "q", "send", "direct")
    assert (ok.start_ms, ok.end_ms, ok.source) == (START_MS, START_MS + 500, LedgerSource.CLIENT)
    assert (bad.count, bad.bytes, bad.units, bad.outcome) == (1, 0, 1, "amqp:not-found")
    assert ok.id != bad.id


def test_large_messages_have_more_units_than_messages(journal: Journal, tmp_path: Path) -> None:
    journal.operation("a", "q", Kind.SEND, Stage.DIRECT, size_bytes=200_000)
    (record,) = [record for record in written(journal, tmp_path) if isinstance(record, Operations)]
    assert record.units == 4


def test_intervals_follow_each_other(journal: Journal, clock: SteppedClock, tmp_path: Path) -> None:
    journal.operation("a", "q", Kind.SEND, Stage.DIRECT)
    clock.step(ms=100)
    journal.flush()
    clock.step(ms=100)
    journal.flush()
    journal.operation("a", "q", Kind.SEND, Stage.DIRECT, count=2)
    clock.step(ms=100)
    found = [record for record in written(journal, tmp_path) if isinstance(record, Operations)]
    assert [(record.start_ms - START_MS, record.end_ms - START_MS, record.count) for record in found] == [
        (0, 100, 1),
        (200, 300, 2),
    ]


def test_a_clock_that_was_set_back_makes_no_negative_interval(
    journal: Journal, clock: SteppedClock, tmp_path: Path
) -> None:
    journal.operation("a", "q", Kind.SEND, Stage.DIRECT)
    clock.step(ms=-1_000)
    (record,) = [record for record in written(journal, tmp_path) if isinstance(record, Operations)]
    assert record.start_ms == record.end_ms == START_MS - 1_000


def test_frequent_events_are_summed_and_others_have_their_moment(
    journal: Journal, clock: SteppedClock, tmp_path: Path
) -> None:
    for count in (1, 2):
        journal.event(Event.DIVERTED, "a", "orders", target="b", queue="q", count=count)
    clock.step(ms=50)
    for cause in ("one", "two"):
        journal.event(Event.FAILED_OVER, "a", "orders", target="b", cause=cause)
        clock.step(ms=50)
    found = [record for record in written(journal, tmp_path) if isinstance(record, FailoverEvent)]
    assert [(each.event, each.count, each.queue, each.cause) for each in found] == [
        ("diverted", 3, "q", None),
        ("failed-over", 0, None, "one"),
        ("failed-over", 0, None, "two"),
    ]
    assert [(each.start_ms - START_MS, each.end_ms - START_MS) for each in found] == [(0, 150), (50, 50), (100, 100)]
    assert {(each.namespace, each.entity, each.target) for each in found} == {("a", "orders", "b")}


def test_latencies_fall_into_the_first_bucket_that_holds_them(journal: Journal, tmp_path: Path) -> None:
    journal.latency("a", "orders", "q", [0, 1, 2])
    journal.latency("a", "orders", "q", [3, 4, 5, 10**9])
    (record,) = [record for record in written(journal, tmp_path) if isinstance(record, Latency)]
    wanted = [0] * (len(LATENCY_BOUNDS_MS) + 1)
    for time_ms in (0, 1, 2, 3, 4, 5, 10**9):
        fits = (index for index, bound in enumerate(LATENCY_BOUNDS_MS) if time_ms <= bound)
        wanted[next(fits, len(LATENCY_BOUNDS_MS))] += 1
    assert list(record.buckets) == wanted
    assert (record.count, record.sum_ms, record.max_ms) == (7, 15 + 10**9, 10**9)
    assert (record.namespace, record.entity, record.queue) == ("a", "orders", "q")


def test_looks_at_the_backlog(journal: Journal, clock: SteppedClock, tmp_path: Path) -> None:
    clock.step(ms=7)
    journal.backlog("b", "q", depth=3, depth_bytes=30, oldest_ms=5, dead=1)
    clock.step(ms=7)
    (record,) = [record for record in written(journal, tmp_path) if isinstance(record, Backlog)]
    assert (record.namespace, record.entity, record.depth, record.depth_bytes) == ("b", "q", 3, 30)
    assert (record.oldest_ms, record.dead) == (5, 1)
    assert record.start_ms == record.end_ms == START_MS + 7


@pytest.mark.parametrize(
    "count",
    [
        lambda journal: journal.event(Event.FAILED_OVER, "a", "q"),
        lambda journal: journal.latency("a", "orders", "q", [1]),
        lambda journal: journal.backlog("b", "q", depth=3, depth_bytes=30, oldest_ms=5, dead=1),
    ],
    ids=["event", "latency", "backlog"],
)
def test_whatever_comes_first_is_written_by_a_thread(count: Callable[[Journal], None], tmp_path: Path) -> None:
    journal = Journal(tmp_path, "run", SteppedClock(START_MS))
    count(journal)
    assert journal.started
    assert len(written(journal, tmp_path)) == 1


def test_its_thread_begins_with_the_first_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "run", SteppedClock(START_MS))
    assert not journal.started
    journal.operation("a", "q", Kind.SEND, Stage.DIRECT)
    assert journal.started
    beside = journal.beside("other", LedgerSource.SYPHON)
    beside.event(Event.SYPHONED, "a", "orders", count=1)
    beside.close()
    found = written(journal, tmp_path)
    assert {record.source for record in found} == {LedgerSource.CLIENT, LedgerSource.SYPHON}  # type: ignore[attr-defined]
    assert len({record.id for record in found}) == len(found)  # type: ignore[attr-defined]


def test_what_was_counted_under_another_name_is_renamed(journal: Journal, tmp_path: Path) -> None:
    journal.operation("localhost-1", "q", Kind.SEND, Stage.DIRECT)
    journal.operation("fabrikam", "q", Kind.SEND, Stage.TO_BACKLOG)
    journal.event(Event.FAILED_OVER, "localhost-1", "q", target="localhost-2")
    journal.event(Event.FAILED_BACK, "localhost-1", "q")
    journal.rename("localhost-1", "contoso")
    journal.rename("localhost-2", "fabrikam")
    found = written(journal, tmp_path)
    assert [record.namespace for record in found] == ["contoso", "fabrikam", "contoso", "contoso"]  # type: ignore[attr-defined]
    assert [each.target for each in found if isinstance(each, FailoverEvent)] == ["fabrikam", None]


def test_nothing_is_written_while_names_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.paired.journal.METER_INTERVAL_MS", 5)
    journal = Journal(tmp_path, "run", SteppedClock(START_MS))
    journal.waits_for_names = True
    journal.operation("a", "q", Kind.SEND, Stage.DIRECT)
    time.sleep(0.1)
    assert journal._sums, "still only counted"
    journal.waits_for_names = False
    while journal._sums:
        time.sleep(0.001)
    assert len(written(journal, tmp_path)) == 1
