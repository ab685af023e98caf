"""Messages moved in one transaction: all or none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from twinbus.client import BusClient, Message
from twinbus.client.transaction import MOVED_MAX
from twinbus.errors import EntityDisabledError, ServiceError
from twinbus.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(queues=["a", "b"], sync=False) as broker:
        broker.create_queue("shut", status="SendDisabled")
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[BusClient]:
    async with BusClient.from_connection_string(broker.connection_string()) as client:
        sender = await client.sender("a")
        assert set(await sender.send_many(Message(f"m{n}") for n in range(MOVED_MAX))) == {None}
        yield client


def active(broker: Broker, path: str) -> int:
    return broker.call(lambda server: server.hosts["contoso"].entities.queue(path).counts.active)


async def test_they_go_together(broker: Broker, client: BusClient) -> None:
    receiver, sender = await client.receiver("a"), await client.sender("b")
    transactions = await client.transactions(sender)
    messages = await receiver.receive_batch(MOVED_MAX)
    assert len(messages) == MOVED_MAX
    await transactions.move(receiver, [(one, Message(one.body).encode()) for one in messages])
    assert (active(broker, "a"), active(broker, "b")) == (0, MOVED_MAX)
    found = await (await client.receiver("b")).receive_batch(MOVED_MAX)
    assert [one.body for one in found] == [f"m{n}".encode() for n in range(MOVED_MAX)]


async def test_a_refused_send_leaves_them_with_the_receiver(broker: Broker, client: BusClient) -> None:
    receiver, sender = await client.receiver("a"), await client.sender("b")
    transactions = await client.transactions(sender)
    shut = await client.sender("shut")
    messages = await receiver.receive_batch(3)
    moved = [(one, one.payload) for one in messages]
    with pytest.raises(EntityDisabledError):
        await (await client.transactions(shut)).move(receiver, moved)
    assert active(broker, "a") == MOVED_MAX
    # They are still locked by us.
    await transactions.move(receiver, moved)
    assert (active(broker, "a"), active(broker, "b")) == (MOVED_MAX - 3, 3)


async def test_a_lost_lock_undoes_the_sends(broker: Broker, client: BusClient) -> None:
    receiver, sender = await client.receiver("a"), await client.sender("b")
    transactions = await client.transactions(sender)
    first, second = await receiver.receive_batch(2)
    await receiver.complete(second)
    with pytest.raises(ServiceError):
        await transactions.move(receiver, [(first, first.payload), (second, second.payload)])
    assert (active(broker, "a"), active(broker, "b")) == (MOVED_MAX - 1, 0)


async def test_too_many_are_refused_here(client: BusClient) -> None:
    receiver, sender = await client.receiver("a"), await client.sender("b")
    transactions = await client.transactions(sender)
    (message,) = await receiver.receive_batch(1)
    with pytest.raises(ValueError, match=f"at most {MOVED_MAX}"):
        await transactions.move(receiver, [(message, b"")] * (MOVED_MAX + 1))


async def test_a_lost_connection_is_told(broker: Broker, client: BusClient) -> None:
    receiver, sender = await client.receiver("a"), await client.sender("b")
    transactions = await client.transactions(sender)
    (message,) = await receiver.receive_batch(1)
    broker.restart()
    with pytest.raises(ServiceError):
        await transactions.move(receiver, [(message, message.payload)])
    assert (active(broker, "a"), active(broker, "b")) == (MOVED_MAX, 0)


async def test_a_transaction_ends_with_its_sender(client: BusClient) -> None:
    receiver, sender = await client.receiver("a"), await client.sender("b")
    transactions = await client.transactions(sender)
    (message,) = await receiver.receive_batch(1)
    await sender.close()
    with pytest.raises(ServiceError):
        await transactions.move(receiver, [(message, message.payload)])


async def test_a_sender_outlives_its_transactions(broker: Broker, client: BusClient) -> None:
    sender = await client.sender("b")
    await (await client.transactions(sender)).close()
    await sender.send(Message(b"after"))
    assert active(broker, "b") == 1
