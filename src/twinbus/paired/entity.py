"""An entity of the primary, shared by all senders of a paired client.

- A send to a healthy entity checks only `direct`.
- Every change wakes the waiting sends; a failover and a fail-back each emit one event.
- One watcher runs while the entity is not healthy: it waits for the interval to pass, then pings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from twinbus.clock import Clock
from twinbus.ledger.words import Event
from twinbus.paired.classify import cause_of
from twinbus.paired.events import Events
from twinbus.paired.sdk_internals import LinkLimits
from twinbus.paired.sessions import SessionTrail
from twinbus.paired.state import EntityState, FailoverMachine
from twinbus.paired.synchronization import AsyncSignal, Signal

S = TypeVar("S", bound=AsyncSignal | Signal)


class PairedEntity(Generic[S]):
    """The state, the timer, and the waiting sends of an entity."""

    def __init__(
        self,
        path: str,
        *,
        changed: S,
        interval_s: float,
        clock: Clock,
        events: Events,
        on_trouble: Callable[[PairedEntity[S]], None],
    ) -> None:
        # Spelled as by the first sender.
        self.path = path
        # Whether a send may simply go to the primary.
        self.direct = True
        self.changed = changed
        self.trail = SessionTrail()
        # The largest messages that it takes; None until a link has said so.
        self.limits: LinkLimits | None = None
        self._machine = FailoverMachine(round(interval_s * 1000), clock)
        self._events = events
        self._on_trouble = on_trouble
        # The last failure, reported as the cause of a failover.
        self._cause: str | None = None
        self._watched = False
        self.closed = False
        # Why nothing can be sent any more; None while it can.
        self.fault: str | None = None
        # Senders of the sync client run in their own threads.
        self._lock = threading.Lock()

    @property
    def state(self) -> EntityState:
        return self._machine.state

    @property
    def failed_over(self) -> bool:
        """Whether the primary must not be tried; also checks the time."""
        machine = self._machine
        if machine.state is EntityState.SUSPECT:
            self.elapse()
        return machine.state is EntityState.FAILED_OVER

    @property
    def left_s(self) -> float | None:
        """What is left of the interval; None if the timer is not running."""
        left_ms = self._machine.left_ms()
        return None if left_ms is None else left_ms / 1000

    def succeeded(self) -> None:
        """The primary accepted something for this entity."""
        if self._machine.state is EntityState.SUSPECT:
            with self._lock:
                changed = self._machine.succeeded()
            if changed:
                self.refresh()

    def failed(self, error: BaseException) -> None:
        """Record an availability failure."""
        with self._lock:
            self._cause = cause_of(error)
            changed = self._machine.failed()
            is_over = self._machine.state is EntityState.FAILED_OVER
            start = changed and not self._watched
            self._watched = self._watched or start
        if changed:
            if is_over:
                self._events.emit(Event.FAILED_OVER, entity=self.path, cause=self._cause)
            self.refresh()
        if start:
            self._on_trouble(self)

    def elapse(self) -> None:
        """Check whether the interval is over."""
        with self._lock:
            changed = self._machine.elapse()
        if changed:
            self._events.emit(Event.FAILED_OVER, entity=self.path, cause=self._cause)
            self.refresh()

    def pinged(self) -> None:
        """The primary accepted a ping."""
        with self._lock:
            changed = self._machine.pinged()
        if changed:
            self._events.emit(Event.FAILED_BACK, entity=self.path)
            self.refresh()

    def refused(self, cause: str) -> None:
        """The primary rejects pings permanently: callers must get its error."""
        with self._lock:
            changed = self._machine.refused()
        if changed:
            self._events.emit(Event.FAILED_BACK, entity=self.path, cause=cause)
            self.refresh()

    def unwatch(self) -> bool:
        """Called by the watcher: whether it may end."""
        with self._lock:
            if self._machine.state is EntityState.HEALTHY or self.closed:
                self._watched = False
                return True
            return False

    def refresh(self) -> None:
        """Recompute `direct`, and wake the waiting sends."""
        self.direct = (
            self._machine.state is EntityState.HEALTHY and not self.trail and not self.closed and self.fault is None
        )
        self.changed.pulse()

    def close(self, fault: str | None = None) -> None:
        """Allow no more sends; with a reason, they raise it."""
        self.closed = True
        self.fault = self.fault or fault
        self.refresh()
