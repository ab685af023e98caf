"""The writer: complete lines in complete files, whatever the disk and the process do."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from twinbus.clock import SteppedClock
from twinbus.errors import ConfigError
from twinbus.ledger import files
from twinbus.ledger.files import complete_files, open_files
from twinbus.ledger.records import OperationLines
from twinbus.ledger.totals import OTHERS, Totals
from twinbus.ledger.words import Kind, LedgerSource
from twinbus.ledger.writer import LedgerWriter
from twinbus.limits import LEDGER_LINE_BYTES_MAX

LINES = OperationLines(LedgerSource.BROKER, "contoso", "orders", Kind.SEND)


def writer(folder: Path, clock: SteppedClock | None = None, run: str = "run1", **options: Any) -> LedgerWriter:
    made = LedgerWriter(folder, LedgerSource.BROKER, run, clock or SteppedClock(), **options)
    made.start()
    return made


def put(ledger: LedgerWriter, count: int = 1) -> None:
    ledger.write(LINES.line(ledger.next_id(), 1, 2, count, 0, count), 1)


def total(folder: Path) -> int:
    totals = Totals()
    totals.read(complete_files(folder))
    assert totals.bad_lines == 0, totals.findings
    return sum(sums.count for sums in totals.groups.values())


def test_readers_see_complete_files_only(tmp_path: Path) -> None:
    ledger = writer(tmp_path / "deep" / "ledger")
    put(ledger, 5)
    assert complete_files(ledger.folder) == []
    assert len(open_files(ledger.folder)) == 1
    ledger.close()
    assert open_files(ledger.folder) == []
    assert total(ledger.folder) == 5
    assert ledger.folder.stat().st_mode & 0o777 == 0o700
    (file,) = complete_files(ledger.folder)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.name == "broker-20231114T221320Z-run1-000001.jsonl"


def test_nothing_written_leaves_no_file(tmp_path: Path) -> None:
    ledger = writer(tmp_path)
    ledger.complete_if_due()
    ledger.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_ends_by_size_and_by_age(tmp_path: Path) -> None:
    clock = SteppedClock()
    ledger = writer(tmp_path, clock, file_bytes_max=1_000, file_ms_max=60_000)
    for _ in range(12):
        put(ledger)
    by_size = len(complete_files(tmp_path))
    assert by_size >= 2
    clock.step(seconds=59)
    ledger.complete_if_due()
    assert len(complete_files(tmp_path)) == by_size
    clock.step(seconds=1)
    ledger.complete_if_due()
    assert len(complete_files(tmp_path)) == by_size + 1
    assert not ledger.file_open
    assert total(tmp_path) == 12


def test_a_clock_set_back_ends_a_file_too(tmp_path: Path) -> None:
    clock = SteppedClock()
    ledger = writer(tmp_path, clock)
    put(ledger)
    clock.step(seconds=-3_600)
    ledger.complete_if_due()
    assert total(tmp_path) == 1


def test_the_next_start_completes_what_a_crash_left(tmp_path: Path) -> None:
    whole = LINES.line("dead-1", 1, 2, 7, 0, 7)
    (tmp_path / "broker-x.open").write_text(whole + whole[:40])
    (tmp_path / "broker-y.open").write_text(whole[:40])
    (tmp_path / "broker-z.open").write_text("")
    (tmp_path / "broker-w.open").write_text("x" * 200_000 + "\n" + "y" * 200_000)
    assert len(files.recover(tmp_path)) == 2
    assert open_files(tmp_path) == []
    assert (tmp_path / "broker-x.jsonl").read_text() == whole
    assert (tmp_path / "broker-w.jsonl").read_text() == "x" * 200_000 + "\n"


def test_the_file_of_a_live_writer_is_left_alone(tmp_path: Path) -> None:
    first = writer(tmp_path)
    put(first)
    second = writer(tmp_path, run="run2")
    assert len(open_files(tmp_path)) == 1
    put(second)
    first.close()
    second.close()
    assert total(tmp_path) == 2


def test_the_oldest_files_go_when_there_is_too_much(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "client-old.jsonl").write_text("{}\n" * 10_000)
    clock = SteppedClock()
    ledger = writer(tmp_path, clock, file_bytes_max=1, total_bytes_max=1_000)
    for _ in range(20):
        clock.step(seconds=1)
        put(ledger)
    ledger.close()
    mine = complete_files(tmp_path, "broker-")
    assert 0 < sum(path.stat().st_size for path in mine) <= 1_000
    assert mine[-1].name.endswith("000020.jsonl")
    assert (tmp_path / "client-old.jsonl").exists()
    assert "removed broker" in caplog.text


def test_a_refusing_disk_is_counted_told_once_and_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = writer(tmp_path)
    put(ledger)
    real = os.write

    def full(handle: int, data: bytes) -> int:
        # Half a line gets through, as when a disk fills up.
        if len(data) > 50:
            return real(handle, data[:50])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for _ in range(3):
        put(ledger)
    assert (ledger.errors, ledger.lost_records) == (3, 0)
    assert caplog.text.count("cannot be written") == 1
    monkeypatch.undo()
    put(ledger)
    ledger.close()
    assert total(tmp_path) == 5


def test_a_spoiled_file_is_not_written_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = writer(tmp_path)
    put(ledger)
    real = os.write

    def torn(handle: int, data: bytes) -> int:
        if len(data) > 50:
            return real(handle, data[:50])
        raise OSError(errno.EIO, "Input/output error")

    def refused(handle: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", torn)
        broken.setattr(os, "ftruncate", refused)
        put(ledger)
    put(ledger)
    ledger.close()
    writer(tmp_path, run="run2")
    assert total(tmp_path) == 3


def test_a_disk_that_refuses_for_too_long_costs_the_oldest_records(tmp_path: Path) -> None:
    ledger = writer(tmp_path, waiting_bytes_max=1_000)
    os.rmdir(tmp_path)
    for count in range(1, 21):
        put(ledger, count)
    assert ledger.errors == 20
    assert 0 < ledger.lost_records < 20
    tmp_path.mkdir()
    put(ledger, 1_000)
    ledger.close()
    assert total(tmp_path) == 1_000 + sum(range(ledger.lost_records + 1, 21))


def test_a_folder_that_cannot_be_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ledger = writer(tmp_path / "file" / "ledger")
    put(ledger)
    ledger.close()
    assert ledger.errors >= 2


@pytest.mark.parametrize("url", ["s3a://bucket/ledger", "abfss://box@account.dfs.core.windows.net/ledger"])
def test_a_ledger_is_not_written_to_an_object_store(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path(url), Path(url).absolute()):
        with pytest.raises(ConfigError, match="not to an object store"):
            writer(folder)
    assert not list(tmp_path.iterdir())


def test_a_bad_line_is_counted_with_its_place(tmp_path: Path) -> None:
    whole = LINES.line("a-1", 1, 2, 7, 0, 7)
    long = "x" * (LEDGER_LINE_BYTES_MAX * 5)
    (tmp_path / "broker-a.jsonl").write_text(f"{whole}nonsense\n{whole}{long}\n{whole}")
    totals = Totals()
    totals.read(complete_files(tmp_path))
    assert (totals.records, totals.bad_lines) == (3, 2)
    assert totals.findings[0].startswith("broker-a.jsonl:2: the line is not JSON")
    assert totals.findings[1].startswith("broker-a.jsonl:4: the line is too long")


def test_groups_past_the_bound_are_summed_as_one(tmp_path: Path) -> None:
    ledger = writer(tmp_path)
    for number in range(10):
        lines = OperationLines(LedgerSource.BROKER, "contoso", f"q{number}", Kind.SEND)
        ledger.write(lines.line(ledger.next_id(), 1, 2, 1, 10, 1), 1)
    ledger.close()
    totals = Totals(groups_max=4)
    totals.read(complete_files(tmp_path))
    assert len(totals.groups) == 5
    assert [sums.count for group, sums in totals.groups.items() if group.entity == OTHERS] == [6]


def test_ids_are_never_used_twice(tmp_path: Path) -> None:
    ledger = writer(tmp_path)
    ids = {ledger.next_id() for _ in range(1_000)} | {writer(tmp_path, run="run2").next_id()}
    assert len(ids) == 1_001


def test_a_lock_is_gone_with_its_file(tmp_path: Path) -> None:
    ledger = writer(tmp_path)
    put(ledger)
    ledger.close()
    (complete,) = complete_files(tmp_path)
    with complete.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert file.read()
