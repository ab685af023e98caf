"""Time, injected.

1. Everything that needs the time takes a `Clock`; only this module reads the machine's.
2. A date (enqueued, scheduled, expires) is `now_ms()`: milliseconds since the Unix epoch, as AMQP timestamps are. An
   interval (lock, heartbeat, timeout) is a difference of two `steady_ms()`: nobody can set that clock.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

# The wall clock and an anchored one may differ by this much: two clocks are not read at the same instant.
_STEP_MS_MIN: Final = 10

# How often the two clocks are read again when something came between the readings.
_READINGS_MAX: Final = 5


class Clock(Protocol):
    """Where a component gets its time from."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds since some moment: they never jump when somebody sets the machine's time."""
        ...

    def follow(self) -> int:
        """Notice that the time of day was set. Returns by how many milliseconds `now_ms` jumped just now."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def follow(self) -> int:
        return 0  # it shows the time of day at every reading


class MonotonicClock:
    """Measures only: its zero means nothing."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def follow(self) -> int:
        return 0


class AnchoredClock:
    """The time of day, read from the monotonic clock: it jumps in `follow`, and at no other moment.

    Whoever keeps deadlines as dates can so move them by the same step, in the same instant.
    """

    __slots__ = ("_offset_ms",)

    def __init__(self) -> None:
        # The time of day, less the monotonic clock.
        self._offset_ms = _offset_ms()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._offset_ms

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def follow(self) -> int:
        step_ms = _offset_ms() - self._offset_ms
        if abs(step_ms) < _STEP_MS_MIN:
            return 0
        self._offset_ms += step_ms
        return step_ms


class SteppedClock:
    """A clock that moves only when told to: tests step it instead of sleeping."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        # The time it shows now.
        self._now_ms = start_ms
        # The time that has passed.
        self._steady_ms = 0
        # Jumps that nobody has noticed.
        self._jumped_ms = 0

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
        """Set the time of day forward or back, as an administrator or NTP does: no time passes. `now_ms` shows it once
        `follow` was called."""
        self._jumped_ms += round(seconds * 1000)

    def follow(self) -> int:
        step_ms, self._jumped_ms = self._jumped_ms, 0
        self._now_ms += step_ms
        return step_ms


def _offset_ms() -> int:
    """The time of day less the monotonic clock, from the two readings that lie closest together."""
    best_ns = offset_ns = 0
    for count in range(_READINGS_MAX):
        before_ns = time.monotonic_ns()
        now_ns = time.time_ns()
        took_ns = time.monotonic_ns() - before_ns
        if count == 0 or took_ns < best_ns:
            best_ns, offset_ns = took_ns, now_ns - before_ns - took_ns // 2
        if best_ns < 1_000_000:
            break
    return offset_ns // 1_000_000
