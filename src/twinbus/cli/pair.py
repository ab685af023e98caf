"""`twinbus pair status`: is the primary reachable, what waits in the secondary, whose is it, and who brings it home?

The exit code is the pair's state; `--help` lists them. What is not known is shown as "not known", in JSON as null.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from twinbus.cli.backlog import age, looked, show_looks
from twinbus.cli.group import group
from twinbus.cli.pairing import (
    REACH_MS,
    CaFile,
    Json,
    Primary,
    PrimaryFile,
    PrimaryName,
    Secondary,
    SecondaryFile,
    connection_string,
    home_of_primary,
    need_sdk,
    tls_of,
)
from twinbus.cli.view import counted, show_json
from twinbus.clock import SystemClock
from twinbus.errors import ServiceError

if TYPE_CHECKING:
    from twinbus.paired.syphon.queue_look import QueueLook
    from twinbus.paired.syphon.standing import PairStanding

pairs = group(
    """Show the status of a pair.

\b
Example:
  twinbus pair status --primary-file primary.txt --secondary-file secondary.txt
"""
)


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
    """Show whether the primary can be reached, what is diverted, and who brings it home.

    \b
    Exit codes:
      0  everything is home
      3  messages wait: a syphon is at work, or the primary is away
      4  messages wait without a home: `twinbus backlog adopt` moves them
      5  the secondary cannot be asked
      6  messages wait, the primary is up, and no syphon receives them
      7  nothing waits, but the backlog has dead letters

    \b
    Example:
      twinbus pair status --primary-file primary.txt --secondary-file secondary.txt
      twinbus pair status --json | jq .state
    """
    need_sdk()
    from twinbus.paired.syphon.standing import PairStanding

    first = connection_string("primary", primary, primary_file)
    second = connection_string("secondary", secondary, secondary_file)
    home = home_of_primary(primary_name, first, ca_file)
    outage = asyncio.run(_outage(first, ca_file))
    looks: list[QueueLook] | None = None
    refusal = ""
    try:
        looks = asyncio.run(looked(second, None, ca_file, home))
    except ServiceError as error:
        refusal = error.text
    standing = PairStanding(home, outage, looks)
    summary = _summary(standing, refusal)
    summary["refused"] = {} if outage else asyncio.run(_refusals(first, ca_file, summary["destinations"]))
    if as_json:
        show_json({**summary, "queues": None if looks is None else [_look(look) for look in _shown(standing)]})
    else:
        _tell(standing, summary)
    if standing.state.value:
        raise typer.Exit(standing.state.value)


def _tell(standing: PairStanding, summary: dict[str, Any]) -> None:
    home = standing.home
    name = home.name if home.sure else f"at {home.address.place}, whose name is not known,"
    typer.echo(f"primary {name}: {'reachable' if not standing.outage else f'cannot be reached: {standing.outage}'}")
    if standing.looks is None:
        typer.echo(f"secondary: cannot be asked: {summary['secondary_outage']}")
        typer.echo("diverted: not known")
        return
    oldest_ms = summary["oldest_ms"]
    diverted = summary["diverted"]
    typer.echo(
        f"diverted: {'not known' if diverted is None else counted(diverted, 'message')} in "
        f"{summary['queues_in_use']} of {counted(len(standing.own), 'backlog queue')}"
        + ("" if oldest_ms is None else f", the oldest {age(oldest_ms, SystemClock().now_ms())} old")
        + f"; dead letters: {_figure(summary['dead_letters'])}"
    )
    if standing.state.name == "NO_SYPHON":
        typer.echo("No syphon receives them: start `twinbus syphon`.")
    if not home.answered and any(look.waits for look in standing.looks if look not in standing.own):
        typer.echo("Whose the others are is not known until the primary answers.")
    for prefix in dict.fromkeys(look.primary for look in standing.homeless):
        own = [look.waiting for look in standing.homeless if look.primary == prefix]
        some = sum(count for count in own if count is not None)
        typer.echo(
            f"without a home: {'at least ' if None in own else ''}{counted(some, 'message')} in {prefix}/...; "
            f"if this primary's, `twinbus backlog adopt {prefix}` moves them to its backlog."
        )
    for path, reason in summary["refused"].items():
        typer.echo(f"{path} is refused by the primary: {reason}")
    show_looks(_shown(standing), homes=len(_shown(standing)) > len(standing.own))


def _figure(count: int | None) -> str:
    return "not known" if count is None else f"{count:,}"


def _look(look: QueueLook) -> dict[str, Any]:
    return {**asdict(look), "relation": None if look.relation is None else look.relation.value}


def _shown(standing: PairStanding) -> list[QueueLook]:
    """The primary's own backlog queues, and all others with messages."""
    own = standing.own
    return [look for look in standing.looks or () if look in own or not look.empty]


async def _outage(text: str, ca_file: Any) -> str:
    """Return why the namespace is unreachable, or an empty string."""
    from twinbus.client import BusClient

    client = BusClient.from_connection_string(text, tls=tls_of(text, ca_file), timeout_ms=REACH_MS)
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
    async with BusClient.from_connection_string(text, tls=tls_of(text, ca_file), timeout_ms=REACH_MS) as client:
        for path in paths:
            try:
                await (await client.sender(path)).close()
            except ServiceError as error:
                found[path] = error.text
    return found


def _summary(standing: PairStanding, refusal: str) -> dict[str, Any]:
    from twinbus.paired.syphon.standing import total

    home, own = standing.home, standing.own
    destinations: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for look in own:
        for found, sums in ((look.destinations, destinations), (look.reasons, reasons)):
            for key, count in found.items():
                sums[key] = sums.get(key, 0) + count
    known = standing.looks is not None
    return {
        "primary": home.name if home.sure else None,
        "identity": home.identity,
        "name_source": home.source.value,
        "outage": standing.outage,
        "secondary_outage": refusal,
        "state": standing.state.name.lower().replace("_", "-"),
        "diverted": standing.diverted,
        "homeless": total([look.waiting for look in standing.homeless]) if known else None,
        "dead_letters": standing.dead_letters,
        "queues_in_use": sum(look.waits for look in own) if known else None,
        "oldest_ms": min((look.oldest_ms for look in own if look.oldest_ms is not None), default=None),
        "destinations": destinations,
        "reasons": reasons,
    }
