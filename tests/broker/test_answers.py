"""Calls that wait for a commit: made after it, in order, a slice at a time, while no disk holds up the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.commit_disk import Disk, commit_loop, put
from twinbus.broker import commits as commits_module
from twinbus.broker.commits import CommitLoop
from twinbus.store.facts import Facts
from twinbus.store.lmdb_store import Prepared


@pytest.fixture
async def loop(tmp_path: Path) -> AsyncIterator[CommitLoop]:
    async with commit_loop(tmp_path) as made:
        yield made


async def test_a_disk_that_hangs_does_not_hold_the_loop(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, answers = Disk(monkeypatch), list[int]()
    disk.free.clear()
    put(loop, answers, 1)
    await asyncio.sleep(0)
    put(loop, answers, 2)
    await asyncio.sleep(0)
    assert not answers
    disk.free.set()
    await loop.drain()
    assert answers == [1, 2]


async def test_every_commit_is_made_on_the_thread(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, answers = Disk(monkeypatch), list[int]()
    for number in range(20):
        put(loop, answers, number)
        await loop.drain()
    assert disk.threads == ["commit-test"] * 20
    assert answers == list(range(20))


@pytest.mark.parametrize("count", [1, commits_module._ANSWERS, commits_module._ANSWERS + 1, 100])
async def test_answers_keep_the_order_of_the_commits(
    loop: CommitLoop, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The next commit starts before the answers of the last one are sent, and must not be answered first."""
    answers: list[int] = []
    for number in range(count):
        put(loop, answers, number)
    first = loop.facts
    begin = loop._store.begin

    def begin_and_add(facts: Facts) -> Prepared:
        prepared = begin(facts)
        if facts is first:
            for number in range(count, 2 * count):
                put(loop, answers, number)
        return prepared

    monkeypatch.setattr(loop._store, "begin", begin_and_add)
    await loop.drain()
    assert answers == list(range(2 * count))


async def test_an_answer_that_needs_no_commit_waits_for_the_earlier_ones(loop: CommitLoop) -> None:
    answers: list[int] = []

    def answer_and_ask(number: int) -> None:
        answers.append(number)
        loop.facts.then.append((answers.append, number + 100))
        loop._turn()

    put(loop, answers, 1)
    loop.facts.then.append((answer_and_ask, 2))
    loop.facts.then.append((answers.append, 3))
    await loop.drain()
    assert answers == [1, 2, 3, 102]


async def test_an_answer_that_fails_does_not_stop_the_others(
    loop: CommitLoop, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[int] = []

    def fail(number: int) -> None:
        raise ValueError(number)

    for count in (1, 20):
        loop.facts.then.append((fail, count))
        for number in range(count):
            put(loop, answers, number)
        await loop.drain()
    assert answers == [0, *range(20)]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError] * 2


async def test_a_long_run_of_answers_gives_way_to_the_loop(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(commits_module.time, "perf_counter", lambda: clock[0])
    answers: list[int] = []
    turns: list[int] = []

    def answer(number: int) -> None:
        answers.append(number)
        clock[0] += 0.001
        if number == 1:
            asyncio.get_running_loop().call_soon(lambda: turns.append(len(answers)))

    put(loop, [], 0)
    for number in range(1, 101):
        loop.facts.then.append((answer, number))
    await loop.drain()
    assert answers == list(range(1, 101))
    # The other call came after one slice, not after all of the answers.
    assert 0 < turns[0] <= 2 * commits_module._ANSWERS + commits_module.SLICE_MS


async def test_several_may_wait_for_the_disk(loop: CommitLoop) -> None:
    answers: list[int] = []
    put(loop, answers, 1)
    await asyncio.gather(loop.drain(), loop.drain(), loop.drain())
    assert answers == [1]
    # Nothing waits now, and waiting for nothing ends at once.
    await loop.drain()
