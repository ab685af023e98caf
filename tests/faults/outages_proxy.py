"""A TCP proxy that can stop forwarding without closing anything, which makes connections half-open."""

from __future__ import annotations

import asyncio
from contextlib import suppress

CHUNK_BYTES = 65_536


class Proxy:
    """Forwards to one port, on the running loop."""

    def __init__(self, port: int, delay_s: float = 0.0) -> None:
        self._target_port = port
        # How long every byte is under way, in each direction.
        self._delay_s = delay_s
        # 0 before `start`.
        self.port = 0
        # Whether new connections are accepted and not forwarded.
        self.stalled = False
        # Forwarders of the open connections, two each.
        self._tasks: set[asyncio.Task[None]] = set()
        # Both ends of every connection: one that is not forwarded stays open until the end.
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        # None before `start`.
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def strike(self, *, stall: bool) -> int:
        """Stop forwarding every open connection without closing it, and new ones too with `stall`. Returns how many."""
        self.stalled = stall
        died = len(self._tasks) // 2
        for task in self._tasks:
            task.cancel()
        return died

    def heal(self) -> None:
        """Forward new connections again; the stopped ones stay stopped."""
        self.stalled = False

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _, writer in self._streams:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes = b"") -> None:
        """Forward a connection of which `head` was read already."""
        self._streams.append((reader, writer))
        if self.stalled:
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._streams.append((there, back))
        # It was still connecting when the line went dead.
        if self.stalled:
            return
        back.write(head)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._forward(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                if self._delay_s:
                    loop.call_later(self._delay_s, self._write, sink, data)
                else:
                    sink.write(data)
                    await sink.drain()
        # Cancelled, it does not come here: nobody is told.
        loop.call_later(self._delay_s, sink.transport.abort)

    def _write(self, sink: asyncio.StreamWriter, data: bytes) -> None:
        # What was under way when the line went dead is lost.
        if not self.stalled:
            sink.write(data)
