"""Move messages between entities, for the commands that do so.

A Twinbus broker sends the copy and removes the original in one transaction. Elsewhere, and between namespaces, the
original is removed only after its copy has been accepted: a crash in between leaves both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from twinbus.cli.target import TargetNamespace
from twinbus.errors import ConfigError, EntityNotFoundError, ServiceError

if TYPE_CHECKING:
    from twinbus.client import BusClient, ReceivedMessage, Receiver, Sender
    from twinbus.client.transaction import Transactions

_ID_CHARS_MAX = 128


def ids_of(target: TargetNamespace, destination: str, new_ids: bool | None) -> bool:
    """Whether copies get new ids; raise ConfigError if keeping them could lose copies, or if that is unknown."""
    detects: Any = None
    missing: ServiceError | None = None
    for kind in ("queue", "topic"):
        try:
            detects = target.ask(f"get-{kind}", {"name": destination})[kind]["requires_duplicate_detection"]
            break
        except EntityNotFoundError as error:
            missing = error
        except ServiceError:
            break  # this key may not read the settings
    else:
        if missing is not None:
            raise missing
    if new_ids is None and detects is None:
        raise ConfigError(
            f"This key cannot see whether {destination} has duplicate detection, which drops copies with known ids: "
            "pass --new-ids or --keep-ids."
        )
    if new_ids is None and detects:
        raise ConfigError(
            f"{destination} has duplicate detection, which drops messages whose ids it has seen: pass --new-ids to "
            "send all of them, or --keep-ids to send only those that it has not seen."
        )
    return bool(new_ids)


async def transactions_of(client: BusClient, sender: Sender) -> Transactions | None:
    try:
        return await client.transactions(sender)
    except ServiceError:
        return None  # the service has no transactions


async def moved(
    receiver: Receiver,
    sender: Sender,
    transactions: Transactions | None,
    ready: list[tuple[ReceivedMessage, bytes]],
) -> tuple[set[int], ServiceError | None]:
    """Move messages; return the sequence numbers of those moved and the first error. The others are released."""
    if not ready:
        return set(), None
    done: set[int] = set()
    error: ServiceError | None = None
    try:
        if transactions is not None:
            await transactions.move(receiver, ready)
            done = {message.sequence_number for message, _ in ready}
        else:
            outcomes = await sender.send_many([payload for _, payload in ready])
            accepted = [message for (message, _), each in zip(ready, outcomes, strict=True) if each is None]
            settled = await receiver.complete_many(accepted)
            done = {each.sequence_number for each, failure in zip(accepted, settled, strict=True) if failure is None}
            error = next((each for each in (*outcomes, *settled) if each is not None), None)
    except ServiceError as raised:
        error = raised
    receiver.release([message for message, _ in ready if message.sequence_number not in done])
    return done, error


def new_id(message: ReceivedMessage) -> str:
    mark = f"-{uuid4().hex[:12]}"
    return str(message.message_id or "moved")[: _ID_CHARS_MAX - len(mark)] + mark
