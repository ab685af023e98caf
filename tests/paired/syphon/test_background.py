"""A syphon inside an application: a task, or a thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from twinbus.paired.syphon.background import AsyncBackgroundSyphon, BackgroundSyphon

from .conftest import Pair, until
from .test_syphon import numbered


async def test_as_a_task(pair: Pair) -> None:
    path = pair.destination()
    background = AsyncBackgroundSyphon(pair.syphon, pytest.fail)
    background.start()
    background.start()
    await pair.divert(path, numbered(10))
    assert len(await pair.taken(path, 10)) == 10
    await background.stop()
    await background.stop()


async def test_in_a_thread(pair: Pair) -> None:
    path = pair.destination()
    background = BackgroundSyphon(pair.syphon, pytest.fail)
    background.start()
    await pair.divert(path, numbered(10))
    assert len(await pair.taken(path, 10)) == 10
    await asyncio.to_thread(background.stop)
    assert not [thread for thread in threading.enumerate() if thread.name == "twinbus-syphon"]
    background.stop()


async def test_a_failure_is_told() -> None:
    told: list[BaseException] = []

    def broken() -> None:
        raise LookupError("no such thing")

    background = BackgroundSyphon(broken, told.append)  # type: ignore[arg-type]
    background.start()
    await until(lambda: told)
    assert isinstance(told[0], LookupError)
    background.stop()


async def test_a_task_that_fails_is_told() -> None:
    told: list[BaseException] = []

    class Broken:
        async def run(self) -> None:
            raise LookupError("no such thing")

        def stop(self) -> None:
            pass

    background = AsyncBackgroundSyphon(Broken, told.append)  # type: ignore[arg-type]
    background.start()
    await until(lambda: told)
    assert isinstance(told[0], LookupError)
    await background.stop()


async def test_a_thread_ends_with_its_process(pair: Pair) -> None:
    background = BackgroundSyphon(pair.syphon, pytest.fail)
    background.start()
    assert background._thread is not None
    assert background._thread.daemon
    await asyncio.to_thread(background.stop)


def test_what_never_started_can_be_stopped() -> None:
    background = BackgroundSyphon(pytest.fail, pytest.fail)  # type: ignore[arg-type]
    background.stop()
    assert background._thread is None
