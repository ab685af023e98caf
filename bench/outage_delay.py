"""The longest that a caller waits for a send, in each of the seven outages of `tests/faults/outages.py`.

For each outage and each set of options it starts two brokers as processes, and an asyncio application that sends to one
queue all the time, without a timeout. The outages of one set run side by side. Results: a table, and JSON in
bench/results/. With the default options it takes about four minutes.

    PYTHONPATH=tests/faults python bench/outage_delay.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import outages
from azure.servicebus import ServiceBusMessage
from measure import machine
from outages_proxy import Proxy

from twinbus.paired import Event, PairedEvent, PairingOptions
from twinbus.paired.aio import PairedServiceBusClient

HERE = Path(__file__).resolve().parent
WORKERS = 3
PACE_S = 0.2
SETS = {"default": PairingOptions(), "responsive": PairingOptions.responsive()}


class Delays:
    """What an outage acts on, and how long sends took meanwhile."""

    def __init__(self, folder: Path, options: PairingOptions) -> None:
        self.rng = Random(1)
        self.primary = outages.Broker(folder, "contoso", outages.ENTITIES)
        self.secondary = outages.Broker(folder, "fabrikam")
        self.proxy = Proxy(self.primary.port)
        self._options = options
        # Duration of every send that has returned, and errors by class.
        self.seconds: list[float] = []
        self.errors: dict[str, int] = {}
        self._over = asyncio.Event()
        self._stop = asyncio.Event()

    async def run(self, outage: Any) -> None:
        try:
            await asyncio.gather(asyncio.to_thread(self.primary.start), asyncio.to_thread(self.secondary.start))
            await self.proxy.start()
            primary = self.primary.connection_string.replace(f":{self.primary.port}", f":{self.proxy.port}")
            client = PairedServiceBusClient.from_connection_strings(
                primary, self.secondary.connection_string, options=self._options, on_event=self._told
            )
            await client.wait_until_paired(30)
            async with client, client.get_queue_sender(outages.PLAIN) as sender:
                workers = [asyncio.create_task(self._work(sender)) for _ in range(WORKERS)]
                await self.until_sends(3)
                await outage(self)
                await self.until_sends(3)
                self._stop.set()
                await asyncio.gather(*workers)
        finally:
            self.primary.kill()
            self.secondary.kill()
            await self.proxy.close()

    async def until_sends(self, count: int) -> None:
        wanted = len(self.seconds) + count * WORKERS
        while len(self.seconds) < wanted:
            await asyncio.sleep(0.1)

    async def until_failed_over(self) -> None:
        await asyncio.wait_for(self._over.wait(), 2 * self._options.send_timeout)

    async def _told(self, event: PairedEvent) -> None:
        if event.kind is Event.FAILED_OVER:
            self._over.set()

    async def _work(self, sender: Any) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                await sender.send_messages(ServiceBusMessage("x"))
            except Exception as error:
                name = type(error).__name__
                self.errors[name] = self.errors.get(name, 0) + 1
            self.seconds.append(time.monotonic() - started)
            await asyncio.sleep(PACE_S)


async def measure(options: PairingOptions) -> dict[str, dict[str, Any]]:
    # The options define how slow a slow outage is, and how often a flapping one comes and goes.
    outages.SLOW_MS = round(options.try_timeout * 1500)
    outages.INTERVAL_S = options.failover_interval

    async def one(name: str, outage: Any) -> tuple[str, dict[str, Any]]:
        with tempfile.TemporaryDirectory() as folder:
            delays = Delays(Path(folder), options)
            await delays.run(outage)
        found = {"longest_s": round(max(delays.seconds), 1), "sends": len(delays.seconds), "errors": delays.errors}
        return name, found

    return dict(await asyncio.gather(*(one(name, outage) for name, outage in outages.OUTAGES.items())))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "outage_delay.json")
    parser.add_argument("--set", choices=SETS, action="append", help="one of the sets of options only")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)
    results = {name: asyncio.run(measure(SETS[name])) for name in arguments.set or SETS}
    print(f"{'longest wait, s':18}" + "".join(f"{name:>14}" for name in results))
    for outage in outages.OUTAGES:
        print(f"{outage:18}" + "".join(f"{rows[outage]['longest_s']:14.1f}" for rows in results.values()))
    errors = sum(sum(row["errors"].values()) for rows in results.values() for row in rows.values())
    print(f"errors: {errors}")
    arguments.json.write_text(json.dumps({"machine": machine(), "results": results}, indent=2) + "\n")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
