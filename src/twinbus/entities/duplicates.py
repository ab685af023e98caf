"""Message ids seen within the duplicate detection window.

Each id has its own row, keyed by the sequence number of its message. A row is therefore written once and removed once,
and an id can return in the same commit that removes its old row. Old ids are purged in bounded steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from twinbus.errors import ServerBusyError
from twinbus.limits import DUPLICATE_IDS_BYTES_MAX
from twinbus.store.facts import Facts, Table

from .account import Account, Accounts
from .changes import text_bytes
from .message import NewMessage
from .records import key, pack_duplicate
from .sweep import Row, Sweep

# Purging may be this late, which saves a timer per message.
_PURGE_DELAY_MS: Final = 1_000
# Memory of an id besides its characters.
_ID_BYTES: Final = 320


class Duplicates:
    """The recent message ids of a queue."""

    __slots__ = ("_account", "_entity_id", "_order", "_seen", "_stepped_ms", "window_ms")

    def __init__(self, entity_id: int, window_ms: int, accounts: Accounts) -> None:
        self._entity_id = entity_id
        # The memory of the ids.
        self._account = Account(DUPLICATE_IDS_BYTES_MAX, accounts.duplicate_ids)
        # How long an id is remembered.
        self.window_ms = window_ms
        # How far the clock has been stepped since the start. Times in here are on a clock that is never set.
        self._stepped_ms = 0
        # Id -> (when seen, sequence number of its message, id).
        self._seen: dict[str, tuple[int, int, str]] = {}
        # The same entries in order of time.
        self._order: deque[tuple[int, int, str]] = deque()

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, message_id: str, now_ms: int) -> int | None:
        """The sequence number of the message that brought this id within the window, or None."""
        entry = self._seen.get(message_id)
        if entry is None or entry[0] + self.window_ms <= now_ms - self._stepped_ms:
            return None
        return entry[1]

    def check_room(self, messages: Sequence[NewMessage]) -> None:
        """Refuse messages whose ids cannot all be remembered."""
        if not self._account.room(sum([_ID_BYTES + text_bytes(new.message_id) for new in messages])):
            raise ServerBusyError(
                "Duplicate detection remembers as many message ids as it may. Try again later, or shorten its window."
            )

    def add(self, message_id: str, seq: int, now_ms: int, facts: Facts) -> None:
        self._remember((now_ms - self._stepped_ms, seq, message_id))
        facts.rows[Table.DUPLICATES, key(self._entity_id, seq)] = pack_duplicate(now_ms, message_id)

    def shift(self, step_ms: int) -> None:
        """The clock was set. Every id is still remembered for the full window."""
        self._stepped_ms += step_ms

    def restore(self, message_id: str, seq: int, seen_ms: int, now_ms: int) -> None:
        """Restore an id. One from the future was seen before the clock was set back: its window starts now."""
        self._remember((min(seen_ms, now_ms), seq, message_id))

    def _remember(self, entry: tuple[int, int, str]) -> None:
        self._seen[entry[2]] = entry
        self._order.append(entry)
        self._account.hold(_ID_BYTES + text_bytes(entry[2]))

    def purge(self, now_ms: int, limit: int, facts: Facts) -> int:
        """Forget up to `limit` ids whose window has passed."""
        count = 0
        order = self._order
        while order and count < limit and order[0][0] + self.window_ms <= now_ms - self._stepped_ms:
            _, seq, message_id = order.popleft()
            if self._seen[message_id][1] == seq:
                del self._seen[message_id]
            self._account.give(_ID_BYTES + text_bytes(message_id))
            facts.delete(Table.DUPLICATES, key(self._entity_id, seq))
            count += 1
        return count

    def deadline_ms(self) -> int | None:
        if not self._order:
            return None
        return self._order[0][0] + self.window_ms + self._stepped_ms + _PURGE_DELAY_MS

    def close(self, sweep: Sweep) -> None:
        """Hand all rows to the sweep, because the entity is deleted."""
        sweep.add(self._rows())
        self._account.close()

    def _rows(self) -> Iterator[Row]:
        for entry in self._order:
            yield Table.DUPLICATES, key(self._entity_id, entry[1]), 0
