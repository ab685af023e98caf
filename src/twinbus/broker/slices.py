"""Runs long work a few milliseconds at a time, so that nobody has to wait for all of it.

A piece of work is an iterator whose steps each do a little and yield. A step that yields a list waits in that list
until somebody passes the list to `resume`. All work of a namespace shares one slice per turn of the event loop, taking
turns step by step; between slices the loop serves sockets. No step runs while as many rows wait for the disk as one
commit should write, so a client that sends one message waits for at most one such commit.
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

# A piece of work; it yields None, or the list in which it waits.
Work = Iterator["list[Work] | None"]

logger = logging.getLogger(__name__)


def pause_if_over(slices: Slices) -> Work | None:
    """For a handler whose next call may wait: work that only pauses, if this turn's slice is used up."""
    return _pause() if slices.over() else None


def _pause() -> Work:
    yield None


class Slices:
    """The long work of one namespace."""

    __slots__ = ("_commits", "_ends_s", "_loop", "_now_s", "_scheduled", "_works")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, commits: CommitLoop, now_s: Callable[[], float] = time.perf_counter
    ) -> None:
        self._loop = loop
        # Tells whether the disk is behind.
        self._commits = commits
        # Injected by tests.
        self._now_s = now_s
        # Unfinished work, the next one first.
        self._works: deque[Work] = deque()
        # When this turn's slice ends.
        self._ends_s = 0.0
        # Whether the next slice is scheduled.
        self._scheduled = False

    @property
    def busy(self) -> bool:
        """Whether any work could take a step."""
        return bool(self._works)

    def over(self) -> bool:
        """Whether this turn's slice is used up; pass the rest of the work to `start`."""
        now_s = self._now_s()
        if not self._scheduled:
            self._begin(now_s)
        return now_s >= self._ends_s or self._commits.full

    def start(self, work: Work) -> None:
        """Run a piece of work: at once within this turn's slice, the rest in later turns."""
        if self._works:
            self._works.append(work)
            return
        while not self.over():
            if not self._step(work):
                return
        self._works.append(work)
        self.wake()

    def resume(self, waiting: list[Work]) -> None:
        """Continue work that waits in a list."""
        self._works.extend(waiting)
        waiting.clear()
        self.wake()

    def wake(self) -> None:
        """Continue: there is new work, or the disk has caught up."""
        if self._works and not self._scheduled:
            self._begin(self._now_s())

    def finish(self) -> None:
        """Run everything to its end now: the namespace is closing."""
        while self._works:
            work = self._works.popleft()
            while self._step(work):
                pass

    def _begin(self, now_s: float) -> None:
        self._scheduled = True
        self._ends_s = now_s + SLICE_MS / 1000
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        # It stays scheduled until the end: a step that asks whether the slice is over must not begin another one.
        works = self._works
        self._ends_s = self._now_s() + SLICE_MS / 1000
        while works and not self._commits.full:
            work = works.popleft()
            if self._step(work):
                works.append(work)
            if self._now_s() >= self._ends_s:
                self._scheduled = False
                self.wake()
                return
        self._scheduled = False
        if works:
            self._commits.hurry()

    def _step(self, work: Work) -> bool:
        """Run one step; False if the work is finished or waits."""
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
