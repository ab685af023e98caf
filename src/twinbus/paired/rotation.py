"""Which backlog queue a sender uses: one rotation, shared by all senders of a paired client.

Rules:
- A sender picks at random, once, and keeps its queue until that fails; then it is out for every sender.
- A queue that is out may be picked again after a pause, and is in again when a send to it succeeds.
- When all are out, the one that failed the longest time ago is tried.
- With a key (a session), the pick is the same for everybody who has the same queues to pick from.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from random import Random
from zlib import crc32

from twinbus.clock import Clock


class Rotation:
    """The backlog queues and which of them are out. Safe to use from several threads."""

    def __init__(self, names: Iterable[str], *, pause_ms: int, clock: Clock, rng: Random) -> None:
        self.names: tuple[str, ...] = tuple(names)
        self._pause_ms = pause_ms
        self._clock = clock
        self._rng = rng
        # Queues that are out: when they failed last, and in which order, as one moment may see several.
        self._out: dict[str, tuple[int, int]] = {}
        self._failures = 0
        # Senders of the sync client live in threads of their own.
        self._lock = threading.Lock()

    def pick(self, key: str | None = None, avoid: Iterable[str] = ()) -> str:
        """A queue to use; those in `avoid` only if there is no other."""
        with self._lock:
            usable = [name for name in self.names if self._usable(name)]
            wanted = [name for name in usable if name not in set(avoid)] or usable
            if not wanted:
                return min(self.names, key=lambda name: self._out[name])
            if key is None:
                return self._rng.choice(wanted)
            return max(wanted, key=lambda name: crc32(f"{key}\0{name}".encode()))

    def usable(self, name: str) -> bool:
        """Whether a sender that uses it may go on."""
        with self._lock:
            return self._usable(name)

    def all_out(self) -> bool:
        """Whether no queue may be picked but by default of any other."""
        with self._lock:
            return not any(map(self._usable, self.names))

    def fail(self, name: str) -> bool:
        """A send to it failed; True when it went out by that."""
        with self._lock:
            went_out = name not in self._out
            self._failures += 1
            self._out[name] = (self._clock.now_ms(), self._failures)
            return went_out

    def revive(self, name: str) -> None:
        """Whatever it failed with is over: it may be picked at once."""
        with self._lock:
            if name in self._out:
                self._out[name] = (self._clock.now_ms() - self._pause_ms, self._out[name][1])

    def succeed(self, name: str) -> bool:
        """A send to it succeeded; True when it came in by that."""
        if name not in self._out:
            return False
        with self._lock:
            return self._out.pop(name, None) is not None

    def _usable(self, name: str) -> bool:
        failed = self._out.get(name)
        return failed is None or self._clock.now_ms() - failed[0] >= self._pause_ms
