"""The loop waits for small commits while the disk is fast, and never for a slow disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from twinbus.broker import commits as commits_module
from twinbus.broker.commits import QUICK_COMMITS, QUICK_S, SMALL_ROWS_MAX, CommitLoop
from twinbus.store.facts import Facts, Table
from twinbus.store.lmdb_store import Prepared, Store


class Disk:
    """Reports how long each commit took, whatever it really took, and can hold commits back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.took_s = 0.0
        self.free = threading.Event()
        self.free.set()
        # Names of the threads that committed.
        self.threads: list[str] = []
        commit = Prepared.commit
        clock = [0.0]

        def slow(prepared: Prepared) -> None:
            self.threads.append(threading.current_thread().name)
            self.free.wait(20)
            commit(prepared)
            clock[0] += self.took_s

        monkeypatch.setattr(Prepared, "commit", slow)
        monkeypatch.setattr(commits_module.time, "perf_counter", lambda: clock[0])


@pytest.fixture
async def loop(tmp_path: Path) -> AsyncIterator[CommitLoop]:
    with Store.open(tmp_path, sync=False) as store:
        made = CommitLoop(store, "test", lambda error: None)
        made.start()
        yield made
        await made.stop()


def put(loop: CommitLoop, answers: list[int], number: int, rows: int = 1) -> None:
    for row in range(rows):
        loop.facts.rows[Table.META, b"%d-%d" % (number, row)] = b"x"
    loop.facts.then.append((answers.append, number))
    loop.request()


async def one_by_one(loop: CommitLoop, answers: list[int], count: int) -> None:
    for number in range(count):
        put(loop, answers, number)
        await loop.drain()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the wait as long as a busy machine may need: the tests check whether there is one."""
    monkeypatch.setattr(commits_module, "QUICK_S", 20.0)


async def test_a_small_commit_is_answered_in_the_same_turn(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch)
    answers: list[int] = []
    await one_by_one(loop, answers, QUICK_COMMITS)
    put(loop, answers, 99)
    loop._turn()
    assert answers[-1] == 99


async def test_a_large_commit_is_not_waited_for(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    answers: list[int] = []
    await one_by_one(loop, answers, QUICK_COMMITS)
    disk.free.clear()
    put(loop, answers, 99, rows=SMALL_ROWS_MAX + 1)
    loop._turn()
    assert 99 not in answers
    disk.free.set()
    await loop.drain()
    assert answers[-1] == 99


async def test_after_a_slow_commit_none_is_waited_for(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    answers: list[int] = []
    await one_by_one(loop, answers, QUICK_COMMITS)
    disk.took_s = 30.0
    await one_by_one(loop, answers, 1)
    disk.took_s = 0.0
    disk.free.clear()
    put(loop, answers, 99)
    loop._turn()
    assert 99 not in answers
    disk.free.set()
    await loop.drain()
    assert answers[-1] == 99


async def test_a_disk_that_hangs_does_not_hold_the_loop(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    answers: list[int] = []
    await one_by_one(loop, answers, QUICK_COMMITS)
    monkeypatch.setattr(commits_module, "QUICK_S", QUICK_S)
    disk.free.clear()
    put(loop, answers, 99)
    loop._turn()
    # The loop is free while the first commit still waits for the disk; a second one follows.
    put(loop, answers, 100)
    await asyncio.sleep(0)
    assert answers == list(range(QUICK_COMMITS))
    disk.free.set()
    await loop.drain()
    assert answers[-2:] == [99, 100]


async def test_answers_keep_the_order_of_the_commits(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that starts before the previous one's answers go out must not be answered first."""
    Disk(monkeypatch)
    answers: list[int] = []
    await one_by_one(loop, answers, QUICK_COMMITS)
    put(loop, answers, 1000)
    first = loop.facts
    begin = loop._store.begin

    def begin_and_add(facts: Facts) -> Prepared:
        prepared = begin(facts)
        if facts is first:
            # Something arrives while the first commit is running.
            put(loop, answers, 1001)
        return prepared

    monkeypatch.setattr(loop._store, "begin", begin_and_add)
    await loop.drain()
    assert answers[-2:] == [1000, 1001]


async def test_every_commit_is_made_on_the_thread(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    await one_by_one(loop, [], QUICK_COMMITS + 3)
    assert set(disk.threads) == {"commit-test"}
