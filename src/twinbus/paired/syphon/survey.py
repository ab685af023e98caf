"""Inspects the backlog: queues, contents, destinations, ages, and the reasons of dead letters.

- Counts come from the administration API; messages are peeked, never locked.
- A limited number is peeked per queue; beyond that, destinations are a sample and marked as such.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from twinbus.client import BusClient, ReceivedMessage
from twinbus.client.client import DEAD_LETTERS
from twinbus.client.envelope import PACKED, PATH
from twinbus.errors import (
    ConnectionForcedError,
    DecodeError,
    EntityNotFoundError,
    OperationTimeoutError,
    ServiceError,
    UnauthorizedError,
)
from twinbus.ledger.words import BACKLOG_MARK
from twinbus.limits import PEEK_MESSAGES_MAX, TRY_TIMEOUT_S_DEFAULT
from twinbus.paired._async.namespaces import AsyncPairedNamespace
from twinbus.paired._async.provision import async_backlog_metadata, async_find_home
from twinbus.paired.homes import Home, HomeMark
from twinbus.paired.syphon.monitor import Count, Counts
from twinbus.paired.syphon.queue_look import QueueLook
from twinbus.paired.syphon.roster import described

# How many messages of a queue are peeked.
SAMPLE = 4 * PEEK_MESSAGES_MAX

_NAME = re.compile(rf"(?P<primary>.+){re.escape(BACKLOG_MARK)}(?P<index>\d+)", re.IGNORECASE)


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
    """The existing backlog queues of one primary name or of all, with their counts."""
    found: list[QueueLook] = []
    try:
        marks = await async_backlog_metadata(admin)
        async for queue in admin.list_queues_runtime_properties():
            match = _NAME.fullmatch(queue.name)
            if match is None or (primary is not None and match["primary"].lower() != primary.lower()):
                continue
            active, dead = queue.active_message_count or 0, queue.dead_letter_message_count or 0
            look = QueueLook(queue.name, match["primary"], int(match["index"]), active, dead)
            look.other = (queue.total_message_count or 0) - active - dead
            look.size_bytes = queue.size_in_bytes or 0
            mark = marks.get(queue.name)
            look.mark = mark if HomeMark.parse(mark) is not None else None
            found.append(look)
    except AzureError as error:
        raise _refusal(error) from error
    return _sorted(found)


async def try_queues(client: BusClient, names: Iterable[str], sample: int = SAMPLE) -> list[QueueLook]:
    """The same without the right to manage, for queues that may exist: what can be peeked is counted."""
    found: list[QueueLook] = []
    refusal: UnauthorizedError | None = None
    for name in names:
        match = _NAME.fullmatch(name)
        assert match is not None
        look = QueueLook(name, match["primary"], int(match["index"]), size_bytes=None)
        try:
            look.active = await _peeked_count(client, name, sample)
            look.dead = await _peeked_count(client, f"{name}/{DEAD_LETTERS}", sample)
        except EntityNotFoundError:
            continue
        except UnauthorizedError as error:
            refusal = error
            continue
        with suppress(ServiceError):
            look.mark = (await described(client, name)).home
        found.append(look)
    if refusal is not None and not found:
        raise refusal
    return _sorted(found)


async def _peeked_count(client: BusClient, queue: str, most: int) -> int | None:
    count = 0
    async for _ in peeked(client, queue, most):
        count += 1
    return count if count < most else None


def _sorted(looks: list[QueueLook]) -> list[QueueLook]:
    return sorted(looks, key=lambda look: (look.primary.lower(), look.index))


async def count_receivers(client: BusClient, looks: Iterable[QueueLook]) -> None:
    """Find out whether anybody receives from queues with messages; only a Twinbus broker says so."""
    for look in looks:
        if look.waits:
            try:
                look.receivers = (await described(client, look.name)).receivers
            except (ConnectionForcedError, OperationTimeoutError):
                raise
            except ServiceError:
                look.receivers = None


def known_home(
    connection_string: str,
    given: str | None,
    client: Callable[[], BusClient],
    ca_file: Path | None,
    *,
    timeout_s: float = TRY_TIMEOUT_S_DEFAULT,
) -> Callable[[], Coroutine[Any, Any, Home]]:
    """For a roster: who a namespace is."""
    namespace = AsyncPairedNamespace.of_string(connection_string)
    # With the caller's own TLS context and transport.
    namespace.bus = lambda **options: client()
    namespace.admin_options = _verified(ca_file)

    async def home() -> Home:
        return await async_find_home(namespace, given, timeout_s=timeout_s)

    return home


def known_queues(connection_string: str, ca_file: Path | None) -> Callable[[], Awaitable[dict[str, str | None]]]:
    """For a roster: the backlog queues of a namespace, with their user metadata."""

    async def queues() -> dict[str, str | None]:
        async with admin_client(connection_string, {**_verified(ca_file), "retry_total": 0}) as admin:
            return await async_backlog_metadata(admin)

    return queues


def _verified(ca_file: Path | None) -> dict[str, Any]:
    return {} if ca_file is None else {"connection_verify": str(ca_file)}


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


async def look_inside(client: BusClient, looks: list[QueueLook], sample: int = SAMPLE) -> None:
    """Add what only the messages tell: destinations, ages, reasons of dead letters."""
    for look in looks:
        if look.waits:
            destinations: Counter[str] = Counter()
            async for message in peeked(client, look.name, sample):
                destinations[message.path or "(no path)"] += 1
                look.oldest_ms = look.oldest_ms or message.enqueued_ms
            look.destinations = dict(destinations.most_common())
            look.sampled = look.waiting is None or look.waiting > sample
        if look.dead != 0:
            reasons: Counter[str] = Counter()
            async for message in peeked(client, look.name, sample, dead=True):
                reasons[message.reason or "(no reason)"] += 1
                look.oldest_dead_ms = look.oldest_dead_ms or message.enqueued_ms
            look.reasons = dict(reasons.most_common())
            look.sampled = look.sampled or look.dead is None or look.dead > sample


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
    if isinstance(error, HttpResponseError) and error.status_code in (401, 403):
        return UnauthorizedError(error.message)
    return ConnectionForcedError(
        f"The administration API of the secondary does not answer as it should: {error.message} "
        "(a certificate that is not trusted? --ca-file FILE names its CA, `twinbus trust` shows Twinbus's)"
    )
