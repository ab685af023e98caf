"""Scheduled messages, by time and by sequence number.

A cancelled message leaves the dict at once, and the heap when it is popped or when half of the heap is stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from .message import QueuedMessage

_HEAP_MIN: Final = 64


class Schedule:
    """The scheduled messages of a queue."""

    __slots__ = ("_heap", "messages")

    def __init__(self) -> None:
        self.messages: dict[int, QueuedMessage] = {}
        # (time, sequence number); includes cancelled messages.
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.messages)

    def add(self, message: QueuedMessage) -> None:
        self.messages[message.seq] = message
        heappush(self._heap, (message.enqueued_ms, message.seq))

    def remove(self, seq: int) -> QueuedMessage:
        message = self.messages.pop(seq)
        if len(self._heap) > _HEAP_MIN and len(self._heap) > 2 * len(self.messages):
            self._heap = [(kept.enqueued_ms, kept.seq) for kept in self.messages.values()]
            heapify(self._heap)
        return message

    def due(self, now_ms: int, limit: int) -> list[QueuedMessage]:
        """Remove up to `limit` due messages, earliest first."""
        found: list[QueuedMessage] = []
        while self._heap and self._heap[0][0] <= now_ms and len(found) < limit:
            seq = heappop(self._heap)[1]
            message = self.messages.pop(seq, None)
            if message is not None:
                found.append(message)
        return found

    def first_due(self, now_ms: int) -> QueuedMessage | None:
        """The earliest due message, without removing it."""
        at_ms = self.deadline_ms()
        return self.messages[self._heap[0][1]] if at_ms is not None and at_ms <= now_ms else None

    def deadline_ms(self) -> int | None:
        while self._heap and self._heap[0][1] not in self.messages:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def drain(self) -> Iterator[QueuedMessage]:
        """Remove and yield all messages, in no particular order, one by one: to free a million at once takes long."""
        while self.messages:
            if self._heap:
                self._heap.pop()
            yield self.messages.popitem()[1]
