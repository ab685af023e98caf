"""A gate lets a few open at once, in turn, and learns how many are good."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from twinbus.limits import OPENINGS_MAX, OPENINGS_MIN, OPENINGS_START
from twinbus.paired.gates import AsyncOpeningGate, OpeningGate, OpeningLimit, OpeningTurn


def test_the_limit_grows_by_one_and_is_halved() -> None:
    limit = OpeningLimit()
    assert limit.limit == OPENINGS_START
    limit.learn(good=True)
    assert limit.limit == OPENINGS_START + 1
    limit.learn(good=False)
    assert limit.limit == (OPENINGS_START + 1) // 2
    for _ in range(10):
        limit.learn(good=False)
    assert limit.limit == OPENINGS_MIN
    for _ in range(2 * OPENINGS_MAX):
        limit.learn(good=True)
    assert limit.limit == OPENINGS_MAX


async def test_tasks_enter_in_turn() -> None:
    gate = AsyncOpeningGate()
    gate.limit = 2
    entered: list[int] = []

    async def enter(number: int) -> None:
        await gate.enter()
        entered.append(number)

    tasks = [asyncio.create_task(enter(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert entered == [0, 1]
    tasks[2].cancel()
    await asyncio.gather(tasks[2], return_exceptions=True)
    gate.leave()
    await asyncio.sleep(0)
    assert entered == [0, 1, 3], "one who left the queue gets no place"
    # A place that is given to a task that is cancelled at the same moment goes to the next.
    gate.leave()
    tasks[4].cancel()
    await asyncio.gather(tasks[4], return_exceptions=True)
    assert gate.running == 1
    gate.limit = 1
    late = asyncio.create_task(enter(5))
    await asyncio.sleep(0)
    assert entered == [0, 1, 3], "a limit that was lowered holds"
    gate.leave()
    await late
    assert gate.running == 1


def test_threads_enter_a_few_at_a_time() -> None:
    gate = OpeningGate()
    gate.limit = 3
    inside, most, lock = 0, 0, threading.Lock()

    def use() -> None:
        nonlocal inside, most
        gate.enter()
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.001)
        with lock:
            inside -= 1
        gate.leave()

    with ThreadPoolExecutor(20) as threads:
        for call in [threads.submit(use) for _ in range(100)]:
            call.result()
    assert 1 <= most <= 3
    assert gate.running == 0


@pytest.mark.parametrize("gate", [AsyncOpeningGate(), OpeningGate()], ids=["aio", "sync"])
def test_a_place_is_left_once(gate: AsyncOpeningGate | OpeningGate) -> None:
    gate.running = 2
    place = OpeningTurn(gate)
    place.leave()
    place.leave()
    assert gate.running == 1
