"""Runs of a syphon for callers without an event loop: a Spark task, a driver, a thread.

    drained = drain(pairing, ["contoso/x-servicebus-transfer/0"], Bounds(seconds_max=20, brief=True))

- The fate of a message is decided by the same code as in the local syphon.
- A run can be stopped by `stop`, from any thread or a signal handler, or by a stop address: the connection to it closes
  when the driver says so or is gone.
- A pairing contains secrets: it is passed on inside a closure, and its repr shows none of them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from twinbus.client import BusClient
from twinbus.clock import MonotonicClock, SystemClock
from twinbus.errors import ConfigError, ServiceError
from twinbus.limits import SYPHON_CONNECT_TIMEOUT_MS, TRY_TIMEOUT_S_DEFAULT
from twinbus.paired.asking import asked
from twinbus.paired.events import Listener
from twinbus.paired.options import NamespaceAddress, check_name, check_pair
from twinbus.paired.syphon.bounds import Bounds
from twinbus.paired.syphon.bus_port import BusPort
from twinbus.paired.syphon.monitor import BacklogMonitor, BacklogMonitorThread, Counts
from twinbus.paired.syphon.pauses import Failing, Pauses
from twinbus.paired.syphon.roster import BacklogRoster
from twinbus.paired.syphon.syphon import Syphon, SyphonReport, endpoint_of, roster_of, syphon_events, tls_of

# Host and port of the driver's stop signal.
StopAddress = tuple[str, int]

_STOP_CONNECT_S = 5.0


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two namespaces, and what a run on any machine needs to know about them. `ca` is the text of a CA certificate, not
    a file name, because other machines do not have the file. `ledger` is a folder that the run can write, in which the
    secondary is called `secondary_name`; its default is the first label of its host, or its address. The default of
    `primary_name` is the same, for a run that finds out by a roster."""

    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    primary_name: str
    ca: str | None = field(default=None, repr=False)
    websocket: bool = False
    ledger: str | None = None
    secondary_name: str = ""
    # The primary's; None if it has none.
    identity: str | None = None

    def __post_init__(self) -> None:
        check_pair(
            NamespaceAddress.parse(endpoint_of(self.primary)), NamespaceAddress.parse(endpoint_of(self.secondary))
        )
        if not self.primary_name:
            place = NamespaceAddress.parse(endpoint_of(self.primary))
            object.__setattr__(self, "primary_name", place.label or place.plain_name)
        check_name(self.primary_name)
        self.tls(self.primary)
        if not self.secondary_name:
            place = NamespaceAddress.parse(endpoint_of(self.secondary))
            # The dataclass is frozen, but this is still its construction.
            object.__setattr__(self, "secondary_name", place.label or place.plain_name)

    def tls(self, text: str) -> ssl.SSLContext | None:
        """The TLS context for a client; None for the client's default."""
        if self.ca is None or "usedevelopmentemulator=true" in text.lower():
            return None
        try:
            return ssl.create_default_context(cadata=self.ca)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"The CA's certificate cannot be used: {error}.") from None

    def client(self, text: str) -> BusClient:
        return BusClient.from_connection_string(
            text, tls=self.tls(text), websocket=self.websocket, timeout_ms=SYPHON_CONNECT_TIMEOUT_MS
        )

    def port(self, text: str) -> BusPort:
        return BusPort(self.client(text))

    def roster(self, primary_name: str | None, count: int, ca_file: Path | None = None) -> BacklogRoster:
        """Finds the backlog queues of the primary, whose name is given, or None to ask for it."""
        return roster_of(
            self.primary,
            self.secondary,
            primary_name,
            count,
            lambda: self.client(self.primary),
            lambda: self.client(self.secondary),
            ca_file=ca_file,
        )

    def syphon(
        self,
        queues: Sequence[str],
        *,
        failing: Failing | None = None,
        listeners: Iterable[Listener] = (),
        roster: BacklogRoster | None = None,
    ) -> Syphon:
        """Create a syphon for these backlog queues, on the loop it runs on."""
        clock = MonotonicClock()
        pauses = Pauses(clock)
        pauses.tell(failing or {})
        ledger = None if self.ledger is None else Path(self.ledger)
        primary = self.port(self.primary)
        if self.identity is not None:
            primary.expect(self.identity)
        return Syphon(
            primary,
            self.port(self.secondary),
            queues,
            roster=roster,
            events=syphon_events(self.primary_name, self.secondary_name, listeners=listeners, ledger=ledger),
            clock=clock,
            pauses=pauses,
        )


@dataclass(frozen=True, slots=True)
class DrainResult:
    """The result of a run. `failing` is for the next run, `cleared` lists given failures that are over, `outages` are
    backlog queues that could not be received from."""

    report: SyphonReport
    failing: dict[str, tuple[int, int]]
    cleared: tuple[str, ...]
    outages: dict[str, str]


class SyphonRun:
    """One run, in the thread that calls `run`."""

    def __init__(self, make: Callable[[], Syphon]) -> None:
        # Creates the syphon, on the loop it runs on.
        self._make = make
        # None before and after the run.
        self._loop: asyncio.AbstractEventLoop | None = None
        # None before the run. Its public state may be read from any thread.
        self.syphon: Syphon | None = None
        # Whether it must stop, perhaps before it has begun.
        self._stopped = False

    def run(self, *, once: bool = False, bounds: Bounds, stop_address: StopAddress | None = None) -> SyphonReport:
        try:
            return asyncio.run(self._run(once, bounds, stop_address))
        finally:
            self._loop = None

    def stop(self) -> None:
        """Stop the run in an orderly way."""
        self._stopped = True
        loop, syphon = self._loop, self.syphon
        if loop is not None and syphon is not None:
            # It may have ended by itself.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(syphon.stop)

    async def _run(self, once: bool, bounds: Bounds, stop_address: StopAddress | None) -> SyphonReport:
        syphon = self.syphon = self._make()
        self._loop = asyncio.get_running_loop()
        if self._stopped:
            syphon.stop()
        listening = None if stop_address is None else asyncio.create_task(_listen(stop_address, syphon))
        try:
            return await syphon.run(once=once, bounds=bounds)
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)


async def _listen(stop_address: StopAddress, syphon: Syphon) -> None:
    """Stop when the connection closes. If it cannot be opened the run continues, because it is bounded."""
    try:
        async with asyncio.timeout(_STOP_CONNECT_S):
            reader, writer = await asyncio.open_connection(*stop_address)
    except (OSError, TimeoutError):
        return
    try:
        with suppress(OSError):
            await reader.read(1)
        syphon.stop()
    finally:
        writer.close()


def drain(
    pairing: Pairing,
    queues: Sequence[str],
    bounds: Bounds,
    *,
    failing: Failing | None = None,
    stop_address: StopAddress | None = None,
) -> DrainResult:
    """One bounded run over some backlog queues, as a Spark task does it."""
    told = dict(failing or {})
    run = SyphonRun(lambda: pairing.syphon(queues, failing=told))
    report = run.run(bounds=bounds, stop_address=stop_address)
    assert run.syphon is not None
    still = run.syphon.pauses.told()
    return DrainResult(
        report=report,
        failing=still,
        cleared=tuple(path for path in told if path not in still),
        outages=run.syphon.outages,
    )


def monitor_thread(
    pairing: Pairing, queues: Sequence[str], counts: Counts, waits: Callable[[str], bool]
) -> BacklogMonitorThread | None:
    """A thread that writes the backlog's depth to the pairing's ledger; None without a ledger."""
    events = syphon_events(
        pairing.primary_name,
        pairing.secondary_name,
        ledger=None if pairing.ledger is None else Path(pairing.ledger),
    )
    journal = events.journal
    if journal is None:
        return None
    ports: list[BusPort] = []

    def make() -> BacklogMonitor:
        ports.append(pairing.port(pairing.secondary))
        return BacklogMonitor(
            queues,
            namespace=events.secondary,
            counts=counts,
            ages=ports[0],
            journal=journal,
            clock=SystemClock(),
            waits=waits,
        )

    async def end() -> None:
        for port in ports:
            await port.close()
        await asyncio.to_thread(journal.close)

    return BacklogMonitorThread(make, end)


def name_of(connection_string: str, ca_file: Path | None = None) -> str:
    """A namespace's name in the ledger, as the paired client and the broker's own ledger have it: from its host, or
    from the namespace itself, or else its address."""
    place = NamespaceAddress.parse(endpoint_of(connection_string))
    if place.label is not None:
        return place.label

    def client() -> BusClient:
        return BusClient.from_connection_string(connection_string, tls=tls_of(connection_string, ca_file))

    try:
        return asyncio.run(asked(client, TRY_TIMEOUT_S_DEFAULT)).name or place.plain_name
    except ServiceError:
        return place.plain_name
