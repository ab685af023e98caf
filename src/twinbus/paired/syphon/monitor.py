"""Measures the backlog once a minute and writes depth, bytes, age and dead letters to the ledger.

- Every syphon with a ledger does this; without a ledger nothing is measured.
- A measurement is one request to the administration API per queue and, unless it is empty, a peek for the age of its
  first message. A queue at which a long receive waits is empty: it is not asked, and its zero is written once.
- A failed measurement affects nothing else; the log mentions it once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from twinbus.clock import Clock
from twinbus.errors import TwinbusError
from twinbus.ledger.words import OK, Kind, Stage
from twinbus.limits import BACKLOG_LOOK_S, BACKLOG_LOOK_TIMEOUT_S
from twinbus.paired.journal import Journal

logger = logging.getLogger("twinbus.paired.syphon")

# How long starting the thread waits for the first measurement.
_FIRST_S = 5.0
# The limit of the last measurement, during which locks are held.
_LAST_S = 3.0


class Count(NamedTuple):
    """The administration API's counts of one queue."""

    depth: int
    size_bytes: int
    dead: int


# Counts the named queues, omitting missing ones. A plain function may block, so it runs in a thread.
Counts = Callable[[Sequence[str]], Mapping[str, Count]] | Callable[[Sequence[str]], Awaitable[Mapping[str, Count]]]


class AgeSource(Protocol):
    """Reports the age of a queue."""

    async def oldest_ms(self, path: str) -> int | None:
        """When the first message of a queue was enqueued, by the service's clock; None if there is none."""
        ...


class BacklogMonitor:
    """Measures the backlog queues of one pair. `waits` says whether a receive is waiting at a queue."""

    def __init__(
        self,
        queues: Sequence[str],
        *,
        namespace: str,
        counts: Counts,
        ages: AgeSource,
        journal: Journal,
        clock: Clock,
        waits: Callable[[str], bool] = lambda queue: False,
        interval_s: float | None = None,
    ) -> None:
        # The syphon adds to it.
        self._queues = queues
        self._namespace = namespace
        self._counts = counts
        self._ages = ages
        self._journal = journal
        self._clock = clock
        # Whether a queue is known to be empty.
        self._waits = waits
        self._interval_s = BACKLOG_LOOK_S if interval_s is None else interval_s
        # What was last written for each queue: messages and dead letters.
        self._last: dict[str, tuple[int, int]] = {}
        # Whether a failure was already logged.
        self._told = False
        # Set after the first measurement.
        self.begun = threading.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._tried(BACKLOG_LOOK_TIMEOUT_S)
            await asyncio.sleep(self._interval_s)

    async def finish(self) -> None:
        """Measure once more if the last measurement saw messages, so that a drained backlog shows as drained."""
        if any(depth for depth, _ in self._last.values()):
            await self._tried(_LAST_S)

    async def _tried(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.look()
        except Exception as error:
            if not self._told:
                self._told = True
                logger.warning(
                    "the backlog cannot be looked at, and the ledger has no depths (%s); counts need the "
                    "administration API: a right to manage, and a CA that is trusted",
                    type(error).__name__,
                )
        finally:
            self.begun.set()

    async def look(self) -> None:
        """Measure the backlog now, and write the result."""
        asked = [queue for queue in self._queues if not self._waits(queue)]
        for queue, (depth, dead) in list(self._last.items()):
            if depth and queue not in asked:
                self._write(queue, Count(0, 0, dead), 0)
        if not asked:
            return
        counts = await self._ask(asked)
        self._journal.operation(self._namespace, "", Kind.MANAGE, Stage.DIRECT, count=len(asked))
        for queue, count in counts.items():
            if (count.depth, count.dead) == (0, 0) == self._last.get(queue, (0, 0)):
                continue
            self._write(queue, count, await self._age_ms(queue) if count.depth else 0)

    async def _ask(self, queues: Sequence[str]) -> Mapping[str, Count]:
        if inspect.iscoroutinefunction(self._counts):
            found: Mapping[str, Count] = await self._counts(queues)
            return found
        return await asyncio.to_thread(self._counts, queues)  # type: ignore[arg-type]

    async def _age_ms(self, queue: str) -> int:
        outcome = OK
        try:
            since_ms = await self._ages.oldest_ms(queue)
        except TwinbusError:
            # Its depth is still worth writing.
            since_ms, outcome = None, "lost"
        self._journal.operation(self._namespace, queue, Kind.PEEK, Stage.DIRECT, outcome=outcome)
        return 0 if since_ms is None else max(self._clock.now_ms() - since_ms, 0)

    def _write(self, queue: str, count: Count, oldest_ms: int) -> None:
        self._last[queue] = (count.depth, count.dead)
        self._journal.backlog(
            self._namespace,
            queue,
            depth=count.depth,
            depth_bytes=count.size_bytes if count.depth else 0,
            oldest_ms=oldest_ms,
            dead=count.dead,
        )


class BacklogMonitorThread:
    """A monitor for callers without an event loop; its thread's loop calls `make`, and `end` at the end."""

    def __init__(self, make: Callable[[], BacklogMonitor], end: Callable[[], Awaitable[None]]) -> None:
        # Creates the monitor.
        self._make = make
        # Closes what was opened for it.
        self._end = end
        # None before it runs.
        self._monitor: BacklogMonitor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # None before it runs.
        self._task: asyncio.Task[None] | None = None
        # Set when all of these exist.
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="twinbus-backlog-monitor", daemon=True)

    def start(self) -> None:
        """Start it, and wait briefly for the first measurement, which must see the backlog before anything moves."""
        self._thread.start()
        self._started.wait()
        if self._monitor is not None:
            self._monitor.begun.wait(_FIRST_S)

    def stop(self) -> None:
        """Measure a last time, and stop."""
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        self._thread.join(BACKLOG_LOOK_TIMEOUT_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except Exception:
            logger.exception("looking at the backlog failed")
        finally:
            self._started.set()

    async def _live(self) -> None:
        monitor = self._monitor = self._make()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(monitor.run())
        self._started.set()
        try:
            with suppress(asyncio.CancelledError):
                await self._task
            await monitor.finish()
        finally:
            await self._end()
