"""What a transaction changes besides messages sent and settled: states of sessions, and schedules it cancels.

Everything is checked when it is requested and again before the commit; after that check nothing can fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.entities.queue import Queue
from twinbus.entities.scheduling import cancel_scheduled, check_cancel
from twinbus.entities.topic import Topic
from twinbus.errors import MessageNotFoundError
from twinbus.store.facts import Facts


class PendingChanges:
    """The changes of one transaction. A session has one state in the end, the last that was set."""

    __slots__ = ("_cancelled", "_states")

    def __init__(self) -> None:
        self._states: dict[tuple[Queue, str], bytes | None] = {}
        self._cancelled: dict[Queue | Topic, dict[int, None]] = {}

    def set_state(self, queue: Queue, session_id: str, state: bytes | None, now_ms: int) -> None:
        self._check_state(queue, session_id, state, now_ms)
        self._states[queue, session_id] = state

    def cancel(self, entity: Queue | Topic, numbers: Sequence[int]) -> None:
        cancelled = self._cancelled.setdefault(entity, {})
        for number in numbers:
            if number in cancelled:
                raise MessageNotFoundError(f"Sequence number {number} is cancelled in this transaction already.")
        check_cancel(entity, numbers)
        cancelled.update(dict.fromkeys(numbers))

    @property
    def cancels(self) -> bool:
        """Whether it cancels schedules."""
        return bool(self._cancelled)

    def check(self, now_ms: int) -> None:
        """Raise if one of the changes is no longer possible."""
        for (queue, session_id), state in self._states.items():
            self._check_state(queue, session_id, state, now_ms)
        for entity, numbers in self._cancelled.items():
            check_cancel(entity, numbers)

    def cancel_all(self, now_ms: int, facts: Facts) -> None:
        """Remove the cancelled messages."""
        for entity, numbers in self._cancelled.items():
            cancel_scheduled(entity, list(numbers), now_ms, facts)

    def put_states(self, now_ms: int, facts: Facts) -> None:
        """Set the states, also of sessions whose locks have expired since the check."""
        for (queue, session_id), state in self._states.items():
            if queue.sessions is not None and not queue.deleted:
                queue.sessions.put_state(session_id, state, now_ms, facts)

    def _check_state(self, queue: Queue, session_id: str, state: bytes | None, now_ms: int) -> None:
        queue.held_session(session_id, now_ms)
        if queue.sessions is not None:
            queue.sessions.check_state(session_id, state, now_ms)
