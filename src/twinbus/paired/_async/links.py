"""Links to one entity or backlog queue, shared by the senders that would open the same ones.

- A sender borrows a link for one send. Many senders that send at once share a few links: another one is opened only if
  the queue of those that wait would not be done sooner. There are at most `max_in_flight` for each sender.
- An opening belongs to nobody. The link goes to the one who waits longest; if it cannot be opened, all who wait get the
  error, because they wait for the same thing.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable

from twinbus.limits import LINK_LOOK_S, LINK_WAIT_S, WIRE_FAREWELL_S
from twinbus.paired._async.channel import AsyncChannel
from twinbus.paired.gates import AsyncOpeningGate
from twinbus.paired.synchronization import AsyncPool, AsyncSignal, AsyncTasks, NoLinkYet


class AsyncLinks:
    """The links, who uses them, and who opens more."""

    def __init__(
        self,
        make: Callable[[], AsyncChannel],
        *,
        gate: AsyncOpeningGate,
        tasks: AsyncTasks,
        max_in_flight: int,
        silent_s: float,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.pool: AsyncPool[AsyncChannel] = AsyncPool(make, max_in_flight)
        self._gate = gate
        self._tasks = tasks
        self._max_in_flight = max_in_flight
        # How long a peer may be silent while a link is opened.
        self._silent_s = silent_s
        # Gets the error of an opening that nobody waits for.
        self._on_failure = on_failure
        self._senders = 0
        # Whether somebody waits to close them.
        self._lingers = False
        # Callers that wait for a link, links that are being opened, and whether somebody looks after them.
        self._callers = self._openings = 0
        self._is_attended = False
        # Wakes the one who does.
        self._changed = AsyncSignal()
        # Guards the above in the sync client.
        self._lock = threading.Lock()

    # --- senders --------------------------------------------------------------------------------------------------

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

    def closings(self) -> list[Callable[[], Awaitable[None]]]:
        """Functions that close the links."""
        return [channel.close for channel in list(self.pool.all)]

    # --- links ----------------------------------------------------------------------------------------------------

    async def take(self, seconds: float) -> AsyncChannel:
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
            return await self.pool.take(seconds)
        finally:
            with self._lock:
                self._callers -= 1

    async def _attend(self) -> None:
        """Open links while callers wait for longer than they should."""
        pool = self.pool
        served = pool.served
        while True:
            with self._lock:
                if not self._callers:
                    self._is_attended = False
                    return
                # How many would be served before another link is open.
                soon = (pool.served - served) * LINK_WAIT_S / LINK_LOOK_S
                served = pool.served
                waiting = len(pool.waiting)
                wanted = min(waiting, self._gate.limit) - self._openings if waiting > soon else 0
                cold = [each for _ in range(wanted) if (each := pool.take_cold()) is not None]
                self._openings += len(cold)
            for channel in cold:
                self._tasks.spawn(self._open, channel)
            await self._changed.wait(LINK_LOOK_S)

    async def _open(self, channel: AsyncChannel) -> None:
        try:
            await channel.open(self._silent_s)
        except Exception as error:
            self.pool.give(channel, good=False)
            if not self.pool.fail(error):
                self._on_failure(error)
        else:
            self.pool.give(channel)
        finally:
            with self._lock:
                self._openings -= 1


async def release(user: object, *pools: AsyncPool[AsyncChannel]) -> None:
    """Wait until a user that has been closed no longer uses a link; cut those that get no answer.

    Who waits for a link looks again whether it is still wanted; others keep their order.
    """
    _wake(pools)
    tick = AsyncSignal()
    for _ in range(round(WIRE_FAREWELL_S / LINK_LOOK_S)):
        if not _used(user, pools):
            break
        await tick.wait(LINK_LOOK_S)
    for channel in _used(user, pools):
        await channel.discard()
    # A thread may have begun to wait just after the first call.
    _wake(pools)


def _used(user: object, pools: Iterable[AsyncPool[AsyncChannel]]) -> list[AsyncChannel]:
    return [channel for pool in pools for channel in list(pool.all) if channel.user is user]


def _wake(pools: Iterable[AsyncPool[AsyncChannel]]) -> None:
    for pool in pools:
        pool.fail(NoLinkYet("a sender was closed"))
