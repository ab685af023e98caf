"""How long one client may dawdle: over a frame it has begun, and over reading what we have to say.

Rules:
- A frame that was begun is finished within PEER_STALL_TIMEOUT_MS; its bytes are no sign of life until then.
- Of what waits to be read, something is taken in that time: a slow reader is served, however slow.
- Only a connection with something half done has a timer; a quarter of the time is how late it can be.
- While we ourselves do not read, a frame cannot be finished: that time does not count.
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
    """Have the system forget what the peer did not read: it would keep megabytes for it, and offer them for minutes."""
    found = transport.get_extra_info("socket")
    if found is None or found.fileno() < 0:
        return
    # Not every loop's socket lets itself be set, but a second one of the same descriptor does.
    with socket.socket(fileno=os.dup(found.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def unsent_bytes(transport: asyncio.Transport) -> int:
    """What was given to a transport and has not reached the system yet, as far as the loop tells.

    asyncio's TLS counts only what it has not encrypted yet: the rest is in the transport below it. uvloop's does not
    show that one: there up to 64 KiB, its own bound, count as sent.
    """
    unsent = transport.get_write_buffer_size()
    encrypting = getattr(transport, "_ssl_protocol", None)
    below = getattr(encrypting, "_transport", None)
    return unsent + below.get_write_buffer_size() if below is not None else unsent


def system_bytes(transport: asyncio.Transport) -> int:
    """What the system holds for the peer; 0 where it does not tell. A slow reader empties that for a while before the
    transport hears of it."""
    found = transport.get_extra_info("socket")
    if found is None or found.fileno() < 0:
        return 0
    try:
        answer = fcntl.ioctl(found.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0
    return int.from_bytes(answer, sys.byteorder)


class Patience:
    """Watches one connection."""

    __slots__ = ("_begun_at", "_cut", "_engine", "_loop", "_mark", "_marked_at", "_timer", "_transport", "written")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        engine: Engine,
        cut: Callable[[str], None],
    ) -> None:
        # Whose time counts: a stepped clock does not speed up a client.
        self._loop = loop
        # What waits to be read is in it.
        self._transport = transport
        # Holds what is not a whole frame yet.
        self._engine = engine
        # Ends the connection, with the reason for the log.
        self._cut = cut
        # When the frame that is not finished was begun.
        self._begun_at = 0.0
        # How many bytes were given to the transport so far.
        self.written = 0
        # How many of them the peer had taken at the last look; -1 while nothing waits.
        self._mark = -1
        # When it last took something.
        self._marked_at = 0.0
        # The next look; None while nothing is half done.
        self._timer: asyncio.TimerHandle | None = None

    def half(self, held_bytes: int, new_bytes: int) -> None:
        """After reading `new_bytes`, `held_bytes` are the beginning of a frame."""
        # More than what just came: the frame had been begun before.
        if held_bytes <= new_bytes:
            self._begun_at = self._loop.time()
        if self._timer is None:
            self._arm()

    def waiting(self) -> None:
        """Something waits to be read."""
        if self._timer is None:
            self._look_at_reading(self._loop.time())
            self._arm()

    def resumed(self) -> None:
        """We read again, after a while in which we did not."""
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
        """None when nothing waits, False when the peer has taken nothing of it for too long."""
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
