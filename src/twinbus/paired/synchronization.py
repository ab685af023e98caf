"""Waiting, once for asyncio and once for threads: what the two colours of the paired client do not share.

Rules:
- Each class exists twice with the same methods; `scripts/unasync.py` turns the one's name into the other's.
- Nothing waits without a bound that is told to it.
- `bounded` gives up on a call that does not return in time: it calls `give_up`, which makes the call fail soon. A task
  is cancelled as well; a thread cannot be. Only calls that have no effect of their own are made this way.
- A pool hands over to the one who has waited longest: somebody who asks again at once must not pass the others.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Waiter = TypeVar("Waiter")

# What is waited for when things are left behind.
_FAREWELL_S = 5.0
# The goodbyes of one connection; they end before nobody waits for them any more.
CLOSE_S = 3.0


class AsyncSignal:
    """Wakes everybody who waits."""

    def __init__(self) -> None:
        # Set when the next pulse comes, and replaced then.
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
        # Guards the number below.
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
    """Things that one may use at a time; another is made when none is free, up to a bound."""

    def __init__(self, make: Callable[[], T], most: int) -> None:
        self._make = make
        # How many there may be.
        self._most = most
        self.all: list[T] = []
        # Those that nobody uses; the last one is the best. Taken from and added to without a lock.
        self.free: deque[T] = deque()
        # Who waits for one, the first who came first.
        self.waiting: deque[Waiter] = deque()

    def make(self) -> T:
        """Another one, which somebody uses from the start."""
        item = self._make()
        self.all.append(item)
        return item

    def take_free(self) -> T | None:
        """The best one that is free; None when none is."""
        try:
            return self.free.pop()
        except IndexError:
            return None

    def give(self, item: T, *, good: bool = True) -> None:
        """It may be used by somebody else; one that is not `good` comes last."""
        if good:
            self.free.append(item)
        else:
            self.free.appendleft(item)
        # In this order: whoever begins to wait looks at what is free once more.
        if self.waiting:
            self.hand_over()

    def hand_over(self) -> None:
        """Give what is free to those who wait."""
        raise NotImplementedError


class AsyncPool(_ItemPool[T, "asyncio.Future[T]"]):
    """A pool for tasks of one event loop."""

    async def take(self, seconds: float) -> T:
        """One to use alone; TimeoutError when none is free in time."""
        if self.free:
            return self.free.pop()
        if len(self.all) < self._most:
            return self.make()
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.waiting.append(waiter)
        try:
            await asyncio.wait({waiter}, timeout=max(seconds, 0))
        except BaseException:
            if waiter.done():
                self.give(waiter.result())
            raise
        finally:
            if not waiter.done():
                self.waiting.remove(waiter)
        if not waiter.done():
            raise TimeoutError(f"none was free within {seconds:.1f} seconds")
        return waiter.result()

    def hand_over(self) -> None:
        while self.waiting and self.free:
            self.waiting.popleft().set_result(self.free.pop())


class Pool(_ItemPool[T, tuple[threading.Event, list[T]]]):
    """A pool for threads: who waits has an event, and a list in which the thing is put."""

    def __init__(self, make: Callable[[], T], most: int) -> None:
        super().__init__(make, most)
        # Guards `all` and those who wait.
        self._lock = threading.Lock()

    def take(self, seconds: float) -> T:
        """One to use alone; TimeoutError when none is free in time."""
        item = self.take_free()
        if item is not None:
            return item
        waiter: tuple[threading.Event, list[T]] = (threading.Event(), [])
        with self._lock:
            if len(self.all) < self._most:
                return self.make()
            self.waiting.append(waiter)
            # One may have become free since the look at the top.
            self._hand_over()
        waiter[0].wait(max(seconds, 0))
        with self._lock:
            if waiter[1]:
                return waiter[1][0]
            self.waiting.remove(waiter)
        raise TimeoutError(f"none was free within {seconds:.1f} seconds")

    def hand_over(self) -> None:
        with self._lock:
            self._hand_over()

    def _hand_over(self) -> None:
        while self.waiting:
            item = self.take_free()
            if item is None:
                return
            event, place = self.waiting.popleft()
            place.append(item)
            event.set()


class AsyncTasks:
    """Work in the background, none of which outlives its owner."""

    def __init__(self) -> None:
        # Work that goes on until it is ended.
        self._work: set[asyncio.Task[None]] = set()
        # Closings, which end by themselves.
        self._farewells: set[asyncio.Task[None]] = set()

    def spawn(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        task = asyncio.ensure_future(_awaited(work, *arguments))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def within(self, seconds: float, work: Callable[[], Awaitable[None]]) -> bool:
        """Whether `work` ended in that time; if not, it goes on in the background, and what it comes to is its own."""
        task = asyncio.ensure_future(_awaited(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        task.add_done_callback(_forget)
        done, _ = await asyncio.wait({task}, timeout=max(seconds, 0.001))
        if done:
            task.result()
        return bool(done)

    async def leave(self, *closings: Callable[[], Awaitable[None]]) -> None:
        """Do what nobody has to wait for, and what may fail: closing something that is broken."""
        for close in closings:
            task = asyncio.ensure_future(_quietly(close))
            self._farewells.add(task)
            task.add_done_callback(self._farewells.discard)

    async def together(self, *closings: Callable[[], Awaitable[None]]) -> None:
        """Close several things at once, and wait for all."""
        await asyncio.gather(*map(_quietly, closings))

    async def finish(self) -> None:
        """End the work, and wait for the closings."""
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await asyncio.gather(*self._farewells, return_exceptions=True)


class Tasks:
    """Work in the background; threads that hang in the SDK are left behind as daemons."""

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()
        # Senders of all threads come here.
        self._lock = threading.Lock()

    def spawn(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=self._run, args=(work, *arguments), name="twinbus-paired", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def within(self, seconds: float, work: Callable[[], None]) -> bool:
        """Whether `work` ended in that time; if not, it goes on in the background, and what it comes to is its own."""
        errors: list[Exception] = []
        ended = threading.Event()

        def run() -> None:
            try:
                work()
            except Exception as error:  # it belongs to the thread that waits
                errors.append(error)
            finally:
                ended.set()

        self.spawn(run)
        if not ended.wait(max(seconds, 0.001)):
            return False
        if errors:
            raise errors[0]
        return True

    def leave(self, *closings: Callable[[], None]) -> None:
        """Do what nobody has to wait for, and what may fail: closing something that is broken."""
        for close in closings:
            self.spawn(_quietly_sync, close)

    def together(self, *closings: Callable[[], None]) -> None:
        """Close several things at once, and wait for all."""
        threads = [threading.Thread(target=_quietly_sync, args=(close,), daemon=True) for close in closings]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_FAREWELL_S)

    def finish(self) -> None:
        """Wait a little for what runs; all of it has been told to end."""
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
    """What `work` returns; TimeoutError when it takes longer."""
    task = asyncio.ensure_future(work())
    try:
        done, _ = await asyncio.wait({task}, timeout=max(seconds, 0.001))
    except BaseException:
        give_up()
        task.cancel()
        raise
    if not done:
        give_up()
        # What it does about its end is not waited for: that may hang as well.
        task.cancel()
        task.add_done_callback(_forget)
        raise TimeoutError(f"there was no answer within {seconds:.1f} seconds")
    return task.result()


def bounded(seconds: float, work: Callable[[], T], give_up: Callable[[], None] = lambda: None) -> T:
    """What `work` returns; TimeoutError when it takes longer."""
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, work()))
        except BaseException as error:  # it belongs to the thread that waits
            outcome.append((False, error))

    thread = threading.Thread(target=run, name="twinbus-bounded", daemon=True)
    thread.start()
    thread.join(max(seconds, 0.001))
    if not outcome:
        give_up()
        raise TimeoutError(f"there was no answer within {seconds:.1f} seconds")
    done, result = outcome.pop()
    if done:
        value: T = result
        return value
    raise result


async def async_blocking(work: Callable[[], None]) -> None:
    """Do what blocks the thread it runs on."""
    await asyncio.to_thread(work)


def blocking(work: Callable[[], None]) -> None:
    """Do what blocks the thread it runs on."""
    work()


def _forget(task: asyncio.Future[Any]) -> None:
    """Somebody has to look at an error that nobody waits for."""
    if not task.cancelled():
        task.exception()


async def _awaited(work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    await work(*arguments)


async def _quietly(work: Callable[[], Awaitable[None]]) -> None:
    # It was broken already.
    with suppress(Exception):
        await asyncio.wait_for(work(), _FAREWELL_S)


def _quietly_sync(work: Callable[[], None]) -> None:
    # It was broken already.
    with suppress(Exception):
        work()
