"""Written by scripts/unasync.py from _async/links.py: read and change that file, not this one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from twinbus.limits import LINK_LOOK_S, LINK_WAIT_S, WIRE_FAREWELL_S
from twinbus.paired._sync.channel import Channel
from twinbus.paired.gates import OpeningGate
from twinbus.paired.synchronization import NoLinkYet, Pool, Signal, Tasks


class Links:
    """The links, who uses them, and who opens more."""

    def __init__(
        self,
        make: Callable[[], Channel],
        *,
        gate: OpeningGate,
        tasks: Tasks,
        max_in_flight: int,
        silent_s: float,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.pool: Pool[Channel] = Pool(make, max_in_flight)
        self._gate = gate
        self._tasks = tasks
        self._max_in_flight = max_in_flight
        self._silent_s = silent_s
        self._on_failure = on_failure
        self._senders = 0
        self._lingers = False
        self._callers = self._openings = 0
        self._is_attended = False
        self._changed = Signal()
        self._lock = threading.Lock()

    def join(self) -> None:
        """Another sender uses them."""
        self._senders += 1
        self.pool.most = self._max_in_flight * self._senders

    def leave(self) -> bool:
        """A sender was closed; whether somebody must wait to close the links."""
        self._senders -= 1
        if self._senders or self._lingers:
            return False
        self._lingers = True
        return True

    def is_needed(self) -> bool:
        """Whether they are used again, asked by the one who waits to close them."""
        self._lingers = False
        return self._senders > 0

    def closings(self) -> list[Callable[[], None]]:
        """Functions that close the links."""
        return [channel.close for channel in list(self.pool.all)]

    def take(self, seconds: float) -> Channel:
        """Borrow an open link; raises NoLinkYet if none is free in time, or the error of opening one."""
        found = self.pool.take_free()
        if found is not None:
            return found
        with self._lock:
            self._callers += 1
            begins = not self._is_attended
            self._is_attended = True
        if begins:
            self._tasks.spawn(self._attend)
        try:
            return self.pool.take(seconds)
        finally:
            with self._lock:
                self._callers -= 1

    def _attend(self) -> None:
        """Open links while callers wait for longer than they should."""
        pool = self.pool
        served = pool.served
        while True:
            with self._lock:
                if not self._callers:
                    self._is_attended = False
                    return
                soon = (pool.served - served) * LINK_WAIT_S / LINK_LOOK_S
                served = pool.served
                waiting = len(pool.waiting)
                wanted = min(waiting, self._gate.limit) - self._openings if waiting > soon else 0
                cold = [each for _ in range(wanted) if (each := pool.take_cold()) is not None]
                self._openings += len(cold)
            for channel in cold:
                self._tasks.spawn(self._open, channel)
            self._changed.wait(LINK_LOOK_S)

    def _open(self, channel: Channel) -> None:
        try:
            channel.open(self._silent_s)
        except Exception as error:
            self.pool.give(channel, good=False)
            if not self.pool.fail(error):
                self._on_failure(error)
        else:
            self.pool.give(channel)
        finally:
            with self._lock:
                self._openings -= 1


def release(user: object, *pools: Pool[Channel]) -> None:
    """Wait until a user that has been closed no longer uses a link; cut those that get no answer.

    Who waits for a link looks again whether it is still wanted; others keep their order.
    """
    _wake(pools)
    tick = Signal()
    for _ in range(round(WIRE_FAREWELL_S / LINK_LOOK_S)):
        if not _used(user, pools):
            break
        tick.wait(LINK_LOOK_S)
    for channel in _used(user, pools):
        channel.discard()
    _wake(pools)


def _used(user: object, pools: Iterable[Pool[Channel]]) -> list[Channel]:
    return [channel for pool in pools for channel in list(pool.all) if channel.user is user]


def _wake(pools: Iterable[Pool[Channel]]) -> None:
    for pool in pools:
        pool.fail(NoLinkYet("a sender was closed"))
