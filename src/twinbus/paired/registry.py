"""The open pairs of this process, so that a secondary that is itself paired can be refused without asking anybody."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from twinbus.paired.options import Address


class Registry:
    """Paired clients that are open, with their primaries. A client that nobody holds any more is no pair."""

    def __init__(self) -> None:
        # By client.
        self._primaries: WeakKeyDictionary[object, Address] = WeakKeyDictionary()
        # Clients may be made in any thread.
        self._lock = threading.Lock()

    def add(self, client: object, primary: Address) -> None:
        with self._lock:
            self._primaries[client] = primary

    def remove(self, client: object) -> None:
        with self._lock:
            self._primaries.pop(client, None)

    def primaries(self) -> list[Address]:
        with self._lock:
            return list(self._primaries.values())


OPEN_PAIRS = Registry()
