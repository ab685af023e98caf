"""Runs of a syphon for those who have no event loop: a Spark task, a driver, a thread.

    drained = drain(pairing, ["contoso/x-servicebus-transfer/0"], Bounds(seconds_max=20, brief=True))

Rules:
- One function a run; what a message's fate is, is decided where the local syphon decides it, by the same code.
- Whoever runs one can be told to stop: by `stop`, from any thread or a signal handler, or by a stop address: a
  connection to it ends when the one who gave the order is gone.
- A pairing holds secrets: it is handed on whole, inside a closure, and shows nothing of them.
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
from twinbus.errors import ConfigError
from twinbus.limits import SYPHON_CONNECT_TIMEOUT_MS
from twinbus.paired.events import Listener
from twinbus.paired.options import NamespaceAddress, check_name, check_pair
from twinbus.paired.syphon.bounds import Bounds
from twinbus.paired.syphon.bus_port import BusPort
from twinbus.paired.syphon.monitor import BacklogMonitor, BacklogMonitorThread, Counts
from twinbus.paired.syphon.pauses import Failing, Pauses
from twinbus.paired.syphon.syphon import Syphon, SyphonReport, endpoint_of, syphon_events

# Host and port of somebody who tells when to stop.
StopAddress = tuple[str, int]

_STOP_CONNECT_S = 5.0


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two namespaces, and what a run on any machine needs to know of them. `ca` is the text of a CA's certificate,
    not a file: other machines do not have it. `ledger` is a folder that the one who runs it can write, in which the
    secondary is called `secondary_name`; by default that is its host's first label, or where it is."""

    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    primary_name: str
    ca: str | None = field(default=None, repr=False)
    websocket: bool = False
    ledger: str | None = None
    secondary_name: str = ""

    def __post_init__(self) -> None:
        check_pair(
            NamespaceAddress.parse(endpoint_of(self.primary)), NamespaceAddress.parse(endpoint_of(self.secondary))
        )
        check_name(self.primary_name)
        self.tls(self.primary)
        if not self.secondary_name:
            place = NamespaceAddress.parse(endpoint_of(self.secondary))
            # Frozen for its users, not for its own making.
            object.__setattr__(self, "secondary_name", place.label or place.plain_name)

    def tls(self, text: str) -> ssl.SSLContext | None:
        """What a client is told about TLS; None is its own choice."""
        if self.ca is None or "usedevelopmentemulator=true" in text.lower():
            return None
        try:
            return ssl.create_default_context(cadata=self.ca)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"The CA's certificate cannot be used: {error}.") from None

    def port(self, text: str) -> BusPort:
        return BusPort(
            BusClient.from_connection_string(
                text, tls=self.tls(text), websocket=self.websocket, timeout_ms=SYPHON_CONNECT_TIMEOUT_MS
            )
        )

    def syphon(
        self, queues: Sequence[str], *, failing: Failing | None = None, listeners: Iterable[Listener] = ()
    ) -> Syphon:
        """A syphon for these backlog queues, made on the loop that it runs on."""
        clock = MonotonicClock()
        pauses = Pauses(clock)
        pauses.tell(failing or {})
        ledger = None if self.ledger is None else Path(self.ledger)
        return Syphon(
            self.port(self.primary),
            self.port(self.secondary),
            queues,
            events=syphon_events(self.primary_name, self.secondary_name, listeners=listeners, ledger=ledger),
            clock=clock,
            pauses=pauses,
        )


@dataclass(frozen=True, slots=True)
class DrainResult:
    """What a run came to. `failing` is what the next one is to know, `cleared` what it was told and is over,
    `outages` are backlog queues that could not be received from."""

    report: SyphonReport
    failing: dict[str, tuple[int, int]]
    cleared: tuple[str, ...]
    outages: dict[str, str]


class SyphonRun:
    """One run, in the thread that calls `run`."""

    def __init__(self, make: Callable[[], Syphon]) -> None:
        # Makes the syphon, on the loop it runs on.
        self._make = make
        # The loop; None before and after the run.
        self._loop: asyncio.AbstractEventLoop | None = None
        # The syphon; None before the run. What it shows may be looked at from any thread.
        self.syphon: Syphon | None = None
        # Whether it is to stop, perhaps before it has begun.
        self._stopped = False

    def run(self, *, once: bool = False, bounds: Bounds, stop_address: StopAddress | None = None) -> SyphonReport:
        try:
            return asyncio.run(self._run(once, bounds, stop_address))
        finally:
            self._loop = None

    def stop(self) -> None:
        """End the run in good order."""
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
    """Stop when the other end says so, or is gone. One that cannot be reached says nothing: the run has bounds."""
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
    """One bounded run over some backlog queues: what a Spark task does."""
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
    """Writes the backlog's depth into the pairing's ledger, from a thread; None when it has no ledger."""
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
    """A namespace's name, as the paired client finds it and the broker's own ledger has it: of its host, or what it
    says itself where the official SDK is there to ask it, or where it is."""
    place = NamespaceAddress.parse(endpoint_of(connection_string))
    if place.label is not None:
        return place.label
    try:
        from twinbus.paired._async.namespaces import AsyncPairedNamespace
        from twinbus.paired._async.provision import async_name_of
    except ImportError:
        return place.plain_name
    options = {} if ca_file is None else {"connection_verify": str(ca_file)}
    return asyncio.run(async_name_of(AsyncPairedNamespace.of_string(connection_string), options))
