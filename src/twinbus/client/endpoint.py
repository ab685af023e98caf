"""The life cycle shared by all users of links: attach, detach, and tell everyone who waits why it ended."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self

from twinbus.amqp import AmqpError, Disposed, Link, Outcome, Transfer
from twinbus.client.conditions import error_of, lost
from twinbus.errors import LinkDetachedError, OperationTimeoutError, ServiceError
from twinbus.limits import CLIENT_CLOSE_TIMEOUT_MS, CLIENT_TIMEOUT_MS

if TYPE_CHECKING:
    from twinbus.client.connection import BusConnection


class Endpoint:
    """The owner of one link, or of a request-response pair of links, in its own session or in that of a host."""

    def __init__(self, connection: BusConnection, path: str, host: Endpoint | None = None) -> None:
        self.connection = connection
        self.path = path
        # The owner of the session; None if it is this endpoint.
        self._host = host
        # Endpoints with links in this session, which end with it.
        self.guests: list[Endpoint] = []
        if host is None:
            self.session = connection.begin(self)
        else:
            connection.join(self)
            host.guests.append(self)
            self.session = host.session
        # Why the endpoint is unusable; None while it works.
        self.error: ServiceError | None = None
        # Attaches that the peer has not answered.
        self._awaited = 0
        # Resolved when all links are attached.
        self._up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Resolved when all links are detached after `close`; None before.
        self._down: asyncio.Future[None] | None = None
        self._links: list[Link] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Detach the links and end the session."""
        await self._close_links()

    def _await_link(self, link: Link) -> Link:
        link.context = self
        self._awaited += 1
        self._links.append(link)
        self.connection.wire.flush_soon()
        return link

    async def _come_up(self, timeout_ms: int = CLIENT_TIMEOUT_MS) -> None:
        """Wait until the peer has answered all attaches."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._up
        except TimeoutError:
            self.fail(OperationTimeoutError(f"No answer to the link to {self.path!r} within {timeout_ms} ms."))
            self._leave()
            raise self._reason() from None
        except asyncio.CancelledError:
            self._leave()
            raise

    def check(self) -> None:
        """Raise the reason if the endpoint is unusable."""
        if self.error is not None:
            raise self._reason()

    def _reason(self) -> ServiceError:
        error = self.error
        if error is None:
            return LinkDetachedError(f"The link to {self.path!r} is closed.")
        # A new exception for each caller, because a raised exception collects tracebacks.
        return type(error)(*error.args)

    def _leave(self) -> None:
        """End the session, and with it all links, without waiting; a guest only says goodbye."""
        if self._host is None:
            self.session.end()
            self._end_guests(LinkDetachedError(f"The link to {self.path!r} is closed."))
        else:
            self._host.guests = [each for each in self._host.guests if each is not self]
        self.connection.forget(self)
        self.connection.wire.flush_soon()

    async def _close_links(self) -> None:
        """Detach the links, wait for the answers, then end the session."""
        if self._down is None:
            self._down = asyncio.get_running_loop().create_future()
            if self.error is None:
                self.error = LinkDetachedError(f"The link to {self.path!r} is closed.")
            for link in self._links:
                link.detach()
            if not self._links and not self._down.done():
                self._down.set_result(None)
            self.connection.wire.flush_soon()
        try:
            async with asyncio.timeout(CLIENT_CLOSE_TIMEOUT_MS / 1000):
                await asyncio.shield(self._down)
        except TimeoutError:
            pass
        self._leave()

    def _end_guests(self, error: ServiceError) -> None:
        guests, self.guests = self.guests, []
        for guest in guests:
            guest.fail(error)
            self.connection.forget(guest)

    def fail(self, error: ServiceError) -> None:
        """Mark the endpoint as unusable; subclasses inform those who wait."""
        if self.error is None:
            self.error = error
        if not self._up.done():
            self._up.set_exception(self._reason())
            # Mark the exception as retrieved: the caller who opened the endpoint may have given up.
            self._up.exception()
        self._links = []
        if self._down is not None and not self._down.done():
            self._down.set_result(None)

    # --- called by the connection -----------------------------------------------------------------------------------

    def on_attached(self, link: Link) -> None:
        self._awaited -= 1
        if self._awaited == 0 and not self._up.done():
            self._up.set_result(None)

    def on_detached(self, link: Link, error: AmqpError | None) -> None:
        if link in self._links:
            self._links.remove(link)
        if self._down is not None:
            if not self._links and not self._down.done():
                self._down.set_result(None)
            return
        self.fail(LinkDetachedError(f"The link to {self.path!r} was detached.") if error is None else error_of(error))
        self._leave()

    def on_ended(self, error: AmqpError | None) -> None:
        reason = lost(error, f"The session of the link to {self.path!r} ended.")
        self.fail(reason)
        self._end_guests(reason)
        self.connection.forget(self)

    def on_lost(self, error: ServiceError) -> None:
        self.fail(error)

    def on_transfer(self, event: Transfer) -> None:
        """A delivery has arrived."""

    def on_credit(self, link: Link) -> None:
        """The link may send more."""

    def on_drained(self, link: Link) -> None:
        """The peer has answered our drain."""

    def on_disposed(self, event: Disposed) -> None:
        """The peer has reported the outcome of our deliveries."""

    def on_outcome(self, event: Outcome) -> None:
        """The peer has answered our settlement."""

    def on_writable(self) -> None:
        """The socket accepts more data again."""
