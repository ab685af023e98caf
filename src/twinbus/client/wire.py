"""The socket of a client connection.

Three rules. Output is written once per turn of the loop. While the socket's buffer is full, nothing is taken from the
engine, and senders wait. The engine decides when a heartbeat is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from twinbus.amqp import AmqpEvent, Connection
from twinbus.clock import Clock
from twinbus.limits import CLIENT_WRITE_BYTES_HIGH


class Wire(asyncio.Protocol):
    """Moves bytes between a socket and an engine."""

    def __init__(
        self,
        engine: Connection,
        clock: Clock,
        *,
        on_events: Callable[[list[AmqpEvent]], None],
        on_writable: Callable[[], None],
        on_lost: Callable[[Exception | None], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._on_events = on_events
        # Called when the socket accepts more data again.
        self._on_writable = on_writable
        # Called once, when the socket is closed.
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        # None before it is connected and after it is closed.
        self._transport: asyncio.Transport | None = None
        # Whether a write is scheduled for this turn.
        self._flushing = False
        # Fires when the next heartbeat or timeout check is due.
        self._timer: asyncio.TimerHandle | None = None
        # Whether the socket's buffer is full.
        self.paused = False

    # --- called by asyncio ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=CLIENT_WRITE_BYTES_HIGH)
        self._tick()
        self.flush()

    def data_received(self, data: bytes) -> None:
        engine = self._engine
        engine.heard(self._clock.steady_ms())
        events = engine.receive(data)
        if events:
            self._on_events(events)
        self.flush_soon()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_lost(exc)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.flush()
        self._on_writable()

    # --- called by the connection -----------------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Write at the end of this turn, together with everything produced until then."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write now."""
        self._flushing = False
        transport = self._transport
        if transport is None or self.paused:
            return
        engine = self._engine
        data = engine.take_output()
        if data:
            transport.write(data)
        # A large message goes out in steps, each once the socket has taken the previous one.
        while engine.halted and not self.paused:
            events = engine.pump()
            transport.write(engine.take_output())
            if events:
                self._on_events(events)

    def close(self) -> None:
        """Close once everything has been written."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def retime(self) -> None:
        """Schedule the next heartbeat again, now that the peer's idle timeout is known."""
        self._tick()

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is None:
            return
        now_ms = self._clock.steady_ms()
        due_ms = self._engine.tick(now_ms)
        if self._engine.timed_out:
            self.abort()
            return
        self.flush_soon()
        if due_ms is not None:
            self._timer = self._loop.call_later(max(due_ms - now_ms, 1) / 1000, self._tick)
