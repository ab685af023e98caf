"""How many links to a namespace open at once: few when the machine or the peer is slow, more while all goes well.

- Opening a link is the dearest thing that a client does to itself and to the broker. Hundreds at once slow each other
  down until none is in time.
- The limit grows by one with every link that opens and is halved by a failure and by starvation.
- Places are given in turn. A place is kept for a moment only: an opening that takes longer waits for its peer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from twinbus.limits import OPENINGS_MAX, OPENINGS_MIN, OPENINGS_START


class OpeningLimit:
    """The limit of a namespace, and what it learns."""

    def __init__(self) -> None:
        self.limit = OPENINGS_START
        # Openings that have a place.
        self.running = 0

    def learn(self, *, good: bool) -> None:
        """An opening has ended; it was `good` if it succeeded and the process got its CPU meanwhile."""
        if good:
            self.limit = min(self.limit + 1, OPENINGS_MAX)
        else:
            self.limit = max(self.limit // 2, OPENINGS_MIN)


class AsyncOpeningGate(OpeningLimit):
    """A gate for tasks of one event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait for a place."""
        if self.running < self.limit and not self._waiting:
            self.running += 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        self.running -= 1
        while self._waiting and self.running < self.limit:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self.running += 1
                waiter.set_result(None)


class OpeningGate(OpeningLimit):
    """A gate for threads."""

    def __init__(self) -> None:
        super().__init__()
        # Guards the two below and the number of places in use.
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    def enter(self) -> None:
        """Wait for a place."""
        with self._lock:
            if self.running < self.limit and not self._waiting:
                self.running += 1
                return
            waiter = threading.Event()
            self._waiting.append(waiter)
        waiter.wait()

    def leave(self) -> None:
        with self._lock:
            self.running -= 1
            while self._waiting and self.running < self.limit:
                self.running += 1
                self._waiting.popleft().set()


class OpeningTurn:
    """A place in a gate, left once, however often it is told."""

    def __init__(self, gate: AsyncOpeningGate | OpeningGate) -> None:
        self._leave: list[Callable[[], None]] = [gate.leave]

    def leave(self) -> None:
        # Two threads may do this: one of them gets it.
        with suppress(IndexError):
            self._leave.pop()()
