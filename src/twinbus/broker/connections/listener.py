"""A namespace's sockets. Each accepts AMQP, HTTP and WebSocket clients, with or without TLS.

- The first byte is peeked at while it is still in the socket, because the loop's TLS must take the socket over from the
  start. The resulting stream, encrypted or not, goes through a `Doorway`.
- A peer may also ask for TLS with AMQP's own protocol header (id 2): it is echoed, then TLS begins.
- From accept through the TLS handshake to the first bytes a peer has HANDSHAKE_TIMEOUT_MS in total.
- At most ARRIVALS_MAX sockets may be in that phase; beyond that, the oldest is dropped.
- Where keys must not cross the network in clear text, only peers on this machine may connect without TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Any

from twinbus.amqp.frames import HEADER_TLS
from twinbus.broker.configuration.config import is_loopback
from twinbus.broker.connections.doorway import Doorway
from twinbus.errors import ConfigError
from twinbus.limits import ARRIVALS_MAX, HANDSHAKE_TIMEOUT_MS, SHUTDOWN_TIMEOUT_MS

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.security.certificates import Certificates

logger = logging.getLogger(__name__)

_TLS_HANDSHAKE = 0x16
# How long to wait for the rest of a header that arrived in pieces.
_HEADER_WAIT_S = 0.02
_BACKLOG = 1024
# Accepted per turn, so that a rush of new clients does not starve the others.
_ACCEPTS_PER_TURN = 16
# When the process is out of descriptors, retrying at once is pointless.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_EXHAUSTED_WAIT_S = 1.0


class Listener:
    """Listens for one namespace on any number of ports."""

    def __init__(self, host: NamespaceHost, certificates: Certificates, *, plain_anywhere: bool) -> None:
        self._host = host
        # For TLS clients.
        self._certificates = certificates
        # If False, only peers on this machine may connect without TLS.
        self._plain_anywhere = plain_anywhere
        self._sockets: list[socket.socket] = []
        # Sockets that are not connections yet, oldest first.
        self._arrivals: dict[_Arrival, None] = {}
        self._closed = False

    async def open(self, address: str, port: int) -> int:
        """Listen on another address and return its port; raises OSError if that fails."""
        found = await self._addresses(address, port)
        sockets: list[socket.socket] = []
        try:
            for family, kind, protocol, _, where in dict.fromkeys(found):
                each = socket.socket(family, kind, protocol)
                sockets.append(each)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                # All addresses of a name share the port of the first.
                each.bind((where[0], port, *where[2:]))
                port = each.getsockname()[1]
                each.listen(_BACKLOG)
                each.setblocking(False)
        except BaseException:
            for each in sockets:
                each.close()
            raise
        for each in sockets:
            self._host.loop.add_reader(each.fileno(), self._accept, each)
        self._sockets += sockets
        return port

    async def _addresses(self, address: str, port: int) -> list[tuple[Any, ...]]:
        options: dict[str, Any] = {"type": socket.SOCK_STREAM, "flags": socket.AI_PASSIVE | socket.AI_NUMERICHOST}
        try:
            # A numeric address needs no resolver, and starting a thread for one would dominate the start.
            return list(socket.getaddrinfo(address, port, **options))
        except socket.gaierror:
            options["flags"] = socket.AI_PASSIVE
            return list(await self._host.loop.getaddrinfo(address, port, **options))

    def close(self) -> None:
        """Stop listening, and drop sockets that are not connections yet."""
        self._closed = True
        for each in self._sockets:
            self._host.loop.remove_reader(each.fileno())
            each.close()
        self._sockets.clear()
        for arrival in list(self._arrivals):
            arrival.cut()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                logger.warning("no more clients can be accepted for now: %s", error.strerror)
                self._host.loop.remove_reader(listening.fileno())
                self._host.loop.call_later(_EXHAUSTED_WAIT_S, self._accept_again, listening)
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(self._arrivals) >= ARRIVALS_MAX:
                next(iter(self._arrivals)).cut()
            plain = self._plain_anywhere or is_loopback(peer[0])
            arrival = _Arrival(self._host, self._certificates, accepted, plain, self._arrivals)
            self._arrivals[arrival] = None
            arrival.start()

    def _accept_again(self, listening: socket.socket) -> None:
        if not self._closed:
            self._host.loop.add_reader(listening.fileno(), self._accept, listening)


class _Arrival:
    """An accepted socket that is not a connection yet."""

    __slots__ = ("_arrivals", "_certificates", "_doorway", "_host", "_plain", "_socket", "_task", "_timer")

    def __init__(
        self,
        host: NamespaceHost,
        certificates: Certificates,
        accepted: socket.socket,
        plain: bool,
        arrivals: dict[_Arrival, None],
    ) -> None:
        self._host = host
        # For TLS.
        self._certificates = certificates
        # We must close it until a transport owns it.
        self._socket = accepted
        # Whether it may connect without TLS.
        self._plain = plain
        # The listener's list of arrivals.
        self._arrivals = arrivals
        # Fires if the peer does not identify its protocol in time.
        self._timer = host.loop.call_later(HANDSHAKE_TIMEOUT_MS / 1000, self.cut)
        # Creates the transport after the first byte.
        self._task: asyncio.Task[None] | None = None
        self._doorway = Doorway(host, self._end)

    def start(self) -> None:
        # Most clients speak at once, which saves registering a reader.
        if not self._look():
            self._host.loop.add_reader(self._socket.fileno(), self._readable)

    def _readable(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._host.loop.remove_reader(self._socket.fileno())
        if not self._look():
            self._host.loop.add_reader(self._socket.fileno(), self._readable)

    def _look(self) -> bool:
        """Decide by the first bytes; False if there are none yet."""
        try:
            head = self._socket.recv(len(HEADER_TLS), socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            head = b""
        if not head:
            self._end()
            self._socket.close()
        elif head[0] == _TLS_HANDSHAKE:
            self._task = self._host.loop.create_task(self._connect(encrypted=True))
        elif head == HEADER_TLS:
            # A new socket's send buffer is empty, so eight bytes always fit. If the peer is already gone, the handshake
            # notices.
            with contextlib.suppress(OSError):
                self._socket.recv(len(HEADER_TLS))
                self._socket.send(HEADER_TLS)
            self._task = self._host.loop.create_task(self._connect(encrypted=True))
        elif HEADER_TLS.startswith(head):
            # A registered reader would fire for the same bytes over and over.
            self._host.loop.call_later(_HEADER_WAIT_S, self._readable)
        elif self._plain:
            self._task = self._host.loop.create_task(self._connect(encrypted=False))
        else:
            logger.warning("a client of another machine came without TLS: it is cut (see --allow-plaintext)")
            self._end()
            self._socket.close()
        return True

    async def _connect(self, *, encrypted: bool) -> None:
        try:
            context = await self._context() if encrypted else None
        except BaseException as error:
            self._socket.close()
            self._end()
            if not isinstance(error, ConfigError):
                raise
            logger.error("no TLS is possible: %s", error)
            return
        try:
            await self._host.loop.connect_accepted_socket(
                lambda: self._doorway,
                self._socket,
                ssl=context,
                # The timer enforces the deadline; this one must only not fire earlier.
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_MS / 1000 if encrypted else None,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_MS / 1000 if encrypted else None,
            )
        except BaseException as error:
            self._end()
            if not isinstance(error, OSError):
                raise
            # Routine: the peer rejects our certificate or goes away.
            logger.info("a client's TLS handshake failed: %s", error)
            # The error is in a reference cycle of asyncio: its frames would keep us alive until the next collection.
            error.__traceback__ = None

    async def _context(self) -> ssl.SSLContext:
        ready = self._certificates.ready()
        if ready is None:
            ready = await self._host.loop.run_in_executor(None, self._certificates.load)
        return ready

    def cut(self) -> None:
        """Drop the socket: its time is up, or its place is needed."""
        if self._doorway.cut("a client did not say in time what it speaks"):
            return
        self._end()
        if self._task is not None:
            self._task.cancel()
        else:
            logger.info("a client said nothing in time: it is cut")
            self._host.loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _end(self) -> None:
        self._doorway.forget()
        self._timer.cancel()
        self._arrivals.pop(self, None)
