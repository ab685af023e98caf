"""AMQP over WebSocket, from the client's side: a transport made of binary messages, under the same wire as a socket.

Three rules. Messages are pieces of one byte stream. Writing is bounded as on a socket: the wire is told to pause above
the mark. Nothing is imported for it before somebody asks for a WebSocket.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from twinbus.client.wire import Wire
from twinbus.errors import ConnectionForcedError
from twinbus.limits import (
    CLIENT_CLOSE_TIMEOUT_MS,
    CLIENT_WRITE_BYTES_HIGH,
    WEBSOCKET_MESSAGE_BYTES_MAX,
    WEBSOCKET_PIECE_BYTES,
)

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse

PATH = "/$servicebus/websocket"
SUBPROTOCOL = "AMQPWSB10"
TLS_PORT = 443
PLAIN_PORT = 80


async def connect(wire: Wire, host: str, port: int, tls: ssl.SSLContext | None, proxy: str | None = None) -> None:
    """Open a WebSocket and put the wire on it; OSError or ConnectionForcedError when there is none to be had.

    `proxy` is the URL of an HTTP proxy to go through.
    """
    # Heavy, and only this way of connecting needs it.
    from aiohttp import ClientError, ClientSession, ClientTimeout

    session = ClientSession(timeout=ClientTimeout(total=None))
    authority = f"[{host}]" if ":" in host else host
    url = f"{'ws' if tls is None else 'wss'}://{authority}:{port}{PATH}"
    try:
        socket = await session.ws_connect(
            url,
            protocols=(SUBPROTOCOL,),
            ssl=True if tls is None else tls,
            max_msg_size=WEBSOCKET_MESSAGE_BYTES_MAX,
            compress=0,
            autoping=True,
            proxy=proxy,
        )
    except ClientError as error:
        await session.close()
        raise ConnectionForcedError(f"No WebSocket at {url}: {error}") from error
    except BaseException:
        await session.close()
        raise
    if socket.protocol != SUBPROTOCOL:
        await socket.close()
        await session.close()
        raise ConnectionForcedError(f"The WebSocket at {url} does not speak {SUBPROTOCOL}.")
    WebSocketTransport(session, socket, wire).start()


class WebSocketTransport(asyncio.Transport):
    """What the wire takes for its socket."""

    def __init__(self, session: ClientSession, socket: ClientWebSocketResponse, wire: Wire) -> None:
        super().__init__()
        # Owns the socket under the WebSocket.
        self._session = session
        # The WebSocket.
        self._socket = socket
        # Who reads and writes here.
        self._wire = wire
        # What waits to be written.
        self._waiting = bytearray()
        # Above it the wire is asked to pause, until a quarter is left.
        self._high_bytes = CLIENT_WRITE_BYTES_HIGH
        # Whether it is paused.
        self._paused = False
        # Set while there is something for the writer to do.
        self._work = asyncio.Event()
        # Set by close(): what waits is still written.
        self._closing = False
        # The whole life of it; None before `start`.
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Tell the wire that it is connected, then serve it."""
        self._task = asyncio.get_running_loop().create_task(self._serve())
        self._wire.connection_made(self)

    # --- what the wire calls ------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing or not data:
            return
        self._waiting += data
        self._work.set()
        if len(self._waiting) > self._high_bytes and not self._paused:
            self._paused = True
            self._wire.pause_writing()

    def close(self) -> None:
        self._closing = True
        self._work.set()

    def abort(self) -> None:
        self._closing = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = CLIENT_WRITE_BYTES_HIGH if high is None else high

    def get_write_buffer_size(self) -> int:
        return len(self._waiting)

    # --- what serves it -----------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        writing = asyncio.get_running_loop().create_task(self._write())
        failure: Exception | None = None
        try:
            await self._read()
        except OSError as error:
            failure = error
        except asyncio.CancelledError:
            # Only abort() cancels it, and then there is nothing left to say to the peer.
            failure = ConnectionAbortedError("the connection was aborted")
        finally:
            if self._closing and failure is None:
                # It is saying goodbye, which has a bound of its own.
                await asyncio.wait((writing,))
            self._closing = True
            writing.cancel()
            self._wire.connection_lost(failure)
            await self._let_go()

    async def _let_go(self) -> None:
        """Give the socket up, whatever the peer does: aiohttp does not when a peer went away without a word."""
        self._socket._response.close()
        await self._session.close()

    async def _read(self) -> None:
        async for message in self._socket:
            if isinstance(message.data, bytes):
                self._wire.data_received(message.data)
            else:
                raise ConnectionResetError("the peer sent text where AMQP is binary")

    async def _write(self) -> None:
        try:
            while True:
                while self._waiting:
                    piece = bytes(self._waiting[:WEBSOCKET_PIECE_BYTES])
                    del self._waiting[:WEBSOCKET_PIECE_BYTES]
                    await self._socket.send_bytes(piece)
                    if self._paused and len(self._waiting) <= self._high_bytes // 4:
                        self._paused = False
                        self._wire.resume_writing()
                if self._closing:
                    async with asyncio.timeout(CLIENT_CLOSE_TIMEOUT_MS / 1000):
                        await self._socket.close()
                    return
                self._work.clear()
                await self._work.wait()
        except (OSError, TimeoutError):
            # The reader learns of it as well, and tells everybody.
            await self._let_go()
