"""One sender of the SDK, kept usable, for one caller at a time.

Rules:
- The SDK's senders are not made for several sends at once: whoever uses one has it alone (`AsyncPool`).
- A link is opened apart from sending, and bounded: the SDK's own time-outs do not cover all of an opening.
- The SDK does not retry by itself: an opening inside a retry would not be bounded. Its retries are made by the senders.
- After a failure the SDK's sender is replaced: one that timed out may hold a connection that is dead and does not know.
  Its connection is cut, so that nothing waits for it any more, and what is left is closed in the background.
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
    """A sender of the SDK to one entity. `sdk` may be used while `opened` is True."""

    __slots__ = ("_connections", "_make", "_tasks", "opened", "sdk")

    def __init__(self, make: Callable[[], ServiceBusSender], tasks: AsyncTasks) -> None:
        self._make = make
        self._tasks = tasks
        self.sdk = make()
        self._connections = Connections(self.sdk)
        # Whether its link is up, as far as we know.
        self.opened = False

    async def open(self, seconds: float) -> None:
        """Have the link up, or raise."""
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
        """Something failed: cut the connection, and take another sender."""
        self._connections.cut()
        await self.rest()

    async def rest(self) -> None:
        """It is not needed for now: close it without waiting. The next use opens another sender."""
        sdk, connections = self.sdk, self._connections
        self.opened = False
        self.sdk = self._make()
        self._connections = Connections(self.sdk)
        await self._tasks.leave(lambda: _close(sdk, connections))

    def seen(self, error: Exception) -> Exception:
        """What a failure is: the SDK has one error for all refused tokens, and its client may have been closed behind
        the pair, which is nobody's mistake."""
        if is_shut(self.sdk):
            text = "The SDK's client of the namespace was closed behind the pair."
            return ServiceBusConnectionError(message=text, error=error)
        return exact(error)

    def check(self) -> None:
        """A call was refused: the SDK may have taken the link down by that."""
        self.opened = self.opened and is_running(self.sdk)

    async def leave(self) -> None:
        """It is not needed any more: close it without waiting."""
        self.opened = False
        await self._tasks.leave(self.close)

    async def close(self) -> None:
        """Close it for good."""
        self.opened = False
        await _close(self.sdk, self._connections)


async def _close(sdk: ServiceBusSender, connections: Connections) -> None:
    """Say goodbye, but not for long."""
    await async_bounded(CLOSE_S, lambda: close_all(sdk, connections), connections.cut)


async def close_all(handler: ServiceBusSender | ServiceBusReceiver, connections: Connections) -> None:
    """Close a sender or receiver of the SDK, and what was cut: the SDK forgets connections that it could not open."""
    try:
        await handler.close()
    finally:
        for transport in connections.transports:
            with suppress(Exception):
                await transport.close()
