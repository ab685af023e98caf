"""A limit on held messages and bytes, over all backlog queues."""

from __future__ import annotations

import asyncio


class HeldBudget:
    """Receivers wait for room first; what was received is always accepted."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.messages = 0
        self.bytes = 0
        # Set while there is room.
        self._free = asyncio.Event()
        self._free.set()

    def take(self, size_bytes: int) -> None:
        self.messages += 1
        self.bytes += size_bytes
        if self.messages >= self._messages_max or self.bytes >= self._bytes_max:
            self._free.clear()

    def give(self, size_bytes: int) -> None:
        self.messages -= 1
        self.bytes -= size_bytes
        if self.messages < self._messages_max and self.bytes < self._bytes_max:
            self._free.set()

    async def wait(self) -> None:
        """Wait until there is room."""
        await self._free.wait()
