"""One backlog queue: receives in a loop, restores messages, passes them to the lanes, and settles them.

- One long receive follows another, but only while there is room and the primary can be reached.
- A message is in exactly one place: in a lane (its lock is renewed), set aside (its lock will expire), or settled.
- A lost link loses its locks: held messages are forgotten, and are received again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from twinbus.client.envelope import unwrap
from twinbus.errors import EntityNotFoundError, EnvelopeError, ServiceError, TwinbusError
from twinbus.ledger.words import OK, Event, Kind, Stage
from twinbus.limits import (
    SYPHON_ASIDE_MESSAGES_MAX,
    SYPHON_BATCH_BYTES,
    SYPHON_BATCH_MESSAGES,
    SYPHON_PAUSE_MS_MAX,
    SYPHON_RECEIVE_S,
)
from twinbus.paired.syphon.decisions import Decision, cause_of, check_destination, decide
from twinbus.paired.syphon.lane import DestinationLane, Item
from twinbus.paired.syphon.port import BacklogSource, Held
from twinbus.paired.syphon.shared import SyphonShared, logger

# For finishing work on the old link before a new one is opened.
_QUIET_S = 1.0
# A receive that has waited this long would have returned existing messages.
_WAITS_MS = 1_000
# In a run with an end, how long a receive waits before the queue is checked.
_ONCE_S = 0.5


class BacklogIntake:
    """The receive loop of one backlog queue."""

    def __init__(
        self, queue: str, shared: SyphonShared, *, once: bool = False, receive_s: float = SYPHON_RECEIVE_S
    ) -> None:
        self.queue = queue
        self._shared = shared
        # Whether it ends when the queue is empty.
        self._once = once
        self._receive_s = _ONCE_S if once else receive_s
        # None before it is open and after a loss.
        self._source: BacklogSource | None = None
        # Incremented when a link is lost, to recognise messages whose locks are lost.
        self.generation = 0
        # Messages in lanes or being settled.
        self.items: set[Item] = set()
        # Set while there are none.
        self._idle = asyncio.Event()
        self._idle.set()
        # Messages set aside, by destination.
        self._aside: dict[str, list[Held]] = {}
        # The monotonic time since which a receive waits, or None.
        self._asked_ms: int | None = None
        # The average message size, which determines how many to ask for.
        self._mean_bytes = 1024.0
        # Why it does not receive; empty while it does.
        self.outage = ""
        # Whether the queue was found empty or missing, in a run with an end.
        self.drained = False
        # Whether it receives no more: a bound was reached, or a brief run has nothing to wait for.
        self.rests = False
        self._tally = shared.tally.of(queue)

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        shared = self._shared
        backoff = shared.pauses.backoff()
        while not shared.stopping.is_set() and not self.drained and not self.rests:
            await shared.gate.wait()
            await shared.room.wait()
            await shared.wait_for_need()
            if shared.stopping.is_set() or shared.full:
                return
            try:
                await self._turn()
                backoff.reset()
                self.outage = ""
            except EntityNotFoundError as error:
                # It may be created later; a run with an end does not wait for that.
                self._lose(error)
                self.drained = self._once
                await shared.pause(0 if self._once else SYPHON_PAUSE_MS_MAX)
            except ServiceError as error:
                self._lose(error)
                self.rests = shared.bounds.brief
                await shared.pause(0 if self.rests else backoff.next_ms())

    async def _turn(self) -> None:
        shared = self._shared
        if self._source is None:
            self._source = await shared.secondary.source(self.queue)
        if self.aside_count >= SYPHON_ASIDE_MESSAGES_MAX:
            await self._renew_link()
        count = max(1, min(SYPHON_BATCH_MESSAGES, int(SYPHON_BATCH_BYTES / self._mean_bytes)))
        self._asked_ms = shared.clock.now_ms()
        try:
            received = await self._source.receive(count, self._receive_s)
        finally:
            self._asked_ms = None
        if not received:
            self._tally.polls += 1
            shared.count(shared.events.secondary, self.queue, Kind.EMPTY_POLL, Stage.POLL, [0])
            if self._once and not self.items and not self._aside:
                self.drained = await self._source.is_empty()
                shared.count(shared.events.secondary, self.queue, Kind.PEEK, Stage.DIRECT, [0])
            # Locked by another receiver, or for a failing destination: neither is worth another receive now.
            self.rests = shared.bounds.brief and not self._moving
            return
        sizes = [len(held.payload) for held in received]
        self._mean_bytes += (sum(sizes) / len(sizes) - self._mean_bytes) / 4
        self._tally.received += len(received)
        self._tally.received_bytes += sum(sizes)
        shared.count(shared.events.secondary, self.queue, Kind.RECEIVE, Stage.FROM_BACKLOG, sizes)
        if not shared.gate.is_set() or shared.stopping.is_set():
            # The primary became unreachable during the receive.
            await self._source.release(received)
            return
        for held in received:
            self._hand_on(held)

    def _hand_on(self, held: Held) -> None:
        shared = self._shared
        try:
            restored = unwrap(held.payload)
            check_destination(restored.path)
        except EnvelopeError as error:
            item = Item(self, held, (), len(held.payload))
            self._take(item)
            self.bury(item, decide(error))
            return
        item = Item(self, held, restored.payloads, len(held.payload))
        self._take(item)
        # The restored payload is all that is needed from here on.
        held.payload = b""
        shared.lane(restored.path, DestinationLane).put(item)

    @property
    def waits(self) -> bool:
        """Whether the queue is known to be empty, because a receive has been waiting for a while."""
        if self.drained or self._asked_ms is None or self.items or self._aside:
            return self.drained
        return self._shared.clock.now_ms() - self._asked_ms > _WAITS_MS

    @property
    def _moving(self) -> bool:
        """Whether any message of this queue is on its way to a destination that is not failing."""
        waiting = sum(
            item.intake is self
            for path, lane in self._shared.lanes.items()
            if self._shared.pauses.failing(path)
            for item in lane.items
        )
        return len(self.items) > waiting

    def _take(self, item: Item) -> None:
        self.items.add(item)
        self._idle.clear()
        self._shared.room.take(item.size)

    # --- what the lanes say -------------------------------------------------------------------------------------------

    def forget(self, item: Item) -> None:
        """It is settled, or no longer ours."""
        if item in self.items:
            self.items.discard(item)
            self._shared.room.give(item.size)
            if not self.items:
                self._idle.set()

    def complete(self, path: str, items: list[Item]) -> None:
        self._shared.spawn(self._complete(path, items))

    async def _complete(self, path: str, items: list[Item]) -> None:
        """Complete messages that the primary has accepted."""
        source = self._source
        live = [item for item in items if item.generation == self.generation]
        outcomes: list[ServiceError | None] = []
        if source is not None and live:
            try:
                outcomes = await source.complete([item.held for item in live])
            except ServiceError as error:
                outcomes = [error] * len(live)
        done = [item for item, error in zip(live, outcomes, strict=False) if error is None]
        for item in items:
            self.forget(item)
        shared = self._shared
        messages = sum(len(item.parcel) for item in done)
        self._tally.syphoned += messages
        self._tally.syphoned_bytes += sum(item.size for item in done)
        self._tally.repeated += len(items) - len(done)
        shared.settled += len(done)
        shared.progress_ms = shared.clock.now_ms()
        shared.count(
            shared.events.secondary, self.queue, Kind.COMPLETE, Stage.FROM_BACKLOG, [item.size for item in done]
        )
        if done:
            shared.time(path, self.queue, [item.held.enqueued_ms for item in done])
            shared.events.emit(Event.SYPHONED, entity=path, queue=self.queue, count=messages)
        if len(done) < len(items):
            logger.warning(
                "%d messages of %s could not be completed and will be sent again", len(items) - len(done), self.queue
            )

    def bury(self, item: Item, decision: Decision, path: str = "") -> None:
        self._shared.spawn(self._bury(item, decision, path))

    async def _bury(self, item: Item, decision: Decision, path: str) -> None:
        """Move it to the dead-letter queue."""
        shared = self._shared
        outcome = OK
        try:
            if self._source is not None and item.generation == self.generation:
                await self._source.dead_letter(item.held, decision.reason, decision.description)
            else:
                outcome = "lost"
        except ServiceError as error:
            # Its lock expires, and it is received again.
            outcome = cause_of(error)
        self.forget(item)
        if outcome == OK:
            self._tally.dead_lettered += max(len(item.parcel), 1)
            shared.settled += 1
            shared.progress_ms = shared.clock.now_ms()
            shared.count(shared.events.secondary, self.queue, Kind.DEAD_LETTER, Stage.FROM_BACKLOG, [item.size])
            shared.events.emit(
                Event.DEAD_LETTERED, entity=path, queue=self.queue, cause=decision.cause, count=max(len(item.parcel), 1)
            )

    def set_aside(self, path: str, item: Item) -> None:
        """Do nothing with it for now: its lock expires, unless its destination recovers first."""
        self.forget(item)
        if item.generation == self.generation:
            self._aside.setdefault(path, []).append(item.held)

    @property
    def aside_count(self) -> int:
        return sum(map(len, self._aside.values()))

    def release_aside(self, path: str | None) -> None:
        """Release what was set aside, for one destination or all."""
        paths = list(self._aside) if path is None else [path]
        held = [one for each in paths for one in self._aside.pop(each, [])]
        if held:
            self._shared.spawn(self._release(held))

    def give_back(self, items: Iterable[Item]) -> None:
        """Release messages that were not sent."""
        held = []
        for item in items:
            self.forget(item)
            if item.generation == self.generation:
                held.append(item.held)
        if held:
            self._shared.spawn(self._release(held))

    async def _release(self, held: list[Held]) -> None:
        if self._source is not None:
            # If this fails, the locks expire by themselves.
            with suppress(ServiceError):
                await self._source.release(held)

    # --- the link -----------------------------------------------------------------------------------------------------

    async def renew_locks(self) -> None:
        """Renew the locks of held messages that have less than half of their time left."""
        now_ms = self._shared.clock.now_ms()
        due = [
            item.held
            for item in self.items
            if item.held.expires_ms - now_ms < item.held.lock_ms / 2 and self._live(item)
        ]
        source = self._source
        if source is None:
            return
        for at in range(0, len(due), SYPHON_BATCH_MESSAGES):
            some = due[at : at + SYPHON_BATCH_MESSAGES]
            try:
                await source.renew(some)
            except ServiceError as error:
                logger.debug("locks of %s were not renewed: %s", self.queue, cause_of(error))
                # One that is settled meanwhile fails the whole request. They are few, so renew them one by one.
                for one in some:
                    with suppress(ServiceError):
                        await source.renew([one])
            self._tally.renewed += len(some)
            shared = self._shared
            shared.count(shared.events.secondary, self.queue, Kind.RENEW, Stage.FROM_BACKLOG, [0] * len(some))

    def _live(self, item: Item) -> bool:
        return item.generation == self.generation

    def _lose(self, error: TwinbusError) -> None:
        """The link is lost, and with it every lock."""
        if not self.outage:
            logger.warning("the backlog queue %s cannot be received from: %s", self.queue, error)
        self.outage = cause_of(error)
        self._drop_link()

    def _drop_link(self) -> None:
        self.generation += 1
        for item in list(self.items):
            self.forget(item)
        self._aside.clear()
        source, self._source = self._source, None
        if source is not None:
            self._shared.spawn(source.close())

    async def _renew_link(self) -> None:
        """Too many messages are set aside on this link: open a new one and let the old one's locks expire."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_S):
                await self._idle.wait()
        self.give_back(list(self.items))
        await asyncio.sleep(0)
        self._drop_link()
        self._source = await self._shared.secondary.source(self.queue)

    async def close(self) -> None:
        """Release held messages."""
        source = self._source
        if source is None:
            return
        held = [item.held for item in self.items] + [one for some in self._aside.values() for one in some]
        with suppress(ServiceError):
            await source.release(held)
            await source.close()
