"""`twinbus syphon`: move diverted messages to the primary, until it is stopped or the backlog is empty.

Rules:
- The engine is Spark if it can run here, otherwise this process; one line says which.
- Exit codes: 0 the backlog is empty or it was told to stop; 1 messages are left, perhaps under another name, or there
  is no backlog queue; 2 invalid command line. Dead letters are not a failure: they are counted at the end, and
  `twinbus backlog` shows them.
- The first signal stops it gracefully and releases the messages it holds; a second one does not wait for that.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.pairing import (
    CaFile,
    Primary,
    PrimaryFile,
    PrimaryName,
    Secondary,
    SecondaryFile,
    admin_options,
    connection_string,
    name_in_ledger,
    need_sdk,
    tls_of,
)
from twinbus.cli.progress import Progress, Shown
from twinbus.cli.view import counted, one_line, show_json
from twinbus.errors import ConfigError
from twinbus.limits import BACKLOG_QUEUES_DEFAULT, SYPHON_ROUND_S

if TYPE_CHECKING:
    from twinbus.paired.syphon import Syphon, SyphonReport

_SHOW_S = 1.0
_DEPTH_S = 3.0
ENGINES = ("spark", "local")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """The request, independent of the engine."""

    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    # As given; None if the primary is to be asked.
    name: str | None
    # The secondary's name in the ledger; empty without a ledger.
    secondary_name: str
    count: int
    websocket: bool
    ledger: Path | None
    ca_file: Path | None
    once: bool
    patience_s: float


def syphon(
    primary: Primary = None,
    secondary: Secondary = None,
    primary_file: PrimaryFile = None,
    secondary_file: SecondaryFile = None,
    primary_name: PrimaryName = None,
    backlog_queue_count: Annotated[
        int, typer.Option(min=1, help="Number of backlog queues of the pair.")
    ] = BACKLOG_QUEUES_DEFAULT,
    engine: Annotated[
        str | None,
        typer.Option(help="Engine: spark, or local (in this process).", show_default="spark where it is installed"),
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master.", show_default="every core of this machine")
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="On Spark: concurrent tasks per backlog queue.", show_default="1")
    ] = None,
    round_seconds: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="On Spark: length of a round.", show_default=f"{SYPHON_ROUND_S:g}"),
    ] = None,
    transport: Annotated[
        str, typer.Option(help="Client library: client (Twinbus, fast) or sdk (official, local engine only).")
    ] = "client",
    websocket: Annotated[bool, typer.Option("--websocket", help="Use AMQP over WebSocket (port 443).")] = False,
    once: Annotated[bool, typer.Option("--once", help="Stop when the backlog is empty.")] = False,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="With --once: give up after this long without progress.")
    ] = 75.0,
    ledger: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the operations ledger.")] = None,
    ca_file: CaFile = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per second, and the result.")] = False,
) -> None:
    """Move diverted messages from the backlog queues of the secondary to the primary.

    \b
    Examples:
      twinbus syphon --primary-file primary.txt --secondary-file secondary.txt --once
      twinbus syphon --primary-file primary.txt --secondary-file secondary.txt --engine local
      twinbus syphon --primary-file primary.txt --secondary-file secondary.txt --master spark://host:7077
    """
    need_sdk()
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    first = connection_string("primary", primary, primary_file)
    second = connection_string("secondary", secondary, secondary_file)
    chosen = _engine(engine, transport, {"--master": master, "--slots": slots, "--round-seconds": round_seconds})
    order = _Order(
        primary=first,
        secondary=second,
        name=primary_name,
        secondary_name="" if ledger is None else name_in_ledger(second, ca_file),
        count=backlog_queue_count,
        websocket=websocket,
        ledger=ledger,
        ca_file=ca_file,
        once=once,
        patience_s=patience,
    )

    def show(running: Shown) -> Progress:
        return Progress(running, as_json=as_json, quiet=quiet)

    if chosen == "spark":
        round_s = SYPHON_ROUND_S if round_seconds is None else round_seconds
        report = _on_spark(order, show, master, 1 if slots is None else slots, round_s)
    else:
        report = asyncio.run(_here(order, show, transport))
    _tell(report, as_json, quiet, once)
    if (once and not report.complete) or not report.found_queues:
        raise typer.Exit(1)


def _engine(given: str | None, transport: str, of_spark: dict[str, Any]) -> str:
    """Return the engine, spark or local; refuse Spark options that would have no effect."""
    from twinbus.paired.syphon.syphon import TRANSPORTS

    if transport not in TRANSPORTS:
        raise ConfigError(f"--transport {transport!r}: use one of {', '.join(TRANSPORTS)}.")
    if given is not None and given not in ENGINES:
        raise ConfigError(f"--engine {given!r}: use one of {', '.join(ENGINES)}.")
    asked = [name for name, value in of_spark.items() if value is not None]
    if transport == "sdk":
        if given == "spark" or asked:
            raise ConfigError("--transport sdk needs --engine local: on Spark, the syphon uses our own client.")
        return "local"
    if given == "local" and asked:
        raise ConfigError(f"{asked[0]} is for --engine spark.")
    if given is None and not asked and (lacking := _lacking()):
        typer.echo(f"{lacking} The syphon runs in this process, as with --engine local.", err=True)
        return "local"
    if given != "local":
        from twinbus.spark.session import need_pyspark

        need_pyspark()
    return given or "spark"


def _lacking() -> str:
    """Return why Spark cannot run here, or an empty string."""
    if any(find_spec(name) is None for name in ("pyspark", "pyarrow")):
        return "Spark is not installed (pip install 'twinbus[spark]')."
    from twinbus.spark.java import find_java

    try:
        find_java()
    except ConfigError as error:
        return str(error)
    return ""


# --- in this process --------------------------------------------------------------------------------------------------


async def _here(order: _Order, show: Callable[[Shown], Progress], transport: str) -> SyphonReport:
    running = _made(order, transport)
    progress = show(running)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.stop)
    showing = asyncio.create_task(_show(progress, order))
    progress.start()
    try:
        return await running.run(once=order.once, patience_s=order.patience_s)
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        progress.stop()


def _made(order: _Order, transport: str) -> Syphon:
    from twinbus.paired.syphon import Syphon

    try:
        return Syphon.from_connection_strings(
            order.primary,
            order.secondary,
            primary_name=order.name,
            backlog_queue_count=order.count,
            primary_tls=tls_of(order.primary, order.ca_file),
            secondary_tls=tls_of(order.secondary, order.ca_file),
            websocket=order.websocket,
            transport=transport,
            ca_file=order.ca_file,
            ledger=order.ledger,
            secondary_name=order.secondary_name or None,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


# --- on Spark ---------------------------------------------------------------------------------------------------------


def _on_spark(
    order: _Order, show: Callable[[Shown], Progress], master: str | None, slots: int, round_s: float
) -> SyphonReport:
    from twinbus.paired.syphon import Pairing
    from twinbus.paired.syphon.syphon import counts_of
    from twinbus.spark.session import spark_session
    from twinbus.spark.syphon.job import check_round
    from twinbus.spark.syphon.rounds import Rounds

    check_round(slots, round_s)
    try:
        pairing = Pairing(
            order.primary,
            order.secondary,
            order.name or "",
            ca=None if order.ca_file is None else order.ca_file.read_text(),
            websocket=order.websocket,
            # Executors have their own working directories.
            ledger=None if order.ledger is None else str(order.ledger.absolute()),
            secondary_name=order.secondary_name,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    with _stopped_by_signals() as begun, spark_session("twinbus syphon", master=master, brisk=True) as spark:
        rounds = Rounds(
            spark,
            pairing,
            roster=pairing.roster(order.name, order.count, order.ca_file),
            slots=slots,
            round_s=round_s,
            counts=counts_of(order.secondary, order.ca_file),
        )
        begun(rounds.stop)
        with _shown(show(rounds), order):
            return rounds.run(once=order.once, patience_s=order.patience_s)


@contextmanager
def _stopped_by_signals() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Stop gracefully on the first signal and at once on the second. Pass the stop function to the yielded one once it
    exists: Spark takes time to start, and its own Ctrl-C handler, installed then, kills tasks."""
    stops: list[Callable[[], None]] = []
    seen: list[int] = []

    def told(number: int, frame: Any) -> None:
        if not stops:
            typer.echo("Stopped before Spark had started.", err=True)
            raise SystemExit(0)
        seen.append(number)
        if len(seen) > 1:
            raise KeyboardInterrupt
        stops[0]()

    def begun(stop: Callable[[], None]) -> None:
        stops.append(stop)
        for number in before:
            signal.signal(number, told)

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield begun
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(progress: Progress, order: _Order) -> Iterator[None]:
    """Show progress from a thread, because the driver waits for its tasks."""
    loop = asyncio.new_event_loop()
    showing = loop.create_task(_show(progress, order))

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(showing)
        loop.close()

    thread = threading.Thread(target=run, name="twinbus-progress", daemon=True)
    progress.start()
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(showing.cancel)
        thread.join()
        progress.stop()


# --- progress ---------------------------------------------------------------------------------------------------------


async def _show(progress: Progress, order: _Order) -> None:
    counting = asyncio.create_task(_count(progress, order))
    try:
        while True:
            await asyncio.sleep(_SHOW_S)
            progress.show()
    finally:
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)


async def _count(progress: Progress, order: _Order) -> None:
    """Fetch queue depths if the administration API is available; the rest works without it."""
    from azure.core.exceptions import AzureError

    from twinbus.paired.syphon.survey import admin_client

    with suppress(AzureError, ValueError):
        options = {**admin_options(order.ca_file), "retry_total": 0, "connection_timeout": _DEPTH_S}
        async with admin_client(order.secondary, options) as admin:
            while True:
                async for queue in admin.list_queues_runtime_properties():
                    if queue.name in progress.queues:
                        progress.depths[queue.name] = queue.active_message_count or 0
                await asyncio.sleep(_DEPTH_S)


def _tell(report: SyphonReport, as_json: bool, quiet: bool, once: bool) -> None:
    if as_json:
        if quiet:
            show_json(report.as_dict())
        else:
            # The last of the JSON lines.
            typer.echo(json.dumps(report.as_dict()))
        return
    total = report.total
    typer.echo(f"{counted(total.syphoned, 'message')} syphoned, {total.dead_lettered:,} dead-lettered.")
    if total.dead_lettered:
        typer.echo("`twinbus backlog peek --dead` shows why; `twinbus backlog resubmit` puts them back.", err=True)
    if not report.found_queues:
        typer.echo(
            one_line(f"No backlog queues found; looked for {', '.join(sorted(report.missing)[:3])} ..."), err=True
        )
    elif once and report.undrained:
        typer.echo(one_line(f"Not empty: {', '.join(report.undrained)}."), err=True)
    if report.homeless:
        typer.echo(
            one_line(
                f"Messages wait in {', '.join(report.homeless)}, and whose they are is not known: if this primary's, "
                "`twinbus backlog adopt` moves them."
            ),
            err=True,
        )
    if report.outage:
        typer.echo(one_line(f"The primary cannot be reached: {report.outage}."), err=True)
    if report.failing:
        typer.echo(one_line(f"Refusing for now: {', '.join(report.failing)}."), err=True)
