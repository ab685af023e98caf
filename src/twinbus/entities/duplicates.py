"""Message ids seen inside the duplicate detection window.

Each id has a row of its own under the sequence number of the message that brought it, so a row is written once,
removed once, and the same id can come back in the commit that removes its old row. Old ids are purged a bounded
number at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from twinbus.store.facts import Facts, Table

from .records import key, pack_duplicate
from .sweep import Row

# Purging may be this late: it saves a timer for each message.
_PURGE_DELAY_MS: Final = 1_000


class Duplicates:
    """The recent message ids of a queue."""

    __slots__ = ("_entity_id", "_order", "_seen", "_stepped_ms", "window_ms")

    def __init__(self, entity_id: int, window_ms: int) -> None:
        self._entity_id = entity_id
        # How long an id is remembered.
        self.window_ms = window_ms
        # By how much the clock was set since the start. Times in here are those of a clock that nobody sets.
        self._stepped_ms = 0
        # Id -> (when seen, sequence number of its message).
        self._seen: dict[str, tuple[int, int]] = {}
        # The same in order of time: (when seen, sequence number, id).
        self._order: deque[tuple[int, int, str]] = deque()

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, message_id: str, now_ms: int) -> int | None:
        """The sequence number of the message that brought this id inside the window."""
        entry = self._seen.get(message_id)
        if entry is None or entry[0] + self.window_ms <= now_ms - self._stepped_ms:
            return None
        return entry[1]

    def add(self, message_id: str, seq: int, now_ms: int, facts: Facts) -> None:
        seen_ms = now_ms - self._stepped_ms
        self._seen[message_id] = (seen_ms, seq)
        self._order.append((seen_ms, seq, message_id))
        facts.rows[Table.DUPLICATES, key(self._entity_id, seq)] = pack_duplicate(now_ms, message_id)

    def shift(self, step_ms: int) -> None:
        """The clock was set: every id is known for as long as it would have been."""
        self._stepped_ms += step_ms

    def restore(self, message_id: str, seq: int, seen_ms: int, now_ms: int) -> None:
        """Read an id back. One from the future was seen before the clock was set back: its window starts now."""
        seen_ms = min(seen_ms, now_ms)
        self._seen[message_id] = (seen_ms, seq)
        self._order.append((seen_ms, seq, message_id))

    def purge(self, now_ms: int, limit: int, facts: Facts) -> int:
        """Forget up to `limit` ids whose window is over."""
        count = 0
        order = self._order
        while order and count < limit and order[0][0] + self.window_ms <= now_ms - self._stepped_ms:
            _, seq, message_id = order.popleft()
            if self._seen[message_id][1] == seq:
                del self._seen[message_id]
            facts.delete(Table.DUPLICATES, key(self._entity_id, seq))
            count += 1
        return count

    def deadline_ms(self) -> int | None:
        if not self._order:
            return None
        return self._order[0][0] + self.window_ms + self._stepped_ms + _PURGE_DELAY_MS

    def rows(self) -> Iterator[Row]:
        """All its rows, for deleting the queue."""
        for entry in self._order:
            yield Table.DUPLICATES, key(self._entity_id, entry[1]), 0
