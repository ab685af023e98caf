"""The story's waits: as long as something happens, and no longer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from twinbus.demo import story
from twinbus.demo.story import DemoOptions, Story


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
