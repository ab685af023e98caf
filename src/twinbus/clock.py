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
        # The time that has passed.
        self._steady_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def steady_ms(self) -> int:
        return self._steady_ms

    def step(self, *, seconds: float = 0.0, ms: int = 0) -> int:
        """Let time pass and return the new time."""
        passed_ms = ms + round(seconds * 1000)
        self._now_ms += passed_ms
        self._steady_ms += passed_ms
        return self._now_ms

    def jump(self, *, seconds: float) -> None:
        """Set the time of day forward or back, as an administrator or NTP does: no time passes."""
        self._now_ms += round(seconds * 1000)
