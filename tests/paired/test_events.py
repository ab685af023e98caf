"""Failover events as callbacks, as log records and as ledger records."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from twinbus.clock import SteppedClock
from twinbus.ledger import files
from twinbus.ledger.records import FailoverEvent, LedgerRecord, Operations, decode
from twinbus.ledger.words import Event, Kind, Stage
from twinbus.limits import LEDGER_LINE_BYTES_MAX
from twinbus.paired.events import Events, PairedEvent
from twinbus.paired.journal import Journal


def records(folder: Path) -> list[LedgerRecord]:
    return [
        decode(line) for path in sorted(folder.glob("*.jsonl")) for line in files.lines(path, LEDGER_LINE_BYTES_MAX)
    ]


def test_every_event_is_told_three_ways(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "twinbus.paired")
    clock = SteppedClock()
    heard: list[PairedEvent] = []
    journal = Journal(tmp_path, "run", clock)
    events = Events("contoso", "fabrikam", clock=clock, listeners=[heard.append], journal=journal)
    for kind in Event:
        clock.step(ms=5)
        events.emit(kind, entity="orders", queue="q0", cause="amqp:internal-error", count=2)
    journal.close()
    events.close()
    assert [event.kind for event in heard] == list(Event)
    assert [event.at_ms for event in heard] == [1_700_000_000_005 + 5 * n for n in range(len(Event))]
    assert [str(kind) in line for kind, line in zip(Event, caplog.messages, strict=True)] == [True] * len(Event)
    written = records(tmp_path)
    assert {record.event for record in written if isinstance(record, FailoverEvent)} == set(Event)
    for record in written:
        assert isinstance(record, FailoverEvent)
        assert (record.namespace, record.entity, record.target) == ("contoso", "orders", "fabrikam")
        assert (record.queue, record.cause, record.count) == ("q0", "amqp:internal-error", 2)


def test_a_listener_that_fails_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[PairedEvent] = []

    def fail(_: PairedEvent) -> None:
        raise RuntimeError("mine")

    events = Events("a", "b", clock=SteppedClock(), listeners=[fail, heard.append], journal=None)
    events.emit(Event.DIVERTED)
    events.close()
    assert len(heard) == 1
    assert "a listener of paired events failed" in caplog.text


def test_operations_are_summed(tmp_path: Path) -> None:
    clock = SteppedClock()
    journal = Journal(tmp_path, "run", clock)
    for _ in range(3):
        journal.operation("contoso", "orders", Kind.SEND, Stage.DIRECT, size_bytes=70_000)
    journal.operation("fabrikam", "q0", Kind.SEND, Stage.TO_BACKLOG, count=5, size_bytes=10)
    for _ in range(2):
        journal.event(Event.DIVERTED, "contoso", "orders", queue="q0", count=4)
    clock.step(seconds=1)
    journal.close()
    direct, backlog, diverted = records(tmp_path)
    assert isinstance(direct, Operations)
    assert (direct.stage, direct.count, direct.bytes, direct.units) == (Stage.DIRECT, 3, 210_000, 6)
    assert isinstance(backlog, Operations)
    assert (backlog.stage, backlog.count, backlog.units) == (Stage.TO_BACKLOG, 5, 5)
    assert isinstance(diverted, FailoverEvent)
    assert (diverted.count, diverted.end_ms - diverted.start_ms) == (8, 1_000)


def test_a_namespace_that_tells_its_name_has_it_from_the_start(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "run", SteppedClock())
    journal.waits_for_names = True
    heard: list[PairedEvent] = []
    events = Events("localhost-1", "localhost-2", clock=SteppedClock(), listeners=[heard.append], journal=journal)
    events.emit(Event.FAILED_OVER)
    events.rename(primary="contoso")
    assert (events.primary, events.secondary) == ("contoso", "localhost-2")
    events.rename(secondary="fabrikam")
    assert (events.primary, events.secondary) == ("contoso", "fabrikam")
    assert journal.waits_for_names
    events.named()
    assert not journal.waits_for_names
    events.emit(Event.FAILED_BACK)
    journal.close()
    events.close()
    assert {(each.namespace, each.target) for each in records(tmp_path)} == {("contoso", "fabrikam")}  # type: ignore[union-attr]
    assert [each.primary for each in heard] == ["localhost-1", "contoso"]
    without = Events("a", "b", clock=SteppedClock(), listeners=[], journal=None)
    without.rename(primary="c")
    without.named()
    assert without.primary == "c"


def test_closing_tells_the_rest_and_ends_the_thread() -> None:
    heard: list[PairedEvent] = []
    events = Events("a", "b", clock=SteppedClock(), listeners=[heard.append], journal=None)
    before = set(threading.enumerate())
    events.emit(Event.FAILED_OVER, entity="orders")
    (thread,) = [each for each in set(threading.enumerate()) - before if each.name == "twinbus-events"]
    assert thread.daemon
    events.close()
    assert not thread.is_alive()
    assert len(heard) == 1
