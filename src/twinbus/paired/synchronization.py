"""Waiting, for asyncio and for threads: what the two variants of the paired client do not share.

- Each class exists twice with the same methods; `scripts/unasync.py` turns one name into the other.
- Nothing waits without a bound.
- `bounded` gives up on a call that does not return in time: it calls `give_up`, which makes the call fail soon. A task
  is cancelled as well; a thread cannot be. Use it only for calls without side effects.
- A pool serves the longest waiter first: a caller that asks again at once must not overtake the others.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from twinbus.clock import Clock
from twinbus.limits import OPENING_S_MAX, OPENING_SLOT_S

T = TypeVar("T")
Waiter = TypeVar("Waiter")

# How long background closings are waited for.
_FAREWELL_S = 5.0
# For closing one connection; shorter than the above, so that it ends while somebody still waits.
CLOSE_S = 3.0


class NoLinkYet(Exception):
    """No item of a pool was free in time."""


class AsyncSignal:
    """Wakes everybody who waits."""

    def __init__(self) -> None:
        # Set by the next pulse, and then replaced.
        self._event = asyncio.Event()

    def pulse(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self, seconds: float) -> bool:
        """Whether a pulse came within that time."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return False
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Signal:
    """Wakes everybody who waits."""

    def __init__(self) -> None:
        # Guards the counter.
        self._condition = threading.Condition()
        self._pulses = 0

    def pulse(self) -> None:
        with self._condition:
            self._pulses += 1
            self._condition.notify_all()

    def wait(self, seconds: float) -> bool:
        """Whether a pulse came within that time."""
        with self._condition:
            before = self._pulses
            return seconds > 0 and self._condition.wait_for(lambda: self._pulses != before, seconds)


class _ItemPool(Generic[T, Waiter]):
    """Items that one caller uses at a time, up to a bound.

    An item is good, or cold: somebody must make it good (open the link) and give it, before a caller gets it.
    """

    def __init__(self, make: Callable[[], T], most: int) -> None:
        self._make = make
        # The maximum number of items.
        self.most = most
        self.all: list[T] = []
        # Good items that are unused, the best one last. Accessed without a lock.
        self.free: deque[T] = deque()
        self._cold: list[T] = []
        # Waiters, first come, first served.
        self.waiting: deque[Waiter] = deque()
        # How many waiters have got an item.
        self.served = 0

    def take_free(self) -> T | None:
        """The best good item, or None."""
        try:
            return self.free.pop()
        except IndexError:
            return None

    def take_cold(self) -> T | None:
        """An item to be made good; None if there may be no more. For one caller at a time."""
        if self._cold:
            return self._cold.pop()
        if len(self.all) >= self.most:
            return None
        item = self._make()
        self.all.append(item)
        return item

    def give(self, item: T, *, good: bool = True) -> None:
        """Return an item; one that is not `good` is cold from now on."""
        if good:
            self.free.append(item)
            # In this order: a new waiter checks once more for free items.
            if self.waiting:
                self.hand_over()
        else:
            self._cold.append(item)

    def hand_over(self) -> None:
        """Give free items to waiters."""
        raise NotImplementedError


class AsyncPool(_ItemPool[T, "asyncio.Future[T]"]):
    """A pool for tasks of one event loop."""

    async def take(self, seconds: float) -> T:
        """Borrow a good item exclusively; raises NoLinkYet if none is free in time."""
        if self.free:
            return self.free.pop()
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.waiting.append(waiter)
        try:
            await asyncio.wait({waiter}, timeout=max(seconds, 0))
        except BaseException:
            if waiter.done() and waiter.exception() is None:
                self.give(waiter.result())
            raise
        finally:
            if not waiter.done():
                self.waiting.remove(waiter)
        if not waiter.done():
            raise NoLinkYet(f"none was free within {seconds:.1f} seconds")
        return waiter.result()

    def hand_over(self) -> None:
        while self.waiting and self.free:
            self.waiting.popleft().set_result(self.free.pop())
            self.served += 1

    def fail(self, error: Exception) -> bool:
        """All who wait get this error; False if there is nobody."""
        waiting = list(self.waiting)
        self.waiting.clear()
        for waiter in waiting:
            waiter.set_exception(error)
        return bool(waiting)


class Pool(_ItemPool[T, tuple[threading.Event, list[T], list[Exception]]]):
    """A pool for threads: a waiter has an event, a list for its item, and one for an error."""

    def __init__(self, make: Callable[[], T], most: int) -> None:
        super().__init__(make, most)
        # Guards `waiting`.
        self._lock = threading.Lock()

    def take(self, seconds: float) -> T:
        """Borrow a good item exclusively; raises NoLinkYet if none is free in time."""
        item = self.take_free()
        if item is not None:
            return item
        waiter: tuple[threading.Event, list[T], list[Exception]] = (threading.Event(), [], [])
        with self._lock:
            self.waiting.append(waiter)
            # One may have become free since the first check.
            self._hand_over()
        try:
            waiter[0].wait(max(seconds, 0))
        except BaseException:
            # A signal handler may raise here. Nobody else would return the item.
            if self._stop_waiting(waiter):
                self.give(waiter[1][0])
            raise
        if self._stop_waiting(waiter):
            return waiter[1][0]
        if waiter[2]:
            raise waiter[2][0]
        raise NoLinkYet(f"none was free within {seconds:.1f} seconds")

    def _stop_waiting(self, waiter: tuple[threading.Event, list[T], list[Exception]]) -> bool:
        """Whether the waiter was given an item."""
        with self._lock:
            if not waiter[0].is_set():
                self.waiting.remove(waiter)
            return bool(waiter[1])

    def hand_over(self) -> None:
        with self._lock:
            self._hand_over()

    def _hand_over(self) -> None:
        while self.waiting:
            item = self.take_free()
            if item is None:
                return
            event, place, _ = self.waiting.popleft()
            self.served += 1
            place.append(item)
            event.set()

    def fail(self, error: Exception) -> bool:
        """All who wait get this error; False if there is nobody."""
        with self._lock:
            waiting = list(self.waiting)
            self.waiting.clear()
            for event, _, errors in waiting:
                errors.append(error)
                event.set()
        return bool(waiting)


class AsyncTasks:
    """Background work that does not outlive its owner."""

    def __init__(self) -> None:
        # Work that runs until it is cancelled.
        self._work: set[asyncio.Task[None]] = set()
        # Closings, which end by themselves.
        self._farewells: set[asyncio.Task[None]] = set()

    def spawn(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        task = asyncio.ensure_future(_awaited(work, *arguments))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def leave(self, *closings: Callable[[], Awaitable[None]]) -> None:
        """Close things in the background, ignoring errors: they may be broken."""
        for close in closings:
            task = asyncio.ensure_future(_quietly(close))
            self._farewells.add(task)
            task.add_done_callback(self._farewells.discard)

    async def together(self, *closings: Callable[[], Awaitable[None]]) -> None:
        """Close several things concurrently, and wait for all."""
        await asyncio.gather(*map(_quietly, closings))

    async def finish(self) -> None:
        """Cancel the work, and wait for the closings."""
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await asyncio.gather(*self._farewells, return_exceptions=True)


class Tasks:
    """Background work; threads that hang in the SDK are left behind as daemons."""

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()
        # Used by the senders of all threads.
        self._lock = threading.Lock()

    def spawn(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=self._run, args=(work, *arguments), name="twinbus-paired", daemon=True)
        with self._lock:
            self._threads.add(thread)
            # Started under the lock: `finish` could not wait for a thread that is not.
            thread.start()

    def leave(self, *closings: Callable[[], None]) -> None:
        """Close things in the background, ignoring errors: they may be broken."""
        for close in closings:
            self.spawn(_quietly_sync, close)

    def together(self, *closings: Callable[[], None]) -> None:
        """Close several things concurrently, and wait for all."""
        threads = [threading.Thread(target=_quietly_sync, args=(close,), daemon=True) for close in closings]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_FAREWELL_S)

    def finish(self) -> None:
        """Wait a little for running work, which has been told to end."""
        with self._lock:
            running = list(self._threads)
        for thread in running:
            if thread is not threading.current_thread():
                thread.join(_FAREWELL_S)

    def _run(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())


async def async_bounded(
    seconds: float, work: Callable[[], Awaitable[T]], give_up: Callable[[], None] = lambda: None
) -> T:
    """Return what `work` returns; raises TimeoutError if it takes longer."""
    task = asyncio.ensure_future(work())
    try:
        done, _ = await asyncio.wait({task}, timeout=max(seconds, 0.001))
        if not done:
            raise TimeoutError(f"there was no answer within {seconds:.1f} seconds")
    except BaseException:
        give_up()
        # Do not wait for its cleanup, which may hang as well.
        task.cancel()
        task.add_done_callback(_forget)
        raise
    return task.result()


def bounded(seconds: float, work: Callable[[], T], give_up: Callable[[], None] = lambda: None) -> T:
    """Return what `work` returns; raises TimeoutError if it takes longer."""
    outcome: list[tuple[T | None, BaseException | None]] = []
    thread = threading.Thread(target=_run, args=(work, outcome), name="twinbus-bounded", daemon=True)
    thread.start()
    thread.join(max(seconds, 0.001))
    if not outcome:
        give_up()
        raise TimeoutError(f"there was no answer within {seconds:.1f} seconds")
    return _result(outcome)


class Attention:
    """Decides how long to wait for something that makes progress: until it has made none for `silent_s`.

    Time in which this process did not run does not count. `on_slow` is called once, when it takes longer than a moment.
    """

    def __init__(
        self, silent_s: float, progress: Callable[[], object], clock: Clock, on_slow: Callable[[], None]
    ) -> None:
        self._silent_ms = round(silent_s * 1000)
        self._progress = progress
        self._clock = clock
        self._on_slow: Callable[[], None] | None = on_slow
        self._seen = progress()
        self._since_ms = self._started_ms = clock.now_ms()

    def look(self) -> float:
        """How many seconds to wait before the next look; raises TimeoutError if there is nothing to wait for."""
        now_ms = self._clock.now_ms()
        seen = self._progress()
        if seen != self._seen:
            self._seen, self._since_ms = seen, now_ms
        passed_ms, silent_ms = now_ms - self._started_ms, now_ms - self._since_ms
        if self._on_slow is not None and passed_ms >= OPENING_SLOT_S * 1000:
            on_slow, self._on_slow = self._on_slow, None
            on_slow()
        if silent_ms >= self._silent_ms or passed_ms >= OPENING_S_MAX * 1000:
            raise TimeoutError(f"there was no answer within {silent_ms / 1000:.1f} seconds")
        return max(min((self._silent_ms - silent_ms) / 1000, OPENING_SLOT_S), 0.001)


async def async_attended(attention: Attention, work: Callable[[], Awaitable[T]], give_up: Callable[[], None]) -> T:
    """Return what `work` returns; raises TimeoutError if it makes no progress."""
    task = asyncio.ensure_future(work())
    try:
        while not (await asyncio.wait({task}, timeout=attention.look()))[0]:
            pass
    except BaseException:
        give_up()
        task.cancel()
        task.add_done_callback(_forget)
        raise
    return task.result()


def attended(attention: Attention, work: Callable[[], T], give_up: Callable[[], None]) -> T:
    """Return what `work` returns; raises TimeoutError if it makes no progress."""
    outcome: list[tuple[T | None, BaseException | None]] = []
    thread = threading.Thread(target=_run, args=(work, outcome), name="twinbus-opening", daemon=True)
    thread.start()
    try:
        while not outcome:
            thread.join(attention.look())
    except BaseException:
        give_up()
        raise
    return _result(outcome)


async def async_blocking(work: Callable[[], None]) -> None:
    """Run blocking code."""
    await asyncio.to_thread(work)


def blocking(work: Callable[[], None]) -> None:
    """Run blocking code."""
    work()


async def async_awaited(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await a coroutine of asyncio's."""
    return await make()


def awaited(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine of asyncio's in a thread that has no event loop."""
    return asyncio.run(make())


def _run(work: Callable[[], T], outcome: list[tuple[T | None, BaseException | None]]) -> None:
    try:
        outcome.append((work(), None))
    except BaseException as error:  # it belongs to the thread that waits
        outcome.append((None, error))


def _result(outcome: list[tuple[T | None, BaseException | None]]) -> T:
    result, error = outcome.pop()
    if error is not None:
        raise error
    return cast(T, result)


def _forget(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a task that nobody awaits."""
    if not task.cancelled():
        task.exception()


async def _awaited(work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    await work(*arguments)


async def _quietly(work: Callable[[], Awaitable[None]]) -> None:
    # It was already broken.
    with suppress(Exception):
        await asyncio.wait_for(work(), _FAREWELL_S)


def _quietly_sync(work: Callable[[], None]) -> None:
    # It was already broken.
    with suppress(Exception):
        work()
