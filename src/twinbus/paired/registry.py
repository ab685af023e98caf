"""The open pairs of this process.

- A secondary that is itself the primary of a pair can be rejected without asking a server.
- In a forked child every client of the parent is told, because it shares the parent's sockets and has lost its threads.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import WeakKeyDictionary

from twinbus.paired.options import NamespaceAddress


class ForkedClient(Protocol):
    """A client that can be told that it is now in a forked child."""

    def _forked(self) -> None: ...


class Registry:
    """Open paired clients with their primaries. A client that is no longer referenced does not count."""

    def __init__(self) -> None:
        self._primaries: WeakKeyDictionary[ForkedClient, NamespaceAddress] = WeakKeyDictionary()
        # Clients may be created in any thread.
        self._lock = threading.Lock()

    def add(self, client: ForkedClient, primary: NamespaceAddress) -> None:
        with self._lock:
            self._primaries[client] = primary

    def remove(self, client: ForkedClient) -> None:
        with self._lock:
            self._primaries.pop(client, None)

    def primaries(self) -> list[NamespaceAddress]:
        with self._lock:
            return list(self._primaries.values())

    def forked(self) -> None:
        """Called in a forked child: the parent may have held the lock, and the clients are the parent's."""
        self._lock = threading.Lock()
        for client in list(self._primaries):
            client._forked()


OPEN_PAIRS = Registry()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OPEN_PAIRS.forked)
