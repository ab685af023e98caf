"""`twinbus policy list|show|create|rotate|delete`: access policies of a running broker, changed without a restart.

Keys are shown only with `--show-keys`. To rotate keys without an outage: switch clients to the secondary key, rotate
the primary, switch clients to the new primary, rotate the secondary. A replaced key is refused at once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from twinbus.cli.completion import entity_names, policy_names
from twinbus.cli.group import group
from twinbus.cli.settings import Json
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import show_deleted, show_json, show_table
from twinbus.errors import ConfigError, EntityNotFoundError

policies = group(
    """List, create, rotate and delete shared access policies.

\b
Example:
  twinbus policy create shop --right Send --entity orders --show-keys
  twinbus policy rotate shop primary --entity orders --show-keys
"""
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The policy.", autocompletion=policy_names)]
Entity = Annotated[
    str | None,
    typer.Option(
        "--entity",
        "-e",
        metavar="PATH",
        help="Queue or topic of the policy [the namespace].",
        autocompletion=entity_names,
    ),
]
ShowKeys = Annotated[bool, typer.Option("--show-keys", help="Show the keys.")]


class Which(StrEnum):
    PRIMARY = "primary"
    SECONDARY = "secondary"
    SWAP = "swap"


@policies.command(name="list")
@connected
def list_policies(
    target: TargetNamespace,
    entity: Entity = None,
    show_keys: ShowKeys = False,
    json: Json = False,
) -> None:
    """List the policies of the namespace and its entities, or of one entity.

    \b
    Example:
      twinbus policy list
      twinbus policy list --entity orders --show-keys
    """
    body = {"show_keys": show_keys} if entity is None else {"show_keys": show_keys, "entity": entity}
    found = target.ask("list-policies", body)["policies"]
    _show(found, show_keys, json)


@policies.command()
@connected
def show(
    target: TargetNamespace,
    name: Name,
    entity: Entity = None,
    show_keys: ShowKeys = False,
    json: Json = False,
) -> None:
    """Show one policy.

    \b
    Example:
      twinbus policy show RootManageSharedAccessKey --show-keys
    """
    body = {"name": name, "entity": entity or "", "show_keys": show_keys}
    found = target.ask("list-policies", body)["policies"]
    if not found:
        raise EntityNotFoundError(f"There is no policy {name!r} on {entity or 'the namespace'}.")
    _show_one(found[0], show_keys, json)


@policies.command()
@connected
def create(
    target: TargetNamespace,
    name: Name,
    right: Annotated[
        list[str] | None, typer.Option("--right", "-r", metavar="RIGHT", help="Send, Listen or Manage; repeatable.")
    ] = None,
    entity: Entity = None,
    show_keys: ShowKeys = False,
    json: Json = False,
) -> None:
    """Create a policy with two new keys.

    \b
    Example:
      twinbus policy create shop --right Send --entity orders --show-keys
    """
    if not right:
        raise ConfigError("A policy needs a right: --right Send, --right Listen or --right Manage.")
    body = {"name": name, "entity": entity or "", "rights": right, "new": True, "show_keys": show_keys}
    made = target.ask("set-policy", body)["policy"]
    _show_one(made, show_keys, json)


@policies.command()
@connected
def rotate(
    target: TargetNamespace,
    name: Name,
    which: Annotated[
        Which, typer.Argument(metavar="WHICH", help="primary or secondary gets a new key; swap exchanges the two.")
    ],
    entity: Entity = None,
    show_keys: ShowKeys = False,
    json: Json = False,
) -> None:
    """Replace one of a policy's two keys; the old key is refused at once.

    \b
    Example:
      twinbus policy rotate shop secondary --entity orders --show-keys
    """
    body = {"name": name, "entity": entity or "", "which": which.value, "show_keys": show_keys}
    made = target.ask("rotate-key", body)["policy"]
    _show_one(made, show_keys, json)


@policies.command()
@connected
def delete(target: TargetNamespace, name: Name, entity: Entity = None, json: Json = False) -> None:
    """Delete a policy. Both its keys are refused at once.

    \b
    Example:
      twinbus policy delete shop --entity orders
    """
    target.ask("delete-policy", {"name": name, "entity": entity or ""})
    show_deleted("policy", name, json)


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
