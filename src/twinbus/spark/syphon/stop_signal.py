"""How tasks learn that they are to stop: a connection to the driver, which closes when the driver says so, or dies.

Rules:
- Nothing is said over it: whoever connects can only wait.
- A task that cannot reach it works on: its run has bounds.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

# More than a round has tasks; one beyond is sent away, as if it had been sent.
_CONNECTIONS_MAX = 4_096


class StopSignal:
    """Listens on the driver from the moment it is made."""

    def __init__(self, host: str, bind: str | None = None) -> None:
        self._server = socket.create_server((bind or host, 0), backlog=128)
        self.address: tuple[str, int] = (host, self._server.getsockname()[1])
        self._waiting: set[socket.socket] = set()
        self._lock = threading.Lock()
        # A task that connects after the signal is sent away at once.
        self._sent = False
        self._thread = threading.Thread(target=self._accept, name="twinbus-stop", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                if not self._sent:
                    self._drop_gone()
                if self._sent or len(self._waiting) >= _CONNECTIONS_MAX:
                    connection.close()
                else:
                    self._waiting.add(connection)

    def _drop_gone(self) -> None:
        """Forget tasks that have ended."""
        for connection in list(self._waiting):
            try:
                gone = connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
            except BlockingIOError:
                continue
            except OSError:
                gone = True
            if gone:
                self._waiting.discard(connection)
                connection.close()

    def send(self) -> None:
        """Have every task stop in good order, those that come later as well."""
        with self._lock:
            self._sent = True
            waiting, self._waiting = self._waiting, set()
        for connection in waiting:
            connection.close()

    def close(self) -> None:
        self.send()
        # A thread that waits in `accept` is woken by this, not by closing.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(5)
