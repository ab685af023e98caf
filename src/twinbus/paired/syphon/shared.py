"""What the parts of a syphon share: the gate to the primary, the budget, the pauses, and reporting.

- The gate is closed while the primary cannot be reached at all. Then nothing is received, and all held messages are
  released. One task tries to connect, with growing pauses, and opens the gate again.
- Background work is registered here and ends with the syphon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from twinbus.clock import Clock, SystemClock
from twinbus.errors import ServiceError
from twinbus.ledger.words import OK, Kind, Stage
from twinbus.limits import OPERATION_STEP_BYTES, SYPHON_HELD_BYTES_MAX, SYPHON_HELD_MESSAGES_MAX
from twinbus.paired.events import Events
from twinbus.paired.syphon.bounds import UNBOUNDED
from twinbus.paired.syphon.budget import HeldBudget
from twinbus.paired.syphon.decisions import cause_of
from twinbus.paired.syphon.pauses import Pauses
from twinbus.paired.syphon.port import Port
from twinbus.paired.syphon.tally import Tally

if TYPE_CHECKING:
    from twinbus.paired.syphon.intake import BacklogIntake
    from twinbus.paired.syphon.lane import DestinationLane

logger = logging.getLogger("twinbus.paired.syphon")

# In a bounded run, how often to check whether more messages are needed.
_NEED_MS = 10


class SyphonShared:
    """The state of a running syphon."""

    def __init__(self, primary: Port, secondary: Port, events: Events, clock: Clock, pauses: Pauses) -> None:
        self.primary = primary
        self.secondary = secondary
        # Reports syphoned and dead-lettered messages, also to the ledger.
        self.events = events
        self.clock = clock
        self._wall = SystemClock()
        self.pauses = pauses
        self.room = HeldBudget(SYPHON_HELD_MESSAGES_MAX, SYPHON_HELD_BYTES_MAX)
        self.bounds = UNBOUNDED
        # Backlog messages completed or dead-lettered.
        self.settled = 0
        self.tally = Tally()
        self.intakes: list[BacklogIntake] = []
        # Destinations that have messages, or had some recently.
        self.lanes: dict[str, DestinationLane] = {}
        # Set while the primary can be reached, and when the syphon stops.
        self.gate = asyncio.Event()
        self.gate.set()
        # Why the gate is closed; empty while it is open.
        self.outage = ""
        self.stopping = asyncio.Event()
        self.progress_ms = clock.now_ms()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- background work ----------------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a part of the syphon failed: %s", type(error).__name__, exc_info=error)
            # Messages it was working on return when their locks expire; everything else continues.

    async def finish(self, timeout_s: float) -> None:
        """Wait for background work, then cancel what is left."""
        while self._tasks:
            done, left = await asyncio.wait(list(self._tasks), timeout=timeout_s)
            if left and not done:
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)

    async def pause(self, pause_ms: int) -> None:
        """Wait, but not beyond the end of the syphon."""
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self.stopping.wait()
        except TimeoutError:
            pass

    @property
    def moving(self) -> int:
        """Held messages that can still move, so not those for failing destinations."""
        return self.room.messages - sum(
            len(lane.items) for path, lane in self.lanes.items() if self.pauses.failing(path)
        )

    @property
    def full(self) -> bool:
        """Whether this run has settled as many messages as it may."""
        return self.bounds.messages_max is not None and self.settled >= self.bounds.messages_max

    async def wait_for_need(self) -> None:
        """Wait while the held messages may be all that this run may still settle."""
        most = self.bounds.messages_max
        while most is not None and self.settled < most <= self.settled + self.moving and not self.stopping.is_set():
            await self.pause(_NEED_MS)

    # --- the gate -----------------------------------------------------------------------------------------------------

    def close_gate(self, cause: str) -> None:
        """The primary cannot be reached: release all held messages."""
        if not self.gate.is_set() or self.stopping.is_set():
            return
        self.gate.clear()
        self.outage = cause
        logger.warning("the primary %s cannot be reached (%s): the syphon waits", self.events.primary, cause)
        self.give_back()
        self.spawn(self._knock())

    def give_back(self) -> None:
        """Release all held messages."""
        for lane in self.lanes.values():
            lane.give_back()
        for intake in self.intakes:
            intake.release_aside(None)

    async def _knock(self) -> None:
        while not self.stopping.is_set():
            await self.pause(self.pauses.fail())
            if self.stopping.is_set():
                return
            try:
                await self.primary.connect()
            except ServiceError as error:
                self.outage = cause_of(error)
                continue
            self.pauses.succeed()
            self.outage = ""
            logger.warning("the primary %s can be reached again", self.events.primary)
            self.gate.set()
            return

    # --- lanes --------------------------------------------------------------------------------------------------------

    def lane(self, path: str, make: Callable[[str, SyphonShared], DestinationLane]) -> DestinationLane:
        found = self.lanes.get(path)
        if found is None:
            found = self.lanes[path] = make(path, self)
            self.spawn(found.run())
        return found

    def recovered(self, path: str) -> None:
        """A destination accepts messages again: release those set aside, which return at once and in order."""
        for intake in self.intakes:
            intake.release_aside(path)

    # --- the ledger ---------------------------------------------------------------------------------------------------

    def count(self, namespace: str, entity: str, kind: Kind, stage: Stage, sizes: list[int], outcome: str = OK) -> None:
        """Count operations on messages of these sizes."""
        journal = self.events.journal
        if journal is None or not sizes:
            return
        small = [size for size in sizes if size <= OPERATION_STEP_BYTES]
        if small:
            journal.operation(namespace, entity, kind, stage, outcome=outcome, count=len(small), size_bytes=sum(small))
        for size in sizes:
            # A message of several units is recorded separately, so that its units come out right.
            if size > OPERATION_STEP_BYTES:
                journal.operation(namespace, entity, kind, stage, outcome=outcome, size_bytes=size)

    def time(self, path: str, queue: str, enqueued_ms: list[int | None]) -> None:
        """Record how long messages took, from acceptance by the backlog to acceptance by the primary."""
        journal = self.events.journal
        if journal is not None:
            now_ms = self._wall.now_ms()
            # Clocks of two machines may differ by more than that.
            times = [max(now_ms - since_ms, 0) for since_ms in enqueued_ms if since_ms is not None]
            if times:
                journal.latency(self.events.primary, path, queue, times)
