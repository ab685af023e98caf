"""Waiting, with tasks and with threads: pulses, bounds, and work in the background."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

from twinbus.paired.synchronization import AsyncSignal, AsyncTasks, Signal, Tasks, async_bounded, bounded


async def test_a_pulse_wakes_everybody_who_waits() -> None:
    signal = AsyncSignal()
    waiting = [asyncio.create_task(signal.wait(10)) for _ in range(3)]
    await asyncio.sleep(0)
    signal.pulse()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await signal.wait(0.01) is False
    assert await signal.wait(0) is False


def test_a_pulse_wakes_every_thread() -> None:
    signal = Signal()
    woken: list[bool] = []
    threads = [threading.Thread(target=lambda: woken.append(signal.wait(10))) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(woken) < 3:
        signal.pulse()
        time.sleep(0.005)
    assert woken == [True] * 3
    assert signal.wait(0.01) is False
    assert signal.wait(0) is False


async def test_a_task_that_takes_too_long_is_given_up() -> None:
    given_up: list[int] = []
    with pytest.raises(TimeoutError, match=r"within 0\.0 seconds"):
        await async_bounded(0.01, lambda: asyncio.sleep(10), lambda: given_up.append(1))
    assert given_up == [1]
    assert await async_bounded(5, lambda: asyncio.sleep(0, "done"), lambda: given_up.append(2)) == "done"
    outer = asyncio.create_task(async_bounded(10, lambda: asyncio.sleep(10), lambda: given_up.append(3)))
    await asyncio.sleep(0.01)
    outer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer
    assert given_up == [1, 3]


@pytest.mark.parametrize("seconds", [0.01, 10], ids=["timed out", "cancelled"])
async def test_nobody_hears_how_work_ends_that_was_given_up(seconds: float) -> None:
    """The SDK swallows a cancellation at some places, and fails a moment later."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    ended = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            ended.set()
            raise ValueError("failed") from None

    outer = asyncio.create_task(async_bounded(seconds, stubborn))
    await asyncio.sleep(0.02)
    outer.cancel()
    with pytest.raises((asyncio.CancelledError, TimeoutError)):
        await outer
    await ended.wait()
    await asyncio.sleep(0)
    gc.collect()
    assert complaints == []


def test_a_thread_that_takes_too_long_is_given_up() -> None:
    release = threading.Event()
    given_up: list[int] = []

    def give_up() -> None:
        given_up.append(1)
        release.set()

    with pytest.raises(TimeoutError, match=r"within 0\.0 seconds"):
        bounded(0.01, lambda: release.wait(10), give_up)
    assert given_up == [1]
    assert bounded(5, lambda: "done", give_up) == "done"
    with pytest.raises(KeyError):
        bounded(5, lambda: {}["x"], give_up)
    assert given_up == [1]


async def test_work_goes_on_in_the_background_of_a_loop() -> None:
    tasks = AsyncTasks()
    done: list[str] = []

    async def work(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        done.append(name)

    async def fail() -> None:
        raise ValueError("mine")

    tasks.spawn(work, "spawned", 0)
    tasks.spawn(work, "never", 60)
    await tasks.leave(fail, lambda: work("left", 0.05))
    await asyncio.sleep(0.01)
    await tasks.finish()
    await tasks.together(fail, lambda: work("together", 0))
    assert done == ["spawned", "left", "together"]


def test_work_goes_on_in_the_background_of_threads() -> None:
    tasks = Tasks()
    done: list[str] = []
    release = threading.Event()

    def slow() -> None:
        release.wait(10)
        done.append("slow")

    def fail() -> None:
        raise ValueError("mine")

    tasks.spawn(slow)
    release.set()
    tasks.leave(fail, lambda: done.append("left"))
    tasks.finish()
    tasks.together(fail, lambda: done.append("together"))
    assert sorted(done) == ["left", "slow", "together"]


def test_slow_work_is_waited_for() -> None:
    assert bounded(10, lambda: time.sleep(0.1) or "done") == "done"
    tasks = Tasks()
    done: list[str] = []
    tasks.spawn(lambda: (time.sleep(0.1), done.append("spawned")))
    tasks.finish()
    assert done == ["spawned"]


async def test_work_that_failed_does_not_disturb_the_end() -> None:
    tasks = AsyncTasks()
    ended: list[str] = []

    async def fails() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise LookupError("broken")

    async def slow() -> None:
        await asyncio.sleep(0.01)
        ended.append("closing")

    tasks.spawn(fails)
    await tasks.leave(slow)
    await asyncio.sleep(0)
    await tasks.finish()
    assert ended == ["closing"]


def test_background_threads_end_with_their_process() -> None:
    tasks = Tasks()
    go = threading.Event()
    tasks.spawn(go.wait)  # type: ignore[arg-type]
    assert [thread.daemon for thread in tasks._threads] == [True]
    go.set()
    tasks.finish()
    assert not tasks._threads


def test_closing_together_waits_for_all() -> None:
    ended: list[bool] = []

    def slow() -> None:
        time.sleep(0.02)
        ended.append(threading.current_thread().daemon)

    def broken() -> None:
        raise OSError("broken")

    Tasks().together(slow, broken, slow)
    assert ended == [True, True], "in threads that do not keep their process alive"


async def test_the_end_waits_for_work_that_cleans_up_and_keeps_nothing() -> None:
    tasks = AsyncTasks()
    steps: list[str] = []

    async def work() -> None:
        try:
            steps.append("begun")
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.01)
            steps.append("cleaned up")

    async def close() -> None:
        steps.append("closed")

    tasks.spawn(work)
    await tasks.leave(close)
    await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert steps == ["begun", "closed"]
    assert not tasks._farewells
    await tasks.finish()
    assert steps == ["begun", "closed", "cleaned up"]
    await asyncio.sleep(0)
    assert not tasks._work
