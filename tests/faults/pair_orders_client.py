"""The application of `pair_orders.py`: sends the message ids that it reads, and says which were accepted.

It uses only what the last version has, too, and is run with either.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys

from azure.servicebus import ServiceBusMessage

from twinbus.paired.aio import PairedServiceBusClient

SEND_TIMEOUT_S = 10.0


async def main(primary: str, secondary: str, create: bool) -> None:
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    loop = asyncio.get_running_loop()
    async with (
        PairedServiceBusClient.from_connection_strings(
            primary,
            secondary,
            backlog_queue_count=2,
            failover_interval=0,
            ping_primary_interval=1,
            try_timeout=2,
            retry_total=0,
            create_backlog_queues=create,
        ) as client,
        client.get_queue_sender("orders") as sender,
    ):
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            accepted, refused = [], {}
            for name in json.loads(line):
                try:
                    await sender.send_messages(ServiceBusMessage(name, message_id=name), timeout=SEND_TIMEOUT_S)
                    accepted.append(name)
                except Exception as error:
                    refused[name] = type(error).__name__
            print(json.dumps({"accepted": accepted, "refused": refused}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3] == "create"))
