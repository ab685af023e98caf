"""AMQP over WebSocket: a transport made of binary messages, under the same connection as plain sockets.

Rules:
- Messages are pieces of one byte stream: AMQP frames may be split or joined at will, by the client and by us.
- Reading stops when the connection asks for it, and then the socket's own window holds the client back.
- Writing is bounded as on a socket: the connection is told to pause above the mark, and cuts a peer that never reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from aiohttp import WSCloseCode, WSMsgType, web

from twinbus.broker.connections.connection import BrokerConnection
from twinbus.broker.connections.patience import unsent_bytes
from twinbus.limits import SHUTDOWN_TIMEOUT_MS, WEBSOCKET_MESSAGE_BYTES_MAX, WRITE_BUFFER_BYTES_HIGH

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

logger = logging.getLogger(__name__)

WEBSOCKET_PATH = "/$servicebus/websocket"
# The service's own name, and the standard's, which the Go and Rust clients offer.
SUBPROTOCOLS = ("AMQPWSB10", "amqp")
# How much is put into one message at most.
_MESSAGE_BYTES = 256 * 1024


async def serve_websocket(host: NamespaceHost, request: web.BaseRequest) -> web.StreamResponse:
    """Serve one client from its handshake to its end."""
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    if not any(each.strip() in SUBPROTOCOLS for each in offered.split(",")):
        return web.Response(status=400, text=f"This WebSocket speaks {' or '.join(SUBPROTOCOLS)}.\n")
    socket = web.WebSocketResponse(
        protocols=SUBPROTOCOLS,
        timeout=SHUTDOWN_TIMEOUT_MS / 1000,
        compress=False,
        max_msg_size=WEBSOCKET_MESSAGE_BYTES_MAX,
    )
    try:
        await socket.prepare(request)
    except ConnectionError:
        # Gone before the handshake's end; the answer goes nowhere.
        return web.Response(status=400)
    stream = request.transport
    if stream is None:
        return socket
    connection = BrokerConnection(host)
    transport = ServerWebSocket(socket, stream, connection)
    writer = host.loop.create_task(transport.write_messages())
    connection.connection_made(transport)
    try:
        await transport.read_messages()
    except ConnectionError:
        logger.debug("a WebSocket client went away")
    finally:
        transport.lose()
        connection.connection_lost(None)
        # It may be saying good-bye to the peer, or wait for one that reads nothing.
        _, late = await asyncio.wait((writer,), timeout=2 * SHUTDOWN_TIMEOUT_MS / 1000)
        if late:
            writer.cancel()
            stream.abort()
    return socket


class ServerWebSocket(asyncio.Transport):
    """What the connection takes for its socket."""

    def __init__(self, socket: web.WebSocketResponse, stream: asyncio.Transport, protocol: BrokerConnection) -> None:
        super().__init__()
        # The WebSocket.
        self._socket = socket
        # The socket under it, encrypted or not.
        self._stream = stream
        # The connection that reads and writes here.
        self._protocol = protocol
        # What waits to be written.
        self._pieces: deque[memoryview] = deque()
        # How many bytes that is.
        self._waiting_bytes = 0
        # Above it the connection is asked to pause, until a quarter is left.
        self._high_bytes = WRITE_BUFFER_BYTES_HIGH
        # Whether it is paused.
        self._paused = False
        # Set while there is something for the writer to do.
        self._work = asyncio.Event()
        # Set while messages may be read.
        self._reading = asyncio.Event()
        self._reading.set()
        # Set by close(): what waits is still written.
        self._closing = False
        # Set by abort() or when the peer is gone: nothing is written any more.
        self._lost = False

    # --- what the connection calls ------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing or not data:
            return
        view = memoryview(bytes(data))
        # In pieces of a message, so that most of a large write waits here, where it is counted.
        for at in range(0, len(view), _MESSAGE_BYTES):
            self._pieces.append(view[at : at + _MESSAGE_BYTES])
        self._waiting_bytes += len(view)
        self._work.set()
        if self._waiting_bytes > self._high_bytes and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        self._closing = True
        self._reading.set()
        self._work.set()

    def abort(self) -> None:
        self.lose()
        self._stream.abort()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def is_reading(self) -> bool:
        return self._reading.is_set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = WRITE_BUFFER_BYTES_HIGH if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes + unsent_bytes(self._stream)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._stream.get_extra_info(name, default)

    # --- what serves it -----------------------------------------------------------------------------------------------

    def lose(self) -> None:
        """The peer is gone: nobody reads what waits."""
        self._lost = True
        self._pieces.clear()
        self._waiting_bytes = 0
        self.close()

    async def read_messages(self) -> None:
        """Give every message to the connection, until either side ends it."""
        protocol = self._protocol
        while True:
            await self._reading.wait()
            message = await self._socket.receive()
            if message.type is WSMsgType.BINARY:
                protocol.data_received(message.data)
            elif message.type is WSMsgType.TEXT:
                await self._socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=b"AMQP is binary")
                return
            else:
                return

    async def write_messages(self) -> None:
        """Send what waits, as few and large messages as it gives; at the end close the WebSocket."""
        try:
            while not self._lost:
                if self._pieces:
                    await self._socket.send_bytes(self._next_message())
                    self._protocol.look_at_marks()
                    self._resume()
                elif self._closing:
                    await self._socket.close()
                    return
                else:
                    self._work.clear()
                    await self._work.wait()
        except ConnectionError:
            self.lose()

    def _resume(self) -> None:
        if self._paused and self._waiting_bytes <= self._high_bytes // 4:
            self._paused = False
            self._protocol.resume_writing()

    def _next_message(self) -> bytes:
        """What waits, joined up to the size of a message."""
        pieces = self._pieces
        taken = [pieces.popleft()]
        size = len(taken[0])
        while pieces and size + len(pieces[0]) <= _MESSAGE_BYTES:
            taken.append(pieces.popleft())
            size += len(taken[-1])
        self._waiting_bytes -= size
        return b"".join(taken)
