"""`twinbus connections list|close`: list and close the connections to a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.confirmation import confirm
from twinbus.cli.directory import in_conversation
from twinbus.cli.group import group
from twinbus.cli.settings import Json, Yes
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import counted, plain, show_json, show_table, time_text
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.client.management import Management

connections = group(
    """List and close the AMQP connections of a namespace.

\b
Example:
  twinbus connections list
  twinbus connections close 17
"""
)

Pattern = Annotated[
    str | None, typer.Option("--filter", "-f", metavar="TEXT", help="Only those whose client or entities contain TEXT.")
]


@connections.command(name="list")
@connected
def show_connections(target: TargetNamespace, filter: Pattern = None, json: Json = False) -> None:
    """List connections: number, address, client and the entities of their links.

    \b
    Example:
      twinbus connections list
      twinbus connections list --filter orders --json
    """
    found = [each for each in listed(target) if filter is None or _matches(each, filter.lower())]
    if json:
        show_json(found)
        return
    rows = [
        [
            f"{each['number']}{' *' if each['own'] else ''}",
            each["address"],
            each["transport"],
            time_text(each["opened_ms"]),
            f"{each['senders']}/{each['receivers']}",
            plain(", ".join(_entities(each)) or "-"),
            # The rest of a user agent names versions of Python and the operating system.
            plain((each["client"] or each["container"]).partition(" ")[0]),
        ]
        for each in found
    ]
    columns = ["number", "address", "by", "since", "send/receive", "entities", "client"]
    numbers = ("number", "send/receive")
    show_table(columns, rows, numbers, ("entities", "client"), ("by", "send/receive", "since"))
    if any(each["own"] for each in found):
        typer.echo("* this command", err=True)


@connections.command(name="close")
@connected
def close(
    target: TargetNamespace,
    number: Annotated[list[int], typer.Argument(metavar="NUMBER...", min=1, help="Numbers that `list` shows.")],
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Close connections. Their clients see amqp:connection:forced and may connect again.

    \b
    Example:
      twinbus connections close 17 --yes
    """
    if not yes:
        confirm(f"Close {counted(len(number), 'connection')} of {target.broker.netloc}?")
    for each in number:
        target.ask("close-connection", {"number": each})
        if not json:
            typer.echo(f"Closed connection {each}.")
    if json:
        show_json({"closed": number})


def listed(target: TargetNamespace) -> list[dict[str, Any]]:
    """Return all connections, fetched page by page."""
    if target.azure:
        raise ConfigError("Azure does not list connections: this command needs a Twinbus namespace.")

    async def asked(node: Management) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["number"] if found else 0
            page = await node.ask("twinbus:list-connections", {"after": after})
            found += page["connections"]
            if not page["more"]:
                return found

    return in_conversation(target.broker, asked, ca_file=target.ca_file)


def _entities(connection: dict[str, Any]) -> list[str]:
    from twinbus.broker.links.addresses import path_of

    paths = {path_of(str(each["address"])) for each in connection["links"] if each["address"]}
    return sorted(each for each in paths if "$management" not in each and each not in ("$cbs", "$coordinator"))


def _matches(connection: dict[str, Any], text: str) -> bool:
    words = (connection["address"], connection["container"], connection["client"], *_entities(connection))
    return any(text in str(each).lower() for each in words)
