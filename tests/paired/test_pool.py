"""The pool lends connections to one caller at a time: nothing is lost, nobody is passed over, the bound holds."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from twinbus.paired.synchronization import AsyncPool, NoLinkYet, Pool


def filled(pool: Any, count: int) -> Any:
    """The pool, with good items."""
    for _ in range(count):
        pool.give(pool.take_cold())
    return pool


async def test_the_pool_hands_over_in_turn() -> None:
    made = iter(range(100))
    pool = filled(AsyncPool(lambda: next(made), 2), 2)
    assert {await pool.take(1), await pool.take(1)} == {0, 1}
    waiting = [asyncio.create_task(pool.take(5)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(NoLinkYet):
        await pool.take(0.01)
    waiting[0].cancel()
    pool.give(0)
    assert list(pool.free) == [], "it went to the one who waits longest"
    assert await waiting[1] == 0
    # A connection that is handed over to a caller that is cancelled at the same moment is returned.
    pool.give(1)
    waiting[2].cancel()
    await asyncio.gather(waiting[2], return_exceptions=True)
    assert list(pool.free) == [1]
    assert pool.all == [0, 1]


def test_the_pool_of_threads_loses_nothing() -> None:
    pool = filled(Pool(object, 3), 3)
    most, lock, holders = 0, threading.Lock(), set()

    def use() -> int:
        nonlocal most
        timeouts = 0
        for _ in range(300):
            try:
                item = pool.take(0.001)
            except NoLinkYet:
                timeouts += 1
                continue
            with lock:
                assert item not in holders
                holders.add(item)
                most = max(most, len(holders))
                holders.discard(item)
            pool.give(item)
        return timeouts

    with ThreadPoolExecutor(16) as threads:
        [each.result() for each in [threads.submit(use) for _ in range(16)]]
    assert 1 <= most <= 3
    assert len(pool.free) == len(pool.all) <= 3


async def test_a_cold_item_is_not_lent() -> None:
    for pool in (AsyncPool(object, 3), Pool(object, 3)):
        one, two, three = (pool.take_cold() for _ in range(3))
        assert pool.take_cold() is None, "no more than three"
        pool.give(one)
        pool.give(two, good=False)
        pool.give(three)
        assert [pool.take_free() for _ in range(3)] == [three, one, None]
        assert pool.take_cold() is two
        assert pool.all == [one, two, three]


async def test_all_who_wait_get_the_error() -> None:
    pool: AsyncPool[object] = AsyncPool(object, 3)
    assert pool.fail(OSError("away")) is False
    waiting = [asyncio.create_task(pool.take(5)) for _ in range(3)]
    await asyncio.sleep(0)
    assert pool.fail(OSError("away")) is True
    assert [str(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == ["away"] * 3
    threads: Pool[object] = Pool(object, 3)
    assert threads.fail(OSError("away")) is False
    with ThreadPoolExecutor(3) as executor:
        calls = [executor.submit(threads.take, 10) for _ in range(3)]
        while len(threads.waiting) < 3:
            time.sleep(0.001)
        assert threads.fail(OSError("away")) is True
        assert [str(call.exception()) for call in calls] == ["away"] * 3
    assert not pool.waiting
    assert not threads.waiting


def test_a_thread_that_waits_gets_what_is_given() -> None:
    pool = filled(Pool(object, 1), 1)
    item = pool.take(1)
    taken: list[object] = []
    waiting = [threading.Thread(target=lambda: taken.append(pool.take(10))) for _ in range(2)]
    for number, thread in enumerate(waiting, 1):
        thread.start()
        while len(pool.waiting) < number:
            time.sleep(0.001)
    pool.give(item)
    while len(taken) < 1:
        time.sleep(0.001)
    assert len(pool.waiting) == 1, "one thing, one taker"
    assert not pool.free
    pool.give(item)
    for thread in waiting:
        thread.join(10)
    assert taken == [item, item]


@pytest.mark.parametrize("given", [False, True], ids=["waiting", "handed over"])
def test_a_thread_that_is_interrupted_takes_nothing_away(given: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = filled(Pool(object, 1), 1)
    item = pool.take(1)

    def interrupted(event: threading.Event, seconds: float) -> bool:
        if given:
            pool.give(item)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.take(1)
    assert not pool.waiting
    if not given:
        pool.give(item)
    assert pool.take(0) is item


def test_what_becomes_free_between_two_looks_is_taken() -> None:
    pool = filled(Pool(object, 1), 1)
    item = pool.take(1)
    look = pool.take_free

    def miss() -> None:
        pool.take_free = look  # type: ignore[method-assign]
        pool.free.append(item)

    pool.take_free = miss  # type: ignore[method-assign]
    assert pool.take(0) is item
