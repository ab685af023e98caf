"""`twinbus resubmit`: return dead letters to the entity that dead-lettered them, as they were sent.

Rules:
- A Twinbus broker moves them itself, like its console: those of a subscription return to that subscription alone, and
  none is discarded as a duplicate of itself.
- Elsewhere, and with `--to` or `--new-ids`, copies are sent: in one transaction with the removal of the dead letter if
  the service has transactions, otherwise before it.
- Only dead letters present at the start are resubmitted: those that fail again at once stay dead-lettered.
- An entity with duplicate detection would drop a copy with the same id, and the message would be lost. Such copies get
  new ids if the caller says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli import moving, work
from twinbus.cli.completion import entity_names
from twinbus.cli.entity import SUBSCRIPTIONS, Entity, Subscription, path_of, source_of
from twinbus.cli.settings import Json
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import counted, show_json
from twinbus.errors import ServiceError, UnsupportedError

if TYPE_CHECKING:
    from twinbus.client import BusClient, ReceivedMessage, Receiver, Sender
    from twinbus.client.transaction import Transactions

_RECEIVE_S = 2.0
# Resubmitted per request, in one commit.
_STEP = 500


@dataclass(slots=True)
class ResubmitResult:
    """The outcome of a resubmission."""

    wanted: int = 0
    done: int = 0
    # Whether each copy and the removal of its dead letter were one transaction.
    atomic: bool = False
    interrupted: bool = False
    error: ServiceError | None = None
    # Requested sequence numbers that do not exist.
    missing: list[int] = field(default_factory=list)


@connected
def resubmit(
    target: TargetNamespace,
    entity: Entity,
    subscription: Subscription = None,
    number: Annotated[
        list[int] | None,
        typer.Option("--number", metavar="NUMBER", help="Only this sequence number; repeatable [all]."),
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Only dead letters with this reason.")] = None,
    max: Annotated[
        int | None, typer.Option("--max", "-m", metavar="N", min=1, help="Stop after N messages [all].")
    ] = None,
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
    json: Json = False,
) -> None:
    """Return dead letters to their queue or subscription, without the dead-letter properties.

    On Azure, dead letters of a subscription return to its topic, and so to all its subscriptions.

    \b
    Example:
      twinbus resubmit orders
      twinbus resubmit orders --reason MaxDeliveryCountExceeded --max 100
      twinbus resubmit orders --number 17 --number 21
      twinbus resubmit news --subscription europe --to europe-again
    """
    path = path_of(entity, subscription)
    chosen = _Chosen(frozenset(number or []), reason, max)
    result: ResubmitResult | None = None
    destination = to or path
    if to is None and not new_ids and not target.azure:
        result = work.run(lambda stop: _taken_back(target, path, chosen, dry_run=dry_run, stop=stop))
    if result is None:
        destination = to or source_of(path)
        if not dry_run:
            new_ids = moving.ids_of(target, destination, new_ids)
            if to is None and SUBSCRIPTIONS.lower() in path.lower():
                typer.echo(f"They go to {destination}, and so to every subscription whose rules select them.", err=True)
        result = work.run(
            lambda stop: _resubmit(target, path, destination, chosen, bool(new_ids), dry_run=dry_run, stop=stop)
        )
    _tell(path, destination, result, dry_run, json)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The selection of dead letters."""

    numbers: frozenset[int]
    reason: str | None
    count: int | None

    def __contains__(self, message: ReceivedMessage) -> bool:
        if self.numbers and message.sequence_number not in self.numbers:
            return False
        return self.reason is None or message.application_properties.get("DeadLetterReason") == self.reason

    def missing(self, found: set[int]) -> list[int]:
        """Return explicitly requested sequence numbers that do not exist."""
        return sorted(self.numbers - found) if self.reason is None and self.count is None else []


async def _taken_back(
    target: TargetNamespace, path: str, chosen: _Chosen, *, dry_run: bool, stop: work.Stop
) -> ResubmitResult | None:
    """Have the broker move them; return None if it is not a Twinbus broker."""
    result = ResubmitResult(atomic=True)
    dead = f"{path}/$DeadLetterQueue"
    async with target.client() as client:
        wanted = sorted(await _listed(client, dead, chosen, stop))
        result.wanted = len(wanted)
        result.missing = chosen.missing(set(wanted))
        node = await client.management(dead)
        with work.ProgressCounter(f"resubmitting to {path}", len(wanted)) as counter:
            for start in range(0, 0 if dry_run else len(wanted), _STEP):
                if stop.is_set():
                    break
                try:
                    done = await node.resubmit(wanted[start : start + _STEP])
                except UnsupportedError:
                    return None
                except ServiceError as error:
                    result.error = error
                    break
                result.done += done
                counter.add(done)
    result.interrupted = stop.is_set()
    return result


async def _resubmit(
    target: TargetNamespace,
    path: str,
    destination: str,
    chosen: _Chosen,
    new_ids: bool,
    *,
    dry_run: bool,
    stop: work.Stop,
) -> ResubmitResult:
    from twinbus.client.resubmission import sent_again

    result = ResubmitResult()
    dead = f"{path}/$DeadLetterQueue"
    async with target.client() as client:
        wanted = await _listed(client, dead, chosen, stop)
        result.missing = chosen.missing(wanted)
        if dry_run:
            result.wanted = len(wanted)
        else:
            await _copied_back(
                client,
                dead,
                destination,
                wanted,
                lambda message: sent_again(message.payload, moving.new_id(message) if new_ids else None),
                result,
                stop,
                atomic=not target.azure,
            )
    result.interrupted = stop.is_set()
    return result


async def resubmit_backlog(
    client: BusClient,
    queue: str,
    count: int | None,
    rewritten: Callable[[ReceivedMessage], bytes | None],
    stop: work.Stop,
) -> ResubmitResult:
    """Resubmit the dead letters of a backlog queue that `rewritten` returns a payload for."""
    result = ResubmitResult()
    dead = f"{queue}/$DeadLetterQueue"
    wanted = await _listed(client, dead, _Chosen(frozenset(), None, count), stop)
    await _copied_back(client, dead, queue, wanted, rewritten, result, stop, atomic=True)
    result.interrupted = stop.is_set()
    return result


async def _copied_back(
    client: BusClient,
    dead: str,
    destination: str,
    wanted: set[int],
    rewritten: Callable[[ReceivedMessage], bytes | None],
    result: ResubmitResult,
    stop: work.Stop,
    *,
    atomic: bool,
) -> None:
    """Send copies of these dead letters and remove them. Those that `rewritten` returns None for stay."""
    result.wanted = len(wanted)
    if not wanted or stop.is_set():
        return
    receiver = await client.receiver(dead)
    sender = await client.sender(destination)
    transactions = await moving.transactions_of(client, sender) if atomic else None
    result.atomic = transactions is not None
    with work.ProgressCounter(f"resubmitting to {destination}", len(wanted)) as counter:
        await _move(receiver, sender, transactions, wanted, rewritten, result, counter, stop)


async def _listed(client: BusClient, dead: str, chosen: _Chosen, stop: work.Stop) -> set[int]:
    """Return the sequence numbers of the selected messages."""
    from twinbus.cli.peek import peeked

    found: set[int] = set()
    async for page in peeked(client, dead, 1, None):
        for message in page:
            if message in chosen and (chosen.count is None or len(found) < chosen.count):
                found.add(message.sequence_number)
        enough = len(found) == chosen.count or (chosen.numbers and len(found) == len(chosen.numbers))
        if enough or stop.is_set():
            break
    return found


async def _move(
    receiver: Receiver,
    sender: Sender,
    transactions: Transactions | None,
    wanted: set[int],
    rewritten: Callable[[ReceivedMessage], bytes | None],
    result: ResubmitResult,
    counter: work.ProgressCounter,
    stop: work.Stop,
) -> None:
    from twinbus.client import ReceivedMessage
    from twinbus.client.transaction import MOVED_MAX

    left = set(wanted)
    held: list[ReceivedMessage] = []
    passed: set[int] = set()
    while left and not stop.is_set():
        messages = await receiver.receive_batch(MOVED_MAX, _RECEIVE_S)
        if all(message.sequence_number in passed for message in messages):
            # Nothing, or only messages we already held and whose locks expired: the others cannot be received.
            held += messages
            break
        ready: list[tuple[ReceivedMessage, bytes]] = []
        for message in messages:
            payload = rewritten(message) if message.sequence_number in left else None
            if payload is not None:
                ready.append((message, payload))
            else:
                # Held until the end, or it would be delivered again and again; only its lock is needed.
                held.append(ReceivedMessage(b"", message.delivery_id, message.tag))
                passed.add(message.sequence_number)
                left.discard(message.sequence_number)
        done, result.error = await moving.moved(receiver, sender, transactions, ready)
        left -= done
        result.done += len(done)
        counter.add(len(done))
        if result.error is not None:
            break
    receiver.release(held)


def _tell(path: str, destination: str, result: ResubmitResult, dry_run: bool, as_json: bool) -> None:
    left = result.wanted - (0 if dry_run else result.done)
    if as_json:
        numbers = {"wanted": result.wanted, "resubmitted": result.done, "missing": result.missing}
        error = None if result.error is None else result.error.text
        show_json({"entity": path, "to": destination, **numbers, "atomic": result.atomic, "error": error})
    elif dry_run:
        typer.echo(f"{counted(result.wanted, 'dead letter')} of {path} would go to {destination}.")
    else:
        typer.echo(f"{counted(result.done, 'dead letter')} of {path} resubmitted to {destination}.")
    sys.stdout.flush()
    if result.missing:
        typer.echo(f"Not in the dead-letter queue: {', '.join(map(str, result.missing))}.", err=True)
    if result.error is not None:
        raise type(result.error)(f"{counted(left, 'dead letter')} not resubmitted: {result.error.text}")
    if result.interrupted:
        raise typer.Exit(work.INTERRUPTED)
    if left and not dry_run:
        typer.echo(f"{counted(left, 'dead letter')} not resubmitted: locked by another receiver.", err=True)
    if result.missing or (left and not dry_run):
        raise typer.Exit(1)
