"""Request and response over a pair of links, as used by `$cbs` and `$management`.

Two rules. A response answers the request whose message id is its correlation id. A request that times out fails alone;
the pair of links stays usable.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from twinbus.amqp import STATE_ACCEPTED, AmqpMessage, Disposed, Link, Source, Target, Transfer
from twinbus.client.conditions import refusal
from twinbus.client.endpoint import Endpoint
from twinbus.errors import DecodeError, InternalError, OperationTimeoutError, QuotaExceededError, ServiceError
from twinbus.limits import CLIENT_TIMEOUT_MS, REQUESTS_PENDING_MAX

if TYPE_CHECKING:
    from twinbus.client.connection import BusConnection


class Requests(Endpoint):
    """A node that answers requests."""

    def __init__(self, connection: BusConnection, path: str) -> None:
        super().__init__(connection, path)
        # The address of our receiving link, to which responses are sent.
        self._reply_to = str(uuid4())
        # Unanswered requests: message id to the waiting caller.
        self._pending: dict[str, asyncio.Future[AmqpMessage]] = {}
        # Message ids by delivery id.
        self._sent: dict[int, str] = {}
        # Callers waiting for credit.
        self._blocked: deque[asyncio.Future[None]] = deque()
        self._number = 0
        self._requests = self._await_link(
            self.session.attach_sender(f"{self._reply_to}-requests", source=Source(self._reply_to), target=Target(path))
        )
        self._responses = self._await_link(
            self.session.attach_receiver(self._reply_to, source=Source(path), target=Target(self._reply_to), credit=100)
        )

    async def open(self, timeout_ms: int = CLIENT_TIMEOUT_MS) -> None:
        """Wait until both links are attached."""
        await self._come_up(timeout_ms)

    async def ask(
        self, properties: dict[str, Any], body: Any, *, timeout_ms: int = CLIENT_TIMEOUT_MS, to: str | None = None
    ) -> AmqpMessage:
        """Send a request and return its response, whatever the status."""
        self.check()
        if len(self._pending) >= REQUESTS_PENDING_MAX:
            raise QuotaExceededError(f"More than {REQUESTS_PENDING_MAX} requests to {self.path!r} wait for an answer.")
        request = AmqpMessage.of_value(body)
        request.message_id = str(uuid4())
        request.reply_to = self._reply_to
        request.to = to
        request.application_properties = properties
        answer: asyncio.Future[AmqpMessage] = asyncio.get_running_loop().create_future()
        self._pending[request.message_id] = answer
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._send(request)
                return await answer
        except TimeoutError:
            raise OperationTimeoutError(f"No answer from {self.path!r} within {timeout_ms} ms.") from None
        finally:
            self._pending.pop(request.message_id, None)

    async def _send(self, request: AmqpMessage) -> None:
        while self._requests.sendable() == 0:
            self.check()
            blocked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._blocked.append(blocked)
            await blocked
        self.check()
        self._number = (self._number + 1) & 0xFFFFFFFF
        tag = self._number.to_bytes(4, "big")
        delivery_id = self._requests.send(request.encode(), tag=tag, settled=False)
        self._sent[delivery_id] = str(request.message_id)
        self.connection.wire.flush_soon()

    def fail(self, error: ServiceError) -> None:
        super().fail(error)
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(self._reason())
        self._sent.clear()
        self.on_credit(self._requests)

    def on_credit(self, link: Link) -> None:
        while self._blocked:
            blocked = self._blocked.popleft()
            if not blocked.done():
                blocked.set_result(None)

    def on_disposed(self, event: Disposed) -> None:
        error = refusal(event.state)
        for delivery_id, _, _ in event.deliveries:
            message_id = self._sent.pop(delivery_id, None)
            answer = self._pending.get(message_id) if message_id is not None else None
            if error is not None and answer is not None and not answer.done():
                answer.set_exception(error)
        self.on_credit(self._requests)

    def on_transfer(self, event: Transfer) -> None:
        if not event.settled:
            self.session.settle(event.delivery_id, STATE_ACCEPTED)
        if event.payload is None:
            return
        try:
            response = AmqpMessage.decode(event.payload)
        except DecodeError as error:
            # The request it answers is unknown, so all fail; the next request opens a new pair.
            self.fail(InternalError(f"A response from {self.path!r} cannot be read: {error}"))
            self._leave()
            return
        answer = self._pending.get(str(response.correlation_id))
        if answer is not None and not answer.done():
            answer.set_result(response)
