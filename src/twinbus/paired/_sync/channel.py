# Written by scripts/unasync.py from _async/channel.py: change that file, not this one.
"""One sender of the SDK, kept usable.

Rules:
- A link is opened apart from sending, and bounded: the SDK's own time-outs do not cover all of an opening.
- The SDK does not retry by itself: an opening inside a retry would not be bounded. Its retries are made by the senders.
- After a failure the SDK's sender is replaced: one that timed out may hold a connection that is dead and does not know.
"""

from __future__ import annotations

from collections.abc import Callable

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.paired.synchronization import Lock, Tasks, bounded


class Channel:
    """A sender of the SDK to one entity. `sdk` may be used while `opened` is True."""

    __slots__ = ("_lock", "_make", "_tasks", "opened", "sdk")

    def __init__(self, make: Callable[[], ServiceBusSender], tasks: Tasks) -> None:
        # Makes another.
        self._make = make
        # Where broken ones are closed.
        self._tasks = tasks
        # One opening at a time.
        self._lock = Lock()
        # The SDK's sender now in use.
        self.sdk = make()
        # Whether its link is up, as far as we know.
        self.opened = False

    def open(self, seconds: float) -> None:
        """Have the link up, or raise."""
        with self._lock:
            if self.opened:
                return
            sdk = self.sdk
            try:
                bounded(seconds, sdk.__enter__)
            except TimeoutError as error:
                self.discard(sdk)
                # Applications expect the SDK's errors.
                text = f"The link to '{sdk.entity_name}' did not open within {seconds:.1f} seconds."
                raise OperationTimeoutError(message=text) from error
            except Exception:
                self.discard(sdk)
                raise
            self.opened = self.sdk is sdk

    def discard(self, sdk: ServiceBusSender) -> None:
        """Something failed on `sdk`: take another, and close that one without waiting for it."""
        if self.sdk is sdk:
            self.opened = False
            self.sdk = self._make()
            self._tasks.leave(sdk.close)

    def leave(self, sdk: ServiceBusSender) -> None:
        """It was used once: close what is left of it, without waiting."""
        if self.sdk is sdk:
            self.opened = False
            self._tasks.leave(sdk.close)

    def check(self) -> None:
        """A call was refused: the SDK may have taken the link down by that."""
        self.opened = self.opened and bool(getattr(self.sdk, "_running", False))

    def close(self) -> None:
        """Close it for good."""
        self.opened = False
        self.sdk.close()
