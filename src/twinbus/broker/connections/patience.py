"""Limits how long a client may stall: in the middle of a frame, or without reading our output.

- A frame must be complete within PEER_STALL_TIMEOUT_MS of its start; until then its bytes do not count as a sign of
  life.
- The peer must read some of the waiting output within that time; a slow reader is fine, however slow.
- Only a connection with something unfinished has a timer, which may fire late by a quarter of that time.
- Time during which we do not read does not count, because the peer cannot finish a frame then.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import sys
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinbus.limits import PEER_STALL_TIMEOUT_MS

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection as Engine


def drop_unsent(transport: asyncio.Transport) -> None:
    """Discard unread output in the system's socket buffer, which would otherwise keep megabytes for minutes."""
    found = transport.get_extra_info("socket")
    if found is None or found.fileno() < 0:
        return
    # Some loops wrap their socket without setsockopt; a duplicate of the descriptor has it.
    with socket.socket(fileno=os.dup(found.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Bytes written to a transport that have not reached the system yet, as far as the loop can tell.

    asyncio's TLS transport counts only what is not encrypted yet; the rest is in the transport below it. uvloop hides
    that one, so there up to 64 KiB, its own limit, count as sent.
    """
    unsent = transport.get_write_buffer_size()
    encrypting = getattr(transport, "_ssl_protocol", None)
    below = getattr(encrypting, "_transport", None)
    return unsent + below.get_write_buffer_size() if below is not None else unsent


def system_bytes(transport: asyncio.Transport) -> int:
    """Bytes in the system's send buffer; 0 if unknown. A slow reader drains that buffer for a while before the
    transport notices."""
    found = transport.get_extra_info("socket")
    if found is None or found.fileno() < 0:
        return 0
    try:
        answer = fcntl.ioctl(found.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0
    return int.from_bytes(answer, sys.byteorder)


class Patience:
    """Watches one connection for stalls."""

    __slots__ = ("_begun_at", "_cut", "_engine", "_loop", "_mark", "_marked_at", "_timer", "_transport", "written")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        engine: Engine,
        cut: Callable[[str], None],
    ) -> None:
        # Loop time counts: stepping the clock does not affect a client.
        self._loop = loop
        # Holds output that the peer has not read.
        self._transport = transport
        # Holds input that is not a complete frame yet.
        self._engine = engine
        # Ends the connection, with a reason for the log.
        self._cut = cut
        # When the incomplete frame started.
        self._begun_at = 0.0
        # Bytes written to the transport so far.
        self.written = 0
        # How many of them the peer had read at the last check; -1 if nothing waits.
        self._mark = -1
        # When the peer last read something.
        self._marked_at = 0.0
        # The next check; None if nothing is unfinished.
        self._timer: asyncio.TimerHandle | None = None

    def half(self, held_bytes: int, new_bytes: int) -> None:
        """After reading `new_bytes`, `held_bytes` belong to an incomplete frame."""
        # If more is held than just arrived, the frame started earlier.
        if held_bytes <= new_bytes:
            self._begun_at = self._loop.time()
        if self._timer is None:
            self._arm()

    def waiting(self) -> None:
        """Output waits for the peer to read it."""
        if self._timer is None:
            self._look_at_reading(self._loop.time())
            self._arm()

    def resumed(self) -> None:
        """Reading continues after a pause."""
        self._begun_at = self._loop.time()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = self._loop.call_later(PEER_STALL_TIMEOUT_MS / 4000, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        half = self._engine.held_bytes > 0
        if half and self._transport.is_reading() and now - self._begun_at >= PEER_STALL_TIMEOUT_MS / 1000:
            self._cut("does not finish a frame")
            return
        reading = self._look_at_reading(now)
        if reading is False:
            self._cut("reads nothing")
        elif half or reading:
            self._arm()

    def _look_at_reading(self, now: float) -> bool | None:
        """None if nothing waits, False if the peer has read nothing for too long, otherwise True."""
        left = self._transport.get_write_buffer_size()
        if not left:
            self._mark = -1
            return None
        taken = self.written - left - system_bytes(self._transport)
        if self._mark < 0 or taken > self._mark:
            self._mark = taken
            self._marked_at = now
            return True
        return now - self._marked_at < PEER_STALL_TIMEOUT_MS / 1000
