"""Pipelined sending: many messages in flight, each with its own outcome.

Four rules. At most `window` messages are without an outcome; further sends wait. Every submitted message gets exactly
one outcome, even if the link or connection is lost: then it is that error, and the message may or may not have been
accepted. There is no task per message. An outcome is None for accepted, otherwise an exception.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from struct import Struct
from typing import TYPE_CHECKING, Any

from twinbus.amqp import ACCEPTED, STATE_ACCEPTED, Disposed, Link, Source, Target
from twinbus.client.batch import FORMAT, batches, encode_batch, encoded
from twinbus.client.conditions import refusal
from twinbus.client.endpoint import Endpoint
from twinbus.client.message import Message
from twinbus.errors import MessageTooLargeError, ServiceError
from twinbus.limits import (
    CLIENT_FLUSH_BYTES,
    CLIENT_TIMEOUT_MS,
    MESSAGE_BYTES_DEFAULT,
    SEND_WINDOW_DEFAULT,
    SEND_WINDOW_MAX,
)

if TYPE_CHECKING:
    from twinbus.client.connection import BusConnection

Done = Callable[[ServiceError | None, Any], None]

_TAG = Struct(">I").pack


class Sender(Endpoint):
    """Sends to one entity; created by `BusClient.sender`."""

    def __init__(self, connection: BusConnection, path: str, *, name: str, window: int = SEND_WINDOW_DEFAULT) -> None:
        if not 1 <= window <= SEND_WINDOW_MAX:
            raise ValueError(f"a send window of {window} is not between 1 and {SEND_WINDOW_MAX}")
        super().__init__(connection, path)
        # Maximum number of messages without an outcome.
        self.window = window
        # Messages without an outcome: delivery id to the callback and its argument.
        self._pending: dict[int, tuple[Done, Any]] = {}
        # Callers waiting for room, in order.
        self._waiting: deque[asyncio.Future[None]] = deque()
        # Callers waiting for the last outcome.
        self._idle: list[asyncio.Future[None]] = []
        self._number = 0
        self._link = self._await_link(
            self.session.attach_sender(name, source=Source(name), target=Target(path), rcv_settle_mode=0)
        )

    async def open(self, timeout_ms: int = CLIENT_TIMEOUT_MS) -> None:
        """Wait until the link is attached."""
        await self._come_up(timeout_ms)

    async def close(self) -> None:
        """Wait for the outcomes of all submitted messages, then detach."""
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT_MS / 1000):
                await self.idle()
        except TimeoutError:
            pass
        await self._close_links()
        self._settle_all(self._reason())

    def abandon(self, error: ServiceError) -> None:
        """Detach without waiting. Messages without an outcome get `error`; they may or may not have been accepted."""
        if self.error is None:
            self.fail(error)
            self._leave()

    async def idle(self) -> None:
        """Wait until every message has its outcome."""
        while self._pending:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    @property
    def max_message_bytes(self) -> int:
        """The largest message the peer accepts."""
        return self._link.max_message_size or MESSAGE_BYTES_DEFAULT

    @property
    def pending(self) -> int:
        """Number of messages without an outcome."""
        return len(self._pending)

    # --- sending ----------------------------------------------------------------------------------------------------

    async def send(self, message: Message | bytes, *, message_format: int = 0) -> None:
        """Send one message and wait until it is accepted; raise if it is not."""
        if self.room() <= 0:
            await self.wait_for_room()
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.submit(encoded(message), _resolve, outcome, message_format=message_format)
        await outcome

    async def send_batch(self, messages: Iterable[Message | bytes]) -> None:
        """Send messages as one delivery: all are accepted or none."""
        await self.send(encode_batch(messages), message_format=FORMAT)

    async def send_many(
        self, messages: Iterable[Message | bytes], *, state: bytes | None = None
    ) -> list[ServiceError | None]:
        """Send messages one by one, with as many in flight as the window allows; return the outcome of each.

        `state` is the encoded transactional state if they are part of a transaction.
        """
        bulk = _Bulk()
        outcomes = bulk.outcomes
        wire = self.connection.wire
        room = self.room()
        for message in messages:
            payload = message if type(message) is bytes else encoded(message)
            index = len(outcomes)
            outcomes.append(None)
            if (room <= 0 or wire.paused) and self.error is None:
                try:
                    await self.wait_for_room()
                except ServiceError as error:
                    outcomes[index] = error
                    continue
                room = self.room()
            room -= 1
            bulk.left += 1
            try:
                self.submit(payload, bulk.settle, index, state=state)
            except ServiceError as error:
                bulk.settle(error, index)
        await bulk.wait()
        return outcomes

    async def send_batches(
        self, messages: Iterable[Message | bytes], *, max_bytes: int | None = None
    ) -> list[ServiceError | None]:
        """Send messages in as few deliveries as possible; return the outcome of each message."""
        limit = min(max_bytes or self.max_message_bytes, self.max_message_bytes)
        sizes: list[int] = []
        bulk = _Bulk()
        for held in batches(messages, limit):
            sizes.append(len(held))
            bulk.outcomes.append(None)
            bulk.left += 1
            try:
                if self.room() <= 0:
                    await self.wait_for_room()
                self.submit(encode_batch(held), bulk.settle, len(sizes) - 1, message_format=FORMAT)
            except ServiceError as error:
                bulk.settle(error, len(sizes) - 1)
        await bulk.wait()
        return [outcome for outcome, size in zip(bulk.outcomes, sizes, strict=True) for _ in range(size)]

    def room(self) -> int:
        """How many messages may be submitted now."""
        if self.error is not None or self.connection.wire.paused:
            return 0
        return min(self.window - len(self._pending), self._link.sendable())

    async def wait_for_room(self) -> None:
        """Wait until a message may be submitted; raise if that can no longer happen."""
        while self.room() <= 0:
            self.check()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        self.check()

    def submit(
        self, payload: bytes, done: Done, token: Any = None, *, message_format: int = 0, state: bytes | None = None
    ) -> None:
        """Send without waiting; `done(error or None, token)` is called with the outcome.

        Call it only while there is `room()`; messages beyond that are still sent, but held in memory.
        """
        self.check()
        largest = self._link.max_message_size
        if largest and len(payload) > largest:
            raise MessageTooLargeError(f"The message has {len(payload)} bytes, {self.path!r} takes {largest}.")
        number = self._number
        self._number = (number + 1) & 0xFFFFFFFF
        delivery_id = self._link.send(
            payload, tag=_TAG(number), settled=False, message_format=message_format, state=state
        )
        self._pending[delivery_id] = (done, token)
        wire = self.connection.wire
        if self.connection.engine.output_bytes >= CLIENT_FLUSH_BYTES:
            wire.flush()
        else:
            wire.flush_soon()

    # --- incoming events --------------------------------------------------------------------------------------------

    def on_disposed(self, event: Disposed) -> None:
        error = None if event.state is ACCEPTED else refusal(event.state)
        pending = self._pending
        for delivery_id, _, _ in event.deliveries:
            entry = pending.pop(delivery_id, None)
            if not event.settled:
                # A peer in receiver-settles-second mode waits for our settlement.
                self.session.answer(delivery_id, STATE_ACCEPTED)
            if entry is not None:
                self._tell(entry, error)
        self._wake()

    def on_credit(self, link: Link) -> None:
        self._wake()

    def on_writable(self) -> None:
        self._wake()

    def fail(self, error: ServiceError) -> None:
        super().fail(error)
        self._settle_all(error)

    def _settle_all(self, error: ServiceError) -> None:
        pending = self._pending
        self._pending = {}
        for entry in pending.values():
            self._tell(entry, error)
        self._wake()

    def _tell(self, entry: tuple[Done, Any], error: ServiceError | None) -> None:
        try:
            entry[0](error, entry[1])
        except Exception as failure:
            # One caller's bug must not cost the others their outcomes.
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a send callback failed", "exception": failure}
            )

    def _wake(self) -> None:
        if self._idle and not self._pending:
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)
        if self._waiting and (self.error is not None or self.room() > 0):
            waiting, self._waiting = self._waiting, deque()
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)


class _Bulk:
    """The outcomes of many messages, and a future for the last one."""

    __slots__ = ("_waiter", "left", "outcomes")

    def __init__(self) -> None:
        # In the order of the messages.
        self.outcomes: list[ServiceError | None] = []
        # Messages without an outcome.
        self.left = 0
        # Waits for the last outcome; None while nobody waits.
        self._waiter: asyncio.Future[None] | None = None

    def settle(self, error: ServiceError | None, index: int) -> None:
        if error is not None:
            self.outcomes[index] = error
        self.left -= 1
        if self.left == 0 and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        if self.left:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


def _resolve(error: ServiceError | None, outcome: asyncio.Future[None]) -> None:
    if outcome.done():
        return
    if error is None:
        outcome.set_result(None)
    else:
        # A new exception for each caller.
        outcome.set_exception(type(error)(*error.args))
