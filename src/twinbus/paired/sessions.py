"""Sessions that have messages in the backlog, for those who want order inside a session across a failover.

Rules:
- From its first diverted message on, a session's messages go to the same backlog queue, until its part has drained.
- A part has drained when the queue is empty, or when the oldest message in it is younger than the session's last, by
  more than clocks may differ.
- Known is what this client has diverted itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from twinbus.limits import CLOCK_SKEW_MS_MAX


class Trace(NamedTuple):
    """Where a session's messages are, and when the last of them went there (time of day)."""

    queue: str
    last_ms: int


class SessionTrail:
    """The sessions of one entity that must go through the backlog. Safe to use from several threads."""

    def __init__(self) -> None:
        # By session id.
        self._traces: dict[str, Trace] = {}
        # When each queue was looked at last, by a clock that measures.
        self._looked_ms: dict[str, int] = {}
        # Senders of the sync client live in threads of their own.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._traces)

    def note(self, session_ids: Iterable[str], queue: str, now_ms: int) -> None:
        """Messages of these sessions went to `queue`."""
        with self._lock:
            for session_id in session_ids:
                self._traces[session_id] = Trace(queue, now_ms)

    def queue_of(self, session_ids: Iterable[str]) -> str | None:
        """The queue that the messages of these sessions must go to; None when they are free."""
        with self._lock:
            for session_id in session_ids:
                trace = self._traces.get(session_id)
                if trace is not None:
                    return trace.queue
        return None

    def may_look(self, queue: str, now_ms: int, pause_ms: int) -> bool:
        """Whether it is time to look at a queue again; the one who is told so does it."""
        with self._lock:
            before = self._looked_ms.get(queue)
            if before is not None and now_ms - before < pause_ms:
                return False
            self._looked_ms[queue] = now_ms
            return True

    def drained(self, queue: str, oldest_ms: int | None) -> None:
        """The oldest message in `queue` was enqueued at `oldest_ms`; None when there is none."""
        with self._lock:
            for session_id, trace in list(self._traces.items()):
                gone = oldest_ms is None or oldest_ms > trace.last_ms + CLOCK_SKEW_MS_MAX
                if trace.queue == queue and gone:
                    del self._traces[session_id]
