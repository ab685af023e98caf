"""`twinbus pair status`: is the primary reachable, and how many messages are diverted, where, how old, how many
dead?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from twinbus.cli.backlog import age, looked, show_looks
from twinbus.cli.group import group
from twinbus.cli.pairing import (
    CaFile,
    Json,
    Primary,
    PrimaryFile,
    PrimaryName,
    Secondary,
    SecondaryFile,
    connection_string,
    need_sdk,
    tls_of,
)
from twinbus.cli.pairing import primary_name as name_of
from twinbus.cli.view import counted, show_json
from twinbus.clock import SystemClock
from twinbus.errors import ServiceError

if TYPE_CHECKING:
    from twinbus.paired.syphon.survey import QueueLook

pairs = group(
    """Show the status of a pair.

\b
Example:
  twinbus pair status --primary-file primary.txt --secondary-file secondary.txt
"""
)

_REACH_MS = 5_000


@pairs.callback()
def _pairs() -> None:
    pass


@pairs.command()
def status(
    primary: Primary = None,
    secondary: Secondary = None,
    primary_file: PrimaryFile = None,
    secondary_file: SecondaryFile = None,
    primary_name: PrimaryName = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Show whether the primary can be reached and what is diverted.

    \b
    Example:
      twinbus pair status --primary-file primary.txt --secondary-file secondary.txt
      twinbus pair status --json | jq .diverted
    """
    need_sdk()
    first = connection_string("primary", primary, primary_file)
    second = connection_string("secondary", secondary, secondary_file)
    name = name_of(primary_name, first, ca_file)
    outage = asyncio.run(_outage(first, ca_file))
    looks = asyncio.run(looked(second, name, ca_file))
    summary = _summary(name, outage, looks)
    summary["refused"] = {} if outage else asyncio.run(_refusals(first, ca_file, summary["destinations"]))
    if as_json:
        show_json({**summary, "queues": [asdict(look) for look in looks]})
    else:
        now_ms = SystemClock().now_ms()
        typer.echo(f"primary {name}: {'reachable' if not outage else f'cannot be reached: {outage}'}")
        oldest_ms = summary["oldest_ms"]
        typer.echo(
            f"diverted: {counted(summary['diverted'], 'message')} in {summary['queues_in_use']} of "
            f"{counted(len(looks), 'backlog queue')}"
            + ("" if oldest_ms is None else f", the oldest {age(oldest_ms, now_ms)} old")
            + f"; dead letters: {summary['dead_letters']:,}"
        )
        for path, reason in summary["refused"].items():
            typer.echo(f"{path} is refused by the primary: {reason}")
        show_looks(looks)


async def _outage(text: str, ca_file: Any) -> str:
    """Return why the namespace is unreachable, or an empty string."""
    from twinbus.client import BusClient

    client = BusClient.from_connection_string(text, tls=tls_of(text, ca_file), timeout_ms=_REACH_MS)
    try:
        await client.connection()
    except ServiceError as error:
        return error.text
    finally:
        await client.close()
    return ""


async def _refusals(text: str, ca_file: Any, paths: Iterable[str]) -> dict[str, str]:
    """Ping the destinations of diverted messages; return why they refuse messages."""
    from twinbus.client import BusClient

    found = {}
    async with BusClient.from_connection_string(text, tls=tls_of(text, ca_file), timeout_ms=_REACH_MS) as client:
        for path in paths:
            try:
                await (await client.sender(path)).close()
            except ServiceError as error:
                found[path] = error.text
    return found


def _summary(name: str, outage: str, looks: list[QueueLook]) -> dict[str, Any]:
    destinations: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for look in looks:
        for found, total in ((look.destinations, destinations), (look.reasons, reasons)):
            for key, count in found.items():
                total[key] = total.get(key, 0) + count
    return {
        "primary": name,
        "outage": outage,
        "diverted": sum(look.active + look.other for look in looks),
        "dead_letters": sum(look.dead for look in looks),
        "queues_in_use": sum(bool(look.active + look.other) for look in looks),
        "oldest_ms": min((look.oldest_ms for look in looks if look.oldest_ms is not None), default=None),
        "destinations": destinations,
        "reasons": reasons,
    }
