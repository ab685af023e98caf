"""The backlog monitor: what it records, and what it costs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError

from twinbus.clock import SystemClock
from twinbus.ledger.files import complete_files
from twinbus.ledger.records import Backlog, decode
from twinbus.ledger.totals import Totals
from twinbus.ledger.words import LedgerSource
from twinbus.paired._async.namespaces import AsyncRoutedTransport
from twinbus.paired.journal import Journal
from twinbus.paired.syphon import Pairing, Syphon
from twinbus.paired.syphon import monitor as monitor_module
from twinbus.paired.syphon.drain import monitor_thread
from twinbus.paired.syphon.monitor import BacklogMonitor, BacklogMonitorThread, Count
from twinbus.paired.syphon.syphon import counts_of

from .conftest import Pair, until
from .test_syphon import numbered


def looks(folder: Path) -> list[Backlog]:
    records = [decode(line) for file in complete_files(folder) for line in file.read_bytes().splitlines()]
    return sorted((each for each in records if isinstance(each, Backlog)), key=lambda each: each.start_ms)


def syphon_of(pair: Pair, ledger: Path) -> Syphon:
    return Syphon.from_connection_strings(
        pair.primary.connection_string(),
        pair.secondary.connection_string(),
        primary_name=pair.name,
        backlog_queue_count=2,
        ledger=ledger,
        ca_file=pair.secondary.ca_file,
    )


async def test_a_backlog_is_seen_and_seen_to_be_gone(pair: Pair, tmp_path: Path) -> None:
    path = pair.destination()
    await pair.divert(path, numbered(30))
    with pair.primary.fault("refusing", path):
        await asyncio.sleep(0.3)
        report = await syphon_of(pair, tmp_path / "first").run(once=True, patience_s=3)
        assert report.failing == (path,)
    seen = looks(tmp_path / "first")
    # Once at the start and once at the end; nothing for the empty queue.
    assert [(look.entity, look.depth, look.dead) for look in seen] == [(pair.queues[0], 30, 0)] * 2
    assert all(look.depth_bytes > 30 * 10 for look in seen)
    assert all(300 <= look.oldest_ms < 60_000 for look in seen)
    assert {(look.source, look.namespace) for look in seen} == {("syphon", "localhost-" + port_of(pair))}
    report = await syphon_of(pair, tmp_path / "second").run(once=True)
    assert report.total.syphoned == 30
    # A run that ends before the first look has nothing to undo.
    assert [look.depth for look in looks(tmp_path / "second")][-1:] in ([], [0])


def port_of(pair: Pair) -> str:
    return str(pair.secondary.endpoint().port)


async def test_waiting_costs_no_looks(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_module, "BACKLOG_LOOK_S", 0.2)
    syphon = syphon_of(pair, tmp_path)
    running = asyncio.create_task(syphon.run())
    # From here on the namespace is not asked.
    await until(lambda: all(syphon.waits(queue) for queue in pair.queues))
    await asyncio.sleep(1)
    syphon.stop()
    await running
    totals = Totals()
    totals.read(complete_files(tmp_path))
    asked = sum(sums.count for group, sums in totals.groups.items() if group.kind in ("manage", "peek"))
    # Before the receives have waited for a second.
    assert 2 <= asked <= 14
    assert looks(tmp_path) == []


async def test_dead_letters_are_counted(pair: Pair, tmp_path: Path) -> None:
    await pair.divert("nowhere", numbered(3))
    await syphon_of(pair, tmp_path / "first").run(once=True)
    await syphon_of(pair, tmp_path / "second").run(once=True)
    (look,) = looks(tmp_path / "second")
    assert (look.depth, look.depth_bytes, look.oldest_ms, look.dead) == (0, 0, 0, 3)


async def test_without_counts_everything_else_goes_on(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(*_: object, **__: object) -> None:
        raise ServiceRequestError("nobody listens")

    # Only the administration API is down.
    monkeypatch.setattr(AsyncRoutedTransport, "send", unreachable)
    path = pair.destination()
    await pair.divert(path, numbered(3))
    syphon = Syphon.from_connection_strings(
        pair.primary.connection_string(),
        pair.secondary.connection_string(),
        primary_name=pair.name,
        backlog_queue_count=2,
        ledger=tmp_path,
    )
    assert (await syphon.run(once=True)).total.syphoned == 3
    assert looks(tmp_path) == []
    assert sum("cannot be looked at" in record.message for record in caplog.records) == 1


async def test_what_has_not_changed_from_nothing_is_not_written(pair: Pair, tmp_path: Path) -> None:
    seen = [Count(0, 0, 0), Count(2, 20, 1), Count(0, 20, 1), Count(0, 0, 0), Count(0, 0, 0)]
    answers: list[dict[str, Count]] = [{}, *({"A": count} for count in seen)]

    async def counts(queues: Sequence[str]) -> dict[str, Count]:
        assert queues == ["A"]
        return answers.pop(0)

    class Nobody:
        async def oldest_ms(self, path: str) -> int | None:
            return None

    journal = Journal(tmp_path, "run", SystemClock(), LedgerSource.SYPHON)
    monitor = BacklogMonitor(
        ["A"], namespace="second", counts=counts, ages=Nobody(), journal=journal, clock=SystemClock()
    )
    while answers:
        await monitor.look()
    await asyncio.to_thread(journal.close)
    assert [(look.depth, look.depth_bytes, look.dead) for look in looks(tmp_path)] == [(2, 20, 1), (0, 0, 1), (0, 0, 0)]


async def test_from_a_thread(pair: Pair, tmp_path: Path) -> None:
    await pair.divert(pair.destination(), numbered(7), queue=1)
    first, second = pair.primary.connection_string(), pair.secondary.connection_string()
    pairing = Pairing(first, second, pair.name, ledger=str(tmp_path))
    counts = counts_of(second, pair.secondary.ca_file)
    assert counts is not None
    thread = monitor_thread(pairing, pair.queues, counts, lambda queue: False)
    assert thread is not None
    thread.start()
    await asyncio.to_thread(thread.stop)
    # The first look, and the last.
    assert [(look.entity, look.depth) for look in looks(tmp_path)] == [(pair.queues[1], 7)] * 2
    assert monitor_thread(Pairing(first, second, pair.name), pair.queues, counts, lambda queue: False) is None


def test_a_monitors_thread_has_looked_before_anything_moves() -> None:
    ended: list[str] = []

    class Monitor:
        def __init__(self) -> None:
            self.begun = threading.Event()

        async def run(self) -> None:
            await asyncio.sleep(0.05)
            self.begun.set()
            await asyncio.sleep(60)

        async def finish(self) -> None:
            ended.append("last look")

    async def end() -> None:
        ended.append("end")

    monitor: Any = Monitor()
    thread = BacklogMonitorThread(lambda: monitor, end)
    thread.start()
    assert monitor.begun.is_set()
    thread.stop()
    assert ended == ["last look", "end"]
