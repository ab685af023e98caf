"""The messages a receiver can get next, in sequence order.

New messages arrive in order and go into a deque. Returned ones go back to their old place, among `Returned`. A message
that leaves from the middle (expired) is marked GONE and stays until it is popped or until half of all are GONE.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Final

from twinbus.limits import COMPACT_EVERY, COMPACT_STEP, EXPIRED_PER_ACQUIRE_MAX

from .message import ACTIVE, GONE, QueuedMessage, moved
from .returned import Returned

_GONE_MIN: Final = 32


def _seq(message: QueuedMessage) -> int:
    return message.seq


class Available:
    """Available messages of a queue without sessions, or of one session."""

    __slots__ = ("_compacted", "fresh", "gone", "returned")

    def __init__(self) -> None:
        # Messages that were never locked, by sequence number.
        self.fresh: deque[QueuedMessage] = deque()
        # Messages that were returned; None until there is one, because most sessions have none.
        self.returned: Returned | None = None
        # How many in the two above are GONE.
        self.gone = 0
        # Where in `fresh` the next step of compacting starts.
        self._compacted = 0

    def __len__(self) -> int:
        returned = self.returned
        return len(self.fresh) - self.gone if returned is None else len(self.fresh) + len(returned) - self.gone

    def first(self) -> QueuedMessage | None:
        """The next message, without removing it."""
        fresh = self.fresh
        returned = self.returned
        while True:
            if returned is not None and returned.lasts and (not fresh or returned.first().seq < fresh[0].seq):
                message = returned.first()
                if message.state == ACTIVE:
                    return message
                returned.pop_first()
            elif fresh:
                if fresh[0].state == ACTIVE:
                    return fresh[0]
                fresh.popleft()
            else:
                return None
            self.gone -= 1

    def pop(self) -> QueuedMessage | None:
        """Remove and return the next message."""
        message = self.first()
        if message is not None:
            if self.fresh and self.fresh[0] is message:
                self.fresh.popleft()
            elif self.returned is not None:
                self.returned.pop_first()
        return message

    def pick(self, count: int, limit_bytes: int, now_ms: int) -> tuple[list[QueuedMessage], list[QueuedMessage]]:
        """Remove the next messages until one reaches the limit, plus a bounded number of expired ones."""
        picked: list[QueuedMessage] = []
        expired: list[QueuedMessage] = []
        fresh = self.fresh
        returned = self.returned
        size = 0
        while len(picked) < count and size < limit_bytes:
            message: QueuedMessage | None
            if fresh and (returned is None or not returned.lasts):
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

    def extract(self, message: QueuedMessage) -> QueuedMessage:
        """Remove one of the messages without sessions from any place. Unless it is the first, the result is a copy: a
        GONE message stays in its place, so that the cost does not depend on where that is."""
        if self.fresh and self.fresh[0] is message:
            return self.fresh.popleft()
        copy = moved(message, message.changes)
        message.state = GONE
        self.note_gone()
        return copy

    def push(self, message: QueuedMessage) -> None:
        """Add a message whose number may be lower than those already here."""
        if not self.fresh or self.fresh[-1].seq < message.seq:
            self.fresh.append(message)
        else:
            self.give_back(message)

    def give_back(self, message: QueuedMessage) -> None:
        if self.returned is None:
            self.returned = Returned()
        self.returned.add(message)

    def note_gone(self) -> None:
        """A message in here became GONE. Compact while more than half are."""
        self.gone += 1
        # Messages that expire together are next; drop them so that browsers need not skip them.
        self.first()
        if self.gone > _GONE_MIN and self.gone * 2 > len(self) + self.gone:
            if len(self) + self.gone <= COMPACT_STEP:
                self._compact()
            elif self.gone % COMPACT_EVERY == 0:
                self._compact_step()

    def _compact(self) -> None:
        self.fresh = deque([message for message in self.fresh if message.state != GONE])
        if self.returned is not None:
            self.returned.compact_step(COMPACT_STEP)
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
        if self.returned is not None:
            self.gone -= self.returned.compact_step(COMPACT_STEP)

    def find(self, seq: int) -> QueuedMessage | None:
        """The message with that number, without removing it; None if it is not here."""
        fresh = self.fresh
        found: QueuedMessage | None = None
        if fresh and fresh[0].seq <= seq <= fresh[-1].seq:
            # Numbers ascend without repeating, which leaves few places where it can be.
            low = max(len(fresh) - 1 - (fresh[-1].seq - seq), 0)
            high = min(seq - fresh[0].seq, len(fresh) - 1)
            at = bisect_left(fresh, seq, low, high, key=_seq)
            if fresh[at].seq == seq:
                found = fresh[at]
        # One that was extracted may have come back, while its place in `fresh` is GONE.
        if (found is None or found.state != ACTIVE) and self.returned is not None:
            found = self.returned.find(seq)
        return found if found is not None and found.state == ACTIVE else None

    def among(self, numbers: list[int]) -> list[QueuedMessage]:
        """The messages with those numbers, which ascend."""
        if self.returned is None:
            if not self.fresh:
                return []
            # Most sessions have none of them, and need no further look.
            start, end = bisect_left(numbers, self.fresh[0].seq), bisect_right(numbers, self.fresh[-1].seq)
            if start == end:
                return []
            numbers = numbers[start:end]
        return [found for seq in numbers if (found := self.find(seq)) is not None]

    def browse(self, from_seq: int, count: int) -> list[QueuedMessage]:
        """Up to `count` never-locked messages from a sequence number on, plus as many returned ones."""
        start = bisect_left(self.fresh, from_seq, key=_seq)
        found: list[QueuedMessage] = []
        # A deque finds an item from its nearer end; an iterator would walk over all before it.
        for at in range(start, len(self.fresh)):
            if len(found) == count:
                break
            message = self.fresh[at]
            if message.state != GONE:
                found.append(message)
        if self.returned is not None:
            count += len(found)
            for message in self.returned.since(from_seq):
                if len(found) == count:
                    break
                if message.state != GONE:
                    found.append(message)
        return found

    def drain(self) -> Iterator[QueuedMessage]:
        """Remove and yield all messages, in no particular order, one by one: to free a million at once takes long."""
        while self.fresh:
            message = self.fresh.popleft()
            if message.state != GONE:
                yield message
        # Not `while self.returned`: mypyc takes every object that may be None and has no `__bool__` for true.
        while self.returned is not None and self.returned.lasts:
            message = self.returned.pop_last()
            if message.state != GONE:
                yield message
