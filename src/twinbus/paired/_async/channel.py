"""A sender of the SDK that is kept usable, for one caller at a time.

- The SDK's senders do not support concurrent sends, so each caller borrows one exclusively (`AsyncPool`).
- A link is opened separately from sending and with a bound, because the SDK's timeouts do not cover all of an opening.
- The SDK does not retry by itself, because an opening inside a retry would not be bounded. Our senders do its retries.
- After a failure the SDK's sender is replaced: one that timed out may hold a dead connection without knowing it. Its
  connection is cut, so that nothing waits for it, and the rest is closed in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from twinbus.paired.classify import exact
from twinbus.paired.sdk_internals import Connections, is_running, is_shut
from twinbus.paired.synchronization import CLOSE_S, AsyncTasks, async_bounded


class AsyncChannel:
    """A sender of the SDK to one entity. Use `sdk` only while `opened` is True."""

    __slots__ = ("_connections", "_make", "_tasks", "opened", "sdk")

    def __init__(self, make: Callable[[], ServiceBusSender], tasks: AsyncTasks) -> None:
        self._make = make
        self._tasks = tasks
        self.sdk = make()
        self._connections = Connections(self.sdk)
        # Whether its link is up, as far as we know.
        self.opened = False

    async def open(self, seconds: float) -> None:
        """Open the link, or raise."""
        try:
            await async_bounded(seconds, self.sdk.__aenter__, self._connections.cut)
        except TimeoutError as error:
            await self.discard()
            # Applications expect the SDK's errors.
            text = f"The link to '{self.sdk.entity_name}' did not open within {seconds:.1f} seconds."
            raise OperationTimeoutError(message=text) from error
        except Exception as error:
            failure = self.seen(error)
            await self.discard()
            if failure is error:
                raise
            raise failure from error
        except BaseException:
            await self.discard()
            raise
        self.opened = True

    async def discard(self) -> None:
        """After a failure: cut the connection and replace the sender."""
        self._connections.cut()
        await self.rest()

    async def rest(self) -> None:
        """Close it without waiting, because it is not needed now. The next use opens another sender."""
        sdk, connections = self.sdk, self._connections
        self.opened = False
        self.sdk = self._make()
        self._connections = Connections(self.sdk)
        await self._tasks.leave(lambda: _close(sdk, connections))

    def seen(self, error: Exception) -> Exception:
        """The exact error of a failure: the SDK has one error for all refused tokens, and its client may have been
        closed behind the pair's back, which is not the caller's fault."""
        if is_shut(self.sdk):
            text = "The SDK's client of the namespace was closed behind the pair."
            return ServiceBusConnectionError(message=text, error=error)
        return exact(error)

    def check(self) -> None:
        """A call was refused, after which the SDK may have closed the link."""
        self.opened = self.opened and is_running(self.sdk)

    async def leave(self) -> None:
        """Close it for good without waiting."""
        self.opened = False
        await self._tasks.leave(self.close)

    async def close(self) -> None:
        """Close it for good."""
        self.opened = False
        await _close(self.sdk, self._connections)


async def _close(sdk: ServiceBusSender, connections: Connections) -> None:
    """Close the sender and its connections within a time limit."""
    await async_bounded(CLOSE_S, lambda: close_all(sdk, connections), connections.cut)


async def close_all(handler: ServiceBusSender | ServiceBusReceiver, connections: Connections) -> None:
    """Close an SDK sender or receiver and the connections that were cut; the SDK forgets those that it failed to
    open."""
    try:
        await handler.close()
    finally:
        for transport in connections.transports:
            with suppress(Exception):
                await transport.close()
