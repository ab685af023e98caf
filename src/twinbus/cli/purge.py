"""`twinbus purge`: delete the messages of a queue, a subscription or a dead-letter queue.

Rules:
- It asks first, with the number of messages if it is known; `--yes` skips the question.
- Messages that arrive while it runs stay, and so do locked, deferred and scheduled ones.
- If the service has no batch delete, messages are received and deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli import work
from twinbus.cli.confirmation import confirm
from twinbus.cli.entity import SUBSCRIPTIONS, Dead, Entity, Subscription, path_of
from twinbus.cli.settings import Json, Yes
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import counted, show_json
from twinbus.clock import SystemClock
from twinbus.errors import ServiceError, UnsupportedError
from twinbus.limits import BATCH_DELETE_MESSAGES_MAX

if TYPE_CHECKING:
    from twinbus.client import BusClient

# Include messages accepted just now, even if the clocks differ slightly.
_NOW_MS = 1_000
_RECEIVE_S = 1.0


@connected
def purge(
    target: TargetNamespace,
    entity: Entity,
    subscription: Subscription = None,
    dead: Dead = False,
    before: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only messages enqueued before: 2h ago, or 2026-11-30T08:00Z."),
    ] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only this session.")] = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete the messages of an entity, or its dead letters. Asks for confirmation.

    \b
    Example:
      twinbus purge orders --dead
      twinbus purge orders --before 7d --yes
      twinbus purge news --subscription europe --yes
    """
    from twinbus.cli.send import moment_ms

    path = path_of(entity, subscription, dead=dead)
    before_ms = None if before is None else moment_ms(before, "--before", future=False)
    count = message_count(target, entity, subscription, dead) if before is None and session is None else None
    if not yes:
        what = "the messages" if count is None else counted(count, "message")
        confirm(f"Delete {what} of {path}{'' if before is None else f' from before {before}'}?")

    async def delete(stop: work.Stop) -> tuple[int, bool]:
        async with target.client() as client:
            with work.ProgressCounter(f"purging {path}", count) as counter:
                return await _purge(client, path, before_ms, session, stop, counter), stop.is_set()

    deleted, interrupted = work.run(delete)
    left = None if before is not None or session is not None else message_count(target, entity, subscription, dead)
    if json:
        show_json({"entity": path, "deleted": deleted, "left": left})
    else:
        typer.echo(f"{counted(deleted, 'message')} of {path} deleted.")
        if left and not interrupted:
            typer.echo(f"{left:,} remain: they arrived since, or are locked.", err=True)
    if interrupted:
        raise typer.Exit(work.INTERRUPTED)


async def _purge(
    client: BusClient,
    path: str,
    before_ms: int | None,
    session: str | None,
    stop: work.Stop,
    counter: work.ProgressCounter,
) -> int:
    node = await client.management(path)
    until_ms = SystemClock().now_ms() + _NOW_MS if before_ms is None else before_ms
    try:
        while not stop.is_set():
            deleted = await node.delete_batch(BATCH_DELETE_MESSAGES_MAX, before_ms=until_ms, session_id=session)
            if not deleted:
                break
            counter.add(deleted)
    except UnsupportedError:
        if before_ms is not None or session is not None:
            raise
        await _drain(client, path, stop, counter)
    return counter.done


async def _drain(client: BusClient, path: str, stop: work.Stop, counter: work.ProgressCounter) -> None:
    receiver = await client.receiver(path, delete=True)
    start_ms = SystemClock().now_ms()
    while not stop.is_set():
        messages = await receiver.receive_batch(BATCH_DELETE_MESSAGES_MAX, _RECEIVE_S)
        counter.add(len(messages))
        if not messages or (messages[-1].enqueued_ms or 0) > start_ms + _NOW_MS:
            return


def message_count(target: TargetNamespace, entity: str, subscription: str | None, dead: bool) -> int | None:
    """Return the number of messages, or None if the key may not read it."""
    topic, _, name = entity.partition(SUBSCRIPTIONS)
    name = subscription or name
    try:
        if name:
            found = target.ask("get-subscription", {"topic": topic, "name": name})["subscription"]
        else:
            found = target.ask("get-queue", {"name": entity})["queue"]
    except ServiceError:
        return None
    count: int | None = found["dead_letter_messages" if dead else "active_messages"]
    return count
