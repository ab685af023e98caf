# Written by scripts/unasync.py from _async/channel.py: change that file, not this one.
"""One sender of the SDK, kept usable.

Rules:
- A link is opened apart from sending, and bounded: the SDK's own time-outs do not cover all of an opening.
- The SDK does not retry by itself: an opening inside a retry would not be bounded. Its retries are made by the senders.
- After a failure the SDK's sender is replaced: one that timed out may hold a connection that is dead and does not know.
- Who waits for an opening shares what comes of it. Who loses a link because another's send failed on it has a broken
  connection, whatever the SDK makes of that.
"""

from __future__ import annotations

from collections.abc import Callable

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from twinbus.paired.classify import availability_failure
from twinbus.paired.synchronization import Lock, Tasks, bounded


class Channel:
    """A sender of the SDK to one entity. `sdk` may be used while `opened` is True."""

    __slots__ = ("_failure", "_failures", "_lock", "_make", "_tasks", "opened", "sdk")

    def __init__(self, make: Callable[[], ServiceBusSender], tasks: Tasks) -> None:
        # Makes another.
        self._make = make
        # Where broken ones are closed.
        self._tasks = tasks
        # One opening at a time.
        self._lock = Lock()
        # Openings that failed, and what the last came to.
        self._failures = 0
        self._failure: Exception | None = None
        # The SDK's sender now in use.
        self.sdk = make()
        # Whether its link is up, as far as we know.
        self.opened = False

    def open(self, seconds: float) -> None:
        """Have the link up, or raise."""
        before = self._failures
        with self._lock:
            if self.opened:
                return
            if self._failure is not None and self._failures != before:
                raise self._failure
            sdk = self.sdk
            try:
                self._enter(sdk, seconds)
            except Exception as error:
                self._failures += 1
                self._failure = error
                self.discard(sdk)
                raise
            self.opened = self.sdk is sdk

    def _enter(self, sdk: ServiceBusSender, seconds: float) -> None:
        try:
            bounded(seconds, sdk.__enter__)
        except TimeoutError as error:
            # Applications expect the SDK's errors.
            text = f"The link to '{sdk.entity_name}' did not open within {seconds:.1f} seconds."
            raise OperationTimeoutError(message=text) from error

    def seen(self, sdk: ServiceBusSender, error: Exception) -> Exception:
        """What a failure on `sdk` really is."""
        if self.sdk is sdk or availability_failure(error):
            return error
        return ServiceBusConnectionError(message="The link was lost while the send was under way.", error=error)

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
