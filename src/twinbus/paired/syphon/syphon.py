"""The syphon in one process, on asyncio: an intake per backlog queue, a lane per destination.

    syphon = Syphon.from_connection_strings(primary, secondary, primary_name="contoso")
    report = await syphon.run(once=True)

- A backlog message is completed only after the primary has accepted it. If a syphon dies, its messages are sent again
  with the same message id, and nothing is lost.
- Several syphons share the work: a message is locked by one of them at a time.
- Held messages are bounded, in number and bytes, and are released when the syphon stops.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from twinbus.client import BusClient
from twinbus.clock import Clock, MonotonicClock, SystemClock
from twinbus.errors import ConfigError, ServiceError
from twinbus.ledger.words import LedgerSource
from twinbus.limits import (
    BACKLOG_QUEUES_DEFAULT,
    LOCK_DURATION_MS_DEFAULT,
    SYPHON_CONNECT_TIMEOUT_MS,
    SYPHON_RECEIVE_S,
    SYPHON_SEND_TIMEOUT_S,
    SYPHON_STOP_S,
)
from twinbus.paired.events import Events, Listener
from twinbus.paired.journal import Journal
from twinbus.paired.options import NamespaceAddress, backlog_names, check_name, check_pair
from twinbus.paired.syphon.bounds import UNBOUNDED, Bounds
from twinbus.paired.syphon.bus_port import BusPort
from twinbus.paired.syphon.decisions import cause_of
from twinbus.paired.syphon.intake import BacklogIntake
from twinbus.paired.syphon.monitor import BacklogMonitor, Counts
from twinbus.paired.syphon.pauses import Pauses
from twinbus.paired.syphon.port import Port
from twinbus.paired.syphon.shared import SyphonShared
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
    messages."""

    total: QueueTally
    queues: dict[str, dict[str, int]]
    drained: tuple[str, ...]
    undrained: tuple[str, ...]
    missing: tuple[str, ...]
    failing: tuple[str, ...]
    outage: str

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self.total), **{k: v for k, v in asdict(self).items() if k != "total"}}


class Syphon:
    """Moves messages until it is stopped or the backlog is empty; call `run` only once."""

    def __init__(
        self,
        primary: Port,
        secondary: Port,
        queues: Sequence[str],
        *,
        events: Events,
        clock: Clock | None = None,
        pauses: Pauses | None = None,
        receive_s: float = SYPHON_RECEIVE_S,
        owns_events: bool = True,
        counts: Counts | None = None,
    ) -> None:
        if not queues:
            raise ValueError("A syphon needs at least one backlog queue.")
        self._queues = list(queues)
        self._receive_s = receive_s
        # Whether to close the ledger at the end.
        self._owns_events = owns_events
        measured = clock or MonotonicClock()
        # Shared by its parts. Belongs to the loop on which it is created.
        self._shared = SyphonShared(primary, secondary, events, measured, pauses or Pauses(measured))
        # Reports the depth of the queues for the ledger; None to disable.
        self._counts = counts
        self._loops: list[asyncio.Task[None]] = []

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
        ports: list[Port]
        if transport == "sdk":
            # Imported here, because the SDK is heavy and only this transport needs it.
            from twinbus.paired.syphon.sdk_port import SdkPort

            ports = [SdkPort.from_connection_string(text, ca_file, websocket) for text in (primary, secondary)]
        elif transport == "client":
            ports = [
                BusPort(
                    BusClient.from_connection_string(
                        text, tls=tls, websocket=websocket, timeout_ms=SYPHON_CONNECT_TIMEOUT_MS
                    )
                )
                for text, tls in ((primary, primary_tls), (secondary, secondary_tls))
            ]
        else:
            raise ValueError(f"transport is {transport!r}: it must be one of {', '.join(TRANSPORTS)}.")
        second = secondary_name or places[1].label or places[1].plain_name
        return cls(
            ports[0],
            ports[1],
            backlog_names(name, backlog_queue_count),
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
        if shared.intakes:
            raise RuntimeError("A syphon runs once.")
        shared.bounds = bounds
        once = once or bounds.brief
        shared.intakes = [BacklogIntake(queue, shared, once=once, receive_s=self._receive_s) for queue in self._queues]
        keeper = asyncio.create_task(self._keep())
        monitor = self._new_monitor()
        looking = None if monitor is None else asyncio.create_task(monitor.run())
        try:
            if not bounds.brief or await self._reaches_primary():
                self._loops = [asyncio.create_task(intake.run()) for intake in shared.intakes]
                await self._wait(once, patience_s)
                await self._finish()
        finally:
            keeper.cancel()
            if monitor is not None and looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
                await monitor.finish()
            await self._wind_down()
        failed = [loop.exception() for loop in self._loops if not loop.cancelled() and loop.exception()]
        if failed:
            raise failed[0] or RuntimeError("a backlog queue's loop failed")
        return self._report()

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
                if stopping.done() or all(loop.done() for loop in self._loops):
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
        await asyncio.gather(*self._loops, return_exceptions=True)

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
            outage=shared.outage,
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
