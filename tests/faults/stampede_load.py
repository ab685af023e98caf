"""Many senders of one process that open and send at once, for `stampede.py`.

Reads one word per line from its standard input and answers each with a line of JSON: `send` makes every sender send one
message at the same time, `pair` waits for the backlog queues, `back` until no entity is failed over, `end` ends it. The
CPU is that of this process, the time that of the slowest sender.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import azure.servicebus as sdk
import azure.servicebus.aio as sdk_aio
from azure.servicebus import ServiceBusMessage

from twinbus import paired
from twinbus.paired import PairedEvent, PairingError, PairingOptions, aio

BACK_TIMEOUT_S = 180.0


class Crowd:
    """The senders, and what has happened to them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.events: list[tuple[float, PairedEvent]] = []
        package: Any
        if options.plain:
            package = sdk if options.sync else sdk_aio
            self.client: Any = package.ServiceBusClient.from_connection_string(options.primary)
        else:
            package = paired if options.sync else aio
            self.client = package.PairedServiceBusClient.from_connection_strings(
                options.primary,
                options.secondary,
                options=PairingOptions.responsive() if options.responsive else PairingOptions(),
                primary_name="contoso",
                on_event=lambda event: self.events.append((time.monotonic(), event)),
            )
        self.senders: list[Any] = []
        self.number = 0

    def outcome(self, started: tuple[float, float, float, int], errors: Counter[str]) -> str:
        wall, cpu, lost_s, seen = started
        if not self.options.plain:
            self.client._pair.events.flush(60)
        kinds = Counter(str(event.kind) for _, event in self.events[seen:])
        over = [moment - wall for moment, event in self.events[seen:] if event.kind == "failed-over"]
        starved = [event.count for _, event in self.events[seen:] if event.kind == "starved"]
        return json.dumps(
            {
                "sent": len(self.senders) - errors.total(),
                "errors": dict(errors),
                "seconds": round(time.monotonic() - wall, 2),
                "cpu_s": round(time.process_time() - cpu, 2),
                "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "events": dict(kinds),
                "failed_over_s": [round(each, 2) for each in over],
                "starved_told_ms": starved,
                "starved_s": round(self.lost_s() - lost_s, 2),
            }
        )

    def message(self, number: int) -> ServiceBusMessage:
        return ServiceBusMessage(b"x" * 100, message_id=f"{self.number}-{number}")

    def begin(self) -> tuple[float, float, float, int]:
        self.number += 1
        return time.monotonic(), time.process_time(), self.lost_s(), len(self.events)

    def lost_s(self) -> float:
        """The time in which this process did not run, as the paired client has noticed."""
        return 0.0 if self.options.plain else float(self.client._pair.clock.meter.lost_s)

    def is_back(self) -> bool:
        return self.options.plain or all(state == "healthy" for state in self.client.entity_states.values())


async def asynchronously(options: argparse.Namespace) -> None:
    crowd = Crowd(options)
    loop = asyncio.get_running_loop()
    async with crowd.client:
        while (word := (await loop.run_in_executor(None, sys.stdin.readline)).strip()) not in ("end", ""):
            started = crowd.begin()
            errors: Counter[str] = Counter()

            async def one(number: int, errors: Counter[str] = errors) -> None:
                try:
                    if number >= len(crowd.senders):
                        sender = crowd.client.get_queue_sender("orders")
                        crowd.senders.append(sender)
                        await sender.__aenter__()
                    await crowd.senders[number].send_messages(crowd.message(number))
                except Exception as error:
                    errors[f"{type(error).__name__}: {error}"[:160]] += 1

            if word == "send":
                await asyncio.gather(*map(one, range(options.count)))
            while word == "pair" and not crowd.client.backlog_queues:
                with suppress(PairingError):
                    await crowd.client.wait_until_paired()
            while word == "back" and not crowd.is_back() and time.monotonic() - started[0] < BACK_TIMEOUT_S:
                await asyncio.sleep(0.05)
            print(crowd.outcome(started, errors), flush=True)
        # Closing hundreds of links takes the SDK a second each, and is not measured.
        os._exit(0)


def synchronously(options: argparse.Namespace) -> None:
    crowd = Crowd(options)
    lock = threading.Lock()
    with crowd.client, ThreadPoolExecutor(options.count) as pool:
        while (word := sys.stdin.readline().strip()) not in ("end", ""):
            started = crowd.begin()
            errors: Counter[str] = Counter()

            def one(number: int, errors: Counter[str] = errors) -> None:
                try:
                    if number >= len(crowd.senders):
                        sender = crowd.client.get_queue_sender("orders")
                        with lock:
                            crowd.senders.append(sender)
                        sender.__enter__()
                    else:
                        sender = crowd.senders[number]
                    sender.send_messages(crowd.message(number))
                except Exception as error:
                    with lock:
                        errors[f"{type(error).__name__}: {error}"[:160]] += 1

            if word == "send":
                first = not crowd.senders
                list(pool.map(one, [10**6 + n if first else n for n in range(options.count)]))
            while word == "pair" and not crowd.client.backlog_queues:
                with suppress(PairingError):
                    crowd.client.wait_until_paired()
            while word == "back" and not crowd.is_back() and time.monotonic() - started[0] < BACK_TIMEOUT_S:
                time.sleep(0.05)
            print(crowd.outcome(started, errors), flush=True)
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--primary", required=True)
    parser.add_argument("--secondary", required=True)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--responsive", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    run: Callable[[argparse.Namespace], Any] = synchronously if options.sync else asynchronously
    made = run(options)
    if made is not None:
        asyncio.run(made)


if __name__ == "__main__":
    main()
