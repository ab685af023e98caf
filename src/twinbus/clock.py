"""Time, injected.

Everything that needs the time takes a `Clock`; only this module reads the machine's.
Times are milliseconds since the Unix epoch, as AMQP timestamps are.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a component gets its time from."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class MonotonicClock:
    """Measures only: it never jumps when somebody sets the machine's time, and its zero means nothing."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SteppedClock:
    """A clock that moves only when told to: tests step it instead of sleeping."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        # The time it shows now.
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def step(self, *, seconds: float = 0.0, ms: int = 0) -> int:
        """Move forward and return the new time."""
        self._now_ms += ms + round(seconds * 1000)
        return self._now_ms
