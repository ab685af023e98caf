"""Peeks through an entity by sequence number: the first message, the last, and everything between.

- Peeking locks nothing and counts no delivery.
- First and last are found by single peeks, whose number grows with the logarithm of the distance: a peek is an
  operation, and so is every message returned.
- The next page is fetched while the current one is processed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar, overload

from twinbus.client import ACTIVE, Fields, read_head
from twinbus.client.blocking import BlockingBus
from twinbus.errors import DecodeError
from twinbus.limits import PEEK_MESSAGES_MAX

T = TypeVar("T")

# From here on a number has its partition in the upper bits.
PARTITIONED = 1 << 48
NUMBER_MAX = 2**63 - 2


class EntityBrowser:
    """Peeks through one entity."""

    def __init__(self, bus: BlockingBus, path: str, *, page: int = PEEK_MESSAGES_MAX, ahead: bool = True) -> None:
        self._bus = bus
        self.path = path
        self._page = min(max(page, 1), PEEK_MESSAGES_MAX)
        # Whether to fetch the next page while one is processed.
        self._ahead = ahead

    def first(self, number: int) -> Fields | None:
        """The first message from `number` on: one operation."""
        found = self._bus.peek(self.path, 1, first=number)
        return read_head(found[0].payload) if found else None

    def last(self, known: int) -> int:
        """The number of the last message, given the last number `known` so far."""
        found = self.first(known + 1)
        if found is None:
            return known
        low, step = found.sequence_number, 1
        # Double the step until there is nothing behind, then bisect.
        while (found := self.first(low + step)) is not None:
            low = found.sequence_number
            step *= 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            found = self.first(middle)
            if found is None:
                high = middle
            else:
                low = found.sequence_number
        return low

    def first_since(self, enqueued_ms: int, low: int, high: int) -> int:
        """The first number in a range whose message was enqueued at that time or later; `high + 1` if there is none.

        Times grow with the numbers, so this bisects.
        """
        high += 1
        while low < high:
            middle = (low + high) // 2
            found = self.first(middle)
            if (
                found is None
                or found.sequence_number >= high
                or found.enqueued_ms is None
                or found.enqueued_ms >= enqueued_ms
            ):
                high = middle
            else:
                low = found.sequence_number + 1
        return low

    def first_active(self, number: int, last: int | None = None) -> Fields | None:
        """The first message from `number` on, up to `last`, that a receiver could get, so neither scheduled nor
        deferred. Usually one operation."""
        found = self.first(number)
        if found is None or found.state == ACTIVE:
            return found if found is None or last is None or found.sequence_number <= last else None
        for page in self.pages(found.sequence_number + 1, NUMBER_MAX if last is None else last):
            for fields in page:
                if fields.state == ACTIVE:
                    return fields
        return None

    def last_active(self, first: int, last: int) -> Fields | None:
        """The last message in a range that a receiver could get; this peeks at the whole range."""
        found = None
        for page in self.pages(first, last):
            for fields in page:
                if fields.state == ACTIVE:
                    found = fields
        return found

    @overload
    def pages(self, first: int, last: int) -> Iterator[list[Fields]]: ...

    @overload
    def pages(self, first: int, last: int, read: Callable[[bytes], T]) -> Iterator[list[T]]: ...

    def pages(self, first: int, last: int, read: Callable[[bytes], Any] = read_head) -> Iterator[list[Any]]:
        """Messages of a range, both ends included, as returned by `read`; with `bytes` they stay encoded."""
        coming: Future[list[bytes]] | None = None
        try:
            while first <= last:
                page = (coming or self._start(first, last)).result()
                coming = None
                if not page:
                    return
                low, high = first, _number(page[-1])
                if high < low:
                    raise DecodeError(f"{self.path!r} showed number {high} when asked for {low} and on.")
                first = high + 1
                if self._ahead and first <= last:
                    coming = self._start(first, last)
                if high > last:
                    page = [payload for payload in page if _number(payload) <= last]
                yield page if read is bytes else [read(payload) for payload in page]
        finally:
            if coming is not None:
                coming.cancel()

    def _start(self, first: int, last: int) -> Future[list[bytes]]:
        return self._bus.start_peek(self.path, min(self._page, last - first + 1), first=first)


def sized_head(payload: bytes) -> tuple[Fields, int]:
    """For `pages`: the service's own fields, and the size in bytes."""
    return read_head(payload), len(payload)


def _number(payload: bytes) -> int:
    return read_head(payload).sequence_number
