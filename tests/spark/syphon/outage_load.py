"""An application that sends through a pair: some messages, then a line on stdout, and after an answer as many again.

A process of its own, as applications are. Prints JSON: the ids of all that were accepted, and how many were diverted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from azure.servicebus import ServiceBusMessage

from twinbus.ledger.words import Event
from twinbus.paired import PairedEvent
from twinbus.paired.aio import PairedServiceBusClient

BEFORE = 5


async def work(name: str, ca: str, queues: int, sends: int) -> None:
    ids: list[str] = []
    events: list[PairedEvent] = []
    client = PairedServiceBusClient.from_connection_strings(
        os.environ["TWINBUS_PRIMARY"],
        os.environ["TWINBUS_SECONDARY"],
        primary_name=name,
        backlog_queue_count=queues,
        failover_interval=0.5,
        ping_primary_interval=30,
        try_timeout=2,
        retry_total=0,
        on_event=events.append,
        admin_options={"connection_verify": ca},
    )
    await client.wait_until_paired()
    async with client, client.get_queue_sender("orders") as orders, client.get_topic_sender("news") as news:

        async def send(sender: Any, message_id: str) -> None:
            await sender.send_messages(ServiceBusMessage(b"x" * 200, message_id=message_id))
            ids.append(message_id)

        for number in range(BEFORE):
            await send(orders, f"before-{number}")
        print("sent", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for number in range(sends):
            await send(orders, f"order-{number}")
            await send(news, f"news-{number}")
    diverted = sum(event.count for event in events if event.kind is Event.DIVERTED)
    print(json.dumps({"ids": ids, "diverted": diverted}), flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
