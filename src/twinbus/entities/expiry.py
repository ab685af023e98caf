"""Time to live: which messages expire when.

Messages are grouped into one-second buckets, so a million with the same time to live cost one list slot each and no
heap. A message that leaves early is forgotten lazily: its bucket is compacted when half of it is stale, so a long time
to live does not keep finished messages in memory. A bucket is due when its whole second has passed; receivers check
expiry to the millisecond.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from twinbus.limits import COMPACT_EVERY, COMPACT_STEP, UNLIMITED_MS

from .message import ACTIVE, GONE, QueuedMessage

_SECONDS_MIN: Final = 64


class Bucket:
    """The messages that expire within one second."""

    __slots__ = ("_compacted", "due", "messages", "stale")

    def __init__(self) -> None:
        # Every message added, including those that are GONE.
        self.messages: list[QueuedMessage] = []
        # How many have left since the last rebuild.
        self.stale = 0
        # Its second has passed. Messages are then in reverse order, so that the oldest can be popped off the end.
        self.due = False
        # Where the next step of compacting starts.
        self._compacted = 0

    def compact(self) -> None:
        """Drop messages that are GONE: all of a few, or a part of many, because to look at a million takes long."""
        messages = self.messages
        if len(messages) <= COMPACT_STEP:
            self.messages = [message for message in messages if message.state != GONE]
            self.stale = 0
        elif self.stale % COMPACT_EVERY == 0:
            at = self._compacted if self._compacted < len(messages) else 0
            looked = messages[at : at + COMPACT_STEP]
            kept = [message for message in looked if message.state != GONE]
            messages[at : at + len(looked)] = kept
            self.stale -= len(looked) - len(kept)
            self._compacted = at + len(kept)


class Expiry:
    """The expiry times of a queue's active messages."""

    __slots__ = ("_buckets", "_done_s", "_seconds")

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}
        # A heap of seconds; some may no longer have a bucket.
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
        """A locked message is available again. If its bucket was emptied meanwhile, it needs a new one."""
        expires_ms = message.expires_ms
        assert expires_ms is not None
        if expires_ms // 1000 < self._done_s:
            self.add(message)

    def forget(self, message: QueuedMessage) -> None:
        """A message with an expiry time has left the queue; it is already GONE."""
        expires_ms = message.expires_ms
        assert expires_ms is not None
        second = expires_ms // 1000
        bucket = self._buckets.get(second)
        if bucket is None:
            return
        bucket.stale += 1
        if bucket.stale * 2 > len(bucket.messages):
            bucket.compact()
            if not bucket.messages:
                del self._buckets[second]

    def due(self, now_ms: int, limit: int) -> list[QueuedMessage]:
        """Remove up to `limit` messages whose second has passed. Skip locked ones: they expire when unlocked.

        A message may be in here twice, because emptied buckets fill again after the clock was set back.
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
                    # It is about to leave, and the bucket no longer holds it.
                    bucket.stale -= 1
            self._buckets.pop(second, None)
            heappop(self._seconds)
            self._done_s = max(self._done_s, second + 1)
        return list(dict.fromkeys(found))

    def deadline_ms(self) -> int | None:
        while self._seconds and self._seconds[0] not in self._buckets:
            heappop(self._seconds)
        return (self._seconds[0] + 1) * 1000 if self._seconds else None

    def shrink(self) -> None:
        """Drop one message: the queue is deleted."""
        while self._buckets:
            second = next(reversed(self._buckets))
            if self._buckets[second].messages:
                self._buckets[second].messages.pop()
                return
            del self._buckets[second]

    def _open(self, second: int) -> Bucket:
        bucket = Bucket()
        self._buckets[second] = bucket
        heappush(self._seconds, second)
        if len(self._seconds) > _SECONDS_MIN and len(self._seconds) > 2 * len(self._buckets):
            self._seconds = list(self._buckets)
            heapify(self._seconds)
        return bucket


def expires_at(ttl_ms: int | None, default_ttl_ms: int, enqueued_ms: int) -> int | None:
    """When a message expires; None means never. The entity's default is also the maximum."""
    if ttl_ms is None or ttl_ms > default_ttl_ms or ttl_ms < 0:
        ttl_ms = default_ttl_ms
    return enqueued_ms + ttl_ms if ttl_ms < UNLIMITED_MS else None


def earlier(first_ms: int | None, second_ms: int | None) -> int | None:
    """The earlier of two times; None means never."""
    if first_ms is None or second_ms is None:
        return second_ms if first_ms is None else first_ms
    return min(first_ms, second_ms)
