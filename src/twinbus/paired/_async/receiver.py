"""The SDK's receivers, which hide pings and report why their pair was given up.

- Otherwise a receiver is the SDK's own: the SDK creates it, and only its class changes.
- A ping is completed rather than left, because nobody else wants it either.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from twinbus.clock import MonotonicClock
from twinbus.paired.errors import PairFaultedError
from twinbus.paired.receiving import is_ping
from twinbus.paired.sdk_internals import deletes


class PairedServiceBusReceiver(ServiceBusReceiver):
    """A receiver of the primary."""

    # Why the pair was given up, or None.
    _fault: str | None = None
    # Whether this is a forked child, whose connections belong to its parent.
    _forked = False

    @classmethod
    def of(cls, receiver: ServiceBusReceiver) -> PairedServiceBusReceiver:
        """Turn an SDK receiver into one of ours."""
        receiver.__class__ = cls
        assert isinstance(receiver, PairedServiceBusReceiver)
        return receiver

    def _check_live(self) -> None:
        if self._fault is not None:
            raise PairFaultedError(self._fault)
        super()._check_live()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Close the receiver. A forked child leaves its parent's connection alone."""
        if not self._forked:
            await super().close()

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive a batch of messages, as the SDK does."""
        clock = MonotonicClock()
        started_ms = clock.now_ms()
        wait_s = max_wait_time
        while True:
            received = await super().receive_messages(max_message_count, wait_s)
            messages = [message for message in received if not is_ping(message)]
            for message in received:
                if is_ping(message):
                    await self._drop(message)
            if messages or not received:
                return messages
            if max_wait_time is not None:
                wait_s = max_wait_time - (clock.now_ms() - started_ms) / 1000
                if wait_s <= 0:
                    return []

    def __aiter__(self) -> AsyncIterator[ServiceBusReceivedMessage]:
        return self._without_pings(super().__aiter__())

    async def __anext__(self) -> ServiceBusReceivedMessage:
        while True:
            message = await super().__anext__()
            if not is_ping(message):
                return message
            await self._drop(message)

    async def _without_pings(self, messages: Any) -> AsyncIterator[ServiceBusReceivedMessage]:
        async for message in messages:
            if is_ping(message):
                await self._drop(message)
            else:
                yield message

    async def _drop(self, message: ServiceBusReceivedMessage) -> None:
        if not deletes(self):
            await self.complete_message(message)
