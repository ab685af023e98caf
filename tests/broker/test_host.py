"""A folder with records that belong to nobody opens: they are set aside, reported and kept; all others are served."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.bad_folders import FAULTS, NOW_MS, SOUND, make, message, opened
from twinbus.broker.messages.browsing import browse
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.store.facts import Table
from twinbus.testing import Broker

Fault = Callable[[Path], set[tuple[Table, bytes]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path)
    return tmp_path


@pytest.mark.parametrize("fault", FAULTS)
async def test_records_without_an_owner_are_set_aside_and_kept(
    folder: Path, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    aside = await asyncio.to_thread(fault, folder)
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            host = opened(folder)
        assert "set aside" in caplog.text
        assert host.entities.set_aside.count == len(aside)
        assert {(each.table, each.key) for each in host.entities.set_aside.found} == aside
        assert {path: host.entities.queue(path).counts.active for path in SOUND} == SOUND
        assert len(browse(host, host.entities.queue("plain"), 0, 10)) == SOUND["plain"]
        host.start()
        # Work continues: a new entity does not inherit what was set aside.
        made = host.create_queue(QueueSettings(path=host.new_id()))
        await host.commits.drain()
        assert made.counts == (0, 0, 0, 0)
        for table, key in aside:
            assert host.store.get(table, key) is not None
        await host.stop()


async def test_nothing_is_set_aside_in_a_sound_folder(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = opened(folder)
    assert host.entities.set_aside.count == 0
    assert "set aside" not in caplog.text
    host.store.close()


async def test_what_a_deleted_entity_left_is_cleared_away_and_not_set_aside(folder: Path) -> None:
    """Stopped at each step of the sweep."""
    for path in ("plain", "grouped"):
        host = opened(folder)
        host.start()
        host.entities.queue(path).send([message("last", "g")], NOW_MS, host.commits.facts)
        host.entities.delete_queue(path, NOW_MS, host.commits.facts)
        host.commits.request()
        await host.commits.drain()
        host.store.close()  # as a kill would, before the sweep
    for _ in range(3):
        host = opened(folder)
        assert host.entities.set_aside.count == 0
        host.start()
        await host.stop()
    host = opened(folder)
    assert not host.entities.sweep_pending
    assert len(list(host.store.scan(Table.INDEX))) == 4
    assert len(list(host.store.scan(Table.SESSIONS))) == 0
    assert len(list(host.store.scan(Table.DUPLICATES))) == 0
    assert not [key for key, _ in host.store.scan(Table.META) if key.startswith(b"deleted:")]
    host.store.close()


async def test_deleting_leaves_nothing_behind(folder: Path) -> None:
    host = opened(folder)
    host.start()
    host.delete_queue("plain")
    host.delete_queue("grouped")
    host.delete_topic("news")
    await host.commits.drain()
    for table in (Table.ENTITIES, Table.INDEX, Table.BODIES, Table.SESSIONS, Table.DUPLICATES):
        assert list(host.store.scan(table)) == []
    assert not [key for key, _ in host.store.scan(Table.META) if key.startswith(b"deleted:")]
    await host.stop()


async def test_an_idle_entity_that_is_deleted_leaves_nothing_behind(folder: Path) -> None:
    host = opened(folder)
    host.start()
    host.create_queue(QueueSettings(path="idle", auto_delete_on_idle_ms=300_000))
    host.entities.queue("idle").send([message(f"idle {n}") for n in range(5)], NOW_MS, host.commits.facts)
    await host.commits.drain()
    assert len(list(host.store.scan(Table.INDEX))) == sum(SOUND.values()) + 5
    assert isinstance(host.clock, SteppedClock)
    host.clock.step(seconds=301)
    host.timers.run()
    await host.commits.drain()
    assert len(list(host.store.scan(Table.INDEX))) == sum(SOUND.values())
    assert not [key for key, _ in host.store.scan(Table.META) if key.startswith(b"deleted:")]
    await host.stop()


def test_the_data_folder_is_its_owners_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Broker(data=tmp_path / "data", ledger=True):
            folders = [tmp_path / "data", *(each for each in (tmp_path / "data").rglob("*") if each.is_dir())]
            assert {oct(each.stat().st_mode & 0o777) for each in folders} == {"0o700"}
    finally:
        os.umask(before)
