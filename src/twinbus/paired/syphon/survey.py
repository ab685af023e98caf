"""Inspects the backlog: queues, contents, destinations, ages, and the reasons of dead letters.

- Counts come from the administration API; messages are peeked, never locked.
- A limited number is peeked per queue; beyond that, destinations are a sample and marked as such.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from twinbus.client import BusClient, ReceivedMessage
from twinbus.client.client import DEAD_LETTERS
from twinbus.client.envelope import PACKED, PATH
from twinbus.errors import ConnectionForcedError, DecodeError, EntityNotFoundError, ServiceError
from twinbus.ledger.words import BACKLOG_MARK
from twinbus.limits import PEEK_MESSAGES_MAX
from twinbus.paired._async.namespaces import AsyncPairedNamespace
from twinbus.paired.syphon.monitor import Count, Counts

_NAME = re.compile(rf"(?P<primary>.+){re.escape(BACKLOG_MARK)}(?P<index>\d+)", re.IGNORECASE)


@dataclass(slots=True)
class QueueLook:
    """One backlog queue. `destinations` and `reasons` count peeked messages; `oldest_ms` is when the first was
    enqueued."""

    name: str
    primary: str
    index: int
    active: int = 0
    dead: int = 0
    other: int = 0
    size_bytes: int = 0
    oldest_ms: int | None = None
    oldest_dead_ms: int | None = None
    destinations: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    sampled: bool = False

    @property
    def empty(self) -> bool:
        return not (self.active or self.dead or self.other)


@dataclass(frozen=True, slots=True)
class MessageLook:
    """One message of a backlog queue."""

    queue: str
    sequence_number: int
    message_id: Any
    path: str | None
    enqueued_ms: int | None
    # Of the diverted body; 0 if the message cannot be decoded.
    body_bytes: int
    packed: bool
    reason: str | None = None
    description: str | None = None


def admin_client(connection_string: str, options: Mapping[str, Any]) -> ServiceBusAdministrationClient:
    """A client for the administration API of a namespace."""
    return AsyncPairedNamespace.of_string(connection_string).admin(**{"retry_total": 1, **options})


async def list_queues(admin: ServiceBusAdministrationClient, primary: str | None = None) -> list[QueueLook]:
    """The existing backlog queues of one primary or of all, with their counts."""
    found: list[QueueLook] = []
    try:
        async for queue in admin.list_queues_runtime_properties():
            match = _NAME.fullmatch(queue.name)
            if match is None or (primary is not None and match["primary"].lower() != primary.lower()):
                continue
            active, dead = queue.active_message_count or 0, queue.dead_letter_message_count or 0
            look = QueueLook(queue.name, match["primary"], int(match["index"]), active, dead)
            look.other = (queue.total_message_count or 0) - active - dead
            look.size_bytes = queue.size_in_bytes or 0
            found.append(look)
    except AzureError as error:
        raise _refusal(error) from error
    return sorted(found, key=lambda look: (look.primary.lower(), look.index))


def admin_counts(connection_string: str, options: Mapping[str, Any]) -> Counts:
    """For a monitor: asks the administration API queue by queue, because a namespace may have thousands of others."""

    async def counts(queues: Sequence[str]) -> dict[str, Count]:
        found = {}
        async with admin_client(connection_string, {**options, "retry_total": 0}) as admin:
            for name in queues:
                with suppress(ResourceNotFoundError):
                    queue = await admin.get_queue_runtime_properties(name)
                    dead = queue.dead_letter_message_count or 0
                    found[name] = Count((queue.total_message_count or 0) - dead, queue.size_in_bytes or 0, dead)
        return found

    return counts


async def delete_queue(admin: ServiceBusAdministrationClient, name: str) -> None:
    try:
        await admin.delete_queue(name)
    except AzureError as error:
        raise _refusal(error) from error


async def look_inside(client: BusClient, looks: list[QueueLook], sample: int = 4 * PEEK_MESSAGES_MAX) -> None:
    """Add what only the messages tell: destinations, ages, reasons of dead letters."""
    for look in looks:
        if look.active or look.other:
            destinations: Counter[str] = Counter()
            async for message in peeked(client, look.name, sample):
                destinations[message.path or "(no path)"] += 1
                look.oldest_ms = look.oldest_ms or message.enqueued_ms
            look.destinations = dict(destinations.most_common())
            look.sampled = look.active + look.other > sample
        if look.dead:
            reasons: Counter[str] = Counter()
            async for message in peeked(client, look.name, sample, dead=True):
                reasons[message.reason or "(no reason)"] += 1
                look.oldest_dead_ms = look.oldest_dead_ms or message.enqueued_ms
            look.reasons = dict(reasons.most_common())
            look.sampled = look.sampled or look.dead > sample


async def peeked(client: BusClient, queue: str, count: int, *, dead: bool = False) -> AsyncIterator[MessageLook]:
    """The first messages of a backlog queue, or of its dead letters."""
    node = await client.management(f"{queue}/{DEAD_LETTERS}" if dead else queue)
    next_number = 1
    while count > 0:
        messages = await node.peek(min(count, PEEK_MESSAGES_MAX), from_sequence_number=next_number)
        if not messages:
            return
        for message in messages:
            yield _look(queue, message)
        count -= len(messages)
        next_number = messages[-1].sequence_number + 1


def _look(queue: str, message: ReceivedMessage) -> MessageLook:
    try:
        own = message.application_properties
    except DecodeError:
        return MessageLook(queue, 0, None, None, None, 0, False)
    path = own.get(PATH)
    return MessageLook(
        queue=queue,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        path=path if isinstance(path, str) else None,
        enqueued_ms=message.enqueued_ms,
        body_bytes=message.body_bytes,
        packed=PACKED in own,
        reason=_text(own.get("DeadLetterReason")),
        description=_text(own.get("DeadLetterErrorDescription")),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _refusal(error: AzureError) -> ServiceError:
    if isinstance(error, HttpResponseError) and error.status_code == 404:
        return EntityNotFoundError(error.message)
    return ConnectionForcedError(
        f"The administration API of the secondary does not answer as it should: {error.message} "
        "(a certificate that is not trusted? --ca-file FILE names its CA, `twinbus trust` shows Twinbus's)"
    )
