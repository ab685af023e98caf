"""A scripted server on our engine, over a real socket, for things that a good broker never does."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

from twinbus.amqp import (
    STATE_ACCEPTED,
    AmqpEvent,
    AmqpMessage,
    Attached,
    Connection,
    Credit,
    Disposed,
    Int,
    Link,
    Role,
    SaslInit,
    Transfer,
)
from twinbus.client import BusClient, Sender


class Conversation(asyncio.Protocol):
    """One connection of the scripted server."""

    def __init__(self, server: Script) -> None:
        self.server = server
        self.engine = Connection(Role.SERVER, container_id="script", **server.engine_options)
        self.transport: asyncio.Transport | None = None
        self.reading = True
        server.conversations.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        queue = self.engine.receive(data)
        while queue:
            event = queue.pop(0)
            self.server.events.append(event)
            if isinstance(event, SaslInit):
                queue.extend(self.engine.sasl_outcome(self.server.authenticate(event)))
            elif not self.server.on_event(self, event):
                self.usual(event)
        self.flush()
        if self.engine.closed and self.transport is not None:
            self.transport.close()

    def usual(self, event: AmqpEvent) -> None:
        """Behave like a good broker: accept every link, message and token."""
        if isinstance(event, Attached):
            event.link.accept(max_message_size=262_144, credit=0 if event.link.sender else 100)
        elif isinstance(event, Transfer):
            event.link.session.settle(event.delivery_id, STATE_ACCEPTED)
            if event.link.target is not None and event.link.target.address == "$cbs":
                self.respond(event, {"status-code": Int(202), "status-description": "Accepted"})
        elif isinstance(event, Credit) and event.link.drain:
            event.link.drained()
        elif isinstance(event, Disposed):
            for delivery_id, _, _ in event.deliveries:
                event.session.answer(delivery_id, STATE_ACCEPTED)

    def respond(self, event: Transfer, properties: dict[str, Any], body: Any = None) -> None:
        request = AmqpMessage.decode(event.payload or b"")
        response = AmqpMessage.of_value(body)
        response.correlation_id = request.message_id
        response.application_properties = properties
        link = next(link for link in event.link.session.links.values() if link.sender)
        link.send(response.encode(), tag=b"r", settled=True)

    def flush(self) -> None:
        if self.transport is not None:
            while output := self.engine.take_output():
                self.transport.write(output)
                self.engine.pump()

    def hang_up(self) -> None:
        assert self.transport is not None
        self.transport.abort()


class Script:
    """`async with Script(on_event) as server: client = server.client()`.

    `on_event` returns True for events it has handled itself.
    """

    def __init__(
        self,
        on_event: Callable[[Conversation, AmqpEvent], Any] = lambda _conversation, _event: False,
        *,
        authenticate: Callable[[SaslInit], bool] = lambda _event: True,
        tls: ssl.SSLContext | None = None,
        **engine_options: Any,
    ) -> None:
        self.on_event = on_event
        self.authenticate = authenticate
        self.tls = tls
        self.engine_options = engine_options
        self.conversations: list[Conversation] = []
        self.events: list[AmqpEvent] = []
        self.port = 0
        self.server: asyncio.Server | None = None

    async def __aenter__(self) -> Script:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Conversation(self), "127.0.0.1", 0, ssl=self.tls)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.server is not None
        self.server.close()
        for conversation in self.conversations:
            if conversation.transport is not None:
                conversation.transport.abort()
        await self.server.wait_closed()

    def client(self, **options: Any) -> BusClient:
        return BusClient("127.0.0.1", self.port, tls=False, **options)

    def links(self, name: str = "") -> list[Link]:
        return [event.link for event in self.events if isinstance(event, Attached) and name in event.link.name]


class Blurt(asyncio.Protocol):
    """A server that sends one thing and nothing else."""

    def __init__(self, words: bytes) -> None:
        self.words = words

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self.words)


@contextlib.asynccontextmanager
async def blurting(words: bytes) -> AsyncIterator[int]:
    """Yield the port of a server that sends `words` to every client."""
    server = await asyncio.get_running_loop().create_server(lambda: Blurt(words), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def send_until_it_fails(sender: Sender) -> None:
    while True:
        await sender.send(b"x")
