"""How long a failed destination is paused.

- Each destination has its own pauses, which grow with every failure and end with a success.
- The primary as a whole is another destination, with the empty path.
- Only failing destinations are remembered.
- Their state can be passed on to another syphon (`told`, `tell`), whose pauses continue from there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from twinbus.client import Backoff
from twinbus.clock import Clock
from twinbus.limits import SYPHON_PAUSE_MS_MAX, SYPHON_PAUSE_MS_MIN

PRIMARY = ""

# By destination: failures in a row, and remaining pause in ms.
Failing = Mapping[str, tuple[int, int]]


class Pauses:
    """The pauses of all destinations, on a monotonic clock."""

    def __init__(
        self,
        clock: Clock,
        *,
        first_ms: int = SYPHON_PAUSE_MS_MIN,
        longest_ms: int = SYPHON_PAUSE_MS_MAX,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._draw = draw
        # Failing destinations, with their backoff and the end of the pause.
        self._failing: dict[str, tuple[Backoff, int]] = {}

    def backoff(self) -> Backoff:
        """Pauses of the same lengths, for something else that fails."""
        return Backoff(self._first_ms, self._longest_ms, self._draw)

    def fail(self, path: str = PRIMARY) -> int:
        """Record a failure; returns the new pause."""
        found = self._failing.get(path)
        backoff = self.backoff() if found is None else found[0]
        pause_ms = backoff.next_ms()
        self._failing[path] = (backoff, self._clock.now_ms() + pause_ms)
        return pause_ms

    def succeed(self, path: str = PRIMARY) -> bool:
        """Record a success; True if it was failing."""
        return self._failing.pop(path, None) is not None

    def left_ms(self, path: str = PRIMARY) -> int:
        """The remaining pause; 0 if it may be tried."""
        found = self._failing.get(path)
        return 0 if found is None else max(found[1] - self._clock.now_ms(), 0)

    def failing(self, path: str = PRIMARY) -> bool:
        """Whether its last try failed."""
        return path in self._failing

    def paths(self) -> list[str]:
        """The failing destinations, without the primary as a whole."""
        return sorted(path for path in self._failing if path != PRIMARY)

    # --- handing on ---------------------------------------------------------------------------------------------------

    def told(self) -> dict[str, tuple[int, int]]:
        """The state of the failing destinations, for another syphon."""
        return {path: (self._failing[path][0].failures, self.left_ms(path)) for path in self.paths()}

    def tell(self, failing: Failing) -> None:
        """Continue from the state of another syphon."""
        for path, (failures, left_ms) in failing.items():
            backoff = self.backoff()
            backoff.failures = failures
            self._failing[path] = (backoff, self._clock.now_ms() + left_ms)
