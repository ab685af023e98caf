"""`twinbus backlog adopt`: move messages that wait without a home to the backlog of their primary.

Rules:
- The operator says whose they are. The primary must be reached, so that it is certain which backlog is its own.
- Nothing is sent to the primary: the messages go to its backlog queues in the same secondary, and the syphon brings
  them home. On a Twinbus broker each move is a transaction; elsewhere a crash may leave a message in both places.
- Dead letters stay: resubmit them first.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli import moving, work
from twinbus.cli.confirmation import confirm
from twinbus.cli.pairing import (
    CaFile,
    Json,
    Primary,
    PrimaryFile,
    PrimaryName,
    Secondary,
    SecondaryFile,
    admin_options,
    connection_string,
    home_of_primary,
    need_sdk,
    tls_of,
)
from twinbus.cli.view import counted, show_json
from twinbus.errors import ConfigError, ConnectionForcedError, ServiceError
from twinbus.limits import BACKLOG_QUEUES_DEFAULT

if TYPE_CHECKING:
    from twinbus.client import BusClient
    from twinbus.paired.homes import Home
    from twinbus.paired.syphon.queue_look import QueueLook

_RECEIVE_S = 1.0


def adopt(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name in the backlog queues to take from, such as localhost-5672.")
    ],
    primary: Primary = None,
    secondary: Secondary = None,
    primary_file: PrimaryFile = None,
    secondary_file: SecondaryFile = None,
    primary_name: PrimaryName = None,
    backlog_queue_count: Annotated[
        int, typer.Option(min=1, help="Number of backlog queues of the pair.")
    ] = BACKLOG_QUEUES_DEFAULT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be moved.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Move messages that wait without a home to this primary's backlog. Asks for confirmation.

    The primary must be running. The syphon then brings the messages home.

    \b
    Example:
      twinbus backlog adopt localhost-5672 --primary-file primary.txt --secondary-file secondary.txt --dry-run
      twinbus backlog adopt localhost-5672 --primary-file primary.txt --secondary-file secondary.txt
    """
    need_sdk()
    first = connection_string("primary", primary, primary_file)
    second = connection_string("secondary", secondary, secondary_file)
    home = home_of_primary(primary_name, first, ca_file)
    if not home.answered:
        raise ConnectionForcedError(
            f"The primary at {home.address.place} cannot be reached, so which backlog is its own is not certain: "
            "start it and try again."
        )
    if not home.sure:
        raise ConfigError(f"The primary at {home.address.place} does not say its name: pass --primary-name NAME.")
    looks = asyncio.run(_found(second, ca_file, home, name))
    if not looks:
        raise ConfigError(f"No backlog of {name} other than this primary's own: `twinbus pair status` lists them.")
    waiting = sum(look.waiting or 0 for look in looks)
    others = [look for look in looks if look.relation is not None and look.relation.value == "another" and look.mark]
    if dry_run:
        _tell(as_json, home, looks, dict.fromkeys((look.name for look in looks), 0), moved=False)
        return
    if waiting and not yes:
        warning = "They are marked as another primary's. " if others else ""
        confirm(f"{warning}Move {counted(waiting, 'message')} of {name} to the backlog of {home.name}?")
    results, error, interrupted = work.run(lambda stop: _moved(second, ca_file, home, backlog_queue_count, looks, stop))
    _tell(as_json, home, looks, results, moved=True)
    if error is not None:
        raise type(error)(f"The others stay where they are: {error.text}")
    if interrupted:
        raise typer.Exit(work.INTERRUPTED)
    if sum(results.values()) < waiting:
        typer.echo("Some are locked by another receiver and stay.", err=True)
        raise typer.Exit(1)


def _tell(as_json: bool, home: Home, looks: list[QueueLook], moved_by_queue: dict[str, int], *, moved: bool) -> None:
    if as_json:
        queues = [
            {"name": look.name, "mark": look.mark, "messages": look.waiting, "moved": moved_by_queue.get(look.name, 0)}
            for look in looks
        ]
        show_json({"primary": home.name, "identity": home.identity, "dry_run": not moved, "queues": queues})
        return
    for look in looks:
        if moved:
            typer.echo(f"{look.name}: {counted(moved_by_queue.get(look.name, 0), 'message')} moved.")
        else:
            dead = f", {counted(look.dead, 'dead letter')} that would stay" if look.dead else ""
            typer.echo(f"{look.name}: {counted(look.waiting or 0, 'message')} to move{dead}")


def _client(text: str, ca_file: Any) -> BusClient:
    from twinbus.client import BusClient

    return BusClient.from_connection_string(text, tls=tls_of(text, ca_file))


async def _found(text: str, ca_file: Any, home: Home, name: str) -> list[QueueLook]:
    """Return the backlog queues of this name that are not the primary's own."""
    from twinbus.paired.homes import Relation
    from twinbus.paired.syphon import survey

    async with survey.admin_client(text, admin_options(ca_file)) as admin:
        looks = await survey.list_queues(admin, name)
    for look in looks:
        look.relation = home.relation(look.name, look.mark)
    return [look for look in looks if look.relation is not Relation.OWN]


async def _moved(
    text: str, ca_file: Any, home: Home, count: int, looks: list[QueueLook], stop: work.Stop
) -> tuple[dict[str, int], ServiceError | None, bool]:
    from twinbus.client.resubmission import sent_again
    from twinbus.client.transaction import MOVED_MAX
    from twinbus.paired._async.namespaces import AsyncPairedNamespace
    from twinbus.paired._async.provision import async_find_queues
    from twinbus.paired.errors import PairingError

    namespace = AsyncPairedNamespace.of_string(text)
    namespace.admin_options = admin_options(ca_file)
    found = await async_find_queues(namespace, home, count)
    try:
        found.check(namespace.address.place)
    except PairingError as failure:
        raise ConnectionForcedError(str(failure)) from failure
    results: dict[str, int] = {}
    async with _client(text, ca_file) as client:
        for look in looks:
            goal = look.waiting or 0
            results[look.name] = 0
            if not goal:
                continue
            receiver = await client.receiver(look.name)
            # The same number keeps the messages of one queue together, and so in order.
            sender = await client.sender(found.names[look.index % len(found.names)])
            transactions = await moving.transactions_of(client, sender)
            while results[look.name] < goal and not stop.is_set():
                room = min(MOVED_MAX, goal - results[look.name])
                messages = await receiver.receive_batch(room, _RECEIVE_S)
                if not messages:
                    break
                ready = [(each, sent_again(each.payload)) for each in messages]
                done, error = await moving.moved(receiver, sender, transactions, ready)
                results[look.name] += len(done)
                if error is not None:
                    return results, error, stop.is_set()
            await receiver.close()
            await sender.close()
    return results, None, stop.is_set()
