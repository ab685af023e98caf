"""Bulk work on our own asyncio client: thousands of messages a second, every outcome known.

TWINBUS_CONNECTION_STRING=... python examples/bulk.py    (the queue `bulk` exists)
"""

import asyncio
import os
import time

from twinbus.client import BusClient, Message

COUNT = 10_000


async def main() -> None:
    async with BusClient.from_connection_string(os.environ["TWINBUS_CONNECTION_STRING"]) as client:
        sender = await client.sender("bulk")
        started = time.perf_counter()
        outcomes = await sender.send_many(Message(f"row {number}") for number in range(COUNT))
        failed = [outcome for outcome in outcomes if outcome is not None]
        print(f"sent {COUNT - len(failed)} at {COUNT / (time.perf_counter() - started):,.0f}/s, {len(failed)} refused")

        receiver = await client.receiver("bulk", prefetch=500)
        started, done = time.perf_counter(), 0
        while done < COUNT:
            messages = await receiver.receive_batch(500, wait_s=5)
            await receiver.complete_many(messages)
            done += len(messages)
        print(f"received and completed {done} at {done / (time.perf_counter() - started):,.0f}/s")


asyncio.run(main())
