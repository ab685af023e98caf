"""Work that grows with its input, done a few milliseconds at a time, so that nobody waits for the whole of it.

A piece of work is an iterator: each step does a little and yields; one that yields a list waits in it until somebody
hands the list to `resume`. All pieces of a namespace share one slice of each
turn of the event loop, step by step in turn; between two slices the loop serves sockets. While as many rows wait for
the disk as one commit should write, no step is taken: whoever sends one message waits behind one such commit at most.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from twinbus.limits import SLICE_MS

if TYPE_CHECKING:
    from twinbus.broker.commits import CommitLoop

# A piece of work; what it yields is None, or the list in which it waits.
Work = Iterator["list[Work] | None"]

logger = logging.getLogger(__name__)


class Slices:
    """The pieces of work of one namespace."""

    __slots__ = ("_commits", "_ends_s", "_loop", "_now_s", "_scheduled", "_works")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, commits: CommitLoop, now_s: Callable[[], float] = time.perf_counter
    ) -> None:
        self._loop = loop
        # Says whether the disk is behind.
        self._commits = commits
        # Injected by tests.
        self._now_s = now_s
        # What is not done yet, the next to take a step first.
        self._works: deque[Work] = deque()
        # When the slice of this turn of the loop is used up.
        self._ends_s = 0.0
        # Whether the next slice is on its way.
        self._scheduled = False

    def over(self) -> bool:
        """Whether this turn's slice is used up; whoever has more to do hands it to `start`."""
        now_s = self._now_s()
        if not self._scheduled:
            self._begin(now_s)
        return now_s >= self._ends_s or self._commits.full

    def start(self, work: Work) -> None:
        """Do a piece of work: at once as far as this turn's slice goes, the rest in later turns."""
        if self._works:
            self._works.append(work)
            return
        while not self.over():
            if not self._step(work):
                return
        self._works.append(work)
        self.wake()

    def resume(self, waiting: list[Work]) -> None:
        """Let work go on that waits."""
        self._works.extend(waiting)
        waiting.clear()
        self.wake()

    def wake(self) -> None:
        """Go on: there is work, or the disk has caught up."""
        if self._works and not self._scheduled:
            self._begin(self._now_s())

    def finish(self) -> None:
        """Do the rest at once: the namespace is being closed."""
        while self._works:
            work = self._works.popleft()
            while self._step(work):
                pass

    def _begin(self, now_s: float) -> None:
        self._scheduled = True
        self._ends_s = now_s + SLICE_MS / 1000
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        works = self._works
        self._ends_s = self._now_s() + SLICE_MS / 1000
        while works and not self._commits.full:
            work = works.popleft()
            if self._step(work):
                works.append(work)
            if self._now_s() >= self._ends_s:
                self.wake()
                return

    def _step(self, work: Work) -> bool:
        """One step; False when it is over, or waits."""
        try:
            waiting = next(work)
        except StopIteration:
            return False
        except Exception:
            logger.exception("a piece of work failed")
            return False
        if waiting is not None:
            waiting.append(work)
        return waiting is None
