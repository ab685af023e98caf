"""AMQP over WebSocket: the same client over another transport."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from twinbus.client import BusClient, Message, tls_context
from twinbus.errors import ConfigError, ConnectionForcedError, OperationTimeoutError
from twinbus.testing import Broker


@pytest.mark.parametrize("tls", [False, True], ids=["ws", "wss"])
async def test_messages_both_ways(broker: Broker, queue: str, tls: bool) -> None:
    context = tls_context(broker.ca_file) if tls else False
    text = broker.connection_string()
    async with BusClient.from_connection_string(text, tls=context, websocket=True) as client:
        sender = await client.sender(queue)
        bodies = [bytes([number]) * 20_000 for number in range(100)]
        assert await sender.send_many([Message(body).encode() for body in bodies]) == [None] * 100
        receiver = await client.receiver(queue)
        got: list[bytes] = []
        while len(got) < 100:
            messages = await receiver.receive_batch(100, 5)
            assert await receiver.complete_many(messages) == [None] * len(messages)
            got += [message.body for message in messages]
        assert got == bodies


async def test_a_broker_that_goes_away_is_noticed() -> None:
    with Broker(queues=["q"], sync=False) as broker:
        client = BusClient.from_connection_string(broker.connection_string(), websocket=True)
        sender = await client.sender("q")
        await asyncio.to_thread(broker.stop)
        async with asyncio.timeout(120):
            while sender.error is None:
                await asyncio.sleep(0.01)
        with pytest.raises(ConnectionForcedError):
            await sender.send(Message(b"x"))
        await asyncio.to_thread(broker.start)
        # The next call opens a new connection.
        await (await client.sender("q")).send(Message(b"x"))
        await client.close()


async def test_a_certificate_nobody_vouches_for(broker: Broker, queue: str) -> None:
    async with BusClient.from_connection_string(broker.connection_string(), tls=True, websocket=True) as client:
        with pytest.raises(ConnectionForcedError, match="certificate"):
            await client.sender(queue)


async def test_trusting_everybody(broker: Broker, queue: str) -> None:
    context = tls_context(verify=False)
    async with BusClient.from_connection_string(broker.connection_string(), tls=context, websocket=True) as client:
        sender = await client.sender(queue)
        await sender.send(Message(b"x"))
        assert sender.error is None


async def test_no_websocket_there() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = BusClient("127.0.0.1", port, tls=False, websocket=True)
    with pytest.raises(ConnectionForcedError, match="No WebSocket"):
        await client.connection()
    server.close()
    with pytest.raises(ConnectionForcedError):
        await client.connection()


async def test_a_peer_that_never_answers() -> None:
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = BusClient("127.0.0.1", port, tls=False, websocket=True, timeout_ms=100)
    with pytest.raises(OperationTimeoutError):
        await client.connection()
    for writer in held:
        writer.close()
    server.close()


def test_usual_ports() -> None:
    text = "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=k"
    assert BusClient.from_connection_string(text, websocket=True).port == 443
    assert BusClient.from_connection_string(text, websocket=True, tls=False).port == 80
    assert BusClient.from_connection_string(text, tls=False).port == 5672


def test_a_ca_file_that_is_none() -> None:
    with pytest.raises(ConfigError, match="CA file"):
        tls_context("/nowhere/ca.pem")


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    script = "import sys, twinbus.client; sys.exit('aiohttp' in sys.modules or 'azure' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
