"""Many sends at once on one sender: all return, each is stored once, and a caller's timeout is kept."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from tests.paired.pairs import Pair, call, opened
from twinbus.client import BusClient

COUNT = 100
# A healthy primary must not fail over because the machine is busy.
PATIENT: dict[str, Any] = {"try_timeout": 50, "failover_interval": 50}


async def all_at_once(sender: Any, **options: Any) -> list[Any]:
    """Send COUNT messages at once, with tasks or threads."""
    messages = [ServiceBusMessage(str(number), message_id=f"m{number}") for number in range(COUNT)]
    if asyncio.iscoroutinefunction(sender.send_messages):
        sends = [sender.send_messages(message, **options) for message in messages]
        return await asyncio.gather(*sends, return_exceptions=True)
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(COUNT) as threads:
        calls = [loop.run_in_executor(threads, lambda m=m: sender.send_messages(m, **options)) for m in messages]
        return await asyncio.gather(*calls, return_exceptions=True)


async def test_a_hundred_at_once_on_a_healthy_primary(pair: Pair) -> None:
    async with pair.sender(**PATIENT) as sender:
        for _ in range(3):
            assert await asyncio.wait_for(all_at_once(sender), 60) == [None] * COUNT
    found = await pair.in_primary(3 * COUNT)
    assert sorted(message.message_id for message in found) == sorted(f"m{n}" for n in range(COUNT) for _ in range(3))


async def test_a_hundred_at_once_on_a_cold_sender(pair: Pair) -> None:
    async with pair.client(**PATIENT) as client:
        assert await asyncio.wait_for(all_at_once(client.get_queue_sender("orders")), 60) == [None] * COUNT
    await pair.in_primary(COUNT)


async def test_a_hundred_at_once_while_failed_over(pair: Pair) -> None:
    async with pair.sender(failover_interval=0, try_timeout=30) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("first"))
            assert await asyncio.wait_for(all_at_once(sender), 60) == [None] * COUNT
    assert len(pair.told("failed-over")) == 1
    found = await pair.in_backlog(COUNT + 1)
    assert len({message.message_id for each in found.values() for message in each}) == COUNT + 1


@pytest.mark.parametrize("mode", ["down", "refusing"])
async def test_a_hundred_at_once_that_fail_over_together(pair: Pair, mode: str) -> None:
    async with pair.sender(failover_interval=0.5, try_timeout=30) as sender:
        await call(sender.send_messages, ServiceBusMessage("before"))
        with pair.primary.fault(mode, "orders" if mode == "refusing" else None):
            assert await asyncio.wait_for(all_at_once(sender), 60) == [None] * COUNT
    found = await pair.in_backlog(COUNT)
    assert len({message.message_id for each in found.values() for message in each}) == COUNT


async def test_a_hundred_that_wait_for_the_backlog_go_to_a_primary_that_is_back(pair: Pair) -> None:
    async with pair.sender(failover_interval=0, backlog_queue_count=1, try_timeout=50) as sender:
        await call(sender.paired_client.wait_until_paired)
        with pair.secondary.fault("refusing"):
            with pair.primary.fault("refusing", "orders"):
                sending = asyncio.create_task(all_at_once(sender, timeout=50))
                await pair.until("backlog-queue-out")
                await asyncio.sleep(0.3)
                assert not sending.done()
            assert await asyncio.wait_for(sending, 60) == [None] * COUNT
    found = await pair.in_primary(COUNT)
    assert len({message.message_id for message in found}) == COUNT
    await pair.in_backlog(0, names=1)


async def test_no_more_connections_than_sends_in_flight(pair: Pair) -> None:
    before = pair.connections()
    async with pair.sender(max_in_flight=3, **PATIENT) as sender:
        assert await asyncio.wait_for(all_at_once(sender), 60) == [None] * COUNT
        assert pair.connections() - before <= 3
    await pair.in_primary(COUNT)


async def test_a_timeout_is_kept_while_all_connections_are_busy(pair: Pair) -> None:
    async with pair.sender(max_in_flight=1, failover_interval=30) as sender:
        with pair.primary.fault("silent"):
            busy = asyncio.create_task(call(sender.send_messages, ServiceBusMessage("busy"), timeout=3))
            await asyncio.sleep(0.2)
            with pytest.raises(OperationTimeoutError):
                await call(sender.send_messages, ServiceBusMessage("waits"), timeout=0.5)
            assert not busy.done()
            with pytest.raises(OperationTimeoutError):
                await busy


@pytest.mark.parametrize("pair", ["aio"], indirect=True)
async def test_a_cancelled_send_spoils_no_other(pair: Pair) -> None:
    async with pair.sender(max_in_flight=1) as sender:
        with pair.primary.fault("slow", delay_ms=300), pytest.raises(TimeoutError):
            await asyncio.wait_for(sender.send_messages(ServiceBusMessage("cancelled")), 0.05)
        for number in range(3):
            await sender.send_messages(ServiceBusMessage(str(number)))
    found = [message.body for message in await in_primary_at_least(pair, 3)]
    assert [body for body in found if body != b"cancelled"] == [b"0", b"1", b"2"]


async def in_primary_at_least(pair: Pair, count: int) -> list[Any]:
    found: list[Any] = []
    async with BusClient.from_connection_string(pair.primary.connection_string()) as client:
        receiver = await client.receiver("orders", delete=True)
        while batch := await receiver.receive_batch(100, wait_s=1):
            found += batch
    assert len(found) >= count
    return found


async def test_other_senders_are_untouched_by_a_busy_one(pair: Pair) -> None:
    async with (
        pair.client(max_in_flight=1, **PATIENT) as client,
        opened(client.get_queue_sender("orders")) as one,
        opened(client.get_queue_sender("orders")) as two,
    ):
        await asyncio.gather(all_at_once(one), all_at_once(two))
    assert len(await pair.in_primary(2 * COUNT)) == 2 * COUNT
