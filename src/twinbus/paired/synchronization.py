"""Waiting, once for asyncio and once for threads: what the two colours of the paired client do not share.

Rules:
- Each class exists twice with the same methods; `scripts/unasync.py` turns the one's name into the other's.
- Nothing waits without a bound that is told to it.
- `bounded` gives up on a call that does not return in time. A task is cancelled; a thread cannot be, and is left to
  itself: only calls that have no effect of their own are made this way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

# What is waited for when things are left behind: long enough for the goodbyes of a connection.
_FAREWELL_S = 5.0


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
        # Pulses so far.
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


class AsyncLock:
    """One at a time."""

    def __init__(self) -> None:
        # asyncio's own.
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class Lock:
    """One at a time."""

    def __init__(self) -> None:
        # One thread may ask again for what it has.
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


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
        # What runs.
        self._threads: set[threading.Thread] = set()
        # Senders of all threads come here.
        self._lock = threading.Lock()

    def spawn(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=self._run, args=(work, *arguments), name="twinbus-paired", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

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


async def async_bounded(seconds: float, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` returns; TimeoutError when it takes longer."""
    return await asyncio.wait_for(work(), max(seconds, 0.001))


def bounded(seconds: float, work: Callable[[], T]) -> T:
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
        raise TimeoutError(f"there was no answer within {seconds:.1f} seconds")
    done, result = outcome[0]
    if done:
        value: T = result
        return value
    raise result


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
