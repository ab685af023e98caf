"""A program that sends through a pair while its parent breaks the primary, and reports what it holds.

It obeys the lines on stdin and answers each with a line of JSON: threads and descriptors. It collects no garbage, so
that anything not closed stays.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from azure.servicebus import ServiceBusMessage

from tests.paired.pairs import FAST, call
from twinbus import paired
from twinbus.paired import aio

THREADS = 4
SETTLE_S = 15.0


def held() -> tuple[int, int]:
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def tell(what: tuple[int, int]) -> None:
    print(json.dumps(what), flush=True)


async def settled(happy: Callable[[tuple[int, int]], bool]) -> tuple[int, int]:
    """What is held as soon as it is little enough, or when the time is up."""
    for _ in range(round(SETTLE_S / 0.02)):
        if happy(now := held()):
            return now
        await asyncio.sleep(0.02)
    return held()


async def main(colour: str, primary: str, secondary: str) -> None:
    gc.disable()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    together = threading.Barrier(THREADS)
    await asyncio.gather(*(asyncio.to_thread(together.wait) for _ in range(THREADS)))
    package: Any = paired if colour == "sync" else aio
    back = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told(event: Any) -> None:
        if event.kind == "failed-back":
            loop.call_soon_threadsafe(back.set)

    base = held()
    tell(base)
    client = package.PairedServiceBusClient.from_connection_strings(
        primary, secondary, **{**FAST, "failover_interval": 2, "backlog_queue_count": 1, "on_event": told}
    )
    await call(client.wait_until_paired, 30)
    sender = client.get_queue_sender("orders")
    await call(sender.send_messages, ServiceBusMessage("before"))
    opened = held()
    tell(opened)
    await asyncio.to_thread(sys.stdin.readline)
    most = opened
    for number in range(4):
        # Each has its hanging opens, and pings hang as well.
        sending = asyncio.ensure_future(call(sender.send_messages, ServiceBusMessage(str(number))))
        for _ in range(50):
            await asyncio.sleep(0.02)
            now = held()
            most = max(most[0], now[0]), max(most[1], now[1])
        await sending
    tell(most)
    await asyncio.to_thread(sys.stdin.readline)
    await asyncio.wait_for(back.wait(), 60)
    await call(sender.send_messages, ServiceBusMessage("after"))
    # The listener's thread stays.
    tell(await settled(lambda now: now[0] <= opened[0] + 1 and now[1] <= opened[1]))
    await call(client.close)
    tell(await settled(lambda now: now == base))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
