"""Removes what a browsing stream has committed: exactly that, and once.

- A message is removed if its number is at most the mark's and it is not younger than the mark. All others stay.
- The service's batch delete is used where it is safe: it deletes the oldest first and only messages enqueued before a
  given time. With the time of the first message that must stay, it deletes none that must stay.
- What it leaves (messages of the same millisecond, or a service without batch delete) is received and completed, never
  more than needed, because receiving and returning a message may count as a delivery.
- A message that somebody else has locked is left to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twinbus.client import ACTIVE, Backoff, Fields, ReceivedMessage, read_head
from twinbus.client.blocking import BlockingBus
from twinbus.clock import Clock, MonotonicClock
from twinbus.errors import (
    ArgumentError,
    ConfigError,
    EntityNotFoundError,
    NotAllowedError,
    ServiceError,
    TwinbusError,
    UnsupportedError,
)
from twinbus.limits import BATCH_DELETE_MESSAGES_MAX, BLOCKING_ATTEMPTS_MAX, PEEK_MESSAGES_MAX
from twinbus.spark.source.browsing import EntityBrowser

# After this time, the service's clock has left the millisecond in which a message was seen.
_PASSED_MS = 100


class MadeAnew(TwinbusError):
    """The entity is not the one that the checkpoint refers to."""


@dataclass(frozen=True, slots=True)
class BrowseMark:
    """How far a stream has come: a number, and the enqueued time of that message."""

    number: int
    enqueued_ms: int

    @classmethod
    def of(cls, offset: dict[str, Any]) -> BrowseMark:
        try:
            return cls(int(offset["sequenceNumber"]), int(offset["enqueuedTime"]))
        except (KeyError, TypeError, ValueError):
            raise ConfigError(
                "The checkpoint is not one of a stream with readMode browse: give this stream a checkpointLocation of "
                "its own."
            ) from None


def is_old(message: Fields, mark: BrowseMark) -> bool:
    """Whether a message is among those up to the mark; raises MadeAnew if its number is but its time is not."""
    if message.sequence_number > mark.number:
        return False
    if (message.enqueued_ms or 0) > mark.enqueued_ms:
        raise MadeAnew(
            f"The sequence numbers start again: message {message.sequence_number} is newer than message "
            f"{mark.number} of the checkpoint. The entity was deleted and created again."
        )
    return True


class Settler:
    """Removes committed messages of one entity."""

    def __init__(self, bus: BlockingBus, path: str, clock: Clock | None = None) -> None:
        self._bus = bus
        self._path = path
        self._browser = EntityBrowser(bus, path)
        self._clock = clock or MonotonicClock()
        self._done = 0
        self._seen: tuple[BrowseMark, int] | None = None
        self._deletes = True

    def saw(self, mark: BrowseMark) -> None:
        """Note that a batch ends with this message, which exists now."""
        self._seen = (mark, self._clock.now_ms())

    def settle(self, mark: BrowseMark) -> None:
        """Remove everything up to the mark."""
        if mark.number <= self._done:
            return
        pauses = Backoff()
        while True:
            try:
                self._settle(mark)
            except ServiceError as error:
                # A retry peeks again, so it asks only for what still exists.
                if not error.retryable or pauses.failures + 1 >= BLOCKING_ATTEMPTS_MAX:
                    raise
                self._bus.pause(pauses)
            else:
                self._done = mark.number
                return

    def _settle(self, mark: BrowseMark) -> None:
        oldest = self._browser.first_active(self._done + 1, mark.number)
        if oldest is None or not is_old(oldest, mark):
            return
        first = oldest.sequence_number
        wanted = mark.number - first + 1
        if self._deletes and self._delete(mark, wanted) == wanted:
            return
        self._complete(mark, first)

    def _delete(self, mark: BrowseMark, wanted: int) -> int:
        """Remove by batch delete; returns how many were deleted."""
        following = self._browser.first_active(mark.number + 1)
        before_ms = self._before(mark) if following is None else following.enqueued_ms or 0
        gone = 0
        while gone < wanted:
            asked = min(wanted - gone, BATCH_DELETE_MESSAGES_MAX)
            try:
                deleted = self._bus.delete_batch(self._path, asked, before_ms=before_ms)
            except (UnsupportedError, NotAllowedError, ArgumentError, EntityNotFoundError):
                # Another service, or a kind of entity without that operation.
                self._deletes = False
                return gone
            gone += deleted
            if deleted < asked:
                return gone
        return gone

    def _before(self, mark: BrowseMark) -> int:
        """The time before which to delete if nothing follows the mark: new messages get the time of their arrival."""
        if self._seen is not None:
            seen, when_ms = self._seen
            if seen == mark and self._clock.now_ms() - when_ms >= _PASSED_MS:
                return mark.enqueued_ms + 1
        return mark.enqueued_ms

    def _complete(self, mark: BrowseMark, first: int) -> None:
        """Receive and complete what is left."""
        left = 0
        for page in self._browser.pages(first, mark.number):
            left += sum(fields.state == ACTIVE for fields in page)
        while left > 0:
            messages = self._bus.receive(self._path, min(left, PEEK_MESSAGES_MAX), 0)
            old: list[ReceivedMessage] = []
            young: list[ReceivedMessage] = []
            for message in messages:
                (old if is_old(read_head(message.payload), mark) else young).append(message)
            if young:
                self._bus.release(self._path, young)
            failed = [error for error in self._bus.complete(self._path, old) if error is not None] if old else []
            if failed:
                raise failed[0]
            # Fewer than expected: somebody else has locked the others.
            if young or len(messages) < min(left, PEEK_MESSAGES_MAX):
                return
            left -= len(old)
