"""The messages a receiver can get next, in sequence order.

New messages arrive in order and go into a deque. Returned ones go back to their old place, so they go into a heap. A
message that leaves from the middle (expired) is marked GONE and stays until it is popped or until half of all are GONE.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from twinbus.limits import COMPACT_EVERY, COMPACT_STEP, EXPIRED_PER_ACQUIRE_MAX

from .message import ACTIVE, GONE, QueuedMessage

_GONE_MIN: Final = 32


def _seq(message: QueuedMessage) -> int:
    return message.seq


class Available:
    """Available messages of a queue without sessions, or of one session."""

    __slots__ = ("_compacted", "fresh", "gone", "returned")

    def __init__(self) -> None:
        # Messages that were never locked, by sequence number.
        self.fresh: deque[QueuedMessage] = deque()
        # Messages that were returned: a heap by sequence number.
        self.returned: list[tuple[int, QueuedMessage]] = []
        # How many in the two above are GONE.
        self.gone = 0
        # Where in `fresh` the next step of compacting starts.
        self._compacted = 0

    def __len__(self) -> int:
        return len(self.fresh) + len(self.returned) - self.gone

    def pop(self) -> QueuedMessage | None:
        """Remove and return the next message."""
        fresh = self.fresh
        returned = self.returned
        while True:
            if returned and (not fresh or returned[0][0] < fresh[0].seq):
                message = heappop(returned)[1]
            elif fresh:
                message = fresh.popleft()
            else:
                return None
            if message.state == ACTIVE:
                return message
            self.gone -= 1

    def pick(self, count: int, limit_bytes: int, now_ms: int) -> tuple[list[QueuedMessage], list[QueuedMessage]]:
        """Remove the next messages until one reaches the limit, plus a bounded number of expired ones."""
        picked: list[QueuedMessage] = []
        expired: list[QueuedMessage] = []
        fresh = self.fresh
        returned = self.returned
        size = 0
        while len(picked) < count and size < limit_bytes:
            message: QueuedMessage | None
            if fresh and not returned:
                # As in `pop`, inlined: a call per message is measurable.
                message = fresh.popleft()
                if message.state != ACTIVE:
                    self.gone -= 1
                    continue
            else:
                message = self.pop()
                if message is None:
                    break
            if message.expires_ms is not None and message.expires_ms <= now_ms:
                expired.append(message)
                if len(expired) == EXPIRED_PER_ACQUIRE_MAX:
                    break
                continue
            picked.append(message)
            size += message.size
        return picked, expired

    def first(self) -> QueuedMessage | None:
        """The next message, without removing it."""
        message = self.pop()
        if message is not None:
            heappush(self.returned, (message.seq, message))
        return message

    def push(self, message: QueuedMessage) -> None:
        """Add a message whose number may be lower than those already here."""
        if not self.fresh or self.fresh[-1].seq < message.seq:
            self.fresh.append(message)
        else:
            heappush(self.returned, (message.seq, message))

    def give_back(self, message: QueuedMessage) -> None:
        heappush(self.returned, (message.seq, message))

    def note_gone(self) -> None:
        """A message in here became GONE. Compact while more than half are."""
        self.gone += 1
        fresh, returned = self.fresh, self.returned
        # Messages that expire together are next; drop them so that browsers need not skip them.
        while fresh and fresh[0].state == GONE:
            fresh.popleft()
            self.gone -= 1
        while returned and returned[0][1].state == GONE:
            heappop(returned)
            self.gone -= 1
        if self.gone > _GONE_MIN and self.gone * 2 > len(fresh) + len(returned):
            if len(fresh) <= COMPACT_STEP or len(returned) > len(fresh):
                self._compact()
            elif self.gone % COMPACT_EVERY == 0:
                self._compact_step()

    def _compact(self) -> None:
        self.fresh = deque([message for message in self.fresh if message.state != GONE])
        self.returned = [entry for entry in self.returned if entry[1].state != GONE]
        heapify(self.returned)
        self.gone = 0

    def _compact_step(self) -> None:
        """Compact a part of many messages: to look at a million at once takes long."""
        fresh = self.fresh
        at = self._compacted if self._compacted < len(fresh) else 0
        fresh.rotate(-at)
        looked = [fresh.popleft() for _ in range(min(len(fresh) - at, COMPACT_STEP))]
        kept = [message for message in looked if message.state != GONE]
        fresh.extendleft(reversed(kept))
        fresh.rotate(at)
        self.gone -= len(looked) - len(kept)
        self._compacted = at + len(kept)

    def find(self, seq: int) -> QueuedMessage | None:
        """The message with that number, without removing it; None if it is not here."""
        fresh = self.fresh
        at = bisect_left(fresh, seq, key=_seq)
        if at < len(fresh) and fresh[at].seq == seq:
            return fresh[at] if fresh[at].state == ACTIVE else None
        for number, message in self.returned:
            if number == seq and message.state == ACTIVE:
                return message
        return None

    def browse(self, from_seq: int, count: int) -> list[QueuedMessage]:
        """Up to `count` never-locked messages from a sequence number on, plus all returned ones from there on."""
        start = bisect_left(self.fresh, from_seq, key=_seq)
        found: list[QueuedMessage] = []
        for message in islice(self.fresh, start, None):
            if len(found) == count:
                break
            if message.state != GONE:
                found.append(message)
        found.extend(entry[1] for entry in self.returned if entry[0] >= from_seq and entry[1].state != GONE)
        return found

    def drain(self) -> Iterator[QueuedMessage]:
        """Remove and yield all messages, in no particular order, one by one: to free a million at once takes long."""
        while self.fresh:
            message = self.fresh.popleft()
            if message.state != GONE:
                yield message
        while self.returned:
            message = self.returned.pop()[1]
            if message.state != GONE:
                yield message
