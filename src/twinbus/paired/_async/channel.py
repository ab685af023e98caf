"""One sender of the SDK, kept usable.

Rules:
- A link is opened apart from sending, and bounded: the SDK's own time-outs do not cover all of an opening.
- The SDK does not retry by itself: an opening inside a retry would not be bounded. Its retries are made by the senders.
- After a failure the SDK's sender is replaced: one that timed out may hold a connection that is dead and does not know.
"""

from __future__ import annotations

from collections.abc import Callable

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.paired.synchronization import AsyncLock, AsyncTasks, async_bounded


class AsyncChannel:
    """A sender of the SDK to one entity. `sdk` may be used while `opened` is True."""

    __slots__ = ("_lock", "_make", "_tasks", "opened", "sdk")

    def __init__(self, make: Callable[[], ServiceBusSender], tasks: AsyncTasks) -> None:
        # Makes another.
        self._make = make
        # Where broken ones are closed.
        self._tasks = tasks
        # One opening at a time.
        self._lock = AsyncLock()
        # The SDK's sender now in use.
        self.sdk = make()
        # Whether its link is up, as far as we know.
        self.opened = False

    async def open(self, seconds: float) -> None:
        """Have the link up, or raise."""
        async with self._lock:
            if self.opened:
                return
            sdk = self.sdk
            try:
                await async_bounded(seconds, sdk.__aenter__)
            except TimeoutError as error:
                await self.discard(sdk)
                # Applications expect the SDK's errors.
                text = f"The link to '{sdk.entity_name}' did not open within {seconds:.1f} seconds."
                raise OperationTimeoutError(message=text) from error
            except Exception:
                await self.discard(sdk)
                raise
            self.opened = self.sdk is sdk

    async def discard(self, sdk: ServiceBusSender) -> None:
        """Something failed on `sdk`: take another, and close that one without waiting for it."""
        if self.sdk is sdk:
            self.opened = False
            self.sdk = self._make()
            await self._tasks.leave(sdk.close)

    async def leave(self, sdk: ServiceBusSender) -> None:
        """It was used once: close what is left of it, without waiting."""
        if self.sdk is sdk:
            self.opened = False
            await self._tasks.leave(sdk.close)

    def check(self) -> None:
        """A call was refused: the SDK may have taken the link down by that."""
        self.opened = self.opened and bool(getattr(self.sdk, "_running", False))

    async def close(self) -> None:
        """Close it for good."""
        self.opened = False
        await self.sdk.close()
