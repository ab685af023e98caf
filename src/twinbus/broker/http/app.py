"""HTTP on the namespace's port: AMQP over WebSocket, health, metrics, console, and the admin API for everything else.

Imported with the first HTTP client, because aiohttp takes a third of a second to load.

- The request's head, its body and reading the answer each have a deadline; a peer that misses one is disconnected.
- Bodies are limited individually and in total, because they are read before the key is checked.
- In development mode any key is accepted, so pages of other sites are rejected by the Origin their browser sends.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from aiohttp import web

from twinbus.broker.configuration.config import is_loopback
from twinbus.broker.connections.websocket import Guard, serve_websocket
from twinbus.broker.http.admin.api import AdminApi
from twinbus.broker.http.admin.errors import AdminResponse
from twinbus.broker.http.admin.faults import FAULTS_PATH, handle_faults
from twinbus.broker.http.rest.api import RestApi, RestPlace, place_of
from twinbus.broker.metering.metrics import CONTENT_TYPE, may_see_metrics, metric_families
from twinbus.broker.slices import Slices, Work
from twinbus.entities.account import Account
from twinbus.ledger.words import OK, Kind
from twinbus.limits import (
    HANDSHAKE_TIMEOUT_MS,
    HTTP_BODIES_BYTES_MAX,
    HTTP_BODY_BYTES_MAX,
    HTTP_BODY_TIMEOUT_MS,
    HTTP_CONNECTIONS_MAX,
    HTTP_FIELD_BYTES_MAX,
    HTTP_FIELDS_MAX,
    HTTP_HEAD_BYTES_MAX,
    HTTP_HEADS_BYTES_MAX,
    HTTP_IDLE_TIMEOUT_MS,
    HTTP_LINE_BYTES_MAX,
    HTTP_STEP_BYTES,
    SHUTDOWN_TIMEOUT_MS,
)
from twinbus.websocket import WEBSOCKET_PATH

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.console import Console

logger = logging.getLogger(__name__)

Response = TypeVar("Response", bound=web.StreamResponse)

# Ready for clients; the same; and running at all, which a supervisor asks before it restarts a process.
HEALTH_PATHS = ("/health", "/health/ready", "/health/live")
METRICS_PATH = "/metrics"
CONSOLE_PREFIX = "/console"


class HttpApp:
    """The HTTP side of one namespace."""

    def __init__(self, host: NamespaceHost) -> None:
        self._host = host
        # Parses requests and writes answers; we enforce the deadlines.
        self._server = _Server(
            self._handle,
            self._lost,
            host.slices,
            access_log=None,
            # Ours is shorter, and starts with the answer.
            keepalive_timeout=2 * HTTP_IDLE_TIMEOUT_MS / 1000,
            lingering_time=0,
            max_line_size=HTTP_LINE_BYTES_MAX,
            max_field_size=HTTP_FIELD_BYTES_MAX,
            max_headers=HTTP_FIELDS_MAX,
        )
        # Answers everything that is not handled below.
        self._admin_api: AdminApi = host.admin
        self._rest = RestApi(host)
        self._held_bytes = 0
        # Disconnects a peer that does not send what is expected next, by connection.
        self._timers: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        # REST requests in progress by connection, cancelled when the client hangs up.
        self._answering: dict[web.RequestHandler, asyncio.Task[Any]] = {}
        # Connections whose request's body is being read, oldest first.
        self._reading: dict[web.RequestHandler, None] = {}

    def admit(self, transport: asyncio.Transport) -> asyncio.Protocol | None:
        """The protocol for a new HTTP connection; None if there are too many."""
        if len(self._server.connections) >= HTTP_CONNECTIONS_MAX:
            # Idle connections make room, because clients without a key must not lock out those with one.
            oldest = next(iter(self._timers), None)
            if oldest is None:
                return None
            self._evict(oldest)
        protocol = self._server()
        self._expect(protocol, transport, HANDSHAKE_TIMEOUT_MS)
        return protocol

    async def close(self) -> None:
        """Close every connection; WebSockets were closed earlier with their AMQP connections."""
        self._server.pre_shutdown()
        transports = [protocol.transport for protocol in self._server.connections]
        await self._server.shutdown(SHUTDOWN_TIMEOUT_MS / 1000)
        for transport in transports:
            # Closing TLS waits for the peer, and the loop may stop before that.
            if transport is not None:
                # Early releases of Python 3.11 cannot abort a TLS transport that is already closed.
                with suppress(AttributeError):
                    transport.abort()
        await asyncio.sleep(0)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # --- deadlines --------------------------------------------------------------------------------------------------

    def _expect(self, protocol: web.RequestHandler, transport: asyncio.Transport, wait_ms: int) -> None:
        self._relax(protocol)
        self._timers[protocol] = self._host.loop.call_later(wait_ms / 1000, self._cut, protocol, transport)

    def _relax(self, protocol: web.RequestHandler) -> None:
        timer = self._timers.pop(protocol, None)
        if timer is not None:
            timer.cancel()

    def _lost(self, protocol: web.RequestHandler) -> None:
        self._relax(protocol)
        task = self._answering.pop(protocol, None)
        if task is not None:
            task.cancel()

    def _cut(self, protocol: web.RequestHandler, transport: asyncio.Transport) -> None:
        self._timers.pop(protocol, None)
        logger.info("an HTTP client was silent for too long: it is cut")
        transport.abort()

    def _evict(self, protocol: web.RequestHandler) -> None:
        self._relax(protocol)
        self._reading.pop(protocol, None)
        logger.info("an HTTP client that sends nothing is cut: others wait")
        if protocol.transport is not None:
            protocol.transport.abort()

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        self._relax(request.protocol)
        try:
            return _anonymous(await self._answer(request))
        except _Refusal as refusal:
            return _anonymous(refusal.response())
        finally:
            if isinstance(request.protocol, _Handler):
                request.protocol.answered()
            # Covers the answer, too: a peer that does not read it is disconnected. One that is gone needs no timer.
            if transport is not None and (not transport.is_closing() or unwritten_bytes(transport)):
                self._expect(request.protocol, transport, HTTP_IDLE_TIMEOUT_MS)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if self._host.dev:
            if not _welcome(request.headers.get("Origin"), request.host):
                raise _Refusal(403, "In development mode pages of other sites are refused.")
            if not _known_name(request.host, self._host.known_names):
                raise _Refusal(
                    403,
                    "In development mode this broker answers to addresses, to localhost and to names without a dot. "
                    "Give others by --tls-name.",
                )
        if path.rstrip("/").lower() == WEBSOCKET_PATH:
            handler = request.protocol
            assert isinstance(handler, _Handler)
            return await serve_websocket(self._host, request, handler.watch)
        # A queue may be called `health`; requests to the admin API carry an api-version.
        if path in HEALTH_PATHS and "api-version" not in request.query:
            return self._health(request)
        if path == METRICS_PATH and "api-version" not in request.query:
            return await self._metrics(request)
        if path == FAULTS_PATH:
            return await self._faults(request)
        if path.startswith(CONSOLE_PREFIX) and self._host.console is not None:
            found = await self._console(request, path, self._host.console)
            if found is not None:
                return found
        await self._suffer()
        place = place_of(request.method, path)
        if place is not None:
            return await self._data(request, place)
        return await self._admin(request, path)

    def _health(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            raise _Refusal(405, "The health of the namespace can only be read.")
        live = request.rel_url.raw_path.endswith("/live")
        failed = self._host.commits.failed
        state = "failed" if failed else "full" if self._host.store.full else "ok"
        body = json.dumps({"namespace": self._host.name, "store": state})
        return web.Response(status=503 if failed and not live else 200, text=body, content_type="application/json")

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            raise _Refusal(405, "Metrics can only be read.")
        if not may_see_metrics(self._host, request.remote or "", request.headers.get("Authorization", "")):
            response = _Refusal(401, "From other machines, metrics need a key with Listen on the namespace.").response()
            response.headers["WWW-Authenticate"] = 'Basic realm="metrics"'
            return response
        page: list[str] = []
        for family in metric_families(self._host):
            page.append(family)
            await asyncio.sleep(0)
        return web.Response(body="".join(page).encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _faults(self, request: web.BaseRequest) -> web.Response:
        body = await self._body(request)
        self._held_bytes -= len(body)
        answer = handle_faults(self._host, request.method, dict(request.query), request.headers, body)
        self._note(request, "$faults", answer)
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    async def _console(
        self, request: web.BaseRequest, path: str, console: Callable[[], Console]
    ) -> web.StreamResponse | None:
        """The console's answer; None if the path is an entity's. Faults do not affect the console, which shows them."""
        from twinbus.broker.http.console.console import is_console

        if not is_console(path, request.method, request.query):
            return None
        body = await self._body(request)
        self._held_bytes -= len(body)
        return await console().answer(self._host, request, body)

    async def _suffer(self) -> None:
        """Apply a fault of the namespace to administration and REST."""
        fault = self._host.faults.namespace
        if fault is None:
            return
        if fault.mode == "slow":
            await asyncio.sleep(fault.delay_ms / 1000)
        else:
            raise _Refusal(503, fault.error.text)

    async def _admin(self, request: web.BaseRequest, path: str) -> web.Response:
        body = await self._body(request)
        try:
            answer = await self._admin_api.handle(request.method, path, dict(request.query), request.headers, body)
            self._note(request, path.strip("/"), answer)
            outcome = OK if answer.status < 400 else f"http:{answer.status}"
            self._host.meter.entity("").counter(Kind.MANAGE, outcome).count += 1
        finally:
            self._held_bytes -= len(body)
        return web.Response(status=answer.status, reason=answer.reason, headers=answer.headers, body=answer.body)

    async def _data(self, request: web.BaseRequest, place: RestPlace) -> web.Response:
        body = await self._body(request)
        self._held_bytes -= len(body)
        base = f"{request.scheme}://{request.host}"
        task = asyncio.current_task()
        assert task is not None
        self._answering[request.protocol] = task
        early: list[web.Response] = []

        def gone() -> bool:
            return request.transport is None or request.transport.is_closing()

        async def write(answer: AdminResponse) -> bool:
            # From now on the client may hang up after reading without cancelling anything.
            self._answering.pop(request.protocol, None)
            response = web.Response(status=answer.status, headers=answer.headers, body=answer.body)
            early.append(response)
            return await self._write(request, response)

        try:
            query = dict(request.query)
            answer = await self._rest.handle(place, request.method, query, request.headers, body, base, gone, write)
        finally:
            self._answering.pop(request.protocol, None)
        self._note(request, place.entity, answer)
        if early and early[0].prepared:
            return early[0]
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    def _note(self, request: web.BaseRequest, entity: str, answer: AdminResponse) -> None:
        """Record a caller that was not let in."""
        error = answer.unauthorized
        if error is not None:
            self._host.refusals.add(
                error.reason,
                request.remote or "",
                policy=error.policy,
                entity=entity,
                tracking_id=answer.tracking_id,
            )

    async def _write(self, request: web.BaseRequest, response: web.Response) -> bool:
        """Write an answer; True if all of it reached the socket."""
        transport = request.transport
        if transport is None:
            return False
        self._expect(request.protocol, transport, HTTP_IDLE_TIMEOUT_MS)
        # With a limit of 0 the protocol stays paused until the last byte is written, so drain waits for that.
        transport.set_write_buffer_limits(0)
        try:
            await _anonymous(response).prepare(request)
            await response.write_eof()
            return not transport.is_closing() and unwritten_bytes(transport) == 0
        except ConnectionError:
            return False
        finally:
            transport.set_write_buffer_limits()
            self._relax(request.protocol)

    async def _body(self, request: web.BaseRequest) -> bytes:
        """The whole body; its size is added to `_held_bytes`."""
        if (request.content_length or 0) > HTTP_BODY_BYTES_MAX:
            raise _Refusal(413, f"The body is larger than {HTTP_BODY_BYTES_MAX} bytes.")
        body = bytearray()
        protocol = request.protocol
        if request.transport is not None:
            # Twice the timeout below, which decides: this timer only marks the connection as one that may be evicted.
            self._expect(protocol, request.transport, 2 * HTTP_BODY_TIMEOUT_MS)
        self._reading[protocol] = None
        try:
            async with asyncio.timeout(HTTP_BODY_TIMEOUT_MS / 1000):
                while chunk := await request.content.readany():
                    body += chunk
                    self._held_bytes += len(chunk)
                    if len(body) > HTTP_BODY_BYTES_MAX:
                        raise _Refusal(413, f"The body is larger than {HTTP_BODY_BYTES_MAX} bytes.")
                    if self._held_bytes > HTTP_BODIES_BYTES_MAX:
                        oldest = next(iter(self._reading), protocol)
                        if oldest is protocol:
                            raise _Refusal(503, "Too many requests are being read: try again.")
                        self._evict(oldest)
                    if self._host.slices.over():
                        # A body may come in chunks of one byte, and waiting ones are read without a turn of the loop.
                        await asyncio.sleep(0)
        except BaseException as error:
            self._held_bytes -= len(body)
            if isinstance(error, TimeoutError):
                raise _Refusal(408, "The body did not come in time.") from None
            if isinstance(error, web.RequestPayloadError):
                raise _Refusal(400, "The body cannot be read: its encoding or its chunks are wrong.") from None
            if isinstance(error, ConnectionError):
                # Nobody reads this; a client that disconnects is not our failure.
                raise _Refusal(400, "The connection was lost in the middle of the body.") from None
            raise
        finally:
            self._reading.pop(protocol, None)
            self._relax(protocol)
        return bytes(body)


class _Handler(web.RequestHandler):
    """aiohttp's side of one connection; it does not echo input that it could not parse.

    Input is parsed a piece at a time: one read may hold thousands of requests, chunks or frames.
    """

    __slots__ = ("_at", "_guard", "_head", "_later", "_serving", "_slices", "_stepping", "_upgrading")

    def __init__(self, manager: web.Server, heads: Account, slices: Slices, **options: Any) -> None:
        super().__init__(manager, **options)
        self._slices = slices
        # Input that is not parsed yet, and where it begins.
        self._later = b""
        self._at = 0
        # Whether the work that parses it has been started and not ended.
        self._stepping = False
        # Set while input waits for the answer to a request to upgrade.
        self._upgrading = False
        # Bytes of an incomplete request head.
        self._head = Account(HTTP_HEAD_BYTES_MAX, heads)
        # Whether a request with a complete head has not been answered yet.
        self._serving = False
        # Divides the stream of a WebSocket.
        self._guard: Guard | None = None

    def data_received(self, data: bytes) -> None:
        if not data:
            # The library continues with what it has.
            self._parse(data)
        elif self._later:
            # The library resumes reading by itself now and then.
            self._later = self._later[self._at :] + data
            self._at = 0
            self._pause()
        elif self._advance(data, 0):
            self._pause()
            self._go_on()

    def resume_reading(self, *options: Any, **named: Any) -> None:
        super().resume_reading(*options, **named)
        if self._later:
            # Not at once: whoever has made room is at work.
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Parse what waits, in slices."""
        if self._later and not self._stepping:
            self._stepping = True
            self._slices.start(self._steps())

    def _steps(self) -> Work:
        # While the library has enough it keeps what it is given, and would parse all of that at once later.
        while self._later and not self._upgrading and not self._reading_paused and self.transport is not None:
            if not self._advance(self._later, self._at):
                self._resume()
            yield None
        self._stepping = False

    def _advance(self, data: bytes, at: int) -> bool:
        """Parse the next piece of some data, and keep the rest; False if there is none."""
        end = len(data)
        if self._guard is None:
            end = min(at + HTTP_STEP_BYTES, end)
        elif (allowed := self._guard(data, at)) == at:
            # The peer is disconnected.
            self._drop_input()
            return False
        else:
            end = allowed
        self._parse(data if end - at == len(data) else data[at:end])
        if self._guard is None and self._message_tail:
            # What follows a request to upgrade belongs to the guard, or to nobody.
            self._later, self._at, self._upgrading = self._message_tail + data[end:], 0, True
            self._message_tail = b""
        elif end < len(data):
            self._later, self._at = data, end
        else:
            self._drop_input()
        return bool(self._later)

    def _parse(self, data: bytes) -> None:
        requests = self._request_count
        super().data_received(data)
        self._serving = self._serving or self._request_count != requests
        if self._serving or self._close or self._force_close:
            # The data belongs to a known request, or is discarded.
            self._head.close()
        elif not self._head.take(len(data)) and self.transport is not None:
            logger.info("an HTTP client does not finish the head of its request: it is cut")
            self.transport.abort()

    def _pause(self) -> None:
        if self.transport is not None and self.transport.is_reading():
            self.transport.pause_reading()

    def _resume(self) -> None:
        held = self._reading_paused or getattr(self, "_buffer_paused", False)
        if self.transport is not None and not held and not self.transport.is_closing():
            self.transport.resume_reading()

    def _drop_input(self) -> None:
        self._later, self._at, self._upgrading = b"", 0, False

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head.close()
        self._guard = None
        self._drop_input()
        super().connection_lost(exc)

    def answered(self) -> None:
        """The next data starts another request, unless one has already arrived."""
        self._serving = bool(self._messages)
        if self._upgrading:
            # Nothing was upgraded, and what came behind the request is in no protocol that we know.
            self._drop_input()
            self.close()

    def watch(self, guard: Guard | None) -> None:
        """Divide the stream of a WebSocket from now on; None ends it."""
        self._guard = guard
        if guard is None:
            self._drop_input()
        elif self._upgrading:
            self._upgrading = False
            self._go_on()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        # The library would log and return the line it rejected, which may contain the token.
        logger.info("an HTTP request could not be read: %s", type(exc).__name__)
        return _Refusal(status, "The request is not HTTP.").response()


class _Server(web.Server):
    """aiohttp's server, which also reports lost connections."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        on_lost: Callable[[web.RequestHandler], None],
        slices: Slices,
        **options: Any,
    ) -> None:
        super().__init__(handler, **options)
        self._slices = slices
        self._on_lost = on_lost
        self._heads = Account(HTTP_HEADS_BYTES_MAX)

    def __call__(self) -> web.RequestHandler:
        return _Handler(self, self._heads, self._slices, loop=self._loop, **self._kwargs)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._on_lost(handler)


class _Refusal(Exception):
    """An error response outside the admin API."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status

    def response(self) -> web.Response:
        body = f"<Error><Code>{self.status}</Code><Detail>{escape(str(self))}</Detail></Error>"
        response = web.Response(status=self.status, text=body, content_type="application/xml")
        # Do not read what else the peer sends.
        response.force_close()
        return response


def _anonymous(response: Response) -> Response:
    """Do not tell strangers which versions of which programs answer here."""
    if not response.prepared:
        response.headers["Server"] = "Twinbus"
    return response


def unwritten_bytes(transport: asyncio.WriteTransport) -> int:
    """Bytes that a transport has not written yet; 0 once a TLS transport is closed."""
    try:
        return transport.get_write_buffer_size()
    except AttributeError:
        return 0


def _known_name(host: str, known: frozenset[str]) -> bool:
    """Whether the Host cannot be a foreign site's name: such a name may resolve to us (DNS rebinding)."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    return "." not in name or is_loopback(name) or _is_address(name) or name.endswith(".localhost") or name in known


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _welcome(origin: str | None, host: str) -> bool:
    """Whether a request comes from a program, or from a page on this machine or on our own host."""
    if origin is None:
        return True
    try:
        name = urlsplit(origin).hostname or ""
        return is_loopback(name) or name == urlsplit(f"//{host}").hostname
    except ValueError:
        return False
