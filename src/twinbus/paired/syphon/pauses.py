"""How long a destination that failed is left alone.

Rules:
- Each destination has pauses of its own, which grow with every failure and end with a success.
- The primary as a whole is one more destination, with the empty path.
- Only destinations that fail are remembered.
- What is known of them can be handed on to another syphon (`told`, `tell`): its pauses go on growing from there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from twinbus.client import Backoff
from twinbus.clock import Clock
from twinbus.limits import SYPHON_PAUSE_MS_MAX, SYPHON_PAUSE_MS_MIN

PRIMARY = ""

# By destination: how often it failed in a row, and how long it still is to be left alone.
Failing = Mapping[str, tuple[int, int]]


class Pauses:
    """The pauses of all destinations. The clock only measures."""

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
        # For each destination that fails: how often it did, and until when it is left alone.
        self._failing: dict[str, tuple[Backoff, int]] = {}

    def fail(self, path: str = PRIMARY) -> int:
        """It failed; returns how long it is left alone now."""
        found = self._failing.get(path)
        backoff = Backoff(self._first_ms, self._longest_ms, self._draw) if found is None else found[0]
        pause_ms = backoff.next_ms()
        self._failing[path] = (backoff, self._clock.now_ms() + pause_ms)
        return pause_ms

    def succeed(self, path: str = PRIMARY) -> bool:
        """It works; True when it did not before."""
        return self._failing.pop(path, None) is not None

    def left_ms(self, path: str = PRIMARY) -> int:
        """How long it still is to be left alone; 0 when it may be tried."""
        found = self._failing.get(path)
        return 0 if found is None else max(found[1] - self._clock.now_ms(), 0)

    def failing(self, path: str = PRIMARY) -> bool:
        """Whether it failed the last time."""
        return path in self._failing

    def paths(self) -> list[str]:
        """The destinations that fail, without the primary as a whole."""
        return sorted(path for path in self._failing if path != PRIMARY)

    # --- handing on ---------------------------------------------------------------------------------------------------

    def told(self) -> dict[str, tuple[int, int]]:
        """What another one is to know of the destinations that fail."""
        return {path: (self._failing[path][0].failures, self.left_ms(path)) for path in self.paths()}

    def tell(self, failing: Failing) -> None:
        """Go on from what another one knew."""
        for path, (failures, left_ms) in failing.items():
            backoff = Backoff(self._first_ms, self._longest_ms, self._draw)
            backoff.failures = failures
            self._failing[path] = (backoff, self._clock.now_ms() + left_ms)
