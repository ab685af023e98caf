"""Injected time.

1. Everything that needs the time takes a `Clock`; only this module reads the system's.
2. Dates (enqueued, scheduled, expires) use `now_ms()`: milliseconds since the Unix epoch, like AMQP timestamps.
   Intervals (lock, heartbeat, timeout) are differences of `steady_ms()`, a clock that nobody can set.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

# Smaller differences between the wall clock and an anchored clock are ignored: two clocks cannot be read at once.
_STEP_MS_MIN: Final = 10

# Attempts to read both clocks without an interruption in between.
_READINGS_MAX: Final = 5


class Clock(Protocol):
    """The source of time for a component."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds since an arbitrary moment; unaffected when the system's time is set."""
        ...

    def follow(self) -> int:
        """Follow a change of the system's time; return by how many milliseconds `now_ms` jumped."""
        ...


class StopwatchClock(Clock, Protocol):
    """A clock that can also be read without a call of Python's own, which is cheaper."""

    def steady_s(self) -> float:
        """Seconds since an arbitrary moment."""
        ...


class SystemClock:
    """The system's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def follow(self) -> int:
        return 0  # now_ms reads the system's time, so there is nothing to follow


class MonotonicClock:
    """For measuring only: its zero is arbitrary."""

    steady_s = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def follow(self) -> int:
        return 0


class AnchoredClock:
    """The time of day, derived from the monotonic clock: it jumps only in `follow`.

    Code that keeps deadlines as dates can thus move them by the same step at the same instant.
    """

    __slots__ = ("_offset_ms",)

    def __init__(self) -> None:
        # Time of day minus monotonic clock.
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
    """A clock that moves only when told to; tests step it instead of sleeping."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms
        self._steady_ms = 0
        # Jumps that `follow` has not reported yet.
        self._jumped_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def steady_ms(self) -> int:
        return self._steady_ms

    def steady_s(self) -> float:
        return self._steady_ms / 1000

    def step(self, *, seconds: float = 0.0, ms: int = 0) -> int:
        """Let time pass; return the new time."""
        passed_ms = ms + round(seconds * 1000)
        self._now_ms += passed_ms
        self._steady_ms += passed_ms
        return self._now_ms

    def jump(self, *, seconds: float) -> None:
        """Set the time of day forward or back, as an administrator or NTP does; no time passes. `now_ms` shows it after
        `follow`."""
        self._jumped_ms += round(seconds * 1000)

    def follow(self) -> int:
        step_ms, self._jumped_ms = self._jumped_ms, 0
        self._now_ms += step_ms
        return step_ms


def _offset_ms() -> int:
    """Return time of day minus monotonic clock, from the two readings that are closest together."""
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
