"""Taking out what a stream that browses has committed: exactly that, and once.

Rules:
- What is to go has a number up to the mark's and is no younger than it. Everything else stays.
- The service's own batch delete is used where it is safe: it takes the oldest first and only those enqueued before a
  time, so with the time of the first message that must stay, none that must stay goes.
- What it leaves (others of the same millisecond, a service that has no such operation) is received and completed: as
  many as there are to go, no more, because what is received and given back may count as a delivery.
- A message that somebody else holds is left to him.
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

# When so much time has passed since a message was seen, the service's clock has left its millisecond.
_PASSED_MS = 100


class MadeAnew(TwinbusError):
    """The entity is not the one that the checkpoint is about."""


@dataclass(frozen=True, slots=True)
class BrowseMark:
    """How far a stream has come: a number, and the time of the message there."""

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
    """Whether a message is one of those up to the mark; MadeAnew if its number is and its time is not."""
    if message.sequence_number > mark.number:
        return False
    if (message.enqueued_ms or 0) > mark.enqueued_ms:
        raise MadeAnew(
            f"The sequence numbers begin again: message {message.sequence_number} is younger than message "
            f"{mark.number} of the checkpoint. The entity was deleted and created again."
        )
    return True


class Settler:
    """Takes out what is committed, of one entity."""

    def __init__(self, bus: BlockingBus, path: str, clock: Clock | None = None) -> None:
        self._bus = bus
        self._path = path
        self._browser = EntityBrowser(bus, path)
        self._clock = clock or MonotonicClock()
        self._done = 0
        self._seen: tuple[BrowseMark, int] | None = None
        self._deletes = True

    def saw(self, mark: BrowseMark) -> None:
        """A batch ends with this message, and it is there now."""
        self._seen = (mark, self._clock.now_ms())

    def settle(self, mark: BrowseMark) -> None:
        """Take out everything up to the mark."""
        if mark.number <= self._done:
            return
        pauses = Backoff()
        while True:
            try:
                self._settle(mark)
            except ServiceError as error:
                # What was done is seen by looking again: only what is still there is asked for.
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
        """By batch delete; returns how many are gone."""
        following = self._browser.first_active(mark.number + 1)
        before_ms = self._before(mark) if following is None else following.enqueued_ms or 0
        gone = 0
        while gone < wanted:
            asked = min(wanted - gone, BATCH_DELETE_MESSAGES_MAX)
            try:
                deleted = self._bus.delete_batch(self._path, asked, before_ms=before_ms)
            except (UnsupportedError, NotAllowedError, ArgumentError, EntityNotFoundError):
                # Another service, or a kind of entity that has no such operation.
                self._deletes = False
                return gone
            gone += deleted
            if deleted < asked:
                return gone
        return gone

    def _before(self, mark: BrowseMark) -> int:
        """Up to when to delete if nothing lies behind the mark: new ones come with the time of their arrival."""
        if self._seen is not None:
            seen, when_ms = self._seen
            if seen == mark and self._clock.now_ms() - when_ms >= _PASSED_MS:
                return mark.enqueued_ms + 1
        return mark.enqueued_ms

    def _complete(self, mark: BrowseMark, first: int) -> None:
        """By receiving and completing what is left."""
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
            # Fewer than were there: somebody holds the others.
            if young or len(messages) < min(left, PEEK_MESSAGES_MAX):
                return
            left -= len(old)
