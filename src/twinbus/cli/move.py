"""`twinbus move` and `twinbus copy`: messages from one entity to another.

Rules:
- Within one Twinbus namespace a move is a transaction: even if it is killed, each message is in exactly one place.
- Between namespaces the original is deleted once its copy has been accepted: a crash may leave both, but loses none.
- Messages present at the start are moved or copied; those that arrive later may stay.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli import moving, work
from twinbus.cli.completion import entity_names
from twinbus.cli.entity import Dead, Entity, Subscription, path_of
from twinbus.cli.settings import Json
from twinbus.cli.target import TargetNamespace, connected, found_target
from twinbus.cli.view import counted, show_json
from twinbus.errors import ConfigError, OperationTimeoutError, ServiceError, SessionCannotBeLockedError

if TYPE_CHECKING:
    from twinbus.client import BusClient, Receiver

_RECEIVE_S = 2.0
_SESSION_MS = 1_000

To = Annotated[str, typer.Argument(metavar="TO", help="Queue or topic to send to.", autocompletion=entity_names)]
Max = Annotated[int | None, typer.Option("--max", "-m", metavar="N", min=1, help="Stop after N messages [all].")]
NewIds = Annotated[
    bool | None, typer.Option("--new-ids/--keep-ids", help="Give copies new message ids, or keep the old ones [keep].")
]
ToFile = Annotated[
    Path | None,
    typer.Option(
        "--to-connection-file", metavar="FILE", help="File with the connection string of another namespace to send to."
    ),
]

ToContext = Annotated[
    str | None, typer.Option("--to-context", metavar="NAME", help="Context of another namespace to send to.")
]


@dataclass(slots=True)
class MoveResult:
    """The outcome of a move or copy."""

    done: int = 0
    # Whether each copy and the removal of its original were one transaction.
    atomic: bool = False
    interrupted: bool = False
    error: ServiceError | None = None
    # The last sequence number copied, or the one before the first refused.
    last: int = 0
    # Copied although a message before them was refused.
    after: int = 0


@connected
def move(
    target: TargetNamespace,
    entity: Entity,
    to: To,
    subscription: Subscription = None,
    dead: Dead = False,
    max: Max = None,
    new_ids: NewIds = None,
    to_connection_file: ToFile = None,
    to_context: ToContext = None,
    json: Json = False,
) -> None:
    """Move messages to another entity. No message is lost, and within one namespace none is duplicated.

    Locked, deferred and scheduled messages stay. Sessions are moved one after the other.

    \b
    Example:
      twinbus move orders orders-old
      twinbus move news europe-again --subscription europe --max 100
      twinbus move orders orders --to-connection-file other-site.txt
    """
    path = path_of(entity, subscription, dead=dead)
    other = _other(target, path, to, to_connection_file, to_context)
    as_new = moving.ids_of(other or target, to, new_ids)
    goal = _goal(target, entity, subscription, dead, max)
    result = work.run(lambda stop: _moved(target, other, path, to, goal, as_new, stop))
    _tell("moved", path, to, result, json, {"atomic": result.atomic})


@connected
def copy(
    target: TargetNamespace,
    entity: Entity,
    to: To,
    subscription: Subscription = None,
    dead: Dead = False,
    max: Max = None,
    first: Annotated[int, typer.Option("--from", metavar="NUMBER", min=1, help="Start at this sequence number.")] = 1,
    new_ids: NewIds = None,
    to_connection_file: ToFile = None,
    to_context: ToContext = None,
    json: Json = False,
) -> None:
    """Copy active messages to another entity. The originals are neither locked nor changed.

    If interrupted, it prints the --from value to continue with. If it is killed, empty the destination and copy again;
    a destination with duplicate detection drops what it already has, with --keep-ids.

    \b
    Example:
      twinbus copy orders orders-test --max 100
      twinbus copy orders --dead orders-to-debug
      twinbus copy orders orders-test --from 1001
    """
    path = path_of(entity, subscription, dead=dead)
    other = _other(target, path, to, to_connection_file, to_context)
    as_new = moving.ids_of(other or target, to, new_ids)
    goal = _goal(target, entity, subscription, dead, max)
    result = work.run(lambda stop: _copied(target, other or target, path, to, (first, goal), as_new, stop))
    hint = ""
    if result.last and (result.interrupted or result.error is not None):
        again = f", which copies {counted(result.after, 'message')} once more" if result.after else ""
        hint = f"Continue with --from {result.last + 1}{again}."
    _tell("copied", path, to, result, json, {"last": result.last}, hint)


def _other(
    target: TargetNamespace, path: str, to: str, file: Path | None, context: str | None
) -> TargetNamespace | None:
    """Return the namespace to send to, if it is another one."""
    if file is not None or context is not None:
        return found_target(None, file, None, None, context, None if context is not None else target.ca_file)
    if path.lower() == to.lower():
        raise ConfigError(f"{to} is both source and destination: choose another destination.")
    return None


def _goal(target: TargetNamespace, entity: str, subscription: str | None, dead: bool, wanted: int | None) -> int | None:
    """How many messages to move: those sent to the source meanwhile, even by ourselves, must not keep us busy
    forever."""
    from twinbus.cli.purge import message_count

    count = message_count(target, entity, subscription, dead)
    return count if wanted is None else wanted if count is None else min(wanted, count)


async def _moved(
    target: TargetNamespace,
    other: TargetNamespace | None,
    path: str,
    to: str,
    goal: int | None,
    as_new: bool,
    stop: work.Stop,
) -> MoveResult:
    from twinbus.client.resubmission import sent_again
    from twinbus.client.transaction import MOVED_MAX

    result = MoveResult()
    async with target.client() as client, (other or target).client() as far:
        sender = await (client if other is None else far).sender(to)
        transactions = None if other is not None or target.azure else await moving.transactions_of(client, sender)
        result.atomic = transactions is not None
        with work.ProgressCounter(f"moving to {to}", goal) as counter:
            async for receiver in _receivers(client, path, stop):
                while not stop.is_set() and (goal is None or result.done < goal):
                    room = MOVED_MAX if goal is None else min(MOVED_MAX, goal - result.done)
                    messages = await receiver.receive_batch(room, _RECEIVE_S)
                    if not messages:
                        break
                    ready = [
                        (each, sent_again(each.payload, moving.new_id(each) if as_new else None)) for each in messages
                    ]
                    done, result.error = await moving.moved(receiver, sender, transactions, ready)
                    result.done += len(done)
                    counter.add(len(done))
                    if result.error is not None:
                        return result
                if goal is not None and result.done >= goal:
                    break
    result.interrupted = stop.is_set()
    return result


async def _receivers(client: BusClient, path: str, stop: work.Stop) -> AsyncIterator[Receiver]:
    """Yield a receiver of the entity or, if it requires sessions, one for each session with messages."""
    try:
        yield await client.receiver(path)
        return
    except ServiceError as error:
        if "non-sessionful" not in error.text:
            raise
    while not stop.is_set():
        try:
            receiver = await client.accept_session(path, timeout_ms=_SESSION_MS)
        except (OperationTimeoutError, SessionCannotBeLockedError):
            return
        yield receiver
        await receiver.close()


async def _copied(
    target: TargetNamespace,
    other: TargetNamespace,
    path: str,
    to: str,
    wanted: tuple[int, int | None],
    as_new: bool,
    stop: work.Stop,
) -> MoveResult:
    from twinbus.cli.peek import peeked
    from twinbus.client import ACTIVE
    from twinbus.client.resubmission import sent_again

    first, count = wanted
    result = MoveResult()
    async with target.client() as client, other.client() as far:
        sender = await far.sender(to)
        with work.ProgressCounter(f"copying to {to}", count) as counter:
            async for page in peeked(client, path, first, None):
                ready = [each for each in page if each.state == ACTIVE]
                ready = ready if count is None else ready[: count - result.done]
                payloads = [sent_again(each.payload, moving.new_id(each) if as_new else None) for each in ready]
                outcomes = await sender.send_many(payloads)
                for each, error in zip(ready, outcomes, strict=True):
                    if error is not None:
                        result.error = result.error or error
                        continue
                    result.done += 1
                    counter.add()
                    if result.error is None:
                        result.last = each.sequence_number
                    else:
                        result.after += 1
                if result.error is not None or result.done == count or stop.is_set():
                    break
    result.interrupted = stop.is_set()
    return result


def _tell(
    verb: str, path: str, to: str, result: MoveResult, json: bool, more: dict[str, object], hint: str = ""
) -> None:
    if json:
        error = None if result.error is None else result.error.text
        show_json({"entity": path, "to": to, verb: result.done, **more, "error": error})
    else:
        typer.echo(f"{counted(result.done, 'message')} of {path} {verb} to {to}.")
    sys.stdout.flush()
    if hint:
        typer.echo(hint, err=True)
    if result.error is not None:
        raise type(result.error)(f"The others stay in {path}: {result.error.text}")
    if result.interrupted:
        raise typer.Exit(work.INTERRUPTED)
