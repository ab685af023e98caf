"""`twinbus syphon`: brings diverted messages home, until it is stopped or the backlog is empty.

Exit codes: 0 the backlog is empty, or it was told to stop; 1 something is left, or there is no backlog queue; 2 the
command line is wrong. Dead letters are no failure: they are told at the end, and `twinbus backlog` shows them.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    need_sdk,
    primary_name,
    tls_of,
)
from twinbus.cli.progress import Progress
from twinbus.cli.view import show_json
from twinbus.errors import ConfigError
from twinbus.limits import BACKLOG_QUEUES_DEFAULT

if TYPE_CHECKING:
    from twinbus.paired.syphon import Report, Syphon

_SHOW_S = 1.0
_DEPTH_S = 3.0


def syphon(
    primary: Primary = None,
    secondary: Secondary = None,
    primary_file: PrimaryFile = None,
    secondary_file: SecondaryFile = None,
    primary_name: PrimaryName = None,
    backlog_queue_count: Annotated[
        int, typer.Option(min=1, help="How many backlog queues the pair has.")
    ] = BACKLOG_QUEUES_DEFAULT,
    engine: Annotated[str, typer.Option(help="Where it runs: local.")] = "local",
    transport: Annotated[str, typer.Option(help="client (our own, fast) or sdk (the official one).")] = "client",
    websocket: Annotated[bool, typer.Option("--websocket", help="AMQP over WebSocket, for port 443.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End when the backlog is empty.")] = False,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="With --once: how long nothing may move before it gives up.")
    ] = 75.0,
    ledger: Annotated[Path | None, typer.Option(metavar="DIR", help="Where operations are recorded.")] = None,
    ca_file: CaFile = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the result.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON: a line a second, and the result.")] = False,
) -> None:
    """Bring messages home from the backlog queues of the secondary to the primary.

    Example: twinbus syphon --primary-file primary.txt --secondary-file secondary.txt --once
    """
    need_sdk()
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    first = connection_string("primary", primary, primary_file)
    second = connection_string("secondary", secondary, secondary_file)
    if engine != "local":
        raise ConfigError(f"--engine is {engine!r}: this command runs it as 'local'.")
    name = _name(primary_name, first, ca_file)

    async def run() -> Report:
        made = _made(first, second, name, backlog_queue_count, transport, websocket, ledger, ca_file)
        progress = Progress(made, as_json=as_json, quiet=quiet or (once and as_json))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, made.stop)
        showing = asyncio.create_task(_show(progress))
        counting = asyncio.create_task(_count(progress, second, name, ca_file))
        progress.start()
        try:
            return await made.run(once=once, patience_s=patience)
        finally:
            for task in (showing, counting):
                task.cancel()
            await asyncio.gather(showing, counting, return_exceptions=True)
            progress.stop()

    report = asyncio.run(run())
    _tell(report, as_json, once)
    if (once and report.undrained) or not (set(report.queues) - set(report.missing)):
        raise typer.Exit(1)


def _name(given: str | None, primary: str, ca_file: Path | None) -> str:
    return primary_name(given, primary, ca_file)


def _made(
    primary: str,
    secondary: str,
    name: str,
    count: int,
    transport: str,
    websocket: bool,
    ledger: Path | None,
    ca_file: Path | None,
) -> Syphon:
    from twinbus.paired.syphon import Syphon
    from twinbus.paired.syphon.syphon import TRANSPORTS

    if transport not in TRANSPORTS:
        raise ConfigError(f"--transport is {transport!r}: it is one of {', '.join(TRANSPORTS)}.")
    try:
        return Syphon.from_connection_strings(
            primary,
            secondary,
            primary_name=name,
            backlog_queue_count=count,
            primary_tls=tls_of(primary, ca_file),
            secondary_tls=tls_of(secondary, ca_file),
            websocket=websocket,
            transport=transport,
            ca_file=ca_file,
            ledger=ledger,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


async def _show(progress: Progress) -> None:
    while True:
        await asyncio.sleep(_SHOW_S)
        progress.show()


async def _count(progress: Progress, secondary: str, name: str, ca_file: Path | None) -> None:
    """Depths, where the administration API can be asked: without it the rest goes on."""
    from azure.core.exceptions import AzureError
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

    from twinbus.ledger.words import BACKLOG_MARK

    with suppress(AzureError, ValueError):
        options = {**admin_options(ca_file), "retry_total": 0, "connection_timeout": _DEPTH_S}
        async with ServiceBusAdministrationClient.from_connection_string(secondary, **options) as admin:
            while True:
                async for queue in admin.list_queues_runtime_properties():
                    if queue.name.lower().startswith(f"{name}{BACKLOG_MARK}".lower()):
                        progress.depths[queue.name] = queue.active_message_count or 0
                await asyncio.sleep(_DEPTH_S)


def _tell(report: Report, as_json: bool, once: bool) -> None:
    if as_json:
        show_json(report.as_dict())
        return
    total = report.total
    typer.echo(f"{total.syphoned:,} messages syphoned, {total.dead_lettered:,} dead-lettered.")
    if total.dead_lettered:
        typer.echo("`twinbus backlog peek --dead` shows why; `twinbus backlog resubmit` puts them back.", err=True)
    if not set(report.queues) - set(report.missing):
        typer.echo(f"There is no backlog queue; looked for {', '.join(sorted(report.missing)[:3])} ...", err=True)
    elif once and report.undrained:
        typer.echo(f"Not empty: {', '.join(report.undrained)}.", err=True)
    if report.outage:
        typer.echo(f"The primary cannot be reached: {report.outage}.", err=True)
    if report.failing:
        typer.echo(f"Refusing for now: {', '.join(report.failing)}.", err=True)
