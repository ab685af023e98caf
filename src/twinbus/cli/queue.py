"""`twinbus queue create|list|show|delete`: the queues of a running broker, over its own protocol.

Rules:
- The broker is found by a connection string: `--connection-string`, the environment's TWINBUS_CONNECTION_STRING, or the
  ready file of `twinbus serve` (`--ready-file FILE --namespace NAME`). Its policy needs the right Manage.
- A setting that is not given is the broker's to choose; its refusal is shown as it is.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.broker.durations import format_ms, parse_ms
from twinbus.cli.directory import ask, find
from twinbus.cli.view import show_json, show_table
from twinbus.limits import UNLIMITED_MS

queues = typer.Typer(
    help="Make, show and delete the queues of a running broker.", no_args_is_help=True, rich_markup_mode=None
)

ConnectionString = Annotated[
    str | None,
    typer.Option(
        "--connection-string", "-c", metavar="TEXT", envvar="TWINBUS_CONNECTION_STRING", help="Where the broker is."
    ),
]
ReadyFile = Annotated[Path | None, typer.Option(metavar="FILE", help="The ready file of `twinbus serve` instead.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Which namespace of the ready file.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue.")]


@queues.command()
def create(
    name: Name,
    lock_duration: Annotated[str | None, typer.Option(metavar="DURATION", help="How long a lock lasts [1m].")] = None,
    default_ttl: Annotated[str | None, typer.Option(metavar="DURATION", help="Time to live [never].")] = None,
    dead_letter_on_expiry: Annotated[
        bool | None, typer.Option("--dead-letter-on-expiry/--drop-on-expiry", help="Where expired messages go [drop].")
    ] = None,
    max_delivery_count: Annotated[
        int | None, typer.Option(help="Deliveries before the dead-letter queue [10].")
    ] = None,
    requires_session: Annotated[bool | None, typer.Option(help="Every message belongs to a session.")] = None,
    requires_duplicate_detection: Annotated[bool | None, typer.Option(help="Drop messages with a known id.")] = None,
    duplicate_window: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long ids are remembered [10m].")
    ] = None,
    max_megabytes: Annotated[int | None, typer.Option(help="The size at which sends are refused [1024].")] = None,
    max_message_bytes: Annotated[int | None, typer.Option(help="The largest message [262144].")] = None,
    status: Annotated[
        str | None, typer.Option(help="Active, Disabled, SendDisabled or ReceiveDisabled [Active].")
    ] = None,
    auto_delete_on_idle: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Delete the queue after that much idleness [never].")
    ] = None,
    forward_to: Annotated[str | None, typer.Option(metavar="QUEUE", help="Where messages are forwarded.")] = None,
    forward_dead_letters_to: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Where dead-lettered messages are forwarded.")
    ] = None,
    enable_batched_operations: Annotated[bool | None, typer.Option(help="Kept for the service's sake.")] = None,
    enable_partitioning: Annotated[bool | None, typer.Option(help="Kept for the service's sake.")] = None,
    enable_express: Annotated[bool | None, typer.Option(help="Kept for the service's sake.")] = None,
    user_metadata: Annotated[str | None, typer.Option(help="A note of your own.")] = None,
    json: Json = False,
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
) -> None:
    """Make a queue. Durations are PT30S, P14D, or 30s, 5m, 14d."""
    given = {
        "lock_duration_ms": _ms(lock_duration),
        "default_ttl_ms": _ms(default_ttl),
        "dead_letter_on_expiry": dead_letter_on_expiry,
        "max_delivery_count": max_delivery_count,
        "requires_session": requires_session,
        "requires_duplicate_detection": requires_duplicate_detection,
        "duplicate_window_ms": _ms(duplicate_window),
        "max_megabytes": max_megabytes,
        "max_message_bytes": max_message_bytes,
        "status": status,
        "auto_delete_on_idle_ms": _ms(auto_delete_on_idle),
        "forward_to": forward_to,
        "forward_dead_letters_to": forward_dead_letters_to,
        "enable_batched_operations": enable_batched_operations,
        "enable_partitioning": enable_partitioning,
        "enable_express": enable_express,
        "user_metadata": user_metadata,
    }
    body = {"path": name, **{field: value for field, value in given.items() if value is not None}}
    queue = ask(find(connection_string, ready_file, namespace), "twinbus:create-queue", body)["queue"]
    if json:
        show_json(queue)
    else:
        typer.echo(f"Queue {queue['path']} is there.")


@queues.command(name="list")
def list_queues(
    json: Json = False,
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
) -> None:
    """List the queues with their message counts."""
    found = ask(find(connection_string, ready_file, namespace), "twinbus:list-queues", {})["queues"]
    found = sorted(found, key=lambda queue: queue["path"].lower())
    if json:
        show_json(found)
        return
    numbers = ("active", "scheduled", "deferred", "dead-letter", "bytes")
    rows = [
        [
            queue["path"],
            f"{queue['active_messages']:,}",
            f"{queue['scheduled_messages']:,}",
            f"{queue['deferred_messages']:,}",
            f"{queue['dead_letter_messages']:,}",
            f"{queue['size_bytes']:,}",
            queue["status"],
        ]
        for queue in found
    ]
    show_table(["queue", *numbers, "status"], rows, numbers)


@queues.command()
def show(
    name: Name,
    json: Json = False,
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
) -> None:
    """Show a queue's settings and numbers."""
    queue = ask(find(connection_string, ready_file, namespace), "twinbus:get-queue", {"name": name})["queue"]
    if json:
        show_json(queue)
    else:
        show_table(["setting", "value"], [_row(field, value) for field, value in queue.items()])


@queues.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    connection_string: ConnectionString = None,
    ready_file: ReadyFile = None,
    namespace: Namespace = None,
) -> None:
    """Delete a queue and all its messages."""
    broker = find(connection_string, ready_file, namespace)
    if not yes and sys.stdin.isatty():
        queue = ask(broker, "twinbus:get-queue", {"name": name})["queue"]
        count = sum(queue[f"{kind}_messages"] for kind in ("active", "scheduled", "deferred", "dead_letter"))
        typer.confirm(f"Delete queue {queue['path']} and its {count:,} messages?", abort=True)
    ask(broker, "twinbus:delete-queue", {"name": name})
    typer.echo(f"Queue {name} is deleted.")


def _ms(duration: str | None) -> int | None:
    return None if duration is None else parse_ms(duration)


def _row(field: str, value: Any) -> list[str]:
    if field in ("created_ms", "updated_ms", "accessed_ms"):
        return [field.removesuffix("_ms"), _time(value)]
    if field.endswith("_ms"):
        return [field.removesuffix("_ms").replace("_", "-"), "never" if value >= UNLIMITED_MS else format_ms(value)]
    if isinstance(value, bool):
        shown = "yes" if value else "no"
    elif value is None:
        shown = "-"
    else:
        shown = f"{value:,}" if isinstance(value, int) else str(value)
    return [field.replace("_", "-"), shown]


def _time(ms: int | None) -> str:
    if not ms:
        return "-"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
