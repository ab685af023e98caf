"""The story's waits: as long as something happens, and no longer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from twinbus.demo import story
from twinbus.demo.processes import BrokerProcess
from twinbus.demo.story import DemoOptions, Story
from twinbus.errors import ConfigError


class Seconds:
    """A clock that advances with every look."""

    def __init__(self, step_s: float) -> None:
        self._step_ms = round(step_s * 1000)
        self._now_ms = 0

    def now_ms(self) -> int:
        self._now_ms += self._step_ms
        return self._now_ms


def a_story(folder: Path, monkeypatch: pytest.MonkeyPatch, step_s: float) -> tuple[Story, list[str]]:
    """A story whose time flies, and the lines that it shows."""
    lines: list[str] = []
    plan = DemoOptions(seed=1, rate=1, outage_s=1, engine="local", report=None)
    made = Story(folder, plan, lines.append)
    made._clock = Seconds(step_s)  # type: ignore[assignment]
    monkeypatch.setattr(story, "_LOOK_S", 0)
    return made, lines


async def test_messages_that_still_come_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "_HOME_S", 1.0)
    plan = DemoOptions(seed=1, rate=1, outage_s=1, engine="local", report=None)
    told = Story(tmp_path, plan, lambda _: None)
    numbers = [str(number) for number in range(6)]
    for number in numbers:
        told.account.sent("orders", number)

    async def come() -> None:
        for number in numbers:
            await asyncio.sleep(0.4)
            told.account.received("orders", number)

    coming = asyncio.create_task(come())
    await told._count()
    assert told.account.lost == 0
    await coming


async def test_what_takes_long_is_waited_for_and_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, lines = a_story(tmp_path, monkeypatch, step_s=2)
    sending: Any = asyncio.create_task(asyncio.Event().wait())
    looks = 0

    def happened() -> bool:
        nonlocal looks
        looks += 1
        return looks > 100

    await told._until(sending, "the backlog queues in the secondary", happened)
    assert len(lines) > 3
    assert all(line.startswith("waiting for the backlog queues in the secondary, ") for line in lines)
    sending.cancel()


async def test_all_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, _ = a_story(tmp_path, monkeypatch, step_s=60)
    with pytest.raises(ConfigError, match="After 30 minutes there is still no sign of: a failover"):
        await told._wait("a failover", lambda: False)


async def test_senders_that_stop_say_why_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, _ = a_story(tmp_path, monkeypatch, step_s=0.1)

    async def fail() -> None:
        raise ExceptionGroup("unhandled errors", [ValueError("the key is wrong\nand more")])

    sending = asyncio.create_task(fail())
    with pytest.raises(ConfigError, match=r"^The senders stopped: the key is wrong$"):
        await told._until(sending, "a failover", lambda: False)


async def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broken = BrokerProcess(tmp_path, "broken", "[namespaces.broken.queues.orders]\nnonsense = 1\n")
    with pytest.raises(ConfigError, match=r"^The broker broken did not start: .*nonsense"):
        await broken.start()
