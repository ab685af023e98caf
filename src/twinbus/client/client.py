"""A small asyncio client for a Service Bus namespace, made for bulk work.

    async with BusClient.from_connection_string(text) as client:
        sender = await client.sender("orders")
        outcomes = await sender.send_many(payloads)
        receiver = await client.receiver("orders", prefetch=500)
        async for message in receiver:
            await receiver.complete(message)

Two rules. All links of a client share one connection, which the first link opens. A lost link or connection stays lost
and keeps the reason; the next call to the client opens a new one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4
from weakref import WeakSet

from twinbus import __version__
from twinbus.auth.connection_string import PLAIN_PORT, TLS_PORT, ConnectionString
from twinbus.client import websocket as by_websocket
from twinbus.client.connection import BusConnection
from twinbus.client.credentials import credential_tokens
from twinbus.client.endpoint import Endpoint
from twinbus.client.management import Management
from twinbus.client.receiver import Receiver
from twinbus.client.sender import Sender
from twinbus.client.session_receiver import SessionReceiver
from twinbus.client.tokens import TokenSource, tokens_of
from twinbus.client.transaction import Transactions
from twinbus.clock import Clock, SystemClock
from twinbus.errors import ServiceError
from twinbus.limits import CLIENT_TIMEOUT_MS, FRAME_BYTES_MAX, SEND_WINDOW_DEFAULT

DEAD_LETTERS = "$DeadLetterQueue"


class BusClient:
    """A client of one namespace, or of any AMQP 1.0 broker.

    `tls` is True, False or an SSL context. `tokens` provides the token that is put before the first link to an entity;
    without it `$cbs` is not used. `sasl` is a mechanism and its initial response: ANONYMOUS by default, None for no
    SASL.
    """

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        tls: bool | ssl.SSLContext = True,
        tokens: TokenSource | None = None,
        sasl: tuple[str, bytes | None] | None = ("ANONYMOUS", None),
        audience: str | None = None,
        clock: Clock | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        timeout_ms: int = CLIENT_TIMEOUT_MS,
        websocket: bool = False,
        proxy: str | None = None,
    ) -> None:
        # Both the host to connect to and the hostname in the open.
        self.host = host
        self.port = port or _usual_port(bool(tls), websocket)
        self._websocket = websocket
        # URL of an HTTP proxy, used only for WebSockets; None for none.
        self._proxy = proxy
        # None for plain TCP.
        self._tls = ssl.create_default_context() if tls is True else tls or None
        self._tokens = tokens
        # Mechanism and initial response.
        self._sasl = sasl
        # The prefix of token audiences.
        self._audience = audience or f"sb://{host}"
        self._clock = clock or SystemClock()
        self._frame_bytes_max = frame_bytes_max
        self._timeout_ms = timeout_ms
        # None before the first link and after a loss has been noticed.
        self._connection: BusConnection | None = None
        # Prevents two connections from being opened at once.
        self._opening = asyncio.Lock()
        # Rejects a new connection by raising ServiceError; None accepts every one.
        self.check: Callable[[BusConnection], None] | None = None
        # Senders, receivers and so on that are still referenced.
        self._endpoints: WeakSet[Endpoint] = WeakSet()

    @classmethod
    def from_connection_string(
        cls,
        text: str,
        *,
        tls: bool | ssl.SSLContext | None = None,
        clock: Clock | None = None,
        timeout_ms: int = CLIENT_TIMEOUT_MS,
        websocket: bool = False,
        proxy: str | None = None,
    ) -> BusClient:
        """Create a client for a Service Bus namespace or a Twinbus broker: plain TCP in emulator mode, otherwise TLS.

        For a private CA, pass a context from `twinbus.client.tls_context` as `tls`.
        """
        parsed = ConnectionString.parse(text)
        return cls(
            parsed.host,
            parsed.port,
            tls=not parsed.emulator if tls is None else tls,
            tokens=tokens_of(parsed),
            audience=f"sb://{parsed.netloc}",
            clock=clock,
            timeout_ms=timeout_ms,
            websocket=websocket,
            proxy=proxy,
        )

    @classmethod
    def with_credential(
        cls,
        namespace: str,
        credential: Any,
        *,
        tls: bool | ssl.SSLContext = True,
        clock: Clock | None = None,
        timeout_ms: int = CLIENT_TIMEOUT_MS,
        websocket: bool = False,
        proxy: str | None = None,
    ) -> BusClient:
        """Create a client for a namespace (`host` or `host:port`) and a credential that the SDK accepts: a token
        credential of azure-identity, blocking or asyncio, an AzureSasCredential or an AzureNamedKeyCredential."""
        parts = urlsplit(namespace if "//" in namespace else f"//{namespace}")
        if not parts.hostname:
            raise ValueError(f"The namespace {namespace!r} has no host.")
        return cls(
            parts.hostname,
            parts.port,
            tls=tls,
            tokens=credential_tokens(credential),
            audience=f"sb://{parts.netloc}",
            clock=clock,
            timeout_ms=timeout_ms,
            websocket=websocket,
            proxy=proxy,
        )

    @classmethod
    def with_password(
        cls, host: str, port: int | None, user: str, password: str, *, tls: bool | ssl.SSLContext = False
    ) -> BusClient:
        """Create a client for a generic broker that takes a user and a password and has no `$cbs`."""
        return cls(host, port, tls=tls, sasl=("PLAIN", f"\0{user}\0{password}".encode()))

    async def __aenter__(self) -> BusClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all links and the connection, in order."""
        endpoints = list(self._endpoints)
        self._endpoints.clear()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if connection.error is None:
            await asyncio.gather(*(endpoint.close() for endpoint in endpoints), return_exceptions=True)
        await connection.close()

    # --- senders, receivers and so on ---------------------------------------------------------------------------------

    async def sender(self, path: str, *, window: int = SEND_WINDOW_DEFAULT) -> Sender:
        """Open a sender to a queue or topic, with at most `window` messages in flight."""
        connection = await self._ready(path)
        sender = Sender(connection, path, name=self._name(path), window=window)
        await sender.open(self._timeout_ms)
        self._endpoints.add(sender)
        return sender

    async def receiver(
        self, path: str, *, prefetch: int = 0, delete: bool = False, echo: bool = True, dead_letters: bool = False
    ) -> Receiver:
        """Open a receiver from a queue or subscription.

        `delete` receives and deletes; `echo=False` is for brokers that do not answer dispositions; `dead_letters` reads
        the entity's dead-letter queue.
        """
        if dead_letters:
            path = f"{path}/{DEAD_LETTERS}"
        connection = await self._ready(path)
        receiver = Receiver(connection, path, name=self._name(path), prefetch=prefetch, delete=delete, echo=echo)
        await receiver.open(self._timeout_ms)
        self._endpoints.add(receiver)
        return receiver

    async def accept_session(
        self,
        path: str,
        session_id: str | None = None,
        *,
        prefetch: int = 0,
        delete: bool = False,
        timeout_ms: int | None = None,
    ) -> SessionReceiver:
        """Accept a session, either the named one or the next unlocked one that has messages."""
        wait_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        connection = await self._ready(path)
        receiver = SessionReceiver(
            connection,
            path,
            name=self._name(path),
            session_id=session_id,
            prefetch=prefetch,
            delete=delete,
            timeout_ms=wait_ms,
        )
        # The service answers within `wait_ms`; allow a little longer for its answer to arrive.
        await receiver.open(wait_ms + 5_000)
        self._endpoints.add(receiver)
        return receiver

    async def transactions(self, sender: Sender) -> Transactions:
        """Open the control link for transactions of `sender` and one receiver; ServiceError if they are unsupported."""
        transactions = Transactions(await self.connection(), sender)
        await transactions.open(self._timeout_ms)
        self._endpoints.add(transactions)
        return transactions

    async def management(self, path: str = "") -> Management:
        """Return the management node of an entity, or of the namespace."""
        connection = await self._ready(path)
        return Management(connection, path, timeout_ms=self._timeout_ms)

    # --- the connection -----------------------------------------------------------------------------------------------

    async def connection(self) -> BusConnection:
        """Return the connection, opening it if there is none."""
        async with self._opening:
            connection = self._connection
            if connection is not None and connection.error is None:
                return connection
            self._endpoints.clear()
            connection = BusConnection(
                hostname=self.host,
                audience=self._audience,
                sasl=self._sasl,
                tokens=self._tokens,
                clock=self._clock,
                frame_bytes_max=self._frame_bytes_max,
                properties={"product": "twinbus", "version": __version__},
            )
            await connection.open(
                self.host,
                self.port,
                tls=self._tls,
                websocket=self._websocket,
                proxy=self._proxy,
                timeout_ms=self._timeout_ms,
            )
            if self.check is not None:
                try:
                    self.check(connection)
                except ServiceError:
                    await connection.close()
                    raise
            self._connection = connection
            return connection

    async def _ready(self, path: str) -> BusConnection:
        connection = await self.connection()
        await connection.authorize(path)
        return connection

    @staticmethod
    def _name(path: str) -> str:
        return f"{path}-{uuid4()}"


def _usual_port(tls: bool, websocket: bool) -> int:
    if websocket:
        return by_websocket.TLS_PORT if tls else by_websocket.PLAIN_PORT
    return TLS_PORT if tls else PLAIN_PORT
