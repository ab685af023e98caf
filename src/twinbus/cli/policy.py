"""`twinbus policy list|show|create|rotate|delete`: who may do what in a running broker, changed without a restart.

Keys are shown only with `--show-keys`. To rotate without an outage: give clients the secondary key, rotate the primary,
give them that, rotate the secondary; each key that goes is refused from then on.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from twinbus.cli.directory import ask, find
from twinbus.cli.queue import ConnectionString, Json, Namespace, ReadyFile
from twinbus.cli.view import show_json, show_table
from twinbus.errors import ConfigError, EntityNotFoundError

policies = typer.Typer(
    help="Shared access policies of a running broker: list, make, rotate, delete.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The policy.")]
Entity = Annotated[
    str | None, typer.Option("--entity", "-e", metavar="PATH", help="Of this queue or topic, not the namespace.")
]
ShowKeys = Annotated[bool, typer.Option("--show-keys", help="Show the keys too.")]


class Which(StrEnum):
    PRIMARY = "primary"
    SECONDARY = "secondary"
    SWAP = "swap"


@policies.command(name="list")
def list_policies(
    entity: Entity = None,
    show_keys: ShowKeys = False,
    json: Json = False,
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
) -> None:
    """List the policies of the namespace and its entities, or of one entity."""
    body = {"show_keys": show_keys} if entity is None else {"show_keys": show_keys, "entity": entity}
    found = ask(find(connection_string, ready_file, namespace), "twinbus:list-policies", body)["policies"]
    _show(found, show_keys, json)


@policies.command()
def show(
    name: Name,
    entity: Entity = None,
    show_keys: ShowKeys = False,
    json: Json = False,
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
) -> None:
    """Show one policy."""
    body = {"name": name, "entity": entity or "", "show_keys": show_keys}
    found = ask(find(connection_string, ready_file, namespace), "twinbus:list-policies", body)["policies"]
    if not found:
        raise EntityNotFoundError(f"There is no policy {name!r} on {entity or 'the namespace'}.")
    _show_one(found[0], show_keys, json)


@policies.command()
def create(
    name: Name,
    right: Annotated[
        list[str] | None, typer.Option("--right", "-r", metavar="RIGHT", help="Send, Listen or Manage; again for more.")
    ] = None,
    entity: Entity = None,
    show_keys: ShowKeys = False,
    json: Json = False,
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
) -> None:
    """Make a policy with two new keys.

    Example: twinbus policy create shop --right Send --entity orders --show-keys
    """
    if not right:
        raise ConfigError("A policy needs a right: --right Send, --right Listen or --right Manage.")
    body = {"name": name, "entity": entity or "", "rights": right, "new": True, "show_keys": show_keys}
    made = ask(find(connection_string, ready_file, namespace), "twinbus:set-policy", body)["policy"]
    _show_one(made, show_keys, json)


@policies.command()
def rotate(
    name: Name,
    which: Annotated[
        Which, typer.Argument(metavar="WHICH", help="primary or secondary gets a new key; swap exchanges the two.")
    ],
    entity: Entity = None,
    show_keys: ShowKeys = False,
    json: Json = False,
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
) -> None:
    """Give a policy a new key in place of one of its two; the old one is refused at once."""
    body = {"name": name, "entity": entity or "", "which": which.value, "show_keys": show_keys}
    made = ask(find(connection_string, ready_file, namespace), "twinbus:rotate-key", body)["policy"]
    _show_one(made, show_keys, json)


@policies.command()
def delete(
    name: Name,
    entity: Entity = None,
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
) -> None:
    """Delete a policy: both its keys are refused from then on."""
    ask(
        find(connection_string, ready_file, namespace),
        "twinbus:delete-policy",
        {"name": name, "entity": entity or ""},
    )
    typer.echo(f"Policy {name} is deleted.")


def _show_one(policy: dict[str, Any], show_keys: bool, as_json: bool) -> None:
    if as_json:
        show_json(policy)
    else:
        _show([policy], show_keys, False)


def _show(found: list[dict[str, Any]], show_keys: bool, as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    columns = ["policy", "entity", "rights", *(["primary key", "secondary key"] if show_keys else [])]
    show_table(columns, [_row(policy, show_keys) for policy in found])


def _row(policy: dict[str, Any], show_keys: bool) -> list[str]:
    keys = [policy["primary_key"], policy["secondary_key"]] if show_keys else []
    return [policy["name"], policy["entity"] or "(namespace)", ", ".join(policy["rights"]), *keys]
