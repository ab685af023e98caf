"""One heap of deadlines for all entities of a namespace.

Only an entity's earliest deadline counts. A replaced alarm stays in the heap until it is popped or until most of the
heap is stale, so ten thousand quiet queues cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

NEVER_MS: Final = 1 << 62

_HEAP_MIN: Final = 64


class Alarms:
    """When each entity wants its next tick."""

    __slots__ = ("_heap", "_set", "on_earlier")

    def __init__(self) -> None:
        # (time, entity id); includes replaced alarms.
        self._heap: list[tuple[int, int]] = []
        # The alarm that counts, by entity id.
        self._set: dict[int, int] = {}
        # Called when an alarm is set that is earlier than all others; None if nobody has to know.
        self.on_earlier: Callable[[], None] | None = None

    def set(self, entity_id: int, at_ms: int) -> None:
        self._set[entity_id] = at_ms
        heappush(self._heap, (at_ms, entity_id))
        if len(self._heap) > _HEAP_MIN and len(self._heap) > 4 * len(self._set):
            self._heap = [(at, entity) for entity, at in self._set.items()]
            heapify(self._heap)
        if self._heap[0][0] == at_ms and self.on_earlier is not None:
            self.on_earlier()

    def clear(self, entity_id: int) -> None:
        self._set.pop(entity_id, None)

    def next_ms(self) -> int | None:
        while self._heap:
            at_ms, entity_id = self._heap[0]
            if self._set.get(entity_id) == at_ms:
                return at_ms
            heappop(self._heap)
        return None

    def pop(self, now_ms: int) -> int | None:
        """Remove and return one entity whose alarm is due."""
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        entity_id = heappop(self._heap)[1]
        del self._set[entity_id]
        return entity_id


class Alarm:
    """When one entity wants its next tick."""

    __slots__ = ("_alarms", "_entity_id", "at_ms")

    def __init__(self, alarms: Alarms, entity_id: int) -> None:
        self._alarms = alarms
        self._entity_id = entity_id
        # The deadline last passed to the namespace's alarms.
        self.at_ms = NEVER_MS

    def wake(self, at_ms: int | None) -> None:
        """Request a tick no later than this time; None requests nothing."""
        if at_ms is not None and at_ms < self.at_ms:
            self.at_ms = at_ms
            self._alarms.set(self._entity_id, at_ms)

    def rang(self) -> None:
        """The tick has started; the namespace has already removed the alarm."""
        self.at_ms = NEVER_MS

    def clear(self) -> None:
        self.at_ms = NEVER_MS
        self._alarms.clear(self._entity_id)

    def close(self) -> None:
        """The entity is deleted: -1 is earlier than any deadline, so `wake` does nothing from now on."""
        self.at_ms = -1
        self._alarms.clear(self._entity_id)
