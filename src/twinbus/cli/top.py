"""`twinbus top`: live rates, depths and connections of a namespace.

The broker averages rates over its last 5 seconds, so a single request is enough to show them.
"""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli import work
from twinbus.cli.directory import PATIENCE_S, client_of
from twinbus.cli.settings import Json
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import counted, plain, table_of
from twinbus.errors import ConfigError, ServiceError

if TYPE_CHECKING:
    from rich.console import RenderableType

FLOWS = ("sent", "received", "completed")
_HEAD_LINES = 4
_PIPE_ROWS = 20
# Columns that a narrow terminal does without.
_DISPENSABLE = ("scheduled", "received/s", "dead-letter", "completed/s", "sent/s")


class Sort(StrEnum):
    RATE = "rate"
    ACTIVE = "active"
    DEAD_LETTER = "dead-letter"
    BYTES = "bytes"
    NAME = "name"


_KEYS = {Sort.ACTIVE: "active_messages", Sort.DEAD_LETTER: "dead_letter_messages", Sort.BYTES: "size_bytes"}


@connected
def top(
    target: TargetNamespace,
    sort: Annotated[
        Sort, typer.Option("--sort", "-s", help="Sort by rate, active, dead-letter, bytes or name.")
    ] = Sort.RATE,
    filter: Annotated[
        str | None, typer.Option("--filter", "-f", metavar="TEXT", help="Only entities whose path contains TEXT.")
    ] = None,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Time between updates.")] = "2s",
    once: Annotated[bool, typer.Option("--once", help="Show one update and exit.")] = False,
    json: Json = False,
) -> None:
    """Show live rates, depths and connections until Ctrl-C. Rates are averages of the last 5 seconds.

    Without a terminal it prints one table, or one line of JSON, per update.

    \b
    Example:
      twinbus top
      twinbus top --sort dead-letter --filter orders
      twinbus top --once --json
    """
    import json as writer

    from twinbus.durations import parse_ms

    if target.azure:
        raise ConfigError("Azure does not report rates: this command needs a Twinbus namespace.")
    pause_s = parse_ms(interval) / 1000
    if pause_s <= 0:
        raise ConfigError("--interval must be more than 0.")

    def shown(found: dict[str, Any]) -> None:
        found["entities"] = _chosen(found["entities"], sort, filter)
        if json:
            typer.echo(writer.dumps(found, indent=2 if once else None))
        elif live is not None:
            page = _page(found, live.console.height - _HEAD_LINES, live.console.width)
            live.update(page, refresh=True)
        else:
            from twinbus.cli.view import console

            out = console()
            out.print(_page(found, len(found["entities"]) if once else _PIPE_ROWS, out.width))
        sys.stdout.flush()

    async def looked(stop: work.Stop) -> None:
        from twinbus.client import Backoff

        backoff, seen = Backoff(), False
        while not stop.is_set():
            try:
                async with client_of(target.broker, target.ca_file, PATIENCE_S) as client:
                    node = await client.management()
                    while not stop.is_set():
                        shown(await node.ask("twinbus:overview", {}))
                        seen = True
                        backoff.reset()
                        if once:
                            return
                        await stop.or_done(asyncio.sleep(pause_s))
            except ServiceError as error:
                if once or not seen or not error.retryable:
                    raise
                # Keep watching a broker that restarts.
                if live is not None:
                    live.update(f"{error.text} Trying again.", refresh=True)
                await stop.or_done(asyncio.sleep(backoff.next_ms() / 1000))

    live = None
    if not json and not once and sys.stdout.isatty():
        from rich.live import Live

        from twinbus.cli.view import console

        live = Live(console=console(), screen=True, auto_refresh=False)
        with live:
            work.run(looked)
    else:
        work.run(looked)


def _chosen(rows: list[dict[str, Any]], sort: Sort, text: str | None) -> list[dict[str, Any]]:
    found = [each for each in rows if text is None or text.lower() in each["path"].lower()]
    if sort is Sort.NAME:
        found.sort(key=lambda each: str(each["path"]).lower())
    elif sort in _KEYS:
        found.sort(key=lambda each: each[_KEYS[sort]] or 0, reverse=True)
    return found


def _page(found: dict[str, Any], rows: int, width: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    rates = found["rates"]
    total = found["entities_total"]
    parts = [
        counted(found["connections"], "connection"),
        counted(found["senders"], "sender"),
        counted(found["receivers"], "receiver"),
        f"{total:,} {'entity' if total == 1 else 'entities'}",
        f"store {found['store_bytes'] / 1024**2:,.0f} MiB",
    ]
    flows = ", ".join(f"{rates[flow]:,.1f} {flow}" for flow in FLOWS)
    head = f"{found['namespace']}: {', '.join(parts)}\nmessages/s: {flows}"
    shown = found["entities"][: max(rows, 1)]
    states = ("active", "dead-letter", "scheduled")
    numbers = (*(f"{flow}/s" for flow in FLOWS), *states)
    cells = [
        [
            plain(each["path"]),
            *(f"{each[flow]:,.1f}" for flow in FLOWS),
            *(f"{each[state.replace('-', '_') + '_messages']:,}" for state in states),
        ]
        for each in shown
    ]
    return Group(Text(head), table_of(["entity", *numbers], cells, width, numbers, ("entity",), _DISPENSABLE))
