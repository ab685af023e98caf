"""Which backlog queue a sender uses: one rotation, shared by all senders of a paired client.

- A sender picks at random once, and keeps its queue until it fails; then the queue is out for every sender.
- A queue that is out may be picked again after a pause, and is back in when a send to it succeeds.
- If all are out, the one that failed longest ago is tried.
- With a key (a session), everybody with the same queues to choose from picks the same one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from random import Random
from zlib import crc32

from twinbus.clock import Clock
from twinbus.paired.retries import spread


class Rotation:
    """The backlog queues, and which of them are out. Thread-safe."""

    def __init__(self, names: Iterable[str], *, pause_ms: int, clock: Clock, rng: Random) -> None:
        self.names: tuple[str, ...] = tuple(names)
        self._pause_ms = pause_ms
        self._clock = clock
        self._rng = rng
        # Queues that are out: the time of the last failure, and a counter, because several may fail at the same time.
        self._out: dict[str, tuple[int, int]] = {}
        self._failures = 0
        # Senders of the sync client run in their own threads.
        self._lock = threading.Lock()

    def pick(self, key: str | None = None, avoid: Iterable[str] = ()) -> str:
        """Pick a queue; those in `avoid` only if there is no other."""
        with self._lock:
            usable = [name for name in self.names if self._usable(name)]
            wanted = [name for name in usable if name not in set(avoid)] or usable
            if not wanted:
                return min(self.names, key=lambda name: self._out[name])
            if key is None:
                return self._rng.choice(wanted)
            return max(wanted, key=lambda name: crc32(f"{key}\0{name}".encode()))

    def usable(self, name: str) -> bool:
        """Whether a sender may keep using it."""
        with self._lock:
            return self._usable(name)

    def pause_s(self, longest_s: float) -> float:
        """A pause with jitter, before one that is out is tried again."""
        return spread(longest_s, self._rng)

    def all_out(self) -> bool:
        """Whether all queues are out."""
        with self._lock:
            return not any(map(self._usable, self.names))

    def fail(self, name: str) -> bool:
        """A send to it failed; True if it was in until now."""
        with self._lock:
            went_out = name not in self._out
            self._failures += 1
            self._out[name] = (self._clock.now_ms(), self._failures)
            return went_out

    def revive(self, name: str) -> None:
        """Its failure is over: it may be picked at once."""
        with self._lock:
            if name in self._out:
                self._out[name] = (self._clock.now_ms() - self._pause_ms, self._out[name][1])

    def succeed(self, name: str) -> bool:
        """A send to it succeeded; True if it was out until now."""
        if name not in self._out:
            return False
        with self._lock:
            return self._out.pop(name, None) is not None

    def _usable(self, name: str) -> bool:
        if name not in self.names:
            # Of a rotation before this one.
            return False
        failed = self._out.get(name)
        return failed is None or self._clock.now_ms() - failed[0] >= self._pause_ms
