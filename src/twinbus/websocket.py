"""AMQP over WebSocket for both ends of a connection: a transport of binary messages.

Messages are pieces of one byte stream, so AMQP frames may be split or joined at will. Writing is bounded as on a
socket: above the high-water mark the protocol is told to pause.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from typing import Any, Final, Protocol

from twinbus.limits import WEBSOCKET_PIECE_BYTES

WEBSOCKET_PATH: Final = "/$servicebus/websocket"
# The service's own name, and the standard one, which the Go and Rust clients offer.
SUBPROTOCOLS: Final = ("AMQPWSB10", "amqp")


class MessageSocket(Protocol):
    """The interface that aiohttp's client and server WebSockets share."""

    async def send_bytes(self, data: bytes) -> None: ...


class WebSocketTransport(asyncio.Transport):
    """A WebSocket as an asyncio transport. Run `write_messages` as a task."""

    def __init__(self, socket: MessageSocket, protocol: asyncio.Protocol, high_bytes: int) -> None:
        super().__init__()
        self._socket = socket
        self._protocol = protocol
        # Data waiting to be written, and its size.
        self._pieces: deque[memoryview] = deque()
        self._waiting_bytes = 0
        # Above this the protocol is told to pause, until a quarter is left.
        self._high_bytes = self._high_default_bytes = high_bytes
        self._paused = False
        # Set while the writer has work.
        self._work = asyncio.Event()
        # Set by close(): waiting data is still written.
        self._closing = False
        # Set when the peer is gone: nothing more is written.
        self._lost = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing or not data:
            return
        view = memoryview(bytes(data))
        # Split to message size, so that most of a large write waits here, where it is counted.
        for at in range(0, len(view), WEBSOCKET_PIECE_BYTES):
            self._pieces.append(view[at : at + WEBSOCKET_PIECE_BYTES])
        self._waiting_bytes += len(view)
        self._work.set()
        if self._waiting_bytes > self._high_bytes and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        self._closing = True
        self._work.set()

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = self._high_default_bytes if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes

    def lose(self) -> None:
        """The peer is gone: drop the waiting data."""
        self._lost = True
        self._pieces.clear()
        self._waiting_bytes = 0
        self.close()

    async def write_messages(self) -> None:
        """Send waiting data in as few messages as possible, and finally close the WebSocket."""
        while not self._lost:
            if self._pieces:
                await self._socket.send_bytes(self._next_message())
                self.written()
                if self._paused and self._waiting_bytes <= self._high_bytes // 4:
                    self._paused = False
                    self._protocol.resume_writing()
            elif self._closing:
                await self.say_goodbye()
                return
            else:
                self._work.clear()
                await self._work.wait()

    def written(self) -> None:
        """Called after each message that the socket has accepted."""

    @abstractmethod
    async def say_goodbye(self) -> None:
        """Close the WebSocket."""

    def _next_message(self) -> bytes:
        """Return waiting data, joined up to the size of a message."""
        pieces = self._pieces
        taken = [pieces.popleft()]
        size = len(taken[0])
        while pieces and size + len(pieces[0]) <= WEBSOCKET_PIECE_BYTES:
            taken.append(pieces.popleft())
            size += len(taken[-1])
        self._waiting_bytes -= size
        return b"".join(taken)
