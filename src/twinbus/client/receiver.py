"""Receive messages: credit, buffer, settlement.

Four rules. Credit and buffered messages together never exceed what was requested. Without prefetch, a call grants the
credit it needs and drains the rest before it returns, so no message arrives while nobody waits. A settlement is done
once the service has answered it; adjacent messages settled alike share one frame. Closing releases messages that are
still buffered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from twinbus.amqp import (
    STATE_ACCEPTED,
    STATE_RELEASED,
    AmqpError,
    Link,
    Outcome,
    Source,
    Symbol,
    Target,
    Transfer,
    state_modified,
    state_rejected,
)
from twinbus.client import management as by_request
from twinbus.client.conditions import settlement_failure
from twinbus.client.endpoint import Endpoint
from twinbus.client.management import Management
from twinbus.client.message import ReceivedMessage
from twinbus.errors import ArgumentError, LinkDetachedError, OperationTimeoutError, ServiceError
from twinbus.limits import CLIENT_CLOSE_TIMEOUT_MS, CLIENT_TIMEOUT_MS, PREFETCH_MAX

if TYPE_CHECKING:
    from twinbus.client.connection import BusConnection

_DEAD_LETTER = "com.microsoft:dead-letter"


class Receiver(Endpoint):
    """Receives from one entity; created by `BusClient.receiver`."""

    def __init__(
        self,
        connection: BusConnection,
        path: str,
        *,
        name: str,
        prefetch: int = 0,
        delete: bool = False,
        echo: bool = True,
        filters: dict[Any, Any] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        if not 0 <= prefetch <= PREFETCH_MAX:
            raise ValueError(f"a prefetch of {prefetch} is not between 0 and {PREFETCH_MAX}")
        super().__init__(connection, path)
        # Messages that may be in flight or buffered while nobody waits.
        self.prefetch = prefetch
        # Receive-and-delete: messages are deleted on delivery.
        self.delete = delete
        # Whether the peer answers dispositions; a generic broker does not.
        self.echo = echo
        # Received but not yet handed out.
        self._buffer: deque[ReceivedMessage] = deque()
        # Callers waiting for a message, in order.
        self._waiting: deque[asyncio.Future[None]] = deque()
        # Without prefetch, one call at a time manages the credit.
        self._asking = asyncio.Lock()
        # Resolved when the peer answers our drain; None unless draining.
        self._drained: asyncio.Future[None] | None = None
        # Unanswered settlements: delivery id to the group that waits for it, and the message's index there.
        self._settling: dict[int, tuple[_Settlements, int]] = {}
        # Set by `close`; ends iteration.
        self._closing = False
        self._link = self._await_link(
            self.session.attach_receiver(
                name,
                source=Source(path, filters),
                target=Target(name),
                properties=properties,
                snd_settle_mode=1 if delete else 0,
                rcv_settle_mode=0 if delete or not echo else 1,
            )
        )

    async def open(self, timeout_ms: int = CLIENT_TIMEOUT_MS) -> None:
        """Wait until the link is attached; prefetching starts at once."""
        await self._come_up(timeout_ms)
        self._top_up()

    async def close(self) -> None:
        """Give back credit and release buffered messages, then detach."""
        self._closing = True
        if self.error is None and self._link.credit > 0:
            await self._drain()
        if self.error is None and not self.delete:
            for message in self._buffer:
                if message.delivery_id is not None:
                    self.session.dispose(message.delivery_id, message.delivery_id, STATE_RELEASED, True)
        self._buffer.clear()
        await self._close_links()
        self._settle_all(self._reason())
        self._wake()

    # --- receiving --------------------------------------------------------------------------------------------------

    async def receive_batch(self, max_count: int = 1, wait_s: float | None = 60.0) -> list[ReceivedMessage]:
        """Return up to `max_count` messages: those available, or the first that arrive within `wait_s` (None: no
        limit)."""
        if max_count < 1:
            raise ValueError("at least one message must be asked for")
        if self.prefetch:
            if not self._buffer:
                await self._wait(wait_s)
            taken = self._take(max_count)
            self._top_up()
            return taken
        async with self._asking:
            if len(self._buffer) < max_count:
                self.check()
                self._grant(min(max_count - len(self._buffer), PREFETCH_MAX))
                try:
                    if not self._buffer:
                        await self._wait(wait_s)
                finally:
                    # All available messages arrive before the answer to the drain, and none after it.
                    if self._link.credit > 0 and self.error is None:
                        await self._drain()
            return self._take(max_count)

    async def receive(self, wait_s: float | None = 60.0) -> ReceivedMessage | None:
        """Receive one message, or None if none arrives in time."""
        taken = await self.receive_batch(1, wait_s)
        return taken[0] if taken else None

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        while True:
            try:
                taken = await self.receive_batch(1, None)
            except ServiceError:
                if self._closing:
                    return
                raise
            for message in taken:
                yield message
            if self._closing:
                return

    def _take(self, max_count: int) -> list[ReceivedMessage]:
        buffer = self._buffer
        if len(buffer) <= max_count:
            taken = list(buffer)
            buffer.clear()
        else:
            taken = [buffer.popleft() for _ in range(max_count)]
        return taken

    async def _wait(self, wait_s: float | None) -> None:
        """Wait until a message is buffered or the time is up; raise if none can arrive any more."""
        try:
            async with asyncio.timeout(wait_s):
                while not self._buffer:
                    self.check()
                    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(waiter)
                    await waiter
        except TimeoutError:
            return

    def _grant(self, credit: int) -> None:
        self._link.flow(credit)
        self.connection.wire.flush_soon()

    def _top_up(self) -> None:
        """With prefetch: grant credit again once half of it is used."""
        if self.prefetch and self.error is None and not self._closing:
            free = self.prefetch - len(self._buffer)
            if free > 0 and self._link.credit <= free // 2:
                self._grant(free)

    async def _drain(self) -> None:
        """Take back the credit; messages already in flight are buffered."""
        self._drained = asyncio.get_running_loop().create_future()
        self._link.flow(max(self._link.credit, 0), drain=True)
        self.connection.wire.flush_soon()
        try:
            async with asyncio.timeout(CLIENT_CLOSE_TIMEOUT_MS / 1000):
                await self._drained
        except TimeoutError:
            # A peer that cannot drain keeps its credit; what it sends is buffered for the next call.
            pass
        finally:
            self._drained = None

    # --- settling ---------------------------------------------------------------------------------------------------

    async def complete(self, message: ReceivedMessage) -> None:
        """Complete the message: the service deletes it."""
        await self._settle_one(message, STATE_ACCEPTED, by_request.COMPLETED)

    async def complete_many(self, messages: Iterable[ReceivedMessage]) -> list[ServiceError | None]:
        """Complete messages together; return the outcome of each, None for success."""
        return await self.settle_many(messages, STATE_ACCEPTED, by_request.COMPLETED)

    async def abandon(self, message: ReceivedMessage, properties: dict[str, Any] | None = None) -> None:
        """Abandon the message, counting the delivery as failed; `properties` are merged into its own."""
        state = state_modified(True, False, _annotations(properties))
        await self._settle_one(message, state, by_request.ABANDONED, properties=properties)

    async def defer(self, message: ReceivedMessage, properties: dict[str, Any] | None = None) -> None:
        """Defer the message; from then on it can only be received by its sequence number."""
        state = state_modified(True, True, _annotations(properties))
        await self._settle_one(message, state, by_request.DEFERRED, properties=properties)

    async def dead_letter(
        self,
        message: ReceivedMessage,
        reason: str | None = None,
        description: str | None = None,
        properties: dict[str, Any] | None = None,
    ) -> None:
        """Move the message to the dead-letter queue."""
        info: dict[Any, Any] = dict(_annotations(properties) or {})
        if reason is not None:
            info[Symbol("DeadLetterReason")] = reason
        if description is not None:
            info[Symbol("DeadLetterErrorDescription")] = description
        state = state_rejected(AmqpError(_DEAD_LETTER, "", info))
        await self._settle_one(
            message,
            state,
            by_request.DEAD_LETTERED,
            reason=reason,
            description=description,
            properties=properties,
        )

    def release(self, messages: Iterable[ReceivedMessage]) -> None:
        """Release messages, as if they had not been delivered. There is no answer to wait for."""
        for message in messages:
            if message.delivery_id is not None:
                self.session.dispose(message.delivery_id, message.delivery_id, STATE_RELEASED, True)
        self.connection.wire.flush_soon()

    async def settle_many(
        self, messages: Iterable[ReceivedMessage], state: bytes, status: str, **details: Any
    ) -> list[ServiceError | None]:
        """Settle messages alike. `status` is the management operation's word, for those settled by request."""
        if self.delete:
            raise ArgumentError("Messages of a receive-and-delete receiver are settled already.")
        chosen = list(messages)
        if self._link.attached and all(message.delivery_id is not None for message in chosen):
            try:
                async with asyncio.timeout(CLIENT_TIMEOUT_MS / 1000):
                    return await self.settle_nowait(chosen, state)
            except TimeoutError:
                raise OperationTimeoutError(f"No answer to a settlement within {CLIENT_TIMEOUT_MS} ms.") from None
        return await self._settle_by_request(chosen, status, details)

    def settle_nowait(
        self, messages: Iterable[ReceivedMessage], state: bytes
    ) -> asyncio.Future[list[ServiceError | None]]:
        """Settle messages of this link alike, without waiting; the future holds the outcome of each."""
        settlements = _Settlements()
        session = self.session
        settled = not self.echo
        for message in messages:
            delivery_id = message.delivery_id
            index = len(settlements.outcomes)
            settlements.outcomes.append(None)
            if delivery_id is None or self.error is not None or not self._link.attached:
                settlements.outcomes[index] = self._reason()
                continue
            session.dispose(delivery_id, delivery_id, state, settled)
            if not settled:
                earlier = self._settling.get(delivery_id)
                if earlier is not None:
                    earlier[0].settle(ArgumentError("The message was settled twice."), earlier[1])
                self._settling[delivery_id] = (settlements, index)
                settlements.left += 1
        self.connection.wire.flush_soon()
        settlements.check()
        return settlements.done

    async def _settle_one(self, message: ReceivedMessage, state: bytes, status: str, **details: Any) -> None:
        (error,) = await self.settle_many([message], state, status, **details)
        if error is not None:
            raise type(error)(*error.args)

    async def _settle_by_request(
        self, messages: list[ReceivedMessage], status: str, details: dict[str, Any]
    ) -> list[ServiceError | None]:
        """Settle by lock token through `$management`: for deferred messages and after the link is lost."""
        outcomes: list[ServiceError | None] = []
        node = self.management
        for message in messages:
            token = message.lock_token
            if token is None:
                outcomes.append(ArgumentError("The message is not locked."))
                continue
            try:
                await node.update_disposition([token], status, session_id=self.session_id, **details)
                outcomes.append(None)
            except ServiceError as error:
                outcomes.append(error)
        return outcomes

    # --- by request ---------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str | None:
        """The locked session's id; None for a receiver without sessions."""
        return None

    @property
    def management(self) -> Management:
        """The entity's management node."""
        return Management(self.connection, self.path)

    async def renew_lock(self, message: ReceivedMessage) -> int:
        """Renew a message's lock; return when it expires."""
        token = message.lock_token
        if token is None:
            raise ArgumentError("The message is not locked.")
        (message.locked_until,) = await self.management.renew_locks([token])
        return message.locked_until

    async def receive_deferred(self, sequence_numbers: Iterable[int]) -> list[ReceivedMessage]:
        """Receive deferred messages by sequence number; settle them with this receiver."""
        return await self.management.receive_deferred(
            sequence_numbers, lock=not self.delete, session_id=self.session_id
        )

    # --- incoming events --------------------------------------------------------------------------------------------

    def on_transfer(self, event: Transfer) -> None:
        if self.error is not None:
            return
        if event.payload is None or self._closing:
            if not event.settled:
                self.session.dispose(event.delivery_id, event.delivery_id, STATE_RELEASED, True)
            return
        self._buffer.append(ReceivedMessage(event.payload, event.delivery_id, event.tag))
        if len(self._buffer) > 2 * PREFETCH_MAX:
            self._link.detach(AmqpError("amqp:link:transfer-limit-exceeded", "more messages than credit"))
            self.fail(LinkDetachedError(f"{self.path!r} sent more messages than it was given credit for."))
            return
        if self._waiting:
            self._wake()

    def on_drained(self, link: Link) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def on_outcome(self, event: Outcome) -> None:
        error = settlement_failure(event.state)
        settling = self._settling
        span = (event.last - event.first) & 0xFFFFFFFF
        if span < 2 * len(settling) + 8:
            for step in range(span + 1):
                self._answered((event.first + step) & 0xFFFFFFFF, error)
        else:
            for delivery_id in [one for one in settling if (one - event.first) & 0xFFFFFFFF <= span]:
                self._answered(delivery_id, error)

    def _answered(self, delivery_id: int, error: ServiceError | None) -> None:
        entry = self._settling.pop(delivery_id, None)
        if entry is not None:
            entry[0].settle(error, entry[1])

    def fail(self, error: ServiceError) -> None:
        super().fail(error)
        self._settle_all(error)
        self.on_drained(self._link)
        self._wake()

    def _settle_all(self, error: ServiceError) -> None:
        settling = self._settling
        self._settling = {}
        for settlements, index in settling.values():
            settlements.settle(error, index)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class _Settlements:
    """The outcomes of messages settled together, and a future for the last one."""

    __slots__ = ("done", "left", "outcomes")

    def __init__(self) -> None:
        # In the order of the messages.
        self.outcomes: list[ServiceError | None] = []
        # Messages not answered yet.
        self.left = 0
        # Resolved by the last answer.
        self.done: asyncio.Future[list[ServiceError | None]] = asyncio.get_running_loop().create_future()

    def settle(self, error: ServiceError | None, index: int) -> None:
        if error is not None:
            self.outcomes[index] = error
        self.left -= 1
        self.check()

    def check(self) -> None:
        if self.left == 0 and not self.done.done():
            self.done.set_result(self.outcomes)


def _annotations(properties: dict[str, Any] | None) -> dict[Any, Any] | None:
    return None if properties is None else {Symbol(name): value for name, value in properties.items()}
