"""`twinbus backlog list|peek|resubmit|adopt|remove-unused`: inspect and repair the backlog queues of a secondary.

Rules:
- Listing and peeking lock nothing; only `resubmit`, `adopt` and `remove-unused --yes` change anything.
- A resubmitted dead letter is completed only after the backlog queue has accepted its copy. Those that the syphon
  dead-letters again meanwhile stay.
- A queue is unused if the pair does not use its number and it holds no messages of any kind.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli import work
from twinbus.cli.group import group
from twinbus.cli.pairing import (
    CaFile,
    Json,
    PrimaryName,
    Secondary,
    SecondaryFile,
    admin_options,
    connection_string,
    need_sdk,
    tls_of,
)
from twinbus.cli.view import counted, one_line, show_json, show_table
from twinbus.clock import SystemClock
from twinbus.errors import ConfigError, ConnectionForcedError, EnvelopeError, UnauthorizedError
from twinbus.limits import BACKLOG_QUEUES_DEFAULT

if TYPE_CHECKING:
    from twinbus.client import BusClient, ReceivedMessage
    from twinbus.paired.homes import Home
    from twinbus.paired.syphon.queue_look import QueueLook

backlogs = group(
    """Inspect and repair diverted messages, which are in the backlog queues of a secondary.

\b
Example:
  twinbus backlog list --secondary-file secondary.txt
  twinbus backlog peek --secondary-file secondary.txt --dead
"""
)

# Whose a backlog queue is, seen from one primary.
_OWNERS = {"this": "this primary", "another": "another", "none": "nobody yet", "unknown": "not known"}

Queue = Annotated[str | None, typer.Option(metavar="QUEUE", help="Only this backlog queue [all].")]
Path = Annotated[str | None, typer.Option(metavar="PATH", help="Only messages for this destination.")]


@backlogs.command("list")
def list_backlog(
    secondary: Secondary = None,
    secondary_file: SecondaryFile = None,
    primary_name: PrimaryName = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """List the backlog queues with their messages, destinations, ages and dead-letter reasons.

    \b
    Example:
      twinbus backlog list --secondary-file secondary.txt
    """
    need_sdk()
    text = connection_string("secondary", secondary, secondary_file)
    looks = asyncio.run(looked(text, primary_name, ca_file))
    if as_json:
        show_json([{name: value for name, value in asdict(look).items() if name != "relation"} for look in looks])
    else:
        show_looks(looks)


def show_looks(looks: list[QueueLook], *, homes: bool = False) -> None:
    """Print the backlog queues as a table; with `homes`, whose each is."""
    if not looks:
        typer.echo("No backlog queues found.")
        return
    now_ms = SystemClock().now_ms()
    rows = [
        [
            look.name,
            *([] if not homes or look.relation is None else [_OWNERS[look.relation.value]]),
            *("?" if count is None else f"{count:,}" for count in (look.active, look.dead, look.size_bytes)),
            age(look.oldest_ms, now_ms),
            _counted(look.destinations, look.sampled),
            _counted(look.reasons, look.sampled),
        ]
        for look in looks
    ]
    numbers = ("messages", "dead-letter", "bytes", "oldest")
    columns = ["backlog queue", *(["of"] * homes), *numbers, "for", "dead because"]
    while rows[0] and all(row[-1] == "-" for row in rows):
        # Without these columns the names of the queues fit into 80 columns.
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    show_table(columns, rows, numbers, ("for", "dead because"))


@backlogs.command()
def peek(
    secondary: Secondary = None,
    secondary_file: SecondaryFile = None,
    primary_name: PrimaryName = None,
    queue: Queue = None,
    dead: Annotated[bool, typer.Option("--dead", help="Show dead letters instead.")] = False,
    path: Path = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Maximum number of messages per queue.")] = 20,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Peek at diverted messages without locking them.

    \b
    Example:
      twinbus backlog peek --secondary-file secondary.txt --path orders --count 5
      twinbus backlog peek --secondary-file secondary.txt --dead --json
    """
    need_sdk()
    from twinbus.paired.syphon import survey

    text = connection_string("secondary", secondary, secondary_file)

    async def peeked() -> list[survey.MessageLook]:
        names = [queue] if queue else [look.name for look in await _listed(text, primary_name, ca_file)]
        async with _client(text, ca_file) as client:
            found = []
            for name in names:
                found += [each async for each in survey.peeked(client, name, count, dead=dead)]
            return [each for each in found if path is None or (each.path or "").lower() == path.lower()]

    messages = asyncio.run(peeked())
    if as_json:
        show_json([{**asdict(each), "message_id": _plain(each.message_id)} for each in messages])
        return
    now_ms = SystemClock().now_ms()
    rows = []
    for each in messages:
        row = [each.queue, str(each.sequence_number), str(_plain(each.message_id)), each.path or "-"]
        row += [age(each.enqueued_ms, now_ms), f"{each.body_bytes:,}"]
        rows.append([*row, each.reason or "-", each.description or "-"] if dead else row)
    columns = ["backlog queue", "number", "message id", "for", "age", "body bytes", *(["reason", "description"] * dead)]
    show_table(columns, rows, ("number", "age", "body bytes"))


@backlogs.command()
def resubmit(
    secondary: Secondary = None,
    secondary_file: SecondaryFile = None,
    primary_name: PrimaryName = None,
    queue: Queue = None,
    to: Annotated[str | None, typer.Option(metavar="PATH", help="New destination for all of them.")] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after N messages per queue.")] = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Return dead-lettered messages to their backlog queue, so that the syphon retries them.

    \b
    Example:
      twinbus backlog resubmit --secondary-file secondary.txt
      twinbus backlog resubmit --secondary-file secondary.txt --to orders-new
    """
    need_sdk()
    from twinbus.cli.resubmit import ResubmitResult, resubmit_backlog
    from twinbus.client.resubmission import resubmitted

    text = connection_string("secondary", secondary, secondary_file)
    broken = 0

    def rewritten(message: ReceivedMessage) -> bytes | None:
        nonlocal broken
        try:
            return resubmitted(message.payload, to)
        except EnvelopeError:
            broken += 1
            return None

    async def done(stop: work.Stop) -> dict[str, ResubmitResult]:
        names = [queue] if queue else [each.name for each in await _listed(text, primary_name, ca_file) if each.dead]
        results: dict[str, ResubmitResult] = {}
        async with _client(text, ca_file) as client:
            for name in names:
                results[name] = await resubmit_backlog(client, name, count, rewritten, stop)
                if stop.is_set() or results[name].error is not None:
                    break
        return results

    results = work.run(done)
    back = sum(each.done for each in results.values())
    left = sum(each.wanted - each.done for each in results.values())
    if as_json:
        show_json({name: {"resubmitted": each.done, "left": each.wanted - each.done} for name, each in results.items()})
    else:
        typer.echo(f"{counted(back, 'dead letter')} {'is' if back == 1 else 'are'} back in the backlog.")
        if broken:
            typer.echo(f"{broken:,} cannot be restored and stay: give their destination with --to PATH.", err=True)
    for name, each in results.items():
        if each.error is not None:
            raise type(each.error)(f"{counted(left, 'dead letter')} not resubmitted to {name}: {each.error.text}")
    if any(each.interrupted for each in results.values()):
        raise typer.Exit(work.INTERRUPTED)
    if left > broken and not as_json:
        typer.echo(f"{counted(left - broken, 'dead letter')} not resubmitted: locked by another receiver.", err=True)
    if left:
        raise typer.Exit(1)


@backlogs.command("remove-unused")
def remove_unused(
    secondary: Secondary = None,
    secondary_file: SecondaryFile = None,
    primary_name: PrimaryName = None,
    backlog_queue_count: Annotated[
        int, typer.Option(min=0, help="Number of backlog queues that the pair uses; 0 if there is no pair any more.")
    ] = BACKLOG_QUEUES_DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete the queues instead of listing them.")] = False,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """List, and with --yes delete, empty backlog queues whose number the pair does not use.

    \b
    Example:
      twinbus backlog remove-unused --secondary-file secondary.txt --primary-name contoso
      twinbus backlog remove-unused --secondary-file secondary.txt --primary-name contoso --yes
    """
    need_sdk()
    from twinbus.paired.syphon import survey

    if primary_name is None:
        raise ConfigError("No primary given: pass --primary-name NAME; `twinbus backlog list` shows the names.")
    text = connection_string("secondary", secondary, secondary_file)

    async def done() -> tuple[list[str], list[str]]:
        beyond = [each for each in await _listed(text, primary_name, ca_file) if each.index >= backlog_queue_count]
        unused = [each.name for each in beyond if each.empty]
        if yes:
            async with survey.admin_client(text, admin_options(ca_file)) as admin:
                for name in unused:
                    await survey.delete_queue(admin, name)
        return unused, [each.name for each in beyond if not each.empty]

    unused, kept = asyncio.run(done())
    if as_json:
        show_json({"unused": unused, "not_empty": kept, "deleted": yes})
        return
    for name in unused:
        typer.echo(f"{'deleted' if yes else 'unused'}: {name}")
    for name in kept:
        typer.echo(one_line(f"not empty, kept: {name}"), err=True)
    if unused and not yes:
        typer.echo("--yes deletes them.", err=True)
    elif not unused:
        typer.echo("No backlog queue is unused.")


# --- shared by the commands -------------------------------------------------------------------------------------------


def _client(text: str, ca_file: Any) -> BusClient:
    from twinbus.client import BusClient

    return BusClient.from_connection_string(text, tls=tls_of(text, ca_file))


async def _listed(text: str, primary_name: str | None, ca_file: Any) -> list[QueueLook]:
    from twinbus.paired.syphon import survey

    async with survey.admin_client(text, admin_options(ca_file)) as admin:
        return await survey.list_queues(admin, primary_name)


async def looked(text: str, primary_name: str | None, ca_file: Any, home: Home | None = None) -> list[QueueLook]:
    """Look at the backlog queues and into them; with `home`, also find out whose they are and who receives."""
    from twinbus.paired.syphon import survey

    async with _client(text, ca_file) as client:
        try:
            looks = await _listed(text, primary_name, ca_file)
        except (UnauthorizedError, ConnectionForcedError):
            if home is None:
                raise
            # The key may allow less, or only AMQP be reached.
            count = BACKLOG_QUEUES_DEFAULT
            names = [*home.names(count), *home.other_names(count), *home.guessed_names(count)]
            looks = await survey.try_queues(client, dict.fromkeys(names))
        if home is not None:
            for look in looks:
                look.relation = home.relation(look.name, look.mark)
            await survey.count_receivers(client, looks)
        await survey.look_inside(client, looks)
    return looks


def age(since_ms: int | None, now_ms: int) -> str:
    """Format an age in the largest unit that fits."""
    if since_ms is None:
        return "-"
    seconds = max(now_ms - since_ms, 0) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _counted(counts: dict[str, int], sampled: bool) -> str:
    shown = ", ".join(f"{name} ({'at least ' if sampled else ''}{count:,})" for name, count in list(counts.items())[:5])
    return shown + (f" and {len(counts) - 5} more" if len(counts) > 5 else "") or "-"


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int) else str(value)
