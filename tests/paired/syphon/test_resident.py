"""A syphon inside an application: a task, or a thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from twinbus.paired.syphon.resident import AsyncResident, Resident

from .conftest import Pair, until
from .test_syphon import numbered


async def test_as_a_task(pair: Pair) -> None:
    path = pair.destination()
    resident = AsyncResident(pair.syphon, pytest.fail)
    resident.start()
    resident.start()
    await pair.divert(path, numbered(10))
    assert len(await pair.taken(path, 10)) == 10
    await resident.stop()
    await resident.stop()


async def test_in_a_thread(pair: Pair) -> None:
    path = pair.destination()
    resident = Resident(pair.syphon, pytest.fail)
    resident.start()
    await pair.divert(path, numbered(10))
    assert len(await pair.taken(path, 10)) == 10
    await asyncio.to_thread(resident.stop)
    assert not [thread for thread in threading.enumerate() if thread.name == "twinbus-syphon"]
    resident.stop()


async def test_a_failure_is_told() -> None:
    told: list[BaseException] = []

    def broken() -> None:
        raise LookupError("no such thing")

    resident = Resident(broken, told.append)  # type: ignore[arg-type]
    resident.start()
    await until(lambda: told)
    assert isinstance(told[0], LookupError)
    resident.stop()
