"""Time to live: which messages expire when.

Messages lie in one bucket for each second, so that a million with one time to live cost a list slot each and no heap.
A message that leaves early is forgotten lazily: its bucket is rebuilt when half of it is stale, so a long time to
live does not keep finished messages in memory. A bucket falls due when its whole second is over; receivers check to
the millisecond.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from twinbus.limits import UNLIMITED_MS

from .message import ACTIVE, GONE, QueuedMessage

_SECONDS_MIN: Final = 64


class Bucket:
    """The messages that expire within one second."""

    __slots__ = ("due", "messages", "stale")

    def __init__(self) -> None:
        # Every message put in, GONE ones included.
        self.messages: list[QueuedMessage] = []
        # How many have left since the last rebuild.
        self.stale = 0
        # Whether its second is over: the messages then lie in reverse order, so that the oldest can be taken off.
        self.due = False


class Expiry:
    """The expiry times of a queue's active messages."""

    __slots__ = ("_buckets", "_done_s", "_seconds")

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}
        # A heap of the seconds that have, or had, a bucket.
        self._seconds: list[int] = []
        # Buckets below this second have been emptied.
        self._done_s = 0

    def add(self, message: QueuedMessage) -> None:
        expires_ms = message.expires_ms
        assert expires_ms is not None
        second = expires_ms // 1000
        bucket = self._buckets.get(second)
        if bucket is None:
            bucket = self._open(second)
        bucket.messages.append(message)

    def add_again(self, message: QueuedMessage) -> None:
        """A message that was locked is available again: if its bucket was emptied meanwhile, it needs a new one."""
        expires_ms = message.expires_ms
        assert expires_ms is not None
        if expires_ms // 1000 < self._done_s:
            self.add(message)

    def forget(self, message: QueuedMessage) -> None:
        """A message that expires has left the queue; it is GONE already."""
        expires_ms = message.expires_ms
        assert expires_ms is not None
        second = expires_ms // 1000
        bucket = self._buckets.get(second)
        if bucket is None:
            return
        bucket.stale += 1
        if bucket.stale * 2 > len(bucket.messages):
            bucket.messages = [kept for kept in bucket.messages if kept.state != GONE]
            bucket.stale = 0
            if not bucket.messages:
                del self._buckets[second]

    def due(self, now_ms: int, limit: int) -> list[QueuedMessage]:
        """Take out up to `limit` messages whose second is over. Locked ones are left out: they expire when unlocked.

        A message may lie in here twice: after the clock was set back, buckets that were emptied fill again.
        """
        now_s = now_ms // 1000
        found: list[QueuedMessage] = []
        while self._seconds and self._seconds[0] < now_s:
            second = self._seconds[0]
            bucket = self._buckets.get(second)
            if bucket is not None and not bucket.due:
                bucket.due = True
                bucket.messages.reverse()
            while bucket is not None and bucket.messages:
                if len(found) == limit:
                    return list(dict.fromkeys(found))
                message = bucket.messages.pop()
                if message.state == ACTIVE and message.token is None:
                    found.append(message)
                    # It is about to leave, and is in here no more.
                    bucket.stale -= 1
            self._buckets.pop(second, None)
            heappop(self._seconds)
            self._done_s = max(self._done_s, second + 1)
        return list(dict.fromkeys(found))

    def deadline_ms(self) -> int | None:
        while self._seconds and self._seconds[0] not in self._buckets:
            heappop(self._seconds)
        return (self._seconds[0] + 1) * 1000 if self._seconds else None

    def _open(self, second: int) -> Bucket:
        bucket = Bucket()
        self._buckets[second] = bucket
        heappush(self._seconds, second)
        if len(self._seconds) > _SECONDS_MIN and len(self._seconds) > 2 * len(self._buckets):
            self._seconds = list(self._buckets)
            heapify(self._seconds)
        return bucket


def expires_at(ttl_ms: int | None, default_ttl_ms: int, enqueued_ms: int) -> int | None:
    """When a message expires; None: never. The entity's default is also the ceiling."""
    if ttl_ms is None or ttl_ms > default_ttl_ms or ttl_ms < 0:
        ttl_ms = default_ttl_ms
    return enqueued_ms + ttl_ms if ttl_ms < UNLIMITED_MS else None


def earlier(first_ms: int | None, second_ms: int | None) -> int | None:
    """The earlier of two times of which None is never."""
    if first_ms is None or second_ms is None:
        return second_ms if first_ms is None else first_ms
    return min(first_ms, second_ms)
