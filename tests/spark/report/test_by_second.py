"""Operations by the second from ledger files: each record once, from the best source, within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.report.morning import START_MS, write_morning
from twinbus.ledger.records import Operations, encode
from twinbus.ledger.words import LedgerSource, Stage
from twinbus.spark.report import by_second
from twinbus.spark.report.period import Period

START_S = START_MS // 1000
MINUTE = Period.between(START_S, START_S + 60)


def line(number: int, at_ms: int, count: int, **other: str) -> str:
    names = {"namespace": "contoso", "entity": "orders", "kind": "send", "stage": "direct", "outcome": "ok"} | other
    source, stage = LedgerSource(names.pop("source", "broker")), Stage(names.pop("stage"))
    times = {"start_ms": START_MS + at_ms, "end_ms": START_MS + at_ms + 1_000}
    record = Operations(
        id=f"run-{number:x}", source=source, stage=stage, count=count, bytes=0, units=count, **times, **names
    )
    return encode(record)


def written(folder: Path, *lines: str, name: str = "broker-20261116T080000Z-run-000001") -> Path:
    (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


def test_a_record_counts_once_in_its_second(tmp_path: Path) -> None:
    written(tmp_path, line(1, 2_500, 3), line(1, 2_500, 3), line(2, 2_900, 4), "no record\n", line(3, 60_000, 9))
    written(tmp_path, line(2, 2_900, 4), name="broker-20261116T080001Z-copy-000001")
    found = by_second.count([tmp_path], MINUTE, None)
    assert found is not None
    assert found.stages == {"direct": {START_S + 2: 7}}
    assert (found.first_s, found.last_s) == (START_S + 2, START_S + 2)


def test_the_broker_is_believed_but_not_in_all(tmp_path: Path) -> None:
    written(
        tmp_path,
        line(1, 0, 10),
        line(2, 0, 10, source="client"),
        line(3, 1_000, 4, source="syphon", stage="to-primary"),
        line(4, 1_000, 2, source="client", kind="ping", stage="ping", outcome="amqp:timeout"),
        line(5, 1_000, 5, source="client", namespace="untold"),
    )
    found = by_second.count([tmp_path], MINUTE, None)
    assert found is not None
    assert found.stages == {
        "direct": {START_S: 10, START_S + 1: 5 - 4},
        "to-primary": {START_S + 1: 4},
        "ping": {START_S + 1: 2},
    }
    only = by_second.count([tmp_path], MINUTE, "untold")
    assert only is not None
    assert only.stages == {"direct": {START_S + 1: 5}}


def test_files_of_other_times_are_not_read_and_too_many_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_morning(tmp_path, step_ms=1_000)
    later = Period.between(START_S + 86_400, START_S + 86_460)
    monkeypatch.setattr(by_second, "REPORT_FINE_BYTES_MAX", 1_000)
    assert by_second.count([tmp_path], MINUTE, None) is None
    nothing = by_second.count([tmp_path], later, None)
    assert nothing is not None
    assert nothing.stages == {}


@pytest.mark.parametrize(
    ("counts", "wanted"), [([3, -2, 4], (3, 0, 2)), ([-5, 9], (0, 4)), ([6, 2, -3], (5, 0, 0)), ([], ())]
)
def test_what_is_negative_for_a_moment_is_taken_from_its_neighbours(counts: list[int], wanted: tuple[int, ...]) -> None:
    assert by_second.settled(counts) == wanted
    assert sum(wanted) == sum(counts)
