"""While clients send more than a turn of the loop can handle, a commit waits for more, and never for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.commit_disk import Disk, commit_loop, put
from twinbus.broker import commits as commits_module
from twinbus.broker.commits import GATHER_CLIENTS, CommitLoop


@pytest.fixture
async def loop(tmp_path: Path) -> AsyncIterator[CommitLoop]:
    async with commit_loop(tmp_path) as made:
        yield made


async def running(loop: CommitLoop, disk: Disk, answers: list[int]) -> None:
    """A first commit is at the disk, and a second one waits for it."""
    disk.free.clear()
    put(loop, answers, 1)
    loop._turn()
    put(loop, answers, 2)
    disk.free.set()


async def answered(loop: CommitLoop, answers: list[int], count: int) -> None:
    while len(answers) < count:
        await asyncio.sleep(0)


async def test_it_waits_until_it_is_told_to_hurry(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits_module, "GATHER_MS", 3_600_000)
    disk, answers = Disk(monkeypatch), list[int]()
    await running(loop, disk, answers)
    loop.behind = GATHER_CLIENTS
    await answered(loop, answers, 1)
    put(loop, answers, 3)
    await asyncio.sleep(0)
    assert (answers, len(disk.threads)) == ([1], 1)
    loop.hurry()
    await loop.drain()
    # One commit for both.
    assert (answers, len(disk.threads)) == ([1, 2, 3], 2)


async def test_it_begins_when_nobody_is_behind(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits_module, "GATHER_MS", 3_600_000)
    disk, answers = Disk(monkeypatch), list[int]()
    await running(loop, disk, answers)
    loop.behind = GATHER_CLIENTS
    await answered(loop, answers, 1)
    for _ in range(GATHER_CLIENTS - 1):
        loop.caught_up()
    await asyncio.sleep(0)
    assert len(disk.threads) == 1
    loop.caught_up()
    await answered(loop, answers, 2)


async def test_it_waits_no_longer_than_its_time(loop: CommitLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, answers = Disk(monkeypatch), list[int]()
    await running(loop, disk, answers)
    loop.behind = GATHER_CLIENTS
    await loop.drain()
    assert answers == [1, 2]


@pytest.mark.parametrize("bound", ["COMMIT_ROWS_MAX", "PENDING_BYTES_MAX", None])
async def test_it_does_not_wait_when_enough_is_there(
    loop: CommitLoop, monkeypatch: pytest.MonkeyPatch, bound: str | None
) -> None:
    monkeypatch.setattr(commits_module, "GATHER_MS", 3_600_000)
    if bound is not None:
        monkeypatch.setattr(commits_module, bound, 0)
    disk, answers = Disk(monkeypatch), list[int]()
    await running(loop, disk, answers)
    loop.pending_bytes = 1
    # Without a flood nothing is waited for either.
    loop.behind = 0 if bound is None else GATHER_CLIENTS
    await answered(loop, answers, 2)
    assert answers == [1, 2]


async def test_hurrying_does_nothing_when_nothing_waits(loop: CommitLoop) -> None:
    loop.hurry()
    answers: list[int] = []
    put(loop, answers, 1)
    loop.hurry()
    assert not answers
    await loop.drain()
    assert answers == [1]
