"""The whole REST data plane behind one call.

| request | does | answers |
|---|---|---|
| POST `/{entity}/messages` | send one, or a batch in JSON | 201 |
| POST `/{entity}/messages/head` | lock the next message | 201, 204 when there is none in time |
| DELETE `/{entity}/messages/head` | receive and delete | 200, 204 |
| DELETE, PUT, POST `/{entity}/messages/{id}/{lock token}` | complete, unlock, renew | 200 |

An entity is a queue, a topic (to send) or `{topic}/subscriptions/{name}` (to receive). There are no sessions, deferral
or dead-lettering. As over AMQP, an answer comes after the commit. Only a destructive read answers first; it removes the
message once all of the answer is written to the socket, and a message that cannot be shown stays.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from twinbus.auth.policies import Right
from twinbus.broker.durability import until_durable
from twinbus.broker.http.admin.caller import Caller
from twinbus.broker.http.admin.errors import AdminError, AdminResponse, refusal
from twinbus.broker.http.rest.properties import BROKER_PROPERTIES, batch_of, message_of, properties_of
from twinbus.broker.http.rest.receiver import LockedMessage, OneReceiver
from twinbus.broker.http.rest.rendering import Rendered, rendered
from twinbus.broker.messages.damage import whole
from twinbus.broker.messages.stored import render
from twinbus.broker.sending import send
from twinbus.entities.queue import Queue
from twinbus.errors import (
    ArgumentError,
    EncodeError,
    EntityNotFoundError,
    MessageLockLostError,
    MessageTooLargeError,
    NotAllowedError,
    QuotaExceededError,
    ServiceError,
    SessionLockLostError,
)
from twinbus.ledger.words import Kind
from twinbus.limits import BATCH_MESSAGES_MAX, REST_TIMEOUT_S_DEFAULT, REST_TIMEOUT_S_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

BATCH_TYPE = "application/vnd.microsoft.servicebus.json"

# The operation on a locked message, by method.
_SETTLEMENTS = {"DELETE": Kind.COMPLETE, "PUT": Kind.ABANDON, "POST": Kind.RENEW}


class RestPlace(NamedTuple):
    """A parsed path: an entity, and optionally its head or one locked message."""

    entity: str
    head: bool = False
    message: str = ""
    token: bytes = b""


def place_of(method: str, path: str) -> RestPlace | None:
    """Parse a path; None if it is not a REST path."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    lowered = [part.lower() for part in parts]
    if method == "POST" and len(parts) > 1 and lowered[-1] == "messages":
        return RestPlace("/".join(parts[:-1]))
    if method in ("POST", "DELETE") and len(parts) > 2 and lowered[-2:] == ["messages", "head"]:
        return RestPlace("/".join(parts[:-2]), head=True)
    if method in ("POST", "PUT", "DELETE") and len(parts) > 3 and lowered[-3] == "messages":
        try:
            token = uuid.UUID(parts[-1])
        except ValueError:
            return None
        return RestPlace("/".join(parts[:-3]), message=parts[-2], token=token.bytes_le)
    return None


class RestApi:
    """The REST data plane of one namespace."""

    def __init__(self, host: NamespaceHost) -> None:
        self._host = host

    async def handle(
        self,
        place: RestPlace,
        method: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        base: str,
        gone: Callable[[], bool],
        write: Callable[[AdminResponse], Awaitable[bool]],
    ) -> AdminResponse:
        """Answer one request. `base` is our address as the client sees it, `gone` tells whether it hung up, and `write`
        writes an answer early and tells whether all of it reached the socket.

        A request that waits for a message is cancelled when its client hangs up."""
        try:
            lowered = {name.lower(): value for name, value in headers.items()}
            now_s = self._host.clock.now_ms() / 1000
            caller = Caller(lowered, self._host.policies, now_s, self._host.dev, self._host.jwt)
            if place.token:
                caller.need(place.entity, Right.LISTEN)
                with self._counting(place, _SETTLEMENTS[method]):
                    return await self._settle(place, method)
            if place.head:
                caller.need(place.entity, Right.LISTEN)
                with self._counting(place, Kind.RECEIVE):
                    return await self._receive(place.entity, method, query, base, gone, write)
            caller.need(place.entity, Right.SEND)
            with self._counting(place, Kind.SEND):
                return await self._send(place.entity, headers, body)
        except EntityNotFoundError as error:
            # The service answers 410 here, but 404 in its administration API.
            return refusal(AdminError(410, error.text), self._host.tracker, place.entity)
        except (MessageLockLostError, SessionLockLostError) as error:
            return refusal(AdminError(404, error.text), self._host.tracker, place.entity)
        except (MessageTooLargeError, QuotaExceededError) as error:
            return refusal(AdminError(403, error.text), self._host.tracker, place.entity)
        except Exception as error:
            return refusal(error, self._host.tracker, place.entity)

    async def _send(self, entity: str, headers: Mapping[str, str], body: bytes) -> AdminResponse:
        host = self._host
        target = host.entities.entity(entity)
        if host.store.full:
            raise QuotaExceededError("The disk that holds this namespace is full: receive messages or make room.")
        given = next((value for name, value in headers.items() if name.lower() == BROKER_PROPERTIES.lower()), None)
        content_type = next((value for name, value in headers.items() if name.lower() == "content-type"), None)
        if content_type is not None and content_type.partition(";")[0].strip().lower() == BATCH_TYPE:
            messages = batch_of(body)
            if len(messages) > BATCH_MESSAGES_MAX:
                raise ArgumentError(f"A batch holds at most {BATCH_MESSAGES_MAX} messages, this one {len(messages)}.")
        else:
            messages = [message_of(body, content_type, given, properties_of(headers))]
        now_ms = host.clock.now_ms()
        ttl_ms = target.settings.default_ttl_ms
        try:
            taken = [host.intake.message(each.encode(), now_ms, ttl_ms) for each in messages]
        except EncodeError as error:
            raise ArgumentError(f"A property has no AMQP form: {error}.") from None
        await send(host, target, taken)
        host.meter.entity(target.path).add_sends(taken)
        await until_durable(self._host)
        return AdminResponse(201)

    async def _receive(
        self,
        entity: str,
        method: str,
        query: Mapping[str, str],
        base: str,
        gone: Callable[[], bool],
        write: Callable[[AdminResponse], Awaitable[bool]],
    ) -> AdminResponse:
        host = self._host
        queue = host.entities.queue(entity)
        if queue.settings.requires_session and queue.dead_letters is not None:
            raise NotAllowedError("Messages of sessions cannot be received over HTTP.")
        deleting = method == "DELETE"
        receiver = OneReceiver(host.dispatcher(queue))
        end_s = host.loop.time() + _timeout_s(query)
        locked = await receiver.receive(_timeout_s(query))
        stored = b""
        while locked is not None and not (stored := self._stored(queue, locked)):
            receiver = OneReceiver(host.dispatcher(queue))
            locked = await receiver.receive(max(end_s - host.loop.time(), 0))
        meter = host.meter.entity(queue.path)
        if locked is None:
            meter.counter(Kind.EMPTY_POLL).count += 1
            return AdminResponse(204)
        try:
            # One turn of the loop, to notice a hang-up that is already in the socket.
            await asyncio.sleep(0)
            if gone():
                raise asyncio.CancelledError
            size, shown = self._shown(locked, stored, deleting)
            answer = AdminResponse(200 if deleting else 201, shown.headers, shown.body)
            if deleting and not await write(answer):
                raise asyncio.CancelledError
        except asyncio.CancelledError:
            receiver.give_back(locked)
            raise
        except Exception:
            receiver.give_back(locked, counting=True)
            raise
        meter.counter(Kind.RECEIVE).add(size)
        if deleting:
            # The lock may have expired while the client read slowly; then another receiver may have the message, too.
            with suppress(MessageLockLostError):
                queue.complete(locked.token, host.clock.now_ms(), host.commits.facts)
            host.commits.request()
            return answer
        answer.headers["Location"] = f"{base}/{entity}/messages/{locked.message.seq}/{uuid.UUID(bytes_le=locked.token)}"
        return answer

    def _stored(self, queue: Queue, locked: LockedMessage) -> bytes:
        """The stored message; empty if it is damaged, in which case it is set aside."""
        return b"".join(whole(self._host, queue, [locked.message])[1])

    def _shown(self, locked: LockedMessage, stored: bytes, deleting: bool) -> tuple[int, Rendered]:
        """The message's AMQP size, and its answer."""
        message = locked.message
        payload = render(stored, message)
        lock = None if deleting else (str(uuid.UUID(bytes_le=locked.token)), message.locked_until_ms or 0)
        return len(payload), rendered(payload, "Active", lock)

    async def _settle(self, place: RestPlace, method: str) -> AdminResponse:
        host = self._host
        queue: Queue = host.entities.queue(place.entity)
        now_ms = host.clock.now_ms()
        facts = host.commits.facts
        if method == "DELETE":
            queue.complete(place.token, now_ms, facts)
        elif method == "PUT":
            queue.abandon(place.token, now_ms, facts)
        else:
            queue.renew(place.token, now_ms)
        host.meter.entity(queue.path).counter(_SETTLEMENTS[method]).count += 1
        await until_durable(self._host)
        return AdminResponse(200)

    @contextmanager
    def _counting(self, place: RestPlace, kind: Kind) -> Iterator[None]:
        """Count failures; successes are counted by the operation itself."""
        try:
            yield
        except ServiceError as error:
            if not isinstance(error, EntityNotFoundError):
                path = self._host.entities.entity(place.entity).path
                self._host.meter.entity(path).counter(kind, error.condition).count += 1
            raise


def _timeout_s(query: Mapping[str, str]) -> float:
    text = query.get("timeout", str(REST_TIMEOUT_S_DEFAULT))
    try:
        seconds = float(text)
    except ValueError:
        raise ArgumentError(f"The timeout {text[:32]!r} is not a number of seconds.") from None
    if not 0 <= seconds <= REST_TIMEOUT_S_MAX:
        raise ArgumentError(f"The timeout {text[:32]} is out of range: 0 to {REST_TIMEOUT_S_MAX} seconds.")
    return seconds
