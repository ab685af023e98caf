"""One destination in the primary: sends in order, pipelined, and tries again after a pause.

Rules:
- A lane works alone: one that hangs or fails holds up no other.
- A lane that fails keeps a few messages to try with; the others are set aside, so that those behind them are reached.
- What the outcome of a send means is decided in `decisions.py`.
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

# A lock that ends within this is not worth a send: the completion could come too late.
_LOCK_MARGIN_MS = 1_000


class Item:
    """A message on its way through a syphon."""

    __slots__ = ("generation", "held", "intake", "parcel", "size")

    def __init__(self, intake: BacklogIntake, held: Held, parcel: Parcel, size: int) -> None:
        # Where it came from, and over which link.
        self.intake = intake
        self.generation = intake.generation
        self.held = held
        self.parcel = parcel
        # Its bytes in the backlog.
        self.size = size


class DestinationLane:
    """The sends to one destination."""

    def __init__(self, path: str, shared: SyphonShared) -> None:
        self.path = path
        self._shared = shared
        # Messages that wait for their send, in order.
        self.items: deque[Item] = deque()
        # Set when one comes, and when the syphon stops.
        self._wake = asyncio.Event()
        # Whether the send under way takes long.
        self._slow = False
        # Whether one took long, and messages may have been set aside for it, since all was last well.
        self._was_slow = False
        # Whether anything was sent, or refused.
        self._tried = False
        # The link; None before the first send and after a failure.
        self._destination: Destination | None = None

    @property
    def stalled(self) -> bool:
        """Whether messages for it only wait."""
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
        """Unlock what waits."""
        items, self.items = self.items, deque()
        by_intake: dict[BacklogIntake, list[Item]] = {}
        for item in items:
            by_intake.setdefault(item.intake, []).append(item)
        for intake, some in by_intake.items():
            intake.give_back(some)

    async def run(self) -> None:
        """Until the syphon stops, or nothing comes for long."""
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
        """Until a message is there; False when none comes for long, or the syphon stops."""
        if self._destination is None and not self.stalled and self._tried:
            # Nothing could be sent there: there is no link to keep for the next.
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
                # Not ours any more, or not for long enough: it comes again.
                item.intake.forget(item)
                continue
            batch.append(item)
            size += item.size
        return batch

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _send(self, batch: list[Item]) -> Outcomes:
        """The outcome of each, within the time a send may take."""
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
                # Those that were accepted until now keep their outcome.
                self._destination.abandon(late)
            return await attempt
        except BaseException:
            # The syphon ends and nobody waits for this any more.
            attempt.cancel()
            if self._destination is not None:
                self._destination.abandon(OperationTimeoutError("The syphon was stopped."))
            raise
        finally:
            self._slow = False
            if self._destination is not None and not self._destination.usable:
                self._destination = None

    def _completions(self, batch: list[Item]) -> Callable[[int], None]:
        """Completes what is accepted as the answers come, in groups: the sooner, the less is repeated after a death."""
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
                # At the end of this turn, when all that came together have been told.
                loop.call_soon(complete)
            accepted.append(batch[index])

        return on_accepted

    async def _attempt(self, parcels: list[Parcel], on_accepted: Callable[[int], None]) -> Outcomes:
        primary = self._shared.primary
        try:
            await primary.connect()
        except ServiceError as error:
            # Whatever kept us from connecting keeps everybody from it.
            return [ConnectionForcedError(error.text)] * len(parcels)
        try:
            if self._destination is None or not self._destination.usable:
                # A link that nobody used for long may have been cut.
                self._destination = await primary.destination(self.path)
        except ServiceError as error:
            return [error] * len(parcels)
        return await self._destination.send(parcels, on_accepted)

    # --- what came of it ----------------------------------------------------------------------------------------------

    def _settle(self, batch: list[Item], outcomes: Outcomes) -> None:
        """See to those that were not accepted; the others are being completed already."""
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
            # The gate may have been closed already.
            self.give_back()
            return
        if accepted:
            # It takes some: the pause is a first one again.
            shared.pauses.succeed(self.path)
        shared.pauses.fail(self.path)
        self._trim()

    def _trim(self) -> None:
        """Keep only what it takes to try again."""
        while len(self.items) > SYPHON_STALLED_MESSAGES_MAX:
            item = self.items.pop()
            item.intake.set_aside(self.path, item)
