"""`twinbus peek`: show messages without locking or removing them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli import work
from twinbus.cli.entity import Dead, Entity, Subscription, path_of
from twinbus.cli.message_view import Body, excerpt, message_fields
from twinbus.cli.output import Output
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import plain, show_table, time_text
from twinbus.limits import PEEK_MESSAGES_MAX

if TYPE_CHECKING:
    from twinbus.client import BusClient, ReceivedMessage

_EXCERPT_CHARS = 60


@connected
def peek(
    target: TargetNamespace,
    entity: Entity,
    subscription: Subscription = None,
    dead: Dead = False,
    first: Annotated[int, typer.Option("--from", metavar="NUMBER", min=0, help="Start at this sequence number.")] = 1,
    max: Annotated[int, typer.Option("--max", "-m", metavar="N", min=1, help="Stop after N messages.")] = 20,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only this session.")] = None,
    body: Annotated[
        Body | None, typer.Option(help="Show complete messages with bodies in this form [a table with excerpts].")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Peek at messages without locking them. Shows active, scheduled and deferred messages.

    \b
    Example:
      twinbus peek orders
      twinbus peek orders --from 1000 --max 5 --body json
      twinbus peek orders --dead --json | jq -r .dead_letter_reason | sort | uniq -c
      twinbus peek news --subscription europe --body hex
    """
    path = path_of(entity, subscription, dead=dead)
    output = Output(as_json=json, body=body or Body.AUTO)
    table: list[ReceivedMessage] = []

    async def look(stop: work.Stop) -> int:
        count = 0
        async with target.client() as client:
            async for page in peeked(client, path, first, max, session):
                count += len(page)
                if json or body is not None:
                    output.write(page)
                else:
                    table.extend(page)
                if stop.is_set():
                    break
        return count

    count = work.run(look)
    if table:
        _show(table, dead)
    if not count and not json:
        typer.echo(f"No messages in {path}{'' if first <= 1 else f' from sequence number {first} on'}.", err=True)


async def peeked(
    client: BusClient, path: str, first: int, count: int | None, session: str | None = None
) -> AsyncIterator[list[ReceivedMessage]]:
    """Yield messages page by page from a sequence number on; all of them if `count` is None."""
    node = await client.management(path)
    while count is None or count > 0:
        wanted = PEEK_MESSAGES_MAX if count is None else min(count, PEEK_MESSAGES_MAX)
        page = await node.peek(wanted, from_sequence_number=first, session_id=session)
        if not page:
            return
        yield page
        first = page[-1].sequence_number + 1
        count = None if count is None else count - len(page)


def _show(messages: list[ReceivedMessage], dead: bool) -> None:
    rows = []
    for message in messages:
        fields = message_fields(message, Body.NONE)
        row = [str(message.sequence_number), plain(str(fields.get("message_id", "-")))]
        row += [plain(str(fields.get("session_id", "-"))), fields["state"], time_text(message.enqueued_ms)]
        row += [plain(str(fields.get("dead_letter_reason", "-")))] if dead else []
        rows.append([*row, f"{fields['body_bytes']:,}", excerpt(message, _EXCERPT_CHARS)])
    columns = ["number", "message id", "session", "state", "enqueued", *(["reason"] * dead), "body bytes", "body"]
    # Omit a column without values.
    if all(row[2] == "-" for row in rows):
        columns = [*columns[:2], *columns[3:]]
        rows = [[*row[:2], *row[3:]] for row in rows]
    # One row per message, however narrow the terminal: --json has everything.
    shortened = ("message id", "session", "reason", "body")
    show_table(columns, rows, ("number", "body bytes"), shortened, ("body bytes", "enqueued"))
