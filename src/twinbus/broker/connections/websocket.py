"""The broker's side of AMQP over WebSocket: the same connection as on plain sockets.

When the connection pauses reading, TCP flow control slows the client down. The connection drops a peer that never
reads. Frames are counted below the WebSocket library, so that empty ones and pings have their price, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import WSCloseCode, WSMsgType, web

from twinbus.broker.connections.connection import BrokerConnection
from twinbus.broker.connections.frame_scan import FrameScan, UnmaskedFrameError
from twinbus.broker.connections.patience import unsent_bytes
from twinbus.limits import (
    INPUT_STEP_FRAMES,
    SHUTDOWN_TIMEOUT_MS,
    WEBSOCKET_MESSAGE_BYTES_MAX,
    WRITE_BUFFER_BYTES_HIGH,
)
from twinbus.websocket import SUBPROTOCOLS, WebSocketTransport

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

logger = logging.getLogger(__name__)


# Tells where the next piece of some data ends that begins at an offset; at that offset if nothing may follow.
Guard = Callable[[bytes, int], int]


async def serve_websocket(
    host: NamespaceHost, request: web.BaseRequest, watch: Callable[[Guard | None], None]
) -> web.StreamResponse:
    """Serve one client from handshake to close."""
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    if not any(each.strip() in SUBPROTOCOLS for each in offered.split(",")):
        return web.Response(status=400, text=f"This WebSocket speaks {' or '.join(SUBPROTOCOLS)}.\n")
    socket = web.WebSocketResponse(
        protocols=SUBPROTOCOLS,
        timeout=SHUTDOWN_TIMEOUT_MS / 1000,
        compress=False,
        # We answer pings, because the library would answer any number of them in one turn of the loop.
        autoping=False,
        max_msg_size=WEBSOCKET_MESSAGE_BYTES_MAX,
    )
    socket.headers["Server"] = "Twinbus"
    try:
        await socket.prepare(request)
    except ConnectionError:
        # Gone before the handshake was complete; this answer goes nowhere.
        return web.Response(status=400)
    stream = request.transport
    if stream is None:
        return socket
    connection = BrokerConnection(host)
    transport = ServerWebSocket(socket, stream, connection)
    writer = host.loop.create_task(transport.write_messages())
    connection.connection_made(transport)
    watch(guard_of(connection))
    try:
        await transport.read_messages()
    except ConnectionError:
        logger.debug("a WebSocket client went away")
    finally:
        watch(None)
        transport.lose()
        connection.connection_lost(None)
        # The writer may still be closing the WebSocket, or waiting for a peer that does not read.
        _, late = await asyncio.wait((writer,), timeout=2 * SHUTDOWN_TIMEOUT_MS / 1000)
        if late:
            writer.cancel()
            stream.abort()
    return socket


def guard_of(connection: BrokerConnection) -> Guard:
    """Counts a connection's frames a few at a time, and disconnects a peer that does not mask them."""
    scan = FrameScan()

    def end_of(data: bytes, at: int) -> int:
        try:
            end = scan.end_of(data, at, INPUT_STEP_FRAMES)
        except UnmaskedFrameError:
            connection.cut("sent a frame that is not masked")
            return at
        connection.count_raw(end - at, scan.frames)
        return at if connection.gone else end

    return end_of


class ServerWebSocket(WebSocketTransport):
    """A transport for the connection on top of a WebSocket."""

    def __init__(self, socket: web.WebSocketResponse, stream: asyncio.Transport, connection: BrokerConnection) -> None:
        super().__init__(socket, connection, WRITE_BUFFER_BYTES_HIGH)
        self._response = socket
        self._connection = connection
        # The underlying stream, encrypted or not.
        self._stream = stream
        # Set while reading is allowed.
        self._reading = asyncio.Event()
        self._reading.set()

    def close(self) -> None:
        super().close()
        self._reading.set()

    def abort(self) -> None:
        self.lose()
        self._stream.abort()

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def is_reading(self) -> bool:
        return self._reading.is_set()

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes + unsent_bytes(self._stream)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._stream.get_extra_info(name, default)

    async def read_messages(self) -> None:
        """Pass messages to the connection until either side closes."""
        while True:
            await self._reading.wait()
            message = await self._response.receive()
            if message.type is WSMsgType.BINARY:
                self._connection.data_received(message.data)
            elif message.type is WSMsgType.PING:
                await self._response.pong(message.data)
            elif message.type is WSMsgType.PONG:
                pass
            elif message.type is WSMsgType.TEXT:
                await self._response.close(code=WSCloseCode.UNSUPPORTED_DATA, message=b"AMQP is binary")
                return
            else:
                return
            # Waiting messages are received without a turn of the loop in between.
            if self._connection.host.slices.over():
                await asyncio.sleep(0)

    async def write_messages(self) -> None:
        try:
            await super().write_messages()
        except ConnectionError:
            self.lose()

    def written(self) -> None:
        self._connection.look_at_marks()

    async def say_goodbye(self) -> None:
        await self._response.close()
