"""The syphon in one process, on asyncio: an intake per backlog queue, a lane per destination.

    syphon = Syphon.from_connection_strings(primary, secondary, primary_name="contoso")
    report = await syphon.run(once=True)

- A backlog message is completed only after the primary has accepted it. If a syphon dies, its messages are sent again
  with the same message id, and nothing is lost.
- Several syphons share the work: a message is locked by one of them at a time.
- A roster says which backlog queues are the primary's, and is asked again once a minute: they may be created later.
- Held messages are bounded, in number and bytes, and are released when the syphon stops.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from twinbus.client import BusClient, tls_context
from twinbus.clock import Clock, MonotonicClock, SystemClock
from twinbus.errors import ConfigError, OperationTimeoutError, ServiceError
from twinbus.ledger.words import LedgerSource
from twinbus.limits import (
    BACKLOG_QUEUES_DEFAULT,
    LOCK_DURATION_MS_DEFAULT,
    SYPHON_CONNECT_TIMEOUT_MS,
    SYPHON_LOOK_S,
    SYPHON_RECEIVE_S,
    SYPHON_SEND_TIMEOUT_S,
    SYPHON_STOP_S,
    TRY_TIMEOUT_S_DEFAULT,
)
from twinbus.paired.asking import asked
from twinbus.paired.events import Events, Listener
from twinbus.paired.homes import Home, NamespaceAnswer, home_of
from twinbus.paired.journal import Journal
from twinbus.paired.options import NamespaceAddress, check_name, check_pair
from twinbus.paired.syphon.bounds import UNBOUNDED, Bounds
from twinbus.paired.syphon.bus_port import BusPort
from twinbus.paired.syphon.decisions import cause_of
from twinbus.paired.syphon.intake import BacklogIntake
from twinbus.paired.syphon.monitor import BacklogMonitor, Counts
from twinbus.paired.syphon.pauses import Pauses
from twinbus.paired.syphon.port import Port
from twinbus.paired.syphon.roster import BacklogRoster, Roster
from twinbus.paired.syphon.shared import SyphonShared, logger
from twinbus.paired.syphon.tally import QueueTally, Tally

# How often locks are checked.
_KEEP_S = 1.0
# At a bound, how often held messages are checked.
_FINISH_MS = 10
# How long a run with an end waits without progress. By then the locks of a dead syphon have expired.
PATIENCE_S = 1.25 * LOCK_DURATION_MS_DEFAULT / 1000

TRANSPORTS = ("client", "sdk")


@dataclass(frozen=True, slots=True)
class SyphonReport:
    """The result of a run. `drained` are queues found empty; `failing` are destinations that currently reject
    messages; `homeless` are backlog queues with messages of which nobody knows whether they are this primary's."""

    total: QueueTally
    queues: dict[str, dict[str, int]]
    drained: tuple[str, ...]
    undrained: tuple[str, ...]
    missing: tuple[str, ...]
    failing: tuple[str, ...]
    outage: str
    homeless: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing is left that may be the primary's."""
        return not (self.undrained or self.homeless or (self.outage and not self.queues))

    @property
    def found_queues(self) -> bool:
        """Whether there is any backlog queue."""
        return bool(set(self.queues) - set(self.missing)) or bool(self.outage)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self.total), **{k: v for k, v in asdict(self).items() if k != "total"}}


class Syphon:
    """Moves messages until it is stopped or the backlog is empty; call `run` only once."""

    def __init__(
        self,
        primary: Port,
        secondary: Port,
        queues: Sequence[str] = (),
        *,
        events: Events,
        roster: BacklogRoster | None = None,
        clock: Clock | None = None,
        pauses: Pauses | None = None,
        receive_s: float = SYPHON_RECEIVE_S,
        owns_events: bool = True,
        counts: Counts | None = None,
    ) -> None:
        if not queues and roster is None:
            raise ValueError("A syphon needs at least one backlog queue.")
        # Finds the queues; None if they are given.
        self._roster = roster
        # Whether the queues are known.
        self._found = roster is None
        self._queues = list(queues) or ([] if roster is None else roster.expected)
        self._homeless: tuple[str, ...] = ()
        self._identity: str | None = None
        # Whether the run ends when the backlog is empty.
        self._once = False
        self._receive_s = receive_s
        # Whether to close the ledger at the end.
        self._owns_events = owns_events
        measured = clock or MonotonicClock()
        # Shared by its parts. Belongs to the loop on which it is created.
        self._shared = SyphonShared(primary, secondary, events, measured, pauses or Pauses(measured))
        # Reports the depth of the queues for the ledger; None to disable.
        self._counts = counts
        self._loops: list[asyncio.Task[None]] = []
        self._begun = False

    @classmethod
    def from_connection_strings(
        cls,
        primary: str,
        secondary: str,
        *,
        primary_name: str | None = None,
        backlog_queue_count: int = BACKLOG_QUEUES_DEFAULT,
        primary_tls: ssl.SSLContext | None = None,
        secondary_tls: ssl.SSLContext | None = None,
        websocket: bool = False,
        transport: str = "client",
        ca_file: Path | None = None,
        listeners: Iterable[Listener] = (),
        ledger: Path | None = None,
        secondary_name: str | None = None,
    ) -> Syphon:
        """Create a syphon from two connection strings.

        `primary_tls` and `secondary_tls` are TLS contexts for your own CA. `transport` is our own client, or `sdk`,
        which uses `ca_file` instead. `secondary_name` is the secondary's name in the ledger.
        """
        places = [NamespaceAddress.parse(endpoint_of(text)) for text in (primary, secondary)]
        check_pair(places[0], places[1])
        if backlog_queue_count < 1:
            raise ValueError(f"backlog_queue_count is {backlog_queue_count}: it must be 1 or more.")
        name = check_name(primary_name or places[0].label or places[0].plain_name)
        clients = [
            partial(
                BusClient.from_connection_string,
                text,
                tls=tls or tls_of(text, ca_file),
                websocket=websocket,
                timeout_ms=SYPHON_CONNECT_TIMEOUT_MS,
            )
            for text, tls in ((primary, primary_tls), (secondary, secondary_tls))
        ]
        ports: list[Port]
        if transport == "sdk":
            # Imported here, because the SDK is heavy and only this transport needs it.
            from twinbus.paired.syphon.sdk_port import SdkPort

            ports = [SdkPort.from_connection_string(text, ca_file, websocket) for text in (primary, secondary)]
        elif transport == "client":
            ports = [BusPort(make()) for make in clients]
        else:
            raise ValueError(f"transport is {transport!r}: it must be one of {', '.join(TRANSPORTS)}.")
        second = secondary_name or places[1].label or places[1].plain_name
        return cls(
            ports[0],
            ports[1],
            roster=roster_of(
                primary, secondary, primary_name, backlog_queue_count, clients[0], clients[1], ca_file=ca_file
            ),
            events=syphon_events(name, second, listeners=listeners, ledger=ledger),
            counts=None if ledger is None else counts_of(secondary, ca_file),
        )

    # --- what it shows ------------------------------------------------------------------------------------------------

    @property
    def tally(self) -> Tally:
        """Counters by backlog queue."""
        return self._shared.tally

    @property
    def outage(self) -> str:
        """Why the primary cannot be reached; empty if it can."""
        return self._shared.outage

    @property
    def state(self) -> str:
        """What it is doing, in a word."""
        return "syphoning"

    @property
    def outages(self) -> dict[str, str]:
        """Backlog queues that cannot be received from, and why."""
        return {intake.queue: intake.outage for intake in self._shared.intakes if intake.outage}

    @property
    def failing(self) -> list[str]:
        """Destinations that currently reject messages."""
        return self._shared.pauses.paths()

    @property
    def pauses(self) -> Pauses:
        """The paused destinations."""
        return self._shared.pauses

    @property
    def queues(self) -> list[str]:
        """The backlog queues of the primary, as far as they are known."""
        return list(self._queues) if self._found else []

    @property
    def identity(self) -> str | None:
        """The primary's, as far as it is known."""
        return self._identity

    @property
    def in_hand(self) -> int:
        """Messages received and not settled."""
        return self._shared.room.messages

    # --- life ---------------------------------------------------------------------------------------------------------

    async def run(
        self, *, once: bool = False, patience_s: float = PATIENCE_S, bounds: Bounds = UNBOUNDED
    ) -> SyphonReport:
        """Move messages until `stop` or a bound; with `once`, until the backlog is empty or nothing moves for
        `patience_s`."""
        shared = self._shared
        if self._begun:
            raise RuntimeError("A syphon runs once.")
        self._begun = True
        shared.bounds = bounds
        self._once = once = once or bounds.brief
        if self._found:
            shared.intakes = [self._intake(queue) for queue in self._queues]
        keeper = asyncio.create_task(self._keep())
        monitor = self._new_monitor()
        looking = None if monitor is None else asyncio.create_task(monitor.run())
        finding: asyncio.Task[None] | None = None
        try:
            if not bounds.brief or await self._reaches_primary():
                self._loops = [asyncio.create_task(intake.run()) for intake in shared.intakes]
                if self._roster is not None:
                    finding = asyncio.create_task(self._find_queues(self._roster))
                await self._wait(once, patience_s)
                await self._finish()
        finally:
            keeper.cancel()
            if finding is not None:
                finding.cancel()
                await asyncio.gather(finding, return_exceptions=True)
            if monitor is not None and looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
                await monitor.finish()
            await self._wind_down()
        failed = [loop.exception() for loop in self._loops if not loop.cancelled() and loop.exception()]
        if failed:
            raise failed[0] or RuntimeError("a backlog queue's loop failed")
        return self._report()

    def _intake(self, queue: str) -> BacklogIntake:
        return BacklogIntake(queue, self._shared, once=self._once, receive_s=self._receive_s)

    async def _find_queues(self, roster: BacklogRoster) -> None:
        """Find the backlog queues of the primary, and those that are created later."""
        shared = self._shared
        backoff = shared.pauses.backoff()
        while not shared.stopping.is_set():
            try:
                found = await roster.find()
            except ServiceError as error:
                if not self._found:
                    shared.outage = cause_of(error)
                    logger.warning("the backlog queues of %s are not known yet: %s", shared.events.primary, error)
                await shared.pause(backoff.next_ms())
                continue
            backoff.reset()
            if self._found and found.home.identity != self._identity:
                # The port waits for the namespace of before; what it holds must not go to another.
                logger.error("another namespace answers as the primary %s: restart the syphon for it", found.home.name)
            else:
                self._identity = found.home.identity
                self._take(found)
            if self._once:
                return
            await shared.pause(round(SYPHON_LOOK_S * 1000))

    def _take(self, found: Roster) -> None:
        shared = self._shared
        if not self._found:
            self._found = True
            # In place: the monitor has it, too.
            self._queues.clear()
            shared.outage = ""
            shared.events.rename(primary=found.home.name)
            if found.home.identity is not None:
                shared.primary.expect(found.home.identity)
        for queue in found.own:
            if queue not in self._queues:
                self._queues.append(queue)
                intake = self._intake(queue)
                shared.intakes.append(intake)
                self._loops.append(asyncio.create_task(intake.run()))
        for queue in set(found.homeless) - set(self._homeless):
            logger.warning(
                "%s holds messages that may be %s's: `twinbus backlog adopt` moves them if they are",
                queue,
                found.home.name,
            )
        self._homeless = found.homeless

    def stop(self) -> None:
        """Stop the run in an orderly way: wait for sends in progress, release the rest."""
        self._shared.stopping.set()

    def waits(self, queue: str) -> bool:
        """Whether a backlog queue is known to be empty."""
        return any(intake.waits for intake in self._shared.intakes if intake.queue == queue)

    def _new_monitor(self) -> BacklogMonitor | None:
        """A monitor that writes the backlog's depth to the ledger; None without a ledger or a source of counts."""
        shared = self._shared
        if shared.events.journal is None or self._counts is None:
            return None
        return BacklogMonitor(
            self._queues,
            namespace=shared.events.secondary,
            counts=self._counts,
            ages=shared.secondary,
            journal=shared.events.journal,
            clock=SystemClock(),
            waits=self.waits,
        )

    async def _reaches_primary(self) -> bool:
        """Whether receiving makes sense: each message that a brief run receives in vain costs an operation."""
        try:
            await self._shared.primary.connect()
        except ServiceError as error:
            self._shared.outage = cause_of(error)
        return not self._shared.outage

    async def _wait(self, once: bool, patience_s: float) -> None:
        shared, bounds = self._shared, self._shared.bounds
        stopping = asyncio.create_task(shared.stopping.wait())
        started_ms = shared.progress_ms = shared.clock.now_ms()
        try:
            while True:
                await asyncio.wait(
                    [stopping, *(loop for loop in self._loops if not loop.done())],
                    timeout=_KEEP_S / 4,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if stopping.done() or (self._found and all(loop.done() for loop in self._loops)):
                    return
                now_ms = shared.clock.now_ms()
                if once and now_ms - shared.progress_ms > patience_s * 1000:
                    return
                if bounds.seconds_max is not None and now_ms - started_ms >= bounds.seconds_max * 1000:
                    return
                if shared.full or (bounds.brief and shared.outage):
                    return
        finally:
            stopping.cancel()

    async def _finish(self) -> None:
        """At a bound: receive no more, and finish held messages as far as their destinations accept them."""
        shared = self._shared
        if shared.bounds == UNBOUNDED or shared.stopping.is_set():
            return
        await self._end_loops()
        end_ms = shared.clock.now_ms() + round(SYPHON_SEND_TIMEOUT_S * 1000)
        while shared.moving and not shared.outage and shared.clock.now_ms() < end_ms and not shared.stopping.is_set():
            await shared.pause(_FINISH_MS)

    async def _end_loops(self) -> None:
        for loop in self._loops:
            loop.cancel()
        if self._loops:
            # The SDK may ignore it.
            _, left = await asyncio.wait(self._loops, timeout=SYPHON_STOP_S)
            for loop in left:
                logger.error("a receive did not end within %.0f s and is left", SYPHON_STOP_S)
                self._loops.remove(loop)

    async def _keep(self) -> None:
        """Renew locks periodically."""
        while True:
            await asyncio.sleep(_KEEP_S)
            await asyncio.gather(*(intake.renew_locks() for intake in self._shared.intakes))

    async def _wind_down(self) -> None:
        shared = self._shared
        shared.stopping.set()
        shared.gate.set()
        await self._end_loops()
        for lane in list(shared.lanes.values()):
            lane.wake()
        await shared.finish(SYPHON_STOP_S)
        await asyncio.gather(*(intake.close() for intake in shared.intakes), return_exceptions=True)
        await asyncio.gather(shared.primary.close(), shared.secondary.close(), return_exceptions=True)
        journal = shared.events.journal
        if journal is not None and self._owns_events:
            # Writes its last lines to disk.
            await asyncio.to_thread(journal.close)

    def _report(self) -> SyphonReport:
        shared = self._shared
        missing = tuple(intake.queue for intake in shared.intakes if intake.outage == "amqp:not-found")
        drained = tuple(intake.queue for intake in shared.intakes if intake.drained and intake.queue not in missing)
        return SyphonReport(
            total=shared.tally.total(),
            queues=shared.tally.as_dict(),
            drained=drained,
            undrained=tuple(q for q in self._queues if q not in drained and q not in missing),
            missing=missing,
            failing=tuple(self.failing),
            # Without an answer until now, the primary counts as away.
            outage=shared.outage or ("" if self._found else OperationTimeoutError.condition),
            homeless=self._homeless,
        )


def syphon_events(
    primary: str,
    secondary: str,
    *,
    listeners: Iterable[Listener] = (),
    ledger: Path | None = None,
    clock: Clock | None = None,
) -> Events:
    """The events of a syphon; `ledger` is a folder for its records."""
    wall = clock or SystemClock()
    journal = None if ledger is None else Journal(ledger, uuid4().hex[:12], wall, LedgerSource.SYPHON)
    return Events(primary, secondary, clock=wall, listeners=listeners, journal=journal)


def roster_of(
    primary: str,
    secondary: str,
    primary_name: str | None,
    count: int,
    primary_client: Callable[[], BusClient],
    secondary_client: Callable[[], BusClient],
    *,
    ca_file: Path | None = None,
) -> BacklogRoster:
    """A roster from two connection strings. Without the official SDK, the names of the backlog queues are tried."""
    address = NamespaceAddress.parse(endpoint_of(primary))
    name = primary_name or address.label
    try:
        from twinbus.paired.syphon.survey import known_home, known_queues
    except ImportError:

        async def home() -> Home:
            told = NamespaceAnswer() if address.azure else await asked(primary_client, TRY_TIMEOUT_S_DEFAULT)
            return home_of(address, given=primary_name, told=told)

        return BacklogRoster(home, None, secondary_client, count=count, name=name)
    return BacklogRoster(
        known_home(primary, primary_name, primary_client, ca_file),
        known_queues(secondary, ca_file),
        secondary_client,
        count=count,
        name=name,
    )


def tls_of(text: str, ca_file: Path | None) -> ssl.SSLContext | None:
    """The TLS context for a connection string and a CA of one's own; None lets the client choose."""
    return None if ca_file is None or "usedevelopmentemulator=true" in text.lower() else tls_context(ca_file)


def counts_of(secondary: str, ca_file: Path | None = None) -> Counts | None:
    """Counts from the secondary's administration API; None if the official SDK is not installed."""
    try:
        from twinbus.paired.syphon.survey import admin_counts
    except ImportError:
        return None
    return admin_counts(secondary, {} if ca_file is None else {"connection_verify": str(ca_file)})


def endpoint_of(text: str) -> str:
    """The endpoint of a connection string. Errors never show the string."""
    for part in text.split(";"):
        name, _, value = part.partition("=")
        if name.strip().lower() in ("endpoint", "hostname") and value.strip():
            return value.strip()
    raise ConfigError("The connection string has no Endpoint.")
