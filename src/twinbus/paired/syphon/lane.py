"""One destination in the primary: sends in order, pipelined, and retries after a pause.

- Lanes are independent: one that hangs or fails does not hold up the others.
- A failing lane keeps a few messages to retry with. The others are set aside, so that those behind them can be reached.
- `decisions.py` decides what the outcome of a send means.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinbus.errors import ConnectionForcedError, OperationTimeoutError, ServiceError
from twinbus.ledger.words import OK, Kind, Stage
from twinbus.limits import (
    SYPHON_BATCH_BYTES,
    SYPHON_BATCH_MESSAGES,
    SYPHON_LANE_IDLE_S,
    SYPHON_SEND_TIMEOUT_S,
    SYPHON_SLOW_S,
    SYPHON_STALLED_MESSAGES_MAX,
)
from twinbus.paired.syphon.decisions import Fate, cause_of, decide
from twinbus.paired.syphon.port import Destination, Held, Outcomes, Parcel

if TYPE_CHECKING:
    from twinbus.paired.syphon.intake import BacklogIntake
    from twinbus.paired.syphon.shared import SyphonShared

# A message whose lock expires within this time is not sent: its completion could come too late.
_LOCK_MARGIN_MS = 1_000


class Item:
    """A message on its way through a syphon."""

    __slots__ = ("generation", "held", "intake", "parcel", "size")

    def __init__(self, intake: BacklogIntake, held: Held, parcel: Parcel, size: int) -> None:
        # Its backlog queue, and the link it came over.
        self.intake = intake
        self.generation = intake.generation
        self.held = held
        self.parcel = parcel
        # Its size in the backlog.
        self.size = size


class DestinationLane:
    """The sends to one destination."""

    def __init__(self, path: str, shared: SyphonShared) -> None:
        self.path = path
        self._shared = shared
        # Messages waiting to be sent, in order.
        self.items: deque[Item] = deque()
        # Set when a message arrives, and when the syphon stops.
        self._wake = asyncio.Event()
        # Whether the current send takes long.
        self._slow = False
        # Whether a send was slow, so that messages may be set aside, since the last full success.
        self._was_slow = False
        # Whether anything was sent or rejected.
        self._tried = False
        # None before the first send and after a failure.
        self._destination: Destination | None = None

    @property
    def stalled(self) -> bool:
        """Whether messages for it can only wait."""
        return self._slow or self._shared.pauses.failing(self.path)

    def put(self, item: Item) -> None:
        if self.stalled and len(self.items) >= SYPHON_STALLED_MESSAGES_MAX:
            item.intake.set_aside(self.path, item)
            return
        self.items.append(item)
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def give_back(self) -> None:
        """Release waiting messages."""
        items, self.items = self.items, deque()
        by_intake: dict[BacklogIntake, list[Item]] = {}
        for item in items:
            by_intake.setdefault(item.intake, []).append(item)
        for intake, some in by_intake.items():
            intake.give_back(some)

    async def run(self) -> None:
        """Run until the syphon stops, or no message comes for long."""
        shared = self._shared
        try:
            while not shared.stopping.is_set():
                if not self.items and not await self._wait():
                    return
                pause_ms = shared.pauses.left_ms(self.path)
                if pause_ms:
                    await shared.pause(pause_ms)
                    continue
                batch = self._next_batch()
                if batch:
                    outcomes = await self._send(batch)
                    self._tried = True
                    self._settle(batch, outcomes)
        finally:
            shared.lanes.pop(self.path, None)
            self.give_back()
            if self._destination is not None:
                await self._destination.close()

    async def _wait(self) -> bool:
        """Wait for a message; False if none comes for long, or the syphon stops."""
        if self._destination is None and not self.stalled and self._tried:
            # Nothing could be sent, so there is no link to keep.
            return False
        self._wake.clear()
        try:
            async with asyncio.timeout(SYPHON_LANE_IDLE_S):
                await self._wake.wait()
        except TimeoutError:
            return bool(self.items)
        return not self._shared.stopping.is_set()

    def _next_batch(self) -> list[Item]:
        batch: list[Item] = []
        size = 0
        now_ms = self._shared.clock.now_ms()
        while self.items and len(batch) < SYPHON_BATCH_MESSAGES and size < SYPHON_BATCH_BYTES:
            item = self.items.popleft()
            if item.generation != item.intake.generation or item.held.expires_ms - now_ms < _LOCK_MARGIN_MS:
                # Its lock is lost, or too short: it is received again.
                item.intake.forget(item)
                continue
            batch.append(item)
            size += item.size
        return batch

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _send(self, batch: list[Item]) -> Outcomes:
        """Send a batch; returns the outcome of each message, within the time limit for a send."""
        parcels = [item.parcel for item in batch]
        attempt = asyncio.get_running_loop().create_task(self._attempt(parcels, self._completions(batch)))
        try:
            done, _ = await asyncio.wait((attempt,), timeout=SYPHON_SLOW_S)
            if not done:
                self._slow = self._was_slow = True
                self._trim()
                done, _ = await asyncio.wait((attempt,), timeout=SYPHON_SEND_TIMEOUT_S - SYPHON_SLOW_S)
            if not done:
                late = OperationTimeoutError(f"{self.path} did not answer within {SYPHON_SEND_TIMEOUT_S:.0f} s.")
                if self._destination is None:
                    attempt.cancel()
                    await asyncio.wait((attempt,))
                    return [late] * len(parcels)
                # Those accepted so far keep their outcome.
                self._destination.abandon(late)
            return await attempt
        except BaseException:
            # The syphon is ending, and nobody waits for this any more.
            attempt.cancel()
            if self._destination is not None:
                self._destination.abandon(OperationTimeoutError("The syphon was stopped."))
            raise
        finally:
            self._slow = False
            if self._destination is not None and not self._destination.usable:
                self._destination = None

    def _completions(self, batch: list[Item]) -> Callable[[int], None]:
        """Completes accepted messages in groups as the answers come: the sooner, the less is repeated after a crash."""
        accepted: list[Item] = []
        loop = asyncio.get_running_loop()

        def complete() -> None:
            by_intake: dict[BacklogIntake, list[Item]] = {}
            for item in accepted:
                by_intake.setdefault(item.intake, []).append(item)
            accepted.clear()
            for intake, items in by_intake.items():
                intake.complete(self.path, items)

        def on_accepted(index: int) -> None:
            if not accepted:
                # At the end of this turn, when everything that arrived together has been reported.
                loop.call_soon(complete)
            accepted.append(batch[index])

        return on_accepted

    async def _attempt(self, parcels: list[Parcel], on_accepted: Callable[[int], None]) -> Outcomes:
        primary = self._shared.primary
        try:
            await primary.connect()
        except ServiceError as error:
            # Whatever prevents this connection prevents all others.
            return [ConnectionForcedError(error.text)] * len(parcels)
        try:
            if self._destination is None or not self._destination.usable:
                # A link that was idle for long may have been closed.
                self._destination = await primary.destination(self.path)
        except ServiceError as error:
            return [error] * len(parcels)
        return await self._destination.send(parcels, on_accepted)

    # --- what came of it ----------------------------------------------------------------------------------------------

    def _settle(self, batch: list[Item], outcomes: Outcomes) -> None:
        """Handle messages that were not accepted; the others are already being completed."""
        shared = self._shared
        accepted = 0
        left: list[Item] = []
        sizes: dict[str, list[int]] = {}
        outage = ""
        for item, error in zip(batch, outcomes, strict=True):
            sizes.setdefault(OK if error is None else cause_of(error), []).extend(map(len, item.parcel))
            if error is None:
                accepted += 1
                continue
            decision = decide(error, self.path)
            if decision.fate is Fate.DEAD_LETTER:
                item.intake.bury(item, decision, self.path)
                continue
            left.append(item)
            shared.tally.of(item.intake.queue).left += 1
            if decision.everywhere:
                outage = decision.cause
        for outcome, each in sizes.items():
            shared.count(shared.events.primary, self.path, Kind.SEND, Stage.TO_PRIMARY, each, outcome)
        if not left:
            if shared.pauses.succeed(self.path) or self._was_slow:
                shared.recovered(self.path)
            self._was_slow = False
            return
        self.items.extendleft(reversed(left))
        if outage:
            shared.close_gate(outage)
            # The gate may already have been closed.
            self.give_back()
            return
        if accepted:
            # It accepts some, so the pauses start over.
            shared.pauses.succeed(self.path)
        shared.pauses.fail(self.path)
        self._trim()

    def _trim(self) -> None:
        """Keep only as many messages as needed to retry."""
        while len(self.items) > SYPHON_STALLED_MESSAGES_MAX:
            item = self.items.pop()
            item.intake.set_aside(self.path, item)
