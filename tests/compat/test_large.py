"""Large messages and many bytes through the official SDK, whole and each once, in both receive modes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from twinbus.client import BusClient, Message
from twinbus.limits import MESSAGE_BYTES_MAX
from twinbus.testing import Broker

MIB = 1024 * 1024
MODES = [ServiceBusReceiveMode.PEEK_LOCK, ServiceBusReceiveMode.RECEIVE_AND_DELETE]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(sync=False) as running:
        yield running


def made(broker: Broker) -> str:
    name = f"q-{uuid4()}"
    broker.create_queue(name, max_message_bytes=MESSAGE_BYTES_MAX)
    return name


@pytest.mark.parametrize(("count", "size"), [(200, 250_000), (1_000, 50_000)])
async def test_receive_and_delete_of_more_than_a_socket_takes(broker: Broker, count: int, size: int) -> None:
    queue = made(broker)
    async with BusClient.from_connection_string(broker.connection_string()) as filling:
        sender = await filling.sender(queue)
        outcomes = await sender.send_many(Message(b"x" * size, message_id=str(n)).encode() for n in range(count))
        assert outcomes == [None] * count
    got: list[int] = []
    with (
        ServiceBusClient.from_connection_string(broker.connection_string()) as client,
        client.get_queue_receiver(queue, receive_mode=MODES[1]) as receiver,
    ):
        while taken := receiver.receive_messages(500, max_wait_time=10 if len(got) < count else 0.2):
            got += [int(message.message_id or "") for message in taken]
    assert got == list(range(count))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [512 * 1024, 24 * MIB, 64_000_000, MESSAGE_BYTES_MAX - 1_024])
def test_every_size_is_whole_both_ways(broker: Broker, size: int, mode: ServiceBusReceiveMode) -> None:
    queue = made(broker)
    body = hashlib.shake_128(b"body").digest(size)
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage(body))
        with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=30)
            assert b"".join(message.body) == body
            if mode is MODES[0]:
                receiver.complete_message(message)
            assert receiver.receive_messages(1, max_wait_time=0.2) == []
