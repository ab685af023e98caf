"""How tasks learn that they must stop: a connection to the driver, which closes when the driver stops or dies.

- Nothing is sent over it, so whoever connects can only wait.
- A task that cannot connect continues, because its run is bounded.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

# More than the tasks of a round; a connection beyond that is closed, as if the signal had been sent.
_CONNECTIONS_MAX = 4_096


class StopSignal:
    """Listens on the driver from its creation on."""

    def __init__(self, host: str, bind: str | None = None) -> None:
        self._server = socket.create_server((bind or host, 0), backlog=128)
        self.address: tuple[str, int] = (host, self._server.getsockname()[1])
        self._waiting: set[socket.socket] = set()
        self._lock = threading.Lock()
        # A task that connects after the signal is disconnected at once.
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
        """Stop every task in an orderly way, including those that connect later."""
        with self._lock:
            self._sent = True
            waiting, self._waiting = self._waiting, set()
        for connection in waiting:
            connection.close()

    def close(self) -> None:
        self.send()
        # This wakes a thread in `accept`; closing would not.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(5)
