"""The failover state machine of one entity, pure: events and a clock in, states out.

- An availability failure starts the timer if it is not running; a success anywhere on the entity stops it. If the
  interval passes without a success the entity fails over, and only pings bring it back: one that is accepted, or
  several that are rejected. The table below is the whole machine.
- With an interval of zero the first failure fails over.
- Nobody is notified here: the return value tells the caller whether the state changed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from twinbus.clock import Clock


class EntityState(StrEnum):
    """The state of an entity."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED_OVER = "failed over"


class StateSignal(StrEnum):
    """An input of the state machine."""

    SUCCESS = "success"
    FAILURE = "failure"
    ELAPSED = "interval elapsed"
    PINGED = "ping accepted"
    REFUSED = "pings refused"


TABLE: Final[dict[EntityState, dict[StateSignal, EntityState]]] = {
    EntityState.HEALTHY: {
        StateSignal.SUCCESS: EntityState.HEALTHY,
        StateSignal.FAILURE: EntityState.SUSPECT,
        StateSignal.ELAPSED: EntityState.HEALTHY,
        StateSignal.PINGED: EntityState.HEALTHY,
        StateSignal.REFUSED: EntityState.HEALTHY,
    },
    EntityState.SUSPECT: {
        StateSignal.SUCCESS: EntityState.HEALTHY,
        StateSignal.FAILURE: EntityState.SUSPECT,
        StateSignal.ELAPSED: EntityState.FAILED_OVER,
        StateSignal.PINGED: EntityState.HEALTHY,
        StateSignal.REFUSED: EntityState.SUSPECT,
    },
    EntityState.FAILED_OVER: {
        # A send that began before the failover proves nothing about now.
        StateSignal.SUCCESS: EntityState.FAILED_OVER,
        StateSignal.FAILURE: EntityState.FAILED_OVER,
        StateSignal.ELAPSED: EntityState.FAILED_OVER,
        StateSignal.PINGED: EntityState.HEALTHY,
        # The primary answers and rejects pings: callers must get that error instead of being diverted forever.
        StateSignal.REFUSED: EntityState.HEALTHY,
    },
}


class FailoverMachine:
    """The state and timer of one entity."""

    __slots__ = ("_clock", "_interval_ms", "deadline_ms", "failing_since_ms", "state")

    def __init__(self, interval_ms: int, clock: Clock) -> None:
        self._interval_ms = interval_ms
        # A monotonic clock, so that setting the machine's clock causes no failover.
        self._clock = clock
        self.state = EntityState.HEALTHY
        # When the timer started; None if it is not running.
        self.failing_since_ms: int | None = None
        # When the interval ends; None if the timer is not running.
        self.deadline_ms: int | None = None

    def succeeded(self) -> bool:
        """The entity accepted something."""
        return self._move(StateSignal.SUCCESS)

    def failed(self) -> bool:
        """An availability failure."""
        changed = self._move(StateSignal.FAILURE)
        return self.elapse() or changed

    def pinged(self) -> bool:
        """A ping was accepted."""
        return self._move(StateSignal.PINGED)

    def refused(self) -> bool:
        """The primary answers pings but rejects them permanently."""
        return self._move(StateSignal.REFUSED)

    def elapse(self) -> bool:
        """Fail over if the interval is over."""
        if self.deadline_ms is None or self._clock.now_ms() < self.deadline_ms:
            return False
        return self._move(StateSignal.ELAPSED)

    def left_ms(self) -> int | None:
        """What is left of the interval; None if the timer is not running."""
        return None if self.deadline_ms is None else max(self.deadline_ms - self._clock.now_ms(), 0)

    def _move(self, signal: StateSignal) -> bool:
        before, self.state = self.state, TABLE[self.state][signal]
        if self.state is before:
            return False
        if self.state is EntityState.SUSPECT:
            self.failing_since_ms = self._clock.now_ms()
            self.deadline_ms = self.failing_since_ms + self._interval_ms
        elif self.state is EntityState.HEALTHY:
            self.failing_since_ms = self.deadline_ms = None
        else:
            self.deadline_ms = None
        return True
