"""A coroutine that waits for the disk is told when the disk hangs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.broker import durability
from twinbus.broker.durability import until_durable
from twinbus.errors import ServerBusyError
from twinbus.store.facts import Facts


def host() -> Any:
    """The parts of a namespace that a wait needs, with a disk that answers only when told to."""
    commits = SimpleNamespace(facts=Facts(), requests=0)
    commits.request = lambda: setattr(commits, "requests", commits.requests + 1)
    return SimpleNamespace(loop=asyncio.get_running_loop(), commits=commits)


def answer(made: Any) -> None:
    for call, argument in made.commits.facts.then:
        call(argument)


async def test_it_ends_when_the_disk_answers() -> None:
    made = host()
    waiting = asyncio.create_task(until_durable(made))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert made.commits.requests == 1
    answer(made)
    await waiting


async def test_a_disk_that_hangs_is_an_error_and_its_late_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability, "ADMIN_COMMIT_TIMEOUT_MS", 1)
    made = host()
    with pytest.raises(ServerBusyError, match="disk did not answer"):
        await until_durable(made)
    answer(made)
