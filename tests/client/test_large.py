"""Large messages through our own client: each arrives complete and exactly once."""

from __future__ import annotations

import hashlib
from uuid import uuid4

import pytest

from twinbus.client import BusClient, Message
from twinbus.limits import MESSAGE_BYTES_MAX
from twinbus.testing import Broker

MIB = 1024 * 1024


async def test_receive_and_delete_of_more_than_a_socket_takes(client: BusClient, queue: str) -> None:
    sender = await client.sender(queue)
    outcomes = await sender.send_many(Message(b"x" * 10_000, message_id=str(n)).encode() for n in range(3_000))
    assert outcomes == [None] * 3_000
    receiver = await client.receiver(queue, prefetch=5_000, delete=True)
    got: list[int] = []
    while taken := await receiver.receive_batch(5_000, 5 if len(got) < 3_000 else 0.2):
        got += [int(message.message_id or "") for message in taken]
    assert got == list(range(3_000))


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("size", [1, 512 * 1024, 24 * MIB, MESSAGE_BYTES_MAX - 1_024])
async def test_every_size_is_whole_both_ways(broker: Broker, client: BusClient, size: int, delete: bool) -> None:
    queue = f"large-{uuid4()}"
    broker.create_queue(queue, max_message_bytes=MESSAGE_BYTES_MAX)
    body = hashlib.shake_128(b"body").digest(size)
    sender = await client.sender(queue)
    await sender.send(Message(body))
    receiver = await client.receiver(queue, delete=delete)
    (message,) = await receiver.receive_batch(1, 30)
    assert message.body == body
    if not delete:
        await receiver.complete(message)
    assert await receiver.receive_batch(1, 0.2) == []
