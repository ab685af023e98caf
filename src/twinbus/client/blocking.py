"""The client for blocking code: it runs its own event loop on a thread, and each call waits for its result.

    with BlockingBus(lambda: BusClient.from_connection_string(text)) as bus:
        for message in bus.peek("orders", 250):
            ...

Rules:
- The thread keeps the connection alive between calls, however far apart they are.
- Calls that are safe to repeat (peek, receive) are retried while the service is unavailable, up to `attempts_max`
  attempts. Others (delete, send) report their outcome, and the caller decides.
- A `start_...` call returns a future and runs in the background.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar
from uuid import uuid4

from twinbus.amqp import Symbol, state_modified
from twinbus.client import management as by_request
from twinbus.client.batch import FORMAT, encode_batch
from twinbus.client.client import BusClient
from twinbus.client.message import ReceivedMessage
from twinbus.client.receiver import Receiver
from twinbus.client.reconnect import Backoff, retried
from twinbus.client.sender import Sender
from twinbus.errors import OperationTimeoutError, ServiceError
from twinbus.limits import BLOCKING_ATTEMPTS_MAX, CLIENT_TIMEOUT_MS

T = TypeVar("T")

Outcomes = list[ServiceError | None]

_CLOSE_S = 10.0


def fresh_id() -> str:
    """Return a unique id."""
    return uuid4().hex


class BlockingBus:
    """Blocking calls to one namespace. `make` is called on the loop's thread when the first call needs a client."""

    def __init__(self, make: Callable[[], BusClient], *, attempts_max: int = BLOCKING_ATTEMPTS_MAX) -> None:
        self._make = make
        # Attempts for calls that are safe to repeat.
        self._attempts_max = attempts_max
        # None before the first call.
        self._client: BusClient | None = None
        # By entity path; the next call replaces a lost one.
        self._receivers: dict[str, Receiver] = {}
        self._senders: dict[str, Sender] = {}
        # None before the first call and after `close`.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> BlockingBus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the client; a later call opens a new one."""
        loop, thread, client = self._loop, self._thread, self._client
        self._loop = self._thread = self._client = None
        self._receivers, self._senders = {}, {}
        if loop is None or thread is None:
            return
        if client is not None:
            with suppress(ServiceError, TimeoutError):
                asyncio.run_coroutine_threadsafe(client.close(), loop).result(_CLOSE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSE_S)
        if not thread.is_alive():
            loop.close()

    # --- peeking ------------------------------------------------------------------------------------------------------

    def peek(self, path: str, count: int = 1, *, first: int = 1) -> list[ReceivedMessage]:
        """Peek at up to `count` messages, starting at the sequence number `first`."""
        payloads = self.start_peek(path, count, first=first).result()
        return [ReceivedMessage(payload, None, b"") for payload in payloads]

    def start_peek(self, path: str, count: int = 1, *, first: int = 1) -> Future[list[bytes]]:
        """Peek at messages in the background; the result has them encoded."""

        async def work(client: BusClient) -> list[bytes]:
            node = await client.management(path)
            return await node.peek_payloads(count, from_sequence_number=first)

        return self._start(work)

    # --- deleting and deferred messages -------------------------------------------------------------------------------

    def delete_batch(self, path: str, count: int, *, before_ms: int) -> int:
        """Delete up to `count` of the oldest messages enqueued before a time; return how many were deleted.

        This is never retried: if only the answer was lost, the messages are deleted, and a retry would delete more.
        """

        async def work(client: BusClient) -> int:
            node = await client.management(path)
            return await node.delete_batch(count, before_ms=before_ms)

        return self._start(work, attempts_max=1).result()

    def take_deferred(self, path: str, numbers: Sequence[int]) -> list[ReceivedMessage]:
        """Receive and delete deferred messages; raise MessageNotFoundError if one of them does not exist."""

        async def work(client: BusClient) -> list[ReceivedMessage]:
            node = await client.management(path)
            return await node.receive_deferred(numbers, lock=False)

        return self._start(work, attempts_max=1).result()

    # --- receiving ----------------------------------------------------------------------------------------------------

    def open_receiver(self, path: str) -> None:
        """Open the link that `receive` uses, so that a missing entity or right is reported here."""

        async def work(client: BusClient) -> None:
            await self._receiver(client, path)

        self._start(work).result()

    def receive(self, path: str, count: int, wait_s: float) -> list[ReceivedMessage]:
        """Receive and lock up to `count` messages: those available, or the first that arrive within `wait_s`."""

        async def work(client: BusClient) -> list[ReceivedMessage]:
            receiver = await self._receiver(client, path)
            return await receiver.receive_batch(count, wait_s)

        # Safe to retry: a broken link releases its locks.
        return self._start(work).result()

    def complete(self, path: str, messages: Iterable[ReceivedMessage]) -> Outcomes:
        """Complete received messages; return the outcome of each."""
        return self._on_receiver(path, lambda receiver: receiver.complete_many(messages))

    def defer(self, path: str, messages: Iterable[ReceivedMessage], properties: dict[str, Any]) -> Outcomes:
        """Defer received messages and merge `properties` into theirs; return the outcome of each."""
        state = state_modified(True, True, {Symbol(name): value for name, value in properties.items()})
        return self._on_receiver(
            path,
            lambda receiver: receiver.settle_many(messages, state, by_request.DEFERRED, properties=properties),
        )

    def release(self, path: str, messages: Iterable[ReceivedMessage]) -> None:
        """Release received messages, as if they had not been delivered."""

        async def work(receiver: Receiver) -> None:
            if receiver.error is None:
                receiver.release(messages)

        self._on_receiver(path, work)

    # --- sending ------------------------------------------------------------------------------------------------------

    def start_send(self, path: str, parcels: Sequence[Sequence[bytes]]) -> Future[Outcomes]:
        """Send parcels of encoded messages, each accepted as a whole or not at all; return the outcome of each parcel.

        A parcel whose outcome is unknown has a retryable error: sending it again may duplicate it.
        """

        async def work(client: BusClient) -> Outcomes:
            try:
                sender = await self._sender(client, path)
            except ServiceError as error:
                return [error] * len(parcels)
            return list(await asyncio.gather(*[_sent(sender, parcel) for parcel in parcels]))

        return self._start(work, attempts_max=1)

    def largest_message_bytes(self, path: str) -> int:
        """Return the largest message, or parcel, that an entity accepts."""

        async def work(client: BusClient) -> int:
            return (await self._sender(client, path)).max_message_bytes

        return self._start(work).result()

    def pause(self, pauses: Backoff) -> None:
        """Sleep for the next pause."""
        threading.Event().wait(pauses.next_ms() / 1000)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _start(self, work: Callable[[BusClient], Awaitable[T]], *, attempts_max: int | None = None) -> Future[T]:
        attempts = self._attempts_max if attempts_max is None else attempts_max

        async def tried() -> T:
            if self._client is None:
                self._client = self._make()
            client = self._client
            return await retried(lambda: work(client), attempts_max=attempts)

        return self._submit(tried())

    def _on_receiver(self, path: str, work: Callable[[Receiver], Coroutine[Any, Any, T]]) -> T:
        return self._submit(work(self._receivers[path])).result()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="twinbus-blocking", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _receiver(self, client: BusClient, path: str) -> Receiver:
        receiver = self._receivers.get(path)
        if receiver is None or receiver.error is not None:
            receiver = self._receivers[path] = await client.receiver(path)
        return receiver

    async def _sender(self, client: BusClient, path: str) -> Sender:
        sender = self._senders.get(path)
        if sender is None or sender.error is not None:
            sender = self._senders[path] = await client.sender(path)
        return sender


async def _sent(sender: Sender, parcel: Sequence[bytes]) -> ServiceError | None:
    try:
        async with asyncio.timeout(CLIENT_TIMEOUT_MS / 1000):
            if len(parcel) == 1:
                await sender.send(parcel[0])
            else:
                await sender.send(encode_batch(parcel), message_format=FORMAT)
    except ServiceError as error:
        return error
    except TimeoutError:
        return OperationTimeoutError(f"No outcome of a send to {sender.path!r} within {CLIENT_TIMEOUT_MS} ms.")
    return None
