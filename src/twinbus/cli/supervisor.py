"""Tells systemd, or whoever else started the broker with NOTIFY_SOCKET, that it is ready, alive, and stopping.

Rules:
- Without the variable nothing happens. A supervisor that has gone away is not an error.
- The sign of life comes from the event loop: a loop that hangs gives none, and the supervisor restarts the process.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress


class Supervisor:
    """The process that started this one and waits for its messages."""

    def __init__(self, environment: MutableMapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        # Taken out, so that no child process speaks for the broker.
        address = given.pop("NOTIFY_SOCKET", "")
        interval_us = given.pop("WATCHDOG_USEC", "")
        owner = given.pop("WATCHDOG_PID", "")
        # An abstract socket's name starts with a zero byte, which the variable spells as @.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        # Half of what the supervisor waits for a sign of life; None if it does not wait for one.
        self._interval_s: float | None = None
        if self._address and interval_us.isdigit() and owner in ("", str(os.getpid())):
            self._interval_s = int(interval_us) / 2_000_000
        self._timer: asyncio.TimerHandle | None = None

    def ready(self, status: str) -> None:
        """Clients can connect. From now on there are signs of life."""
        self._tell(f"READY=1\nSTATUS={status}")
        self._live()

    def stopping(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._tell("STOPPING=1")

    def _live(self) -> None:
        if self._interval_s is not None:
            self._tell("WATCHDOG=1")
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._live)

    def _tell(self, text: str) -> None:
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
                # A supervisor that does not read must not hold up the broker.
                door.setblocking(False)
                door.sendto(text.encode(), self._address)
