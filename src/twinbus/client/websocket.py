"""AMQP over WebSocket on the client side, behind the same wire as a plain socket.

Its dependencies are imported only when a WebSocket is used.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from twinbus.client.wire import Wire
from twinbus.errors import ConnectionForcedError
from twinbus.limits import CLIENT_CLOSE_TIMEOUT_MS, CLIENT_WRITE_BYTES_HIGH, WEBSOCKET_MESSAGE_BYTES_MAX
from twinbus.websocket import SUBPROTOCOLS, WEBSOCKET_PATH, WebSocketTransport

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse

SUBPROTOCOL = SUBPROTOCOLS[0]
TLS_PORT = 443
PLAIN_PORT = 80


async def connect(wire: Wire, host: str, port: int, tls: ssl.SSLContext | None, proxy: str | None = None) -> None:
    """Open a WebSocket and connect the wire to it; raise OSError or ConnectionForcedError on failure.

    `proxy` is the URL of an HTTP proxy.
    """
    # A heavy import that only WebSockets need.
    from aiohttp import ClientError, ClientSession, ClientTimeout

    session = ClientSession(timeout=ClientTimeout(total=None))
    authority = f"[{host}]" if ":" in host else host
    url = f"{'ws' if tls is None else 'wss'}://{authority}:{port}{WEBSOCKET_PATH}"
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
    ClientWebSocket(session, socket, wire).start()


class ClientWebSocket(WebSocketTransport):
    """A WebSocket in the role of the wire's transport."""

    def __init__(self, session: ClientSession, socket: ClientWebSocketResponse, wire: Wire) -> None:
        super().__init__(socket, wire, CLIENT_WRITE_BYTES_HIGH)
        # Owns the underlying socket.
        self._session = session
        self._response = socket
        self._wire = wire
        # Serves the connection from start to end; None before `start`.
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Tell the wire that it is connected, then serve it."""
        self._task = asyncio.get_running_loop().create_task(self._serve())
        self._wire.connection_made(self)

    def abort(self) -> None:
        self.lose()
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        writing = asyncio.get_running_loop().create_task(self.write_messages())
        failure: Exception | None = None
        try:
            await self._read()
        except OSError as error:
            failure = error
        except asyncio.CancelledError:
            # Only abort() cancels this task, and then nothing is left to send.
            failure = ConnectionAbortedError("the connection was aborted")
        finally:
            if self._closing and failure is None:
                # The WebSocket is closing, which has its own timeout.
                await asyncio.wait((writing,))
            self._closing = True
            writing.cancel()
            self._wire.connection_lost(failure)
            await self._let_go()

    async def _let_go(self) -> None:
        """Release the socket whatever the peer does; aiohttp does not if the peer vanished silently."""
        self._response._response.close()
        await self._session.close()

    async def _read(self) -> None:
        async for message in self._response:
            if isinstance(message.data, bytes):
                self._wire.data_received(message.data)
            else:
                raise ConnectionResetError("the peer sent text where AMQP is binary")

    async def write_messages(self) -> None:
        try:
            await super().write_messages()
        except (OSError, TimeoutError):
            # The reader sees the failure as well and reports it.
            await self._let_go()

    async def say_goodbye(self) -> None:
        async with asyncio.timeout(CLIENT_CLOSE_TIMEOUT_MS / 1000):
            await self._response.close()
