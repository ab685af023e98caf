"""Half-open outages: threads and descriptors stay bounded, and return to their base after the outage and `close`."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE

import pytest
from azure.servicebus import ServiceBusMessage

from tests.paired.doorkeeper import doorkeeper
from tests.paired.pairs import Pair, call
from twinbus.broker.connections.connection import BrokerConnection
from twinbus.paired.options import backlog_names

# One opening that hangs and one that is being closed, for a send and for a ping; the connection to the backlog.
MOST = 5
# In the sync client each of them has two threads: one opens or closes it, one keeps it alive.
THREADS_MOST = 2 * MOST


@pytest.mark.timeout(150)
async def test_a_half_open_primary_leaves_nothing_behind(pair: Pair) -> None:
    # For every queue that it does not find, the SDK's administration client leaves a connection to the garbage
    # collector.
    pair.secondary.create_queue(backlog_names("contoso", 1)[0])
    colour = "aio" if pair.package.__name__.endswith("aio") else "sync"
    with doorkeeper(pair.primary.endpoint().port) as door:
        primary = pair.primary.connection_string().replace(f":{pair.primary.endpoint().port}", f":{door.port}")
        command = [sys.executable, "-m", "tests.paired.held_resources", colour]
        child = await asyncio.create_subprocess_exec(
            *command, primary, pair.secondary.connection_string(), stdin=PIPE, stdout=PIPE
        )

        async def told() -> tuple[int, int]:
            assert child.stdout is not None
            threads, descriptors = json.loads(await child.stdout.readline())
            return threads, descriptors

        async def tell() -> None:
            assert child.stdin is not None
            child.stdin.write(b"\n")
            await child.stdin.drain()

        base, opened = await told(), await told()
        door.strike(stall=True)
        await tell()
        most = await told()
        door.heal()
        await tell()
        after, closed = await told(), await told()
        assert await child.wait() == 0
    assert most[0] <= opened[0] + THREADS_MOST, "threads in the outage"
    assert most[1] <= opened[1] + MOST, "descriptors in the outage"
    # The listener's thread.
    assert after[0] <= opened[0] + 1, "threads after the outage"
    assert after[1] <= opened[1], "descriptors after the outage"
    assert closed == base
    await pair.in_primary(2)
    await pair.in_backlog(4, names=1)


async def test_after_the_outage_the_connections_to_the_backlog_are_closed(pair: Pair) -> None:
    def connected() -> set[BrokerConnection]:
        return pair.secondary.call(lambda server: set().union(*(host._connections for host in server.hosts.values())))

    # Those of tests before this one may not be closed yet.
    others = connected()

    def at_secondary() -> int:
        return len(connected() - others)

    async with pair.sender(failover_interval=0, backlog_queue_count=2) as sender:
        await call(sender.paired_client.wait_until_paired)
        with pair.primary.fault("refusing", "orders"):
            await asyncio.gather(*(call(sender.send_messages, ServiceBusMessage(str(number))) for number in range(4)))
            assert at_secondary() >= 1
        await pair.until("failed-back")
        for _ in range(12_000):
            if not at_secondary():
                break
            await asyncio.sleep(0.01)
        assert at_secondary() == 0
        await call(sender.send_messages, ServiceBusMessage("home"))
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("away again"))
    await pair.in_primary(1)
    await pair.in_backlog(5, names=2)
