"""The messages of a queue that match one selector, for all receivers that use it.

1. Each message is looked at once: those that were there first, by a scan of the index in steps, and later each one that
   arrives or returns. A receiver keeps its place, and messages that do not match cost it nothing more.
2. Messages that match stay in the queue, and another receiver may get them first.
3. What is remembered is bounded: with many matches waiting, the scan pauses, and finds later arrivals when it goes on.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from twinbus.limits import ACQUIRE_BYTES_MAX, SELECTED_MESSAGES_MAX
from twinbus.store.facts import Facts

from .filters import MessageSelector
from .message import ACTIVE, QueuedMessage

if TYPE_CHECKING:
    from .queue import Queue
    from .views import Views

# To skip a message that has left costs this part of looking at one.
_SKIPPED: Final = 64
# Messages that have left, skipped for one receiver.
_SKIPPED_MAX: Final = 1_024


class SelectedMessages:
    """A selector's place in a queue without sessions."""

    __slots__ = ("_check_at", "_matched", "_queue", "_unseen", "_views", "behind", "next_seq", "selector")

    def __init__(self, queue: Queue, selector: MessageSelector, views: Views) -> None:
        self.selector = selector
        self._queue = queue
        # Reads messages for the selector.
        self._views = views
        # The scan has looked at every message below this number.
        self.next_seq = 0
        # Whether there may be messages from that number on that nobody offered.
        self.behind = True
        # Offered messages not looked at yet, by sequence number; some may have left.
        self._unseen: dict[int, QueuedMessage] = {}
        # Above this number, those that have left are dropped.
        self._check_at = SELECTED_MESSAGES_MAX
        # A heap of those that matched, by sequence number; some may have left.
        self._matched: list[tuple[int, int, QueuedMessage]] = []
        if queue.messages.selected is None:
            queue.messages.selected = []
        queue.messages.selected.append(self)

    @property
    def full(self) -> bool:
        """Whether as many matches wait as it remembers."""
        return len(self._matched) >= SELECTED_MESSAGES_MAX

    @property
    def looking(self) -> bool:
        """Whether there are messages to look at, and room for them."""
        return (self.behind or bool(self._unseen)) and not self.full

    @property
    def ready(self) -> bool:
        """Whether a message that matched may still be here."""
        return bool(self._matched)

    def close(self) -> None:
        """No receiver uses the selector any more."""
        self._unseen.clear()
        self._matched = []
        selected = self._queue.messages.selected
        if selected is not None and self in selected:
            selected.remove(self)
            if not selected:
                self._queue.messages.selected = None

    def offer(self, messages: list[QueuedMessage]) -> None:
        """Messages have arrived or returned."""
        unseen = self._unseen
        for message in messages:
            seq = message.seq
            if message.state != ACTIVE:
                continue
            if seq < self.next_seq:
                unseen[seq] = message
            elif not self.behind and len(unseen) < SELECTED_MESSAGES_MAX:
                unseen[seq] = message
                self.next_seq = seq + 1
            else:
                self.behind = True
        if len(unseen) > self._check_at:
            # The messages of a queue return again and again: forget those that have left for good.
            self._unseen = {seq: each for seq, each in unseen.items() if each.state == ACTIVE and each.token is None}
            self._check_at = max(SELECTED_MESSAGES_MAX, 2 * len(self._unseen))

    def look(self, count: int) -> None:
        """Look at the next offered messages."""
        unseen = self._unseen
        left = count * _SKIPPED
        while unseen and left > 0 and not self.full:
            seq = next(iter(unseen))
            message = unseen.pop(seq)
            if message.state != ACTIVE or message.token is not None:
                left -= 1
                continue
            left -= _SKIPPED
            if self.selector.matches(self._views.of_stored(message)):
                heappush(self._matched, (seq, id(message), message))
                self._forget_left()

    def scanned(self, found: list[QueuedMessage], at_end: bool) -> None:
        """Look at the next messages of the index, whose last ones these are if `at_end`."""
        available = self._queue.messages.available
        for message in found:
            self.next_seq = message.seq + 1
            if message.state == ACTIVE and self.selector.matches(self._views.of_stored(message)):
                # A locked message is not there; it is offered when it returns.
                live = available.find(message.seq)
                if live is not None:
                    heappush(self._matched, (live.seq, id(live), live))
        self._forget_left()
        self.behind = not at_end

    def _forget_left(self) -> None:
        if self.full:
            self._matched = [each for each in self._matched if each[2].state == ACTIVE and each[2].token is None]
            heapify(self._matched)

    def acquire(
        self, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX
    ) -> list[QueuedMessage]:
        """Lock the next matching messages; see `Queue.acquire`."""
        picked = self._pick(count, now_ms, limit_bytes)
        if picked:
            queue = self._queue
            until = now_ms + queue.settings.lock_duration_ms
            queue.messages.lock(picked, until)
            queue.alarm.wake(until)
        return picked

    def take(self, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX) -> list[QueuedMessage]:
        """Start a receive-and-delete of the next matching messages; see `Queue.take`."""
        picked = self._pick(count, now_ms, limit_bytes)
        self._queue.messages.take(picked)
        return picked

    def _pick(self, count: int, now_ms: int, limit_bytes: int) -> list[QueuedMessage]:
        queue = self._queue
        queue.gate.check_receivable()
        queue.touch(now_ms)
        expires = queue.dead_letters is not None
        messages = queue.messages
        picked: list[QueuedMessage] = []
        size = skipped = 0
        while self._matched and len(picked) < count and size < limit_bytes and skipped < _SKIPPED_MAX:
            message = heappop(self._matched)[2]
            if message.state != ACTIVE or message.token is not None:
                skipped += 1
                continue
            if expires and message.expires_ms is not None and message.expires_ms <= now_ms:
                continue  # the next tick expires it
            size += message.size
            picked.append(messages.extract(message))
        return picked
