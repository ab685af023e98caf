"""`twinbus queue create|list|show|update|status|delete`: the queues of a namespace.

The connection string's policy needs the right Manage.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twinbus.cli import settings as of
from twinbus.cli.completion import queue_names
from twinbus.cli.confirmation import confirm
from twinbus.cli.group import group
from twinbus.cli.settings import Json, Yes
from twinbus.cli.target import Target, connected
from twinbus.cli.view import counted, show_json, show_table

queues = group(
    """Make, show, change and delete queues.

\b
Example:
  twinbus queue create orders --lock-duration 30s --max-delivery-count 5
  twinbus queue list
"""
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue.", autocompletion=queue_names)]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The queue.")]

_COUNTS = ("active", "scheduled", "deferred", "dead_letter")


@queues.command()
@connected
def create(
    target: Target,
    name: NewName,
    lock_duration: of.LockDuration = None,
    default_ttl: of.DefaultTtl = None,
    dead_letter_on_expiry: of.DeadLetterOnExpiry = None,
    max_delivery_count: of.MaxDeliveryCount = None,
    requires_session: of.RequiresSession = None,
    requires_duplicate_detection: of.RequiresDuplicateDetection = None,
    duplicate_window: of.DuplicateWindow = None,
    max_megabytes: of.MaxMegabytes = None,
    max_message_bytes: of.MaxMessageBytes = None,
    status: of.StatusOption = None,
    auto_delete_on_idle: of.AutoDeleteOnIdle = None,
    forward_to: of.ForwardTo = None,
    forward_dead_letters_to: of.ForwardDeadLettersTo = None,
    enable_batched_operations: of.EnableBatchedOperations = None,
    enable_partitioning: of.EnablePartitioning = None,
    enable_express: of.EnableExpress = None,
    user_metadata: of.UserMetadata = None,
    json: Json = False,
) -> None:
    """Make a queue. Durations are PT30S, P14D, or 30s, 5m, 14d.

    \b
    Example:
      twinbus queue create orders
      twinbus queue create orders --requires-session --default-ttl 14d --dead-letter-on-expiry
    """
    options = {key: value for key, value in locals().items() if key not in ("target", "name", "json")}
    queue = target.ask("create-queue", {"path": name, **of.given(options)})["queue"]
    if json:
        show_json(queue)
    else:
        typer.echo(f"Queue {queue['path']} is there.")


@queues.command(name="list")
@connected
def list_queues(target: Target, json: Json = False) -> None:
    """List the queues with their message counts.

    \b
    Example:
      twinbus queue list
      twinbus queue list --json | jq '.[] | select(.dead_letter_messages > 0) | .path'
    """
    found = sorted(target.ask("list-queues")["queues"], key=lambda queue: str(queue["path"]).lower())
    if json:
        show_json(found)
        return
    numbers = ("active", "scheduled", "deferred", "dead-letter", "bytes")
    rows = [[queue["path"], *counts(queue), of.number(queue["size_bytes"]), queue["status"]] for queue in found]
    show_table(["queue", *numbers, "status"], rows, numbers)


def counts(described: dict[str, Any]) -> list[str]:
    """The four counts of a queue or subscription, for a table."""
    return [of.number(described[f"{kind}_messages"]) for kind in _COUNTS]


@queues.command()
@connected
def show(target: Target, name: Name, json: Json = False) -> None:
    """Show a queue's settings and numbers.

    \b
    Example:
      twinbus queue show orders
      twinbus queue show orders --json | jq .active_messages
    """
    queue = target.ask("get-queue", {"name": name})["queue"]
    if json:
        show_json(queue)
    else:
        show_table(["setting", "value"], of.rows(queue))


@queues.command()
@connected
def update(
    target: Target,
    name: Name,
    lock_duration: of.LockDuration = None,
    default_ttl: of.DefaultTtl = None,
    dead_letter_on_expiry: of.DeadLetterOnExpiry = None,
    max_delivery_count: of.MaxDeliveryCount = None,
    duplicate_window: of.DuplicateWindow = None,
    max_megabytes: of.MaxMegabytes = None,
    max_message_bytes: of.MaxMessageBytes = None,
    status: of.StatusOption = None,
    auto_delete_on_idle: of.AutoDeleteOnIdle = None,
    forward_to: of.ForwardTo = None,
    forward_dead_letters_to: of.ForwardDeadLettersTo = None,
    enable_batched_operations: of.EnableBatchedOperations = None,
    enable_express: of.EnableExpress = None,
    user_metadata: of.UserMetadata = None,
    json: Json = False,
) -> None:
    """Change settings of a queue; those that are not given stay. An empty text takes one away.

    \b
    Example:
      twinbus queue update orders --lock-duration 2m --max-delivery-count 20
      twinbus queue update orders --forward-to ''
    """
    options = {key: value for key, value in locals().items() if key not in ("target", "name", "json")}
    before = target.ask("get-queue", {"name": name})["queue"]
    queue = target.ask("update-queue", of.changed(before, options))["queue"]
    if json:
        show_json(queue)
    else:
        typer.echo(f"Queue {queue['path']} is changed.")


@queues.command()
@connected
def status(
    target: Target,
    name: Name,
    new: of.NewStatus = None,
    json: Json = False,
) -> None:
    """Show what a queue may be used for, or set it: Active, Disabled, SendDisabled or ReceiveDisabled.

    \b
    Example:
      twinbus queue status orders
      twinbus queue status orders ReceiveDisabled
    """
    queue = target.ask("get-queue", {"name": name})["queue"]
    if new is not None:
        queue = target.ask("update-queue", of.changed(queue, {"status": new}))["queue"]
    show_status(queue, json)


def show_status(described: dict[str, Any], json: bool) -> None:
    if json:
        show_json({"status": described["status"]})
    else:
        typer.echo(described["status"])


@queues.command()
@connected
def delete(target: Target, name: Name, yes: Yes = False, json: Json = False) -> None:
    """Delete a queue and all its messages. Asks first unless you pass --yes.

    \b
    Example:
      twinbus queue delete orders
      twinbus queue delete orders --yes
    """
    if not yes:
        queue = target.ask("get-queue", {"name": name})["queue"]
        count = sum(queue[f"{kind}_messages"] or 0 for kind in _COUNTS)
        confirm(f"Delete queue {queue['path']} and its {counted(count, 'message')}?")
    target.ask("delete-queue", {"name": name})
    show_deleted("Queue", name, json)


def show_deleted(kind: str, name: str, json: bool) -> None:
    if json:
        show_json({"deleted": name})
    else:
        typer.echo(f"{kind} {name} is deleted.")
