"""Half-open outages: threads and descriptors stay bounded, and come back to base after the outage and after `close`."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.paired.doorkeeper import doorkeeper
from tests.paired.pairs import Pair, call


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def until_at_most(count: Any, most: int, what: str) -> None:
    for _ in range(1_500):
        if count() <= most:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{count()} {what} instead of {most}")


async def test_a_half_open_primary_leaves_nothing_behind(pair: Pair) -> None:
    # The pool of threads of this test's own calls.
    await asyncio.gather(*(asyncio.to_thread(lambda: None) for _ in range(8)))
    with doorkeeper(pair.primary.endpoint().port) as door:
        primary = pair.primary.connection_string().replace(f":{pair.primary.endpoint().port}", f":{door.port}")
        base_threads, base_descriptors = threading.active_count, descriptors
        outer = base_threads(), base_descriptors()
        async with pair.sender(primary=primary, failover_interval=2) as sender:
            await call(sender.paired_client.wait_until_paired)
            await call(sender.send_messages, ServiceBusMessage("before"))
            inner = base_threads(), base_descriptors()
            door.strike(stall=True)
            most = [0, 0]
            for number in range(4):
                # Each has its hung openings, and pings hang as well.
                await call(sender.send_messages, ServiceBusMessage(str(number)))
                await asyncio.sleep(1.1)
                most = [max(most[0], base_threads()), max(most[1], base_descriptors())]
            # The proxy in this process keeps its end of every connection; our end is what counts.
            assert most[0] <= inner[0] + 6, "threads"
            door.heal()
            await pair.until("failed-back", 20)
            await call(sender.send_messages, ServiceBusMessage("after"))
            # One thread more may keep a connection to the backlog alive.
            await until_at_most(base_threads, inner[0] + 2, "threads after the outage")
        await until_at_most(base_threads, outer[0] + 1, "threads after closing")
    # The brokers of this process may keep a descriptor or two of their own; every hung opening used to keep one.
    await until_at_most(descriptors, outer[1] + 2, "descriptors after closing")
    await pair.in_primary(2)
    await pair.in_backlog(4)
