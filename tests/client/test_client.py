"""Connect with TCP, TLS and SASL; heartbeats, closing and reconnecting."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from twinbus.amqp import AmqpError, AmqpEvent, Attached, Closed, Connection, Role, SaslInit
from twinbus.client import BusClient, Message
from twinbus.client.connection import BusConnection
from twinbus.client.wire import Wire
from twinbus.clock import SteppedClock
from twinbus.errors import (
    ConnectionForcedError,
    EntityNotFoundError,
    LinkDetachedError,
    OperationTimeoutError,
    UnauthorizedError,
)
from twinbus.testing import Broker

from .script import Conversation, Script, blurting, send_until_it_fails


async def test_over_tls(broker: Broker, queue: str) -> None:
    context = ssl.create_default_context(cafile=str(broker.ca_file))
    text = broker.connection_string()
    async with BusClient.from_connection_string(text, tls=context) as client:
        sender = await client.sender(queue)
        outcomes = await sender.send_many([Message(b"x" * 10_000).encode()] * 50)
        assert outcomes == [None] * 50
        receiver = await client.receiver(queue, prefetch=10, delete=True)
        got = 0
        while got < 50:
            got += len(await receiver.receive_batch(50, 5))


async def test_a_certificate_nobody_vouches_for(broker: Broker, queue: str) -> None:
    async with BusClient.from_connection_string(broker.connection_string(), tls=True) as client:
        with pytest.raises(ConnectionForcedError, match="certificate"):
            await client.sender(queue)


async def test_emulator_mode_is_plain_and_the_rest_is_tls(broker: Broker) -> None:
    plain = BusClient.from_connection_string(
        "Endpoint=sb://h:6001;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
    )
    assert (plain.port, plain._tls) == (6001, None)
    tls = BusClient.from_connection_string("Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=k")
    assert tls.port == 5671
    assert tls._tls is not None


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "MSSBCBS"])
async def test_mechanisms(mechanism: str) -> None:
    async with Script() as server, server.client(sasl=(mechanism, None)) as client:
        await client.sender("q")
        assert [event.mechanism for event in server.events if isinstance(event, SaslInit)] == [mechanism]


async def test_user_and_password() -> None:
    def authenticate(event: SaslInit) -> bool:
        return event.response == b"\0guest\0secret"

    async with Script(authenticate=authenticate, sasl_mechanisms=("PLAIN",)) as server:
        async with BusClient.with_password("127.0.0.1", server.port, "guest", "secret") as client:
            await (await client.sender("q")).send(b"x")
        async with BusClient.with_password("127.0.0.1", server.port, "guest", "wrong") as client:
            with pytest.raises(UnauthorizedError):
                await client.sender("q")


async def test_without_sasl() -> None:
    async with Script(require_sasl=False) as server, server.client(sasl=None) as client:
        sender = await client.sender("q")
        await sender.send(b"x")
        assert sender.error is None


async def test_nobody_listens() -> None:
    async with Script() as server:
        port = server.port
    async with BusClient("127.0.0.1", port, tls=False) as client:
        with pytest.raises(ConnectionForcedError, match="No connection"):
            await client.sender("q")


async def test_a_server_that_says_nothing() -> None:
    async with blurting(b"") as port, BusClient("127.0.0.1", port, tls=False, timeout_ms=50) as client:
        with pytest.raises(OperationTimeoutError):
            await client.sender("q")


async def test_a_server_that_does_not_answer_an_attach() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        return isinstance(event, Attached)

    async with Script(on_event) as server, server.client(timeout_ms=50) as client:
        with pytest.raises(OperationTimeoutError, match="'q'"):
            await client.sender("q")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await client.receiver("q")
        assert (await client.connection()).error is None


async def test_a_server_that_talks_nonsense() -> None:
    words = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    async with blurting(words) as port, BusClient("127.0.0.1", port, tls=False) as client:
        with pytest.raises(ConnectionForcedError):
            await client.sender("q")


async def test_closed_by_the_server_with_a_reason() -> None:
    async with Script() as server, server.client() as client:
        sender = await client.sender("q")
        server.conversations[0].engine.close(AmqpError("amqp:connection:forced", "shutting down"))
        server.conversations[0].flush()
        with pytest.raises(ConnectionForcedError, match="shutting down"):
            await send_until_it_fails(sender)


async def test_a_session_ended_by_the_server() -> None:
    async with Script() as server, server.client() as client:
        sender = await client.sender("q")
        other = await client.sender("other")
        server.links("q-")[0].session.end(AmqpError("amqp:not-found", "deleted"))
        server.conversations[0].flush()
        with pytest.raises(EntityNotFoundError):
            await send_until_it_fails(sender)
        await other.send(b"x")


async def test_closing_says_goodbye() -> None:
    async with Script() as server:
        async with server.client() as client:
            await client.sender("q")
            await client.receiver("q", prefetch=10)
        await asyncio.sleep(0.02)
        assert isinstance(server.events[-1], Closed)
        assert server.events[-1].error is None
        await client.close()


async def test_closing_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.client.connection.CLIENT_CLOSE_TIMEOUT_MS", 50)
    monkeypatch.setattr("twinbus.client.endpoint.CLIENT_CLOSE_TIMEOUT_MS", 50)
    async with Script() as server:
        client = server.client()
        sender = await client.sender("q")
        transport = server.conversations[0].transport
        assert transport is not None
        transport.pause_reading()
        await client.close()
        with pytest.raises(LinkDetachedError):
            await sender.send(b"x")


async def test_a_restarted_broker_is_found_again() -> None:
    with Broker(queues=["q"], sync=False) as own:
        async with BusClient.from_connection_string(own.connection_string()) as client:
            sender = await client.sender("q")
            await sender.send(Message(b"before"))
            await asyncio.to_thread(own.restart)
            with pytest.raises(ConnectionForcedError):
                await send_until_it_fails(sender)
            again = await client.sender("q")
            await again.send(Message(b"after"))
            receiver = await client.receiver("q", delete=True)
            assert (await receiver.receive_batch(10, 5))[0].body == b"before"


async def test_a_connection_that_fails_its_check_is_closed_and_not_used() -> None:
    async with Script() as server, server.client() as client:
        seen: list[BusConnection] = []

        def check(connection: BusConnection) -> None:
            seen.append(connection)
            if len(seen) == 1:
                raise ConnectionForcedError("Somebody else answers.")

        client.check = check
        with pytest.raises(ConnectionForcedError, match="Somebody else"):
            await client.sender("q")
        assert not any(isinstance(event, Attached) for event in server.events)
        assert any(isinstance(event, Closed) for event in server.events)
        # The next one is asked again, and kept: a connection is checked once.
        connection = await client.connection()
        assert connection is await client.connection()
        assert seen[1:] == [connection]
        assert seen[0] is not connection


async def test_every_new_connection_is_checked() -> None:
    async with Script() as server, server.client() as client:
        seen: list[BusConnection] = []
        client.check = seen.append
        sender = await client.sender("q")
        server.conversations[0].hang_up()
        with pytest.raises(ConnectionForcedError):
            await send_until_it_fails(sender)
        await client.sender("q")
        assert len(seen) == len(server.conversations) == 2


async def test_a_wrong_key_is_refused() -> None:
    with Broker(queues=["q"], dev=False, sync=False) as own:
        good = own.connection_string()
        async with BusClient.from_connection_string(good) as client:
            await (await client.sender("q")).send(Message(b"x"))
        name, _, rest = good.partition("SharedAccessKey=")
        bad = f"{name}SharedAccessKey=wrong;{rest.partition(';')[2]}"
        async with BusClient.from_connection_string(bad) as client:
            with pytest.raises(UnauthorizedError):
                await client.sender("q")


async def test_one_connection_for_all_links(client: BusClient, queue: str) -> None:
    await asyncio.gather(*(client.sender(queue) for _ in range(5)), *(client.receiver(queue) for _ in range(5)))
    connection = await client.connection()
    assert connection is await client.connection()
    assert len(connection.engine.sessions) == 11


# --- the wire -------------------------------------------------------------------------------------------------------


class Pipe(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.aborted = True


def wired(clock: SteppedClock, engine: Connection) -> tuple[Wire, Pipe]:
    wire = Wire(engine, clock, on_events=lambda _: None, on_writable=lambda: None, on_lost=lambda _: None)
    pipe = Pipe()
    wire.connection_made(pipe)
    return wire, pipe


async def test_output_is_written_once_per_turn() -> None:
    engine = Connection(Role.CLIENT, container_id="c")
    wire, pipe = wired(SteppedClock(), engine)
    engine.start(sasl=None)
    wire.flush_soon()
    engine.begin()
    wire.flush_soon()
    assert pipe.written == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(pipe.written) == 1
    wire.pause_writing()
    engine.begin()
    wire.flush()
    assert len(pipe.written) == 1
    wire.resume_writing()
    assert len(pipe.written) == 2
    wire.connection_lost(None)
    wire.flush()
    wire.abort()
    wire.close()


async def test_a_silent_peer_is_left() -> None:
    clock = SteppedClock()
    engine = Connection(Role.CLIENT, container_id="c", idle_timeout_ms=1_000)
    wire, pipe = wired(clock, engine)
    clock.jump(seconds=86_400)
    clock.follow()
    clock.step(ms=2_000)
    wire.retime()
    assert not pipe.aborted
    clock.jump(seconds=-2 * 86_400)
    clock.follow()
    clock.step(ms=1)
    wire.retime()
    assert pipe.aborted
    wire.connection_lost(None)


async def test_heartbeats_go_out() -> None:
    async with Script(idle_timeout_ms=500) as server, server.client() as client:
        sender = await client.sender("q")
        await asyncio.sleep(0.7)
        assert not server.conversations[0].engine.timed_out
        await sender.send(b"x")
