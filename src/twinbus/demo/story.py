"""The demo from beginning to end: healthy, killed, diverted, back, syphoned, counted, reported.

Rules:
- Everything is real: the brokers and the syphon are processes, the kill is a SIGKILL, the clients are the SDK's.
- Every wait is for an event, as long as it takes: a slow machine is no reason to fail. What takes long is announced
  again and again. A process that has ended, or a wait beyond all patience, ends the story with one sentence.
- The story exposes its state and never prints; a screen shows it.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any, Final

from twinbus.clock import MonotonicClock
from twinbus.demo.account import MessageAccount
from twinbus.demo.processes import BrokerProcess, SyphonProcess, told
from twinbus.demo.traffic import BACKLOG_QUEUES, ENTITIES, PLACES, DemoSenders, receive, watch_backlog
from twinbus.errors import ConfigError
from twinbus.ledger.words import Event
from twinbus.paired import PairedEvent
from twinbus.paired.state import EntityState

# Length of the healthy phases before the kill and after the syphon is done.
HEALTHY_S: Final = 6.0
AFTER_S: Final = 2.0
# Locks held by the killed broker's receivers last 10 s; messages that do not arrive within this time are lost.
_HOME_S: Final = 40.0
# Nothing takes that long, however slow the machine is.
_PATIENCE_S: Final = 1_800.0
# How often to say what is still being waited for.
_AGAIN_S: Final = 15.0
_STOP_S: Final = 10.0
_LOOK_S: Final = 0.1
_EVENTS_SHOWN: Final = 8


class Phase(StrEnum):
    """The current phase, in the words of the screen."""

    STARTING = "two namespaces start"
    HEALTHY = "all is well: sends go to the primary"
    KILLED = "the primary was killed with -9: sends are held"
    DIVERTED = "sends go on, into the backlog queues of the secondary"
    BACK = "the primary is back, and the senders return to it"
    SYPHONING = "the syphon brings the backlog home"
    COUNTING = "every message is accounted for"
    REPORTING = "the ledgers become tables and a report"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of a run. `engine` is the syphon's; `report` is the page to write, or None."""

    seed: int
    rate: float
    outage_s: float
    engine: str
    report: Path | None


class Story:
    """One run, in its own folder."""

    def __init__(self, folder: Path, plan: DemoOptions, changed: Callable[[str], None]) -> None:
        self.plan = plan
        self._changed = changed
        self._clock = MonotonicClock()
        self._start_ms = self._clock.now_ms()
        self._folder = folder
        self.primary = BrokerProcess(folder, "contoso", ENTITIES)
        self.secondary = BrokerProcess(folder, "standby")
        self.syphon = SyphonProcess(folder)
        self.account = MessageAccount(PLACES)
        self.senders = DemoSenders(self.account, plan.rate, Random(plan.seed), self._event)  # noqa: S311 - contents only
        self.phase = Phase.STARTING
        # Messages in each backlog queue, and the highest total so far.
        self.depths: dict[str, int] = {}
        self.depth_max = 0
        # The latest events, with the second at which they happened.
        self.events: deque[tuple[float, str]] = deque(maxlen=_EVENTS_SHOWN)
        self._killed_s = 0.0
        self._over = asyncio.Event()
        # Steps of the report that are done, how many there are, and the one under way.
        self.step = (0, 1, "")
        self.told: dict[str, Any] | None = None

    @property
    def seconds(self) -> float:
        return (self._clock.now_ms() - self._start_ms) / 1000

    @property
    def depth(self) -> int:
        return sum(self.depths.values())

    # --- the acts -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run all phases. Every process is stopped afterwards."""
        tasks: list[asyncio.Task[Any]] = []
        try:
            ca = await self._begin()
            sending = asyncio.create_task(self._send(ca))
            tasks.append(sending)
            for place in (place for places in PLACES.values() for place in places):
                receiving = receive(place, self.primary.connection_string, self.account, self._over)
                tasks.append(asyncio.create_task(receiving))
            watching = watch_backlog(self.depths, self.secondary.connection_string, ca, self._over)
            tasks.append(asyncio.create_task(watching))
            await self._healthy(sending)
            await self._outage(sending)
            # A syphon usually runs all the time; here it starts during the outage, because Spark takes a while to
            # start.
            draining = asyncio.create_task(
                self.syphon.run(self.primary, self.secondary, BACKLOG_QUEUES, self.plan.engine, ca)
            )
            tasks.append(draining)
            await self._dead(sending)
            await self._come_home(sending, draining)
            self.senders.stop()
            await sending
            await self._count()
        finally:
            await self.syphon.stop()
            await self._end(tasks)
            for process in (self.primary, self.secondary):
                await process.stop()
        await self._report()
        self._turn(Phase.DONE)

    async def _end(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Let every task end by itself, because the SDK handles cancellation badly."""
        self.senders.stop()
        if tasks:
            await asyncio.wait(tasks[:1], timeout=_STOP_S)
            self._over.set()
            await asyncio.wait(tasks, timeout=_STOP_S)
        for task in tasks:
            task.cancel()

    async def _begin(self) -> Path:
        await self._started("contoso and standby to start", self.primary.start(), self.secondary.start())
        self._say(f"contoso serves as process {self.primary.pid}, standby as process {self.secondary.pid}")
        # One bundle for both brokers: the pair's administration clients trust what is in it.
        bundle = self._folder / "ca.pem"
        texts = [(await process.ca()).read_text() for process in (self.primary, self.secondary)]
        bundle.write_text("".join(texts))
        return bundle

    async def _send(self, ca: Path) -> None:
        await self.senders.run(
            self.primary.connection_string, self.secondary.connection_string, ca, self._folder / "client-ledger"
        )

    async def _healthy(self, sending: asyncio.Task[None]) -> None:
        await self._until(sending, "the backlog queues in the secondary", lambda: self.senders.paired)
        await self._until(sending, "a message through the primary", self._something_came_everywhere)
        self._turn(Phase.HEALTHY)
        await self._pass(sending, HEALTHY_S)

    async def _outage(self, sending: asyncio.Task[None]) -> None:
        pid = self.primary.pid
        await self.primary.kill()
        self._turn(Phase.KILLED)
        self._say(f"kill -9 {pid}: contoso is gone")
        self._killed_s = self.seconds
        await self._until(sending, "a failover", lambda: EntityState.FAILED_OVER in self.senders.states.values())
        self._turn(Phase.DIVERTED)

    async def _dead(self, sending: asyncio.Task[None]) -> None:
        # However long the failover took, leave time to watch the diverted phase.
        left_s = self.plan.outage_s - (self.seconds - self._killed_s)
        await self._pass(sending, max(left_s, self.plan.outage_s / 2))

    async def _come_home(self, sending: asyncio.Task[None], draining: asyncio.Task[int]) -> None:
        await self._started("contoso to start again", self.primary.start())
        self._say(f"contoso serves again, as process {self.primary.pid}, with everything it had accepted")
        self._turn(Phase.BACK)
        deepest = self.depth
        await self._until(sending, "the syphon to begin", lambda: self.depth < deepest * 0.9 or draining.done())
        self._turn(Phase.SYPHONING)
        await self._until(sending, "an empty backlog", draining.done)
        if await draining != 0:
            raise ConfigError(f"The syphon did not finish: {self.syphon.last_words()}")
        self._say(f"the syphon brought {self.syphon.syphoned:,} messages home")
        await self._pass(sending, AFTER_S)

    async def _count(self) -> None:
        self._turn(Phase.COUNTING)
        missing = self.account.lost
        deadline_s = self.seconds + _HOME_S
        while self.account.lost and self.seconds < deadline_s:
            self._look()
            if self.account.lost < missing:
                # On a busy machine they arrive slowly: only messages that stop arriving are lost.
                missing, deadline_s = self.account.lost, self.seconds + _HOME_S
            await asyncio.sleep(_LOOK_S)

    async def _report(self) -> None:
        if self.plan.report is None:
            return
        self._turn(Phase.REPORTING)
        ledgers = [self.primary.ledger, self.secondary.ledger, self._folder / "client-ledger", self.syphon.ledger]
        arguments = [part for ledger in ledgers if ledger.is_dir() for part in ("--ledger", str(ledger))]
        places = ("--tables", str(self._folder / "tables"), "--output", str(self.plan.report))
        self.told = await told("report", *arguments, *places, "--progress", heard=self._step)
        self.step = (self.step[1], self.step[1], "")

    def _step(self, line: str) -> None:
        """A line of the report's progress: `3/10 adding up: costs`."""
        if found := re.fullmatch(r"(\d+)/(\d+) (.*)", line):
            self.step = (int(found[1]), int(found[2]), found[3])
            if found[3]:
                self._changed(f"  report, step {int(found[1]) + 1} of {found[2]}: {found[3]}")

    # --- events -------------------------------------------------------------------------------------------------------

    def _turn(self, phase: Phase) -> None:
        self.phase = phase
        self._changed(str(phase))

    def _say(self, text: str) -> None:
        self.events.append((self.seconds, text))
        self._changed(text)

    def _event(self, event: PairedEvent) -> None:
        if event.kind is Event.FAILED_OVER:
            self._say(f"{event.entity} failed over ({event.cause})")
        elif event.kind is Event.FAILED_BACK:
            self._say(f"{event.entity} failed back: a ping was accepted")
        elif event.kind in (Event.QUEUE_OUT, Event.QUEUE_IN, Event.DEAD_LETTERED):
            self._say(f"{event.kind}: {event.queue}")

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self.depth_max = max(self.depth_max, self.depth)

    async def _pass(self, sending: asyncio.Task[None], seconds: float) -> None:
        end_s = self.seconds + seconds
        await self._until(sending, "", lambda: self.seconds >= end_s)

    async def _started(self, what: str, *starts: Coroutine[Any, Any, None]) -> None:
        """Wait for processes to start."""
        starting = asyncio.gather(*starts)
        try:
            await self._wait(what, starting.done)
        except BaseException:
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
            raise
        await starting

    async def _until(self, sending: asyncio.Task[None], what: str, happened: Callable[[], bool]) -> None:
        def check() -> bool:
            self._look()
            # Before it is told to stop, it ends only with an error.
            if sending.done() and not happened():
                error = None if sending.cancelled() else sending.exception()
                raise ConfigError(f"The senders stopped: {_sentence(error)}")
            return happened()

        await self._wait(what, check)

    async def _wait(self, what: str, happened: Callable[[], bool]) -> None:
        began_s = told_s = self.seconds
        while not happened():
            if self.seconds - began_s > _PATIENCE_S:
                raise ConfigError(f"After {_PATIENCE_S / 60:.0f} minutes there is still no sign of: {what}.")
            if what and self.seconds - told_s >= _AGAIN_S:
                told_s = self.seconds
                self._say(f"waiting for {what}, {told_s - began_s:.0f} s so far")
            await asyncio.sleep(_LOOK_S)

    def _something_came_everywhere(self) -> bool:
        return all(self.account.received_count(place) for places in PLACES.values() for place in places)


def _sentence(error: BaseException | None) -> str:
    """What went wrong, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    lines = str(error or "").strip().splitlines()
    return lines[0] if lines else type(error).__name__
