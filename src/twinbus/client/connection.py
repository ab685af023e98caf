"""One connection to a namespace: socket, engine, tokens, and the owners of its links.

Four rules. Every link has its own session, so delivery ids belong to one owner. A token is put before the first link to
an entity and renewed before it expires, for as long as the connection lives. When the connection is lost, everyone
waiting on it learns why, once. It does not reconnect: the client opens a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import uuid4

from twinbus.amqp import (
    AmqpEvent,
    Attached,
    Closed,
    Connection,
    Credit,
    Detached,
    Disposed,
    Drained,
    Ended,
    Opened,
    Outcome,
    Role,
    Session,
    Timestamp,
    Transfer,
)
from twinbus.client.conditions import lost, request_error
from twinbus.client.endpoint import Endpoint
from twinbus.client.requests import Requests
from twinbus.client.tokens import TokenSource
from twinbus.client.websocket import connect as connect_websocket
from twinbus.client.wire import Wire
from twinbus.clock import Clock
from twinbus.errors import ConnectionForcedError, OperationTimeoutError, ServiceError
from twinbus.limits import CLIENT_CLOSE_TIMEOUT_MS, CLIENT_TIMEOUT_MS, TOKEN_RETRY_MS

T = TypeVar("T")

CBS = "$cbs"
MANAGEMENT = "$management"


class BusConnection:
    """A connection to a namespace; `open` connects it."""

    def __init__(
        self,
        *,
        hostname: str,
        audience: str,
        sasl: tuple[str, bytes | None] | None,
        tokens: TokenSource | None,
        clock: Clock,
        frame_bytes_max: int,
        properties: dict[str, Any],
    ) -> None:
        self.engine = Connection(
            Role.CLIENT,
            container_id=f"twinbus-{uuid4()}",
            hostname=hostname,
            frame_bytes_max=frame_bytes_max,
            properties=properties,
        )
        self.wire = Wire(
            self.engine, clock, on_events=self._dispatch, on_writable=self._writable, on_lost=self._socket_lost
        )
        # Why the connection was lost; None while it is up.
        self.error: ServiceError | None = None
        # The prefix of token audiences, `sb://host`.
        self._audience = audience
        # Mechanism and initial response; None for no SASL.
        self._sasl = sasl
        # None for a peer without `$cbs`.
        self._tokens = tokens
        self._clock = clock
        # All endpoints with links on this connection.
        self._owners: dict[Endpoint, None] = {}
        # Resolved when the peer's open arrives.
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Resolved when the socket is closed.
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Request-response pairs by address, shared by all callers.
        self._requests: dict[str, asyncio.Task[Requests]] = {}
        # Audiences with a token, and when to renew it; None for never.
        self._renewals: dict[str, int | None] = {}
        # Audiences whose first token is being put.
        self._putting: dict[str, asyncio.Task[None]] = {}
        # Renews the tokens.
        self._renewing: asyncio.Task[None] | None = None

    async def open(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        websocket: bool = False,
        proxy: str | None = None,
        timeout_ms: int = CLIENT_TIMEOUT_MS,
    ) -> None:
        """Connect and open the AMQP connection."""
        self.engine.start(sasl=self._sasl)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if websocket:
                    await connect_websocket(self.wire, host, port, tls, proxy)
                else:
                    await loop.create_connection(
                        lambda: self.wire, host, port, ssl=tls, server_hostname=host if tls is not None else None
                    )
                await self._opened
        except TimeoutError:
            self.wire.abort()
            raise OperationTimeoutError(f"No connection to {host}:{port} within {timeout_ms} ms.") from None
        except OSError as error:
            raise ConnectionForcedError(f"No connection to {host}:{port}: {error}") from error
        except BaseException:
            self.wire.abort()
            raise

    async def close(self) -> None:
        """Close the connection: wait for the peer's answer, then close the socket."""
        if self._renewing is not None:
            self._renewing.cancel()
        self.engine.close()
        self.wire.flush_soon()
        try:
            async with asyncio.timeout(CLIENT_CLOSE_TIMEOUT_MS / 1000):
                await asyncio.shield(self._gone)
        except TimeoutError:
            self.wire.abort()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLIENT_CLOSE_TIMEOUT_MS / 1000):
                    await asyncio.shield(self._gone)

    def begin(self, owner: Endpoint) -> Session:
        """Begin a session for `owner`, which receives all its events."""
        self.join(owner)
        session = self.engine.begin()
        session.context = owner
        return session

    def join(self, owner: Endpoint) -> None:
        """Tell `owner` when the connection is lost; it has links in another owner's session."""
        if self.error is not None:
            raise type(self.error)(*self.error.args)
        self._owners[owner] = None

    def forget(self, owner: Endpoint) -> None:
        self._owners.pop(owner, None)

    # --- tokens -----------------------------------------------------------------------------------------------------

    async def authorize(self, path: str) -> None:
        """Put a token for `path` unless there is one."""
        if self._tokens is None:
            return
        audience = f"{self._audience}/{path}"
        if audience in self._renewals:
            return
        await _shared(self._putting, audience, lambda: self._put_token(audience))
        if self._renewing is None and self.error is None:
            self._renewing = asyncio.create_task(self._renew_tokens())

    async def _put_token(self, audience: str) -> None:
        if self._tokens is None:
            return
        now_ms, asked_ms = self._clock.now_ms(), self._clock.steady_ms()
        token = await self._tokens.token(audience, now_ms)
        properties: dict[str, Any] = {"operation": "put-token", "type": token.kind, "name": audience}
        if token.expires_ms is not None:
            properties["expiration"] = Timestamp(token.expires_ms)
        cbs = await self.requests(CBS)
        response = await cbs.ask(properties, token.text)
        answer = response.application_properties or {}
        status = answer.get("status-code")
        if not isinstance(status, int) or not 200 <= status < 300:
            condition = answer.get("error-condition")
            text = str(answer.get("status-description") or "the token was refused")
            raise request_error(int(status or 500), str(condition) if condition else None, text)
        # Renewed after nine tenths of its lifetime.
        lives_ms = None if token.expires_ms is None else token.expires_ms - now_ms
        self._renewals[audience] = None if lives_ms is None else asked_ms + lives_ms * 9 // 10

    async def renew_due_tokens(self) -> int | None:
        """Renew every token that is due; return when the next one is, on the steady clock."""
        now_ms = self._clock.steady_ms()
        for audience, due_ms in list(self._renewals.items()):
            if due_ms is not None and due_ms <= now_ms:
                try:
                    await self._put_token(audience)
                except ServiceError:
                    # The old token is still valid for a while: retry soon, and let the server decide when it is too
                    # late.
                    self._renewals[audience] = now_ms + TOKEN_RETRY_MS
        return min((due_ms for due_ms in self._renewals.values() if due_ms is not None), default=None)

    async def _renew_tokens(self) -> None:
        while self.error is None:
            due_ms = await self.renew_due_tokens()
            wait_ms = TOKEN_RETRY_MS if due_ms is None else max(due_ms - self._clock.steady_ms(), 1)
            await asyncio.sleep(wait_ms / 1000)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def requests(self, path: str) -> Requests:
        """Return the request-response pair of a node, opening it on first use."""
        task = self._requests.get(path)
        if task is not None and task.done() and (task.cancelled() or task.exception() or task.result().error):
            del self._requests[path]
        return await _shared(self._requests, path, lambda: self._open_requests(path))

    async def _open_requests(self, path: str) -> Requests:
        requests = Requests(self, path)
        await requests.open()
        return requests

    async def management(self, path: str) -> Requests:
        """Return the management node of an entity; the empty path is the namespace's."""
        await self.authorize(path)
        return await self.requests(f"{path}/{MANAGEMENT}".lstrip("/"))

    # --- incoming events --------------------------------------------------------------------------------------------

    def _dispatch(self, events: list[AmqpEvent]) -> None:
        for event in events:
            if isinstance(event, Transfer):
                event.link.context.on_transfer(event)
            elif isinstance(event, Disposed):
                owner = event.session.context
                owner.on_disposed(event)
                for guest in owner.guests:
                    guest.on_disposed(event)
            elif isinstance(event, Outcome):
                event.session.context.on_outcome(event)
            elif isinstance(event, Credit):
                event.link.context.on_credit(event.link)
            elif isinstance(event, Drained):
                event.link.context.on_drained(event.link)
            elif isinstance(event, Attached):
                event.link.context.on_attached(event.link)
            elif isinstance(event, Detached):
                event.link.context.on_detached(event.link, event.error)
            elif isinstance(event, Ended):
                event.session.context.on_ended(event.error)
            elif isinstance(event, Opened):
                self.wire.retime()
                if not self._opened.done():
                    self._opened.set_result(None)
            elif isinstance(event, Closed):
                self._lose(lost(event.error, "The connection was closed by the peer."))
                self.wire.close()

    def _writable(self) -> None:
        for owner in list(self._owners):
            owner.on_writable()

    def _socket_lost(self, error: Exception | None) -> None:
        self._lose(ConnectionForcedError(f"The connection was lost: {error or 'the peer hung up'}."))
        if not self._gone.done():
            self._gone.set_result(None)

    def _lose(self, error: ServiceError) -> None:
        if self.error is not None:
            return
        self.error = error
        if self._renewing is not None:
            self._renewing.cancel()
        if not self._opened.done():
            self._opened.set_exception(type(error)(*error.args))
            self._opened.exception()
        owners = list(self._owners)
        self._owners.clear()
        for owner in owners:
            owner.on_lost(error)


async def _shared(tasks: dict[str, asyncio.Task[T]], key: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the result of the task under `key`. The first caller starts it; a failed one is not kept."""
    task = tasks.get(key)
    if task is None:
        task = asyncio.create_task(make())
        # Mark the exception as retrieved: the caller who started the task may be gone when it fails.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        tasks[key] = task
    try:
        return await asyncio.shield(task)
    except BaseException:
        failed = task.done() and (task.cancelled() or task.exception() is not None)
        # Another caller of the failed task may have started a new one already.
        if failed and tasks.get(key) is task:
            del tasks[key]
        raise
