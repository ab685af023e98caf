"""The port for the official SDK: slower, for environments that allow only the SDK.

- Messages stay bytes. The SDK loses AMQP types when it decodes, and cannot decode every message, so the bytes are
  captured before; sends go as the data of a batch.
- The SDK's errors become ours by their AMQP condition, here and nowhere else.
- The SDK waits for each send, and has no release: unsent messages are abandoned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageLockLostError as SdkLockLostError,
)
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from azure.servicebus.exceptions import (
    OperationTimeoutError as SdkTimeoutError,
)

from twinbus.client import read_enqueued_ms
from twinbus.client.conditions import CONDITIONS
from twinbus.clock import MonotonicClock, SystemClock
from twinbus.errors import (
    ConnectionForcedError,
    EntityDisabledError,
    EntityNotFoundError,
    InternalError,
    MessageLockLostError,
    MessageTooLargeError,
    OperationTimeoutError,
    QuotaExceededError,
    ServerBusyError,
    ServiceError,
    UnauthorizedError,
)
from twinbus.paired.asking import check_identity, told_in
from twinbus.paired.classify import exact
from twinbus.paired.sdk_internals import Payloads, condition_of, extend, remote_properties
from twinbus.paired.syphon.port import Held, Outcomes, Parcel, lock_left_ms

T = TypeVar("T")

_KINDS: tuple[tuple[type[Exception], type[ServiceError]], ...] = (
    (MessagingEntityNotFoundError, EntityNotFoundError),
    (MessagingEntityDisabledError, EntityDisabledError),
    (MessageSizeExceededError, MessageTooLargeError),
    (ServiceBusQuotaExceededError, QuotaExceededError),
    (ServiceBusServerBusyError, ServerBusyError),
    (ServiceBusAuthenticationError, UnauthorizedError),
    (ServiceBusAuthorizationError, UnauthorizedError),
    (SdkLockLostError, MessageLockLostError),
    (SdkTimeoutError, OperationTimeoutError),
)


def translated(error: Exception) -> ServiceError:
    """Convert an SDK error to ours."""
    error = exact(error)
    text = str(error) or type(error).__name__
    for theirs, ours in _KINDS:
        if isinstance(error, theirs):
            return ours(text)
    condition = condition_of(error)
    if condition is not None:
        return CONDITIONS.get(condition, InternalError)(text)
    if isinstance(error, OSError | ServiceBusError):
        return ConnectionForcedError(text)
    return InternalError(text)


async def _asked(work: Awaitable[T]) -> T:
    try:
        return await work
    except Exception as error:
        # Whatever the SDK raises: some of its errors are neither its own nor the system's.
        raise translated(error) from error


class SdkPort:
    """A namespace reached by the SDK's client, which it closes in the end."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        # The identity of the namespace; None for any.
        self._identity: str | None = None

    def expect(self, identity: str) -> None:
        self._identity = identity

    @classmethod
    def from_connection_string(cls, text: str, ca_file: Path | None = None, websocket: bool = False) -> SdkPort:
        options: dict[str, Any] = {"retry_total": 0}
        if ca_file is not None:
            options["connection_verify"] = str(ca_file)
        if websocket:
            options["transport_type"] = TransportType.AmqpOverWebsocket
        return cls(ServiceBusClient.from_connection_string(text, **options))

    async def connect(self) -> None:
        """Nothing to do: the SDK connects when something is opened."""

    async def source(self, path: str) -> SdkSource:
        receiver = self._client.get_queue_receiver(path)
        await _asked(receiver.__aenter__())
        return SdkSource(receiver)

    async def destination(self, path: str) -> SdkDestination:
        # Works for queues and topics alike.
        sender = self._client.get_queue_sender(path)
        await _asked(sender.__aenter__())
        return SdkDestination(sender, self._identity)

    async def oldest_ms(self, path: str) -> int | None:
        receiver = self._client.get_queue_receiver(path)
        try:
            await _asked(receiver.__aenter__())
            found = await _asked(receiver.peek_messages(1))
        finally:
            await receiver.close()
        since = found[0].enqueued_time_utc if found else None
        return None if since is None else round(since.timestamp() * 1000)

    async def close(self) -> None:
        with suppress(ServiceBusError, OSError):
            await self._client.close()


class SdkSource:
    """A backlog queue, through an SDK receiver."""

    def __init__(self, receiver: ServiceBusReceiver) -> None:
        self._receiver = receiver
        self._clock = MonotonicClock()
        self._wall = SystemClock()
        self._payloads = Payloads(receiver)
        # An SDK receiver supports one task at a time.
        self._turn = asyncio.Lock()

    async def receive(self, max_count: int, wait_s: float) -> list[Held]:
        # Settling has to wait for a receive, so keep each receive short.
        end_ms = self._clock.now_ms() + wait_s * 1000
        while True:
            async with self._turn:
                await _asked(self._payloads.watch())
                messages = await _asked(
                    self._receiver.receive_messages(max_message_count=max_count, max_wait_time=min(wait_s, 1.0))
                )
            if messages or self._clock.now_ms() >= end_ms:
                break
        held = []
        for message in messages:
            until = message.locked_until_utc
            lock_ms = lock_left_ms(None if until is None else int(until.timestamp() * 1000), self._wall.now_ms())
            payload = self._payloads.take(message)
            held.append(Held(payload, message, lock_ms, self._clock.now_ms() + lock_ms, read_enqueued_ms(payload)))
        return held

    async def complete(self, held: Sequence[Held]) -> Outcomes:
        # All in one turn; otherwise a waiting receive would come in between.
        async with self._turn:
            return [await self._outcome(self._receiver.complete_message, one.handle) for one in held]

    async def dead_letter(self, held: Held, reason: str, description: str) -> None:
        async with self._turn:
            await _asked(self._receiver.dead_letter_message(held.handle, reason=reason, error_description=description))

    async def renew(self, held: Sequence[Held]) -> None:
        async with self._turn:
            for one in held:
                now_ms = self._clock.now_ms()
                await _asked(self._receiver.renew_message_lock(one.handle))
                one.expires_ms = now_ms + one.lock_ms

    async def release(self, held: Sequence[Held]) -> None:
        async with self._turn:
            for one in held:
                await self._outcome(self._receiver.abandon_message, one.handle)

    async def is_empty(self) -> bool:
        async with self._turn:
            try:
                return not await _asked(self._receiver.peek_messages(1))
            except InternalError:
                # A message that the SDK cannot decode is a message.
                return False

    async def close(self) -> None:
        with suppress(ServiceBusError, OSError):
            await self._receiver.close()

    async def _outcome(self, settle: Any, message: Any) -> ServiceError | None:
        try:
            await _asked(settle(message))
        except ServiceError as error:
            return error
        return None


class SdkDestination:
    """An entity of the primary, through one SDK sender."""

    def __init__(self, sender: ServiceBusSender, identity: str | None = None) -> None:
        self._sender = sender
        # The identity of the namespace; None for any.
        self._identity = identity
        # Why it is unusable; None while it is usable.
        self._error: ServiceError | None = None
        self._sending: asyncio.Task[None] | None = None

    @property
    def usable(self) -> bool:
        return self._error is None

    async def send(self, parcels: Sequence[Parcel], on_accepted: Callable[[int], None]) -> Outcomes:
        outcomes: Outcomes = []
        for index, parcel in enumerate(parcels):
            if self._error is not None:
                outcomes.append(self._error)
                continue
            self._sending = asyncio.ensure_future(self._send(parcel))
            try:
                await asyncio.wait((self._sending,))
                if self._sending.cancelled():
                    outcomes.append(self._error or OperationTimeoutError("The send was given up."))
                else:
                    self._sending.result()
                    outcomes.append(None)
                    on_accepted(index)
            except ServiceError as error:
                outcomes.append(error)
            finally:
                self._sending = None
        return outcomes

    async def _send(self, parcel: Parcel) -> None:
        # This also opens the link again if it was lost.
        batch = await _asked(self._sender.create_message_batch())
        if self._identity is not None:
            check_identity(told_in(remote_properties(self._sender)), self._identity)
        size = batch.size_in_bytes + sum(len(payload) + 8 for payload in parcel)
        if size > batch.max_size_in_bytes:
            raise MessageTooLargeError(f"The message has {size} bytes, the primary takes {batch.max_size_in_bytes}.")
        extend(batch, parcel, size)
        await _asked(self._sender.send_messages(batch))

    def abandon(self, error: ServiceError) -> None:
        self._error = error
        if self._sending is not None:
            self._sending.cancel()

    async def close(self) -> None:
        with suppress(ServiceBusError, OSError):
            await self._sender.close()
