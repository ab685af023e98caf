"""A secondary that is stopped (SIGSTOP) or dead, while the primary is healthy, killed and back: `make faults`.

For each client it measures the longest send, and checks that every timeout is kept, that every accepted message is in
the primary or in a backlog queue, and that threads and descriptors return to their base when the client is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage
from outages import ENTITIES, Broker
from outages_load import PLAIN, call, until_back, usage_now

from twinbus import paired
from twinbus.client import BusClient
from twinbus.paired import aio
from twinbus.paired.options import backlog_names

TIMEOUT_S = 5.0
# What a busy machine may add to a caller's timeout.
SPARE_S = 1.5
QUEUES = 2


class Run:
    """One client between two brokers, and the results of its sends."""

    def __init__(self, folder: Path, package: Any) -> None:
        self.primary = Broker(folder, "contoso", ENTITIES)
        self.secondary = Broker(folder, "fabrikam")
        self._package = package
        self._sender: Any = None
        # Ids of the messages that were accepted, and what is wrong.
        self.accepted: set[str] = set()
        self.wrong: list[str] = []

    async def send(self, what: str, *, accepted: bool, count: int = 3) -> None:
        """Send one after the other; all of them return, or all raise, within the timeout."""
        longest_s = 0.0
        for number in range(count):
            name = f"{what} {number}"
            started = time.monotonic()
            try:
                await call(self._sender.send_messages, ServiceBusMessage("x", message_id=name), timeout=TIMEOUT_S)
                self.accepted.add(name)
                if not accepted:
                    self.wrong.append(f"{name}: accepted, and nobody was there")
            except Exception as error:
                if accepted:
                    self.wrong.append(f"{name}: {error!r}")
            longest_s = max(longest_s, time.monotonic() - started)
        if longest_s > TIMEOUT_S + SPARE_S:
            self.wrong.append(f"{what}: took {longest_s:.1f} s")
        print(f"  {what:44} longest {longest_s:5.2f} s", flush=True)

    async def run(self) -> None:
        self.primary.start()
        self.secondary.start()
        gc.collect()
        base = usage_now()
        self.stop()
        client = self._package.PairedServiceBusClient.from_connection_strings(
            self.primary.connection_string,
            self.secondary.connection_string,
            primary_name="contoso",
            backlog_queue_count=QUEUES,
            failover_interval=1,
            ping_primary_interval=1,
            try_timeout=2,
            backlog_pause=1,
            retry_total=0,
        )
        self._sender = client.get_queue_sender(PLAIN)
        try:
            await self.send("primary well, secondary stopped", accepted=True)
            await asyncio.to_thread(self.primary.kill)
            await self.send("primary killed, secondary stopped", accepted=False, count=2)
            self.go_on()
            await call(client.wait_until_paired, 30)
            await self.send("primary killed, secondary back", accepted=True)
            self.stop()
            await self.send("primary killed, secondary stopped again", accepted=False, count=2)
            self.go_on()
            await asyncio.to_thread(self.secondary.kill)
            await self.send("both killed", accepted=False, count=2)
            await asyncio.to_thread(self.primary.start)
            await self.send("primary back, secondary killed", accepted=True)
            await asyncio.to_thread(self.secondary.start)
        finally:
            await call(client.close)
        left = await until_back(base)
        if left[0] > base[0] or left[1] > base[1]:
            self.wrong.append(f"threads and descriptors are {left} instead of {base}")
        print(f"  threads/descriptors {base[0]}/{base[1]}, closed {left[0]}/{left[1]}")
        await self._count()

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self.secondary.process is not None
        self.secondary.process.send_signal(number)

    async def _count(self) -> None:
        found: list[str] = []
        for broker, queues in ((self.primary, [PLAIN]), (self.secondary, backlog_names("contoso", QUEUES))):
            async with BusClient.from_connection_string(broker.connection_string) as client:
                for queue in queues:
                    receiver = await client.receiver(queue, delete=True)
                    while batch := await receiver.receive_batch(100, wait_s=0.5):
                        found += [str(message.message_id) for message in batch]
        self.wrong += [f"lost: {name}" for name in self.accepted - set(found)]
        print(f"  accepted {len(self.accepted)}, lost {len(self.accepted - set(found))}, stored {len(found)}")


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("sync", "aio"))
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    # Start the threads of the pool now, so that threads counted later belong to the client.
    await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.2) for _ in range(40)))
    wrong = []
    for colour, package in {"sync": paired, "aio": aio}.items():
        if options.only in (None, colour):
            print(colour)
            with tempfile.TemporaryDirectory(prefix="twinbus-frozen-") as folder:
                run = Run(Path(folder), package)
                try:
                    await run.run()
                finally:
                    run.go_on()
                    run.primary.kill()
                    run.secondary.kill()
            wrong += [f"{colour}: {each}" for each in run.wrong]
    print("\n".join(wrong) or "nothing wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
