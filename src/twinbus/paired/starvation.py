"""Tells the machine's own starvation from the primary's silence: time in which this process did not run does not count.

- A pair that is in use beats: its loop, or a thread, wakes up every 0.2 s. A beat that comes late shows that the
  process had no CPU, was stopped, or that something else kept its loop or its interpreter busy.
- The fair clock does not advance while a beat is overdue. Timers that end in a failover, in a cut connection or in a
  failed send use it; a timeout that the caller has set does not.
- One meter for each event loop, and one for all threads: whoever starves, all of its pairs do.
"""

from __future__ import annotations

import asyncio
import os
from weakref import WeakKeyDictionary

from twinbus.clock import MonotonicClock, StopwatchClock
from twinbus.limits import BEAT_S, BEAT_SLACK_S, STARVED_PAUSE_S, STARVED_S_MIN


class LagMeter:
    """How much time was lost because beats came late. Pure, apart from the clock that it reads."""

    __slots__ = ("__weakref__", "_clock", "_due_s", "beating", "lost_s")

    def __init__(self, clock: StopwatchClock) -> None:
        self._clock = clock
        # Pairs that beat it. Without any, nothing can be overdue.
        self.beating = 0
        self.lost_s = 0.0
        # A beat after this moment is late.
        self._due_s = 0.0

    def start(self) -> None:
        """Another pair beats from now on."""
        if self.beating == 0:
            self._due_s = self._clock.steady_s() + BEAT_S + BEAT_SLACK_S
        self.beating += 1

    def stop(self) -> None:
        self.beat()
        self.beating -= 1

    def reset(self) -> None:
        """In a forked child nobody beats."""
        self.beating = 0

    def beat(self) -> None:
        now_s = self._clock.steady_s()
        late_s = now_s - self._due_s
        self._due_s = now_s + BEAT_S + BEAT_SLACK_S
        if late_s > 0:
            self.lost_s += late_s

    def fair_s(self) -> float:
        """The time, without what was lost."""
        now_s = self._clock.steady_s()
        if self.beating and now_s > self._due_s:
            now_s = self._due_s
        return now_s - self.lost_s


class FairClock:
    """The clock of a pair: `now_ms` is fair, `steady_s` is what the caller's own clock says."""

    def __init__(self, meter: LagMeter) -> None:
        self.meter = meter
        self.steady_s = MonotonicClock.steady_s

    def now_ms(self) -> int:
        return int(self.meter.fair_s() * 1000)

    def steady_ms(self) -> int:
        return int(self.meter.fair_s() * 1000)

    def follow(self) -> int:
        return 0


class StarvationReport:
    """Decides when starvation is worth an event: when it was long, while somebody waited, and not too often."""

    def __init__(self, meter: LagMeter, clock: StopwatchClock) -> None:
        self._meter = meter
        self._clock = clock
        self._told_s = meter.lost_s
        self._again_s = 0.0

    def due(self, waiting: bool) -> int:
        """The milliseconds to report now, or 0."""
        lost_s = self._meter.lost_s - self._told_s
        if not waiting:
            self._told_s = self._meter.lost_s
            return 0
        if lost_s < STARVED_S_MIN or self._clock.steady_s() < self._again_s:
            return 0
        self._told_s = self._meter.lost_s
        self._again_s = self._clock.steady_s() + STARVED_PAUSE_S
        return round(lost_s * 1000)


# The meter of all threads that use the sync client.
THREADS = LagMeter(MonotonicClock())
# Used outside of a loop, where nothing is sent.
_IDLE = LagMeter(MonotonicClock())
_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, LagMeter] = WeakKeyDictionary()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THREADS.reset)


def meter() -> LagMeter:
    """The meter of the sync client."""
    return THREADS


def async_meter() -> LagMeter:
    """The meter of the running loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _IDLE
    found = _LOOPS.get(loop)
    if found is None:
        found = _LOOPS[loop] = LagMeter(MonotonicClock())
    return found


def fair_s() -> float:
    """The time of the sync client."""
    return THREADS.fair_s()


def async_fair_s() -> float:
    """The time of the asyncio client on the running loop."""
    return async_meter().fair_s()
