"""`twinbus release`: make messages available again that a Spark stream has claimed and will never read.

Rules:
- A claimed message is deferred, and no service can make a deferred message active again. So a copy is sent, and the
  original is removed only after the copy has been accepted.
- Only messages with the stream's claim property are touched; the property is removed.
- A stream that is still running loses its claims: the caller must make sure that it is not.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli import moving, work
from twinbus.cli.completion import entity_names
from twinbus.cli.confirmation import confirm
from twinbus.cli.entity import Entity, Subscription, path_of, source_of
from twinbus.cli.resubmit import ResubmitResult
from twinbus.cli.settings import Json, Yes
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import counted, show_json
from twinbus.errors import MessageNotFoundError, ServiceError

if TYPE_CHECKING:
    from twinbus.client import BusClient

_AT_ONCE = 100


@connected
def release(
    target: TargetNamespace,
    entity: Entity,
    subscription: Subscription = None,
    claim: Annotated[str, typer.Option(metavar="NAME", help="The stream's claimName.")] = "spark",
    to: Annotated[
        str | None,
        typer.Option(
            metavar="ENTITY", help="Send to this entity instead of the original one.", autocompletion=entity_names
        ),
    ] = None,
    new_ids: Annotated[
        bool | None,
        typer.Option("--new-ids/--keep-ids", help="Give copies new message ids, or keep the old ones [keep]."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Make messages active again that a Spark stream (readMode claim) has claimed. Asks for confirmation.

    Stop the stream first. A stream restarted with the same claimName takes over its claims by itself.

    \b
    Example:
      twinbus release orders --dry-run
      twinbus release orders --claim nightly --yes
    """
    path = path_of(entity, subscription)
    destination = to or source_of(path)
    if not dry_run:
        new_ids = moving.ids_of(target, destination, new_ids)
        if not yes:
            confirm(
                f"Release the messages of {path} that the stream {claim!r} has claimed? The stream must be stopped."
            )
    result = work.run(lambda stop: _release(target, path, destination, claim, bool(new_ids), dry_run, stop))
    left = result.wanted - result.done
    if json:
        error = None if result.error is None else result.error.text
        numbers = {"claimed": result.wanted, "released": result.done}
        show_json({"entity": path, "to": destination, "claim": claim, **numbers, "error": error})
    elif dry_run:
        typer.echo(f"{counted(result.wanted, 'message')} of {path} claimed by {claim}.")
    else:
        typer.echo(f"{counted(result.done, 'message')} of {path} released to {destination}.")
    sys.stdout.flush()
    if result.error is not None:
        raise type(result.error)(f"{left:,} are still claimed: {result.error.text}")
    if result.interrupted:
        raise typer.Exit(work.INTERRUPTED)


async def _release(
    target: TargetNamespace, path: str, destination: str, claim: str, new_ids: bool, dry_run: bool, stop: work.Stop
) -> ResubmitResult:
    from twinbus.client.resubmission import CLAIM, sent_again, without

    result = ResubmitResult()
    async with target.client() as client:
        wanted = await _claimed(client, path, claim, stop)
        result.wanted = len(wanted)
        if wanted and not dry_run:
            receiver = await client.receiver(path)
            sender = await client.sender(destination)
            for at in range(0, len(wanted), _AT_ONCE):
                if stop.is_set():
                    break
                try:
                    messages = await receiver.receive_deferred(wanted[at : at + _AT_ONCE])
                    ready = [
                        (
                            each,
                            without(
                                sent_again(each.payload, moving.new_id(each) if new_ids else None), frozenset({CLAIM})
                            ),
                        )
                        for each in messages
                    ]
                    done, result.error = await moving.moved(receiver, sender, None, ready)
                    result.done += len(done)
                    if result.error is not None:
                        break
                except MessageNotFoundError as error:
                    result.error = MessageNotFoundError(
                        f"{error.text} Is the stream still running, or another receiver?"
                    )
                    break
                except ServiceError as error:
                    result.error = error
                    break
    result.interrupted = stop.is_set()
    return result


async def _claimed(client: BusClient, path: str, claim: str, stop: work.Stop) -> list[int]:
    """Return the sequence numbers of the messages that a stream has claimed."""
    from twinbus.cli.peek import peeked
    from twinbus.client import DEFERRED, read_head
    from twinbus.client.resubmission import CLAIM

    found: list[int] = []
    async for page in peeked(client, path, 1, None):
        for message in page:
            if message.application_properties.get(CLAIM) == claim and read_head(message.payload).state == DEFERRED:
                found.append(message.sequence_number)
        if stop.is_set():
            break
    return found
