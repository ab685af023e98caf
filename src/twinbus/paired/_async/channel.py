"""A sender of the SDK that is kept usable, for one caller at a time.

- The SDK's senders do not support concurrent sends, so each caller borrows one exclusively (`AsyncPool`).
- A link is opened separately from sending. An opening that makes progress is not cut, however slow it is: begun again,
  it would only be slower. One that makes none for a while is, because the SDK's timeouts do not cover all of it.
- The SDK does not retry by itself, because an opening inside a retry would not be bounded. Our senders do its retries.
- After a failure the SDK's sender is replaced: one that timed out may hold a dead connection without knowing it. Its
  connection is cut, so that nothing waits for it, and the rest is closed in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from twinbus.clock import StopwatchClock
from twinbus.limits import BEAT_SLACK_S
from twinbus.paired.classify import exact
from twinbus.paired.gates import AsyncOpeningGate, OpeningTurn
from twinbus.paired.sdk_internals import Connections, is_running, is_shut
from twinbus.paired.synchronization import CLOSE_S, AsyncTasks, Attention, async_attended, async_bounded


class AsyncChannel:
    """A sender of the SDK to one entity. Use `sdk` only while `opened` is True."""

    __slots__ = ("_clock", "_connections", "_gate", "_make", "_tasks", "opened", "sdk", "used", "user")

    def __init__(
        self,
        make: Callable[[], ServiceBusSender],
        tasks: AsyncTasks,
        clock: StopwatchClock,
        gate: AsyncOpeningGate | None = None,
    ) -> None:
        self._make = make
        self._tasks = tasks
        # Does not advance while this process does not run.
        self._clock = clock
        # Limits how many open at once; None for one that must not wait.
        self._gate = gate
        self.sdk = make()
        self._connections = Connections(self.sdk)
        # Whether its link is up, as far as we know.
        self.opened = False
        # Whether something was sent on it: if it fails now, it may have gone stale.
        self.used = False
        # Who sends on it now: closing waits for its sends.
        self.user: object = None

    async def open(self, silent_s: float) -> None:
        """Open the link in its turn, or raise: also if the peer is silent for so long."""
        if self._gate is None:
            await self._open(silent_s, lambda: None)
            return
        place = OpeningTurn(self._gate)
        await self._gate.enter()
        started_ms, started_s = self._clock.now_ms(), self._clock.steady_s()
        try:
            await self._open(silent_s, place.leave)
        finally:
            fair_s = (self._clock.now_ms() - started_ms) / 1000
            starved = self._clock.steady_s() - started_s - fair_s > BEAT_SLACK_S
            self._gate.learn(good=self.opened and not starved)
            place.leave()

    async def _open(self, silent_s: float, on_slow: Callable[[], None]) -> None:
        connections = self._connections
        attention = Attention(silent_s, connections.progress, self._clock, on_slow)
        try:
            await async_attended(attention, self.sdk.__aenter__, connections.cut)
        except TimeoutError as error:
            await self.discard()
            # Applications expect the SDK's errors.
            text = (
                f"The link to '{self.sdk.entity_name}' did not open: there was no answer within {silent_s:.1f} seconds."
            )
            raise OperationTimeoutError(message=text) from error
        except Exception as error:
            failure = self.seen(error)
            await self.discard()
            if failure is error:
                raise
            raise failure from error
        except BaseException:
            await self.discard()
            raise
        self.opened = True

    async def discard(self) -> None:
        """After a failure: cut the connection and replace the sender."""
        self._connections.cut()
        await self.rest()

    async def rest(self) -> None:
        """Close it without waiting, because it is not needed now. The next use opens another sender."""
        sdk, connections = self.sdk, self._connections
        self.opened = self.used = False
        self.sdk = self._make()
        self._connections = Connections(self.sdk)
        await self._tasks.leave(lambda: _close(sdk, connections))

    def seen(self, error: Exception) -> Exception:
        """The exact error of a failure: the SDK has one error for all refused tokens, and its client may have been
        closed behind the pair's back, which is not the caller's fault."""
        if is_shut(self.sdk):
            text = "The SDK's client of the namespace was closed behind the pair."
            return ServiceBusConnectionError(message=text, error=error)
        return exact(error)

    def check(self) -> None:
        """A call was refused, after which the SDK may have closed the link."""
        self.opened = self.opened and is_running(self.sdk)

    async def leave(self) -> None:
        """Close it for good without waiting."""
        self.opened = False
        await self._tasks.leave(self.close)

    async def close(self) -> None:
        """Close it for good."""
        self.opened = False
        await _close(self.sdk, self._connections)


async def _close(sdk: ServiceBusSender, connections: Connections) -> None:
    """Close the sender and its connections within a time limit."""
    await async_bounded(CLOSE_S, lambda: close_all(sdk, connections), connections.cut)


async def close_all(handler: ServiceBusSender | ServiceBusReceiver, connections: Connections) -> None:
    """Close an SDK sender or receiver and the connections that were cut; the SDK forgets those that it failed to
    open."""
    try:
        await handler.close()
    finally:
        for transport in connections.transports:
            with suppress(Exception):
                await transport.close()
