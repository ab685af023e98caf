"""The application's threads and descriptors before, during and after an outage, from /proc."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from outages_load import BACKLOG_QUEUES, SOURCES, WORKERS

SENDERS = WORKERS * len(SOURCES)
# A diverting sender has a connection to each backlog queue that it has used, until the primary is back. In the sync
# client each connection has a thread that keeps it alive.
DIVERTING_MAX = SENDERS * BACKLOG_QUEUES
# During an outage each sender also has at most one hanging open and one connection that is being closed; so does the
# ping of each entity.
HUNG_MAX = 2 * (SENDERS + len(SOURCES))
# Event loops, listeners and the administration client need a few.
SPARE = 4
# The first event starts the listeners' thread.
LISTENING = 1
MOST = DIVERTING_MAX + HUNG_MAX + SPARE
SAMPLE_S = 0.05
SETTLE_TIMEOUT_S = 30.0


class Usage(NamedTuple):
    """Threads and descriptors of a process."""

    threads: int
    descriptors: int

    @classmethod
    def of(cls, process_id: int | str = "self") -> Usage:
        folder = Path("/proc") / str(process_id)
        return cls(len(os.listdir(folder / "task")), len(os.listdir(folder / "fd")))

    def within(self, base: Usage, threads: int, descriptors: int) -> bool:
        """Whether there are at most this many more than in `base`."""
        return self.threads <= base.threads + threads and self.descriptors <= base.descriptors + descriptors

    def __str__(self) -> str:
        return f"{self.threads}/{self.descriptors}"


@dataclass
class Account:
    """One application's threads and descriptors: before the outage, its maximum, and after it; then, as the application
    itself reports, before its client was created and after it was closed."""

    before: Usage
    most: Usage
    after: Usage
    opened: Usage
    closed: Usage

    @property
    def good(self) -> bool:
        return (
            self.most.within(self.before, MOST, MOST)
            and self.after.within(self.before, LISTENING, 0)
            and self.closed.within(self.opened, 0, 0)
        )

    def __str__(self) -> str:
        return (
            f"threads/descriptors before {self.before}, at most {self.most}, after {self.after}; "
            f"without a client {self.opened}, closed {self.closed}"
        )


class Watcher:
    """Samples the usage of a process."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self.before = self.most = self.after = Usage.of(process_id)
        self._task = asyncio.ensure_future(self._sample())

    async def _sample(self) -> None:
        while True:
            now = Usage.of(self._process_id)
            self.most = Usage(max(self.most.threads, now.threads), max(self.most.descriptors, now.descriptors))
            await asyncio.sleep(SAMPLE_S)

    async def settle(self) -> None:
        """After the outage, wait until its additional threads and descriptors are gone, or give up."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            self.after = Usage.of(self._process_id)
            if self.after.within(self.before, LISTENING, 0) or time.monotonic() > deadline:
                break
            await asyncio.sleep(SAMPLE_S)
        self.stop()

    def stop(self) -> None:
        self._task.cancel()

    def account(self, told: Path) -> Account:
        """Combine the samples with the process's own report."""
        opened, closed = (Usage(*pair) for pair in json.loads(told.read_text()))
        return Account(self.before, self.most, self.after, opened, closed)
