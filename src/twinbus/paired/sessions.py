"""Sessions with messages in the backlog, for order within a session across a failover.

- From its first diverted message on, a session's messages go to the same backlog queue until its part has drained.
- A part has drained when the queue is empty, or when the oldest message in it is newer than the session's last.
- Newer means a greater sequence number, because times of two machines cannot be compared. A send does not return the
  number of its message, so the last number in the queue is looked up later; it is at least as great.
- Only what this client has diverted itself is known.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

SEQUENCE_NUMBER_MAX: Final = 2**63 - 1


class DivertedSession(NamedTuple):
    """Where a session's messages are. None has a number above `last_number`, which is None until known."""

    queue: str
    last_number: int | None = None


class SessionTrail:
    """The sessions of one entity that must go through the backlog. Thread-safe."""

    def __init__(self) -> None:
        self._sessions: dict[str, DivertedSession] = {}
        # When each queue was last checked, on a monotonic clock.
        self._looked_ms: dict[str, int] = {}
        # Senders of the sync client run in their own threads.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def note(self, session_ids: Iterable[str], queue: str) -> None:
        """Record that messages of these sessions went to `queue`."""
        with self._lock:
            for session_id in session_ids:
                self._sessions[session_id] = DivertedSession(queue)

    def queue_of(self, session_ids: Iterable[str]) -> str | None:
        """The queue to which messages of these sessions must go, if any."""
        with self._lock:
            for session_id in session_ids:
                session = self._sessions.get(session_id)
                if session is not None:
                    return session.queue
        return None

    def may_look(self, queue: str, now_ms: int, pause_ms: int) -> bool:
        """Whether it is time to check a queue again; the caller that gets True must do it."""
        with self._lock:
            before = self._looked_ms.get(queue)
            if before is not None and now_ms - before < pause_ms:
                return False
            self._looked_ms[queue] = now_ms
            return True

    def in_queue(self, queue: str) -> dict[str, DivertedSession]:
        """The sessions with messages in a queue; get them before checking the queue."""
        with self._lock:
            return {name: session for name, session in self._sessions.items() if session.queue == queue}

    def drained(self, sessions: dict[str, DivertedSession], oldest: int | None) -> None:
        """Forget drained sessions; `oldest` is the number of their queue's oldest message, None if it is empty."""
        with self._lock:
            for session_id, session in sessions.items():
                last = session.last_number
                gone = oldest is None or (last is not None and oldest > last)
                # It may have been diverted again since.
                if gone and self._sessions.get(session_id) is session:
                    del self._sessions[session_id]

    def bound(self, sessions: dict[str, DivertedSession], last_number: int) -> None:
        """Set the last number in their queue for sessions that have none yet."""
        with self._lock:
            for session_id, session in sessions.items():
                if session.last_number is None and self._sessions.get(session_id) is session:
                    self._sessions[session_id] = session._replace(last_number=last_number)


class LastNumberSearch:
    """Finds the last number in a queue from its first one, with few queries for the first message from a number on.

    Messages may come and go meanwhile; none that existed at the start has a greater number than the result.
    """

    def __init__(self, first: int) -> None:
        # The greatest number found, and the lowest number from which on nothing was found.
        self.last = first
        self._none_from = SEQUENCE_NUMBER_MAX + 1
        self._step = 1

    @property
    def question(self) -> int | None:
        """The number from which on to query next; None if `last` is the answer."""
        if self.last + 1 >= self._none_from:
            return None
        return min(self.last + self._step, (self.last + self._none_from) // 2)

    def answer(self, found: int | None) -> None:
        """The number of the first message from `question` on; None if there is none."""
        if found is None:
            self._none_from = self.question or self._none_from
        else:
            self.last = found
            self._step *= 2
