"""Written by scripts/unasync.py from _async/channel.py: read and change that file, not this one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from azure.servicebus import ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from twinbus.clock import StopwatchClock
from twinbus.limits import BEAT_SLACK_S
from twinbus.paired.classify import exact
from twinbus.paired.gates import OpeningGate, OpeningTurn
from twinbus.paired.sdk_internals import Connections, is_running, is_shut
from twinbus.paired.synchronization import CLOSE_S, Attention, Tasks, attended, bounded


class Channel:
    """A sender of the SDK to one entity. Use `sdk` only while `opened` is True."""

    __slots__ = ("_clock", "_connections", "_gate", "_make", "_tasks", "opened", "sdk", "used", "user")

    def __init__(
        self,
        make: Callable[[], ServiceBusSender],
        tasks: Tasks,
        clock: StopwatchClock,
        gate: OpeningGate | None = None,
    ) -> None:
        self._make = make
        self._tasks = tasks
        self._clock = clock
        self._gate = gate
        self.sdk = make()
        self._connections = Connections(self.sdk)
        self.opened = False
        self.used = False
        self.user: object = None

    def open(self, silent_s: float) -> None:
        """Open the link in its turn, or raise: also if the peer is silent for so long."""
        if self._gate is None:
            self._open(silent_s, lambda: None)
            return
        place = OpeningTurn(self._gate)
        self._gate.enter()
        started_ms, started_s = self._clock.now_ms(), self._clock.steady_s()
        try:
            self._open(silent_s, place.leave)
        finally:
            fair_s = (self._clock.now_ms() - started_ms) / 1000
            starved = self._clock.steady_s() - started_s - fair_s > BEAT_SLACK_S
            self._gate.learn(good=self.opened and not starved)
            place.leave()

    def _open(self, silent_s: float, on_slow: Callable[[], None]) -> None:
        connections = self._connections
        attention = Attention(silent_s, connections.progress, self._clock, on_slow)
        try:
            attended(attention, self.sdk.__enter__, connections.cut)
        except TimeoutError as error:
            self.discard()
            text = (
                f"The link to '{self.sdk.entity_name}' did not open: there was no answer within {silent_s:.1f} seconds."
            )
            raise OperationTimeoutError(message=text) from error
        except Exception as error:
            failure = self.seen(error)
            self.discard()
            if failure is error:
                raise
            raise failure from error
        except BaseException:
            self.discard()
            raise
        self.opened = True

    def discard(self) -> None:
        """After a failure: cut the connection and replace the sender."""
        self._connections.cut()
        self.rest()

    def rest(self) -> None:
        """Close it without waiting, because it is not needed now. The next use opens another sender."""
        sdk, connections = self.sdk, self._connections
        self.opened = self.used = False
        self.sdk = self._make()
        self._connections = Connections(self.sdk)
        self._tasks.leave(lambda: _close(sdk, connections))

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

    def leave(self) -> None:
        """Close it for good without waiting."""
        self.opened = False
        self._tasks.leave(self.close)

    def close(self) -> None:
        """Close it for good."""
        self.opened = False
        _close(self.sdk, self._connections)


def _close(sdk: ServiceBusSender, connections: Connections) -> None:
    """Close the sender and its connections within a time limit."""
    bounded(CLOSE_S, lambda: close_all(sdk, connections), connections.cut)


def close_all(handler: ServiceBusSender | ServiceBusReceiver, connections: Connections) -> None:
    """Close an SDK sender or receiver and the connections that were cut; the SDK forgets those that it failed to
    open."""
    try:
        handler.close()
    finally:
        for transport in connections.transports:
            with suppress(Exception):
                transport.close()
