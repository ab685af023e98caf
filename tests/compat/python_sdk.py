"""One way to drive both colours of the Python SDK: every call is awaited, the sync client's run in threads.

The scenarios of test_python_sdk.py are written once on this and run twice.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import azure.servicebus as sync
import azure.servicebus.aio as aio

COLOURS = ("sync", "aio")
# No retries: an error must come through as the broker sent it.
RETRIES = {"retry_total": 0}
_END = object()


async def call(method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Await a call of either colour."""
    if inspect.iscoroutinefunction(method):
        return await method(*arguments, **options)
    return await asyncio.to_thread(method, *arguments, **options)


@asynccontextmanager
async def opened(handler: Any) -> AsyncIterator[Any]:
    """`async with` for either colour."""
    if hasattr(handler, "__aenter__"):
        async with handler:
            yield handler
    else:
        await asyncio.to_thread(handler.__enter__)
        try:
            yield handler
        finally:
            await asyncio.to_thread(handler.__exit__, None, None, None)


async def each(receiver: Any) -> AsyncIterator[Any]:
    """`async for` for either colour."""
    if hasattr(receiver, "__anext__"):
        async for message in receiver:
            yield message
    else:
        while (message := await asyncio.to_thread(next, receiver, _END)) is not _END:
            yield message


class Bus:
    """A client of one colour, with shorthands for what every scenario does."""

    def __init__(self, colour: str, connection_string: str) -> None:
        # The SDK package of this colour, for AutoLockRenewer.
        self.package: Any = sync if colour == "sync" else aio
        self.client = self.package.ServiceBusClient.from_connection_string(connection_string, **RETRIES)

    async def send(self, queue: str, messages: Any) -> None:
        async with opened(self.client.get_queue_sender(queue)) as sender:
            await call(sender.send_messages, messages)

    def receiver(self, queue: str, **options: Any) -> Any:
        """An opened receiver, as an async context manager."""
        return opened(self.client.get_queue_receiver(queue, **options))

    async def receive(self, receiver: Any, count: int, patience_s: float = 5) -> list[Any]:
        """Exactly `count` messages, or fewer when time is up: the SDK returns what came first."""
        found: list[Any] = []
        deadline = asyncio.get_running_loop().time() + patience_s
        while len(found) < count and (left := deadline - asyncio.get_running_loop().time()) > 0:
            found += await call(receiver.receive_messages, max_message_count=count - len(found), max_wait_time=left)
        return found

    async def left(self, queue: str, **options: Any) -> int:
        """How many messages can be seen in the queue, whatever their state."""
        async with self.receiver(queue, **options) as receiver:
            return len(await call(receiver.peek_messages, 250))
