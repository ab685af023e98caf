"""The three processes of an outage: an application that sends, a receiver, and the syphon. Each logs what it did.

- `send`: a paired client on top of the SDK. Every message has its own id and is sent once; the attempts that this takes
  are logged on the SDK's own sender. On SIGTERM no new send begins, and those under way end.
- `receive`: receives messages from the primary, through every outage.
- `syphon`: `twinbus syphon` itself, with its sends and completions logged.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from random import Random
from typing import Any, TextIO

from outages_checker import Did

from twinbus.client import BusClient
from twinbus.client.message import ReceivedMessage
from twinbus.errors import ServiceError

# Entities by name: the last one is a topic, received from its subscription.
PLAIN, DETECTING, TOPIC = "plain", "detecting", "news"
SOURCES = {PLAIN: PLAIN, DETECTING: DETECTING, TOPIC: f"{TOPIC}/Subscriptions/all"}
BACKLOG_QUEUES = 3
INTERVAL_S = 1.0
WORKERS = 2
PACE_S = 0.1
# Much longer than the interval, because the machine may be busy.
SEND_TIMEOUT_S = 60.0
PREFETCH = 100
PING = "application/vnd.ms-servicebus-ping"


class Log:
    """One line for each event; the test reads it meanwhile."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, did: Did, name: str, number: int = 0) -> None:
        self._file.write(f"{did} {name} {number}\n")
        self._file.flush()


def body_of(name: str) -> bytes:
    return f"{name} ".encode() * 20


def stopped() -> asyncio.Event:
    """An event that SIGTERM sets."""
    event = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, event.set)
    return event


# --- the application --------------------------------------------------------------------------------------------------


def watch_sdk(log: Log, current: ContextVar[str]) -> None:
    """Log every attempt that the paired sender makes on the SDK's sender, under the message being sent."""
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus import ServiceBusSender as SyncSender
    from azure.servicebus.aio import ServiceBusSender

    send = ServiceBusSender.send_messages
    send_sync = SyncSender.send_messages

    def watched_sync(self: SyncSender, message: Any, **options: Any) -> None:
        if isinstance(message, ServiceBusMessage) and message.content_type == PING:
            send_sync(self, message, **options)
            return
        name = current.get()
        log(Did.TRIED, name)
        send_sync(self, message, **options)
        log(Did.ANSWERED, name)

    async def watched(self: ServiceBusSender, message: Any, **options: Any) -> None:
        # A send can start a watcher, which sends pings.
        if isinstance(message, ServiceBusMessage) and message.content_type == PING:
            await send(self, message, **options)
            return
        name = current.get()
        log(Did.TRIED, name)
        await send(self, message, **options)
        log(Did.ANSWERED, name)

    ServiceBusSender.send_messages = watched  # type: ignore[method-assign,assignment]
    SyncSender.send_messages = watched_sync  # type: ignore[method-assign,assignment]


async def call(method: Any, *arguments: Any, **options: Any) -> Any:
    """Await a sync or async call."""
    if asyncio.iscoroutinefunction(method):
        return await method(*arguments, **options)
    return await asyncio.to_thread(method, *arguments, **options)


async def paired_at_last(client: Any) -> None:
    """Wait until the client is paired: on a busy machine brokers that have just started may be slow to answer."""
    from twinbus import paired

    for _ in range(20):
        try:
            await call(client.wait_until_paired)
            return
        except paired.PairingError as error:
            print(f"not paired yet: {error}", file=sys.stderr)
            await asyncio.sleep(1)
    await call(client.wait_until_paired)


async def send(log: Log, primary: str, secondary: str, ca: Path, seed: int, sync: bool, usage: Path) -> None:
    from azure.servicebus import ServiceBusMessage

    from twinbus import paired
    from twinbus.paired import PairedEvent, aio

    current: ContextVar[str] = ContextVar("current")
    watch_sdk(log, current)
    stop = stopped()
    rng = Random(seed)

    def told(event: PairedEvent) -> None:
        if event.kind in (Did.FAILED_OVER, Did.FAILED_BACK, Did.DIVERTED):
            log(Did(event.kind), str(event.entity))

    async def work(sender: Any, entity: str, worker: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            name = f"{entity}/{worker}/{number:06}"
            current.set(name)
            log(Did.SENT, name)
            message = ServiceBusMessage(body_of(name), message_id=name, application_properties={"number": number})
            try:
                await call(sender.send_messages, message, timeout=SEND_TIMEOUT_S)
            except Exception as error:
                log(Did.RAISED, name)
                print(f"{name}: {error!r}", file=sys.stderr)
            else:
                log(Did.RETURNED, name)
            await asyncio.sleep(PACE_S * rng.uniform(0.5, 1.5))

    package: Any = paired if sync else aio
    # Start all threads of the pool now, so that threads counted later belong to the client.
    size = 4 * WORKERS * len(SOURCES)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(size))
    together = threading.Barrier(size)
    await asyncio.gather(*(asyncio.to_thread(together.wait) for _ in range(size)))
    opened = usage_now()
    client = package.PairedServiceBusClient.from_connection_strings(
        primary,
        secondary,
        primary_name="contoso",
        backlog_queue_count=BACKLOG_QUEUES,
        failover_interval=INTERVAL_S,
        ping_primary_interval=1,
        try_timeout=2,
        backlog_pause=1,
        retry_total=0,
        rng=rng,
        on_event=told,
        admin_options={"connection_verify": str(ca)},
    )
    # The syphon starts after the first send, and looks for the backlog queues only once.
    await paired_at_last(client)
    try:
        async with asyncio.TaskGroup() as group:
            for entity in SOURCES:
                for worker in range(WORKERS):
                    sender = client.get_topic_sender(entity) if entity == TOPIC else client.get_queue_sender(entity)
                    group.create_task(work(sender, entity, worker))
    finally:
        await call(client.close)
    usage.write_text(json.dumps([opened, await until_back(opened)]))


def usage_now() -> tuple[int, int]:
    """Threads and descriptors of this process."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


async def until_back(opened: tuple[int, int]) -> tuple[int, int]:
    """Wait until there are as many as before, or give up: closing connections takes its time."""
    for _ in range(200):
        gc.collect()
        now = usage_now()
        if now[0] <= opened[0] and now[1] <= opened[1]:
            break
        await asyncio.sleep(0.05)
    return now


# --- the receiver -----------------------------------------------------------------------------------------------------


async def receive(log: Log, primary: str) -> None:
    stop = stopped()
    tasks = [asyncio.create_task(receive_from(log, primary, source, entity)) for entity, source in SOURCES.items()]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


async def receive_from(log: Log, primary: str, source: str, entity: str) -> None:
    """Receive on one connection after the other, until cancelled; messages that are not completed come again."""
    while True:
        client = BusClient.from_connection_string(primary, timeout_ms=5_000)
        try:
            receiver = await client.receiver(source, prefetch=PREFETCH)
            while True:
                messages = await receiver.receive_batch(PREFETCH, wait_s=None)
                for message in messages:
                    note(log, message, entity)
                await receiver.complete_many(messages)
        except ServiceError:
            await asyncio.sleep(0.1)
        finally:
            await client.close()


def note(log: Log, message: ReceivedMessage, entity: str) -> None:
    name = str(message.message_id)
    came_as_sent = (
        name.startswith(f"{entity}/")
        and message.body == body_of(name)
        and message.application_properties == {"number": int(name.rpartition("/")[2])}
    )
    log(Did.RECEIVED if came_as_sent else Did.SPOILED, name, message.sequence_number)


# --- the syphon -------------------------------------------------------------------------------------------------------


def watch_syphon(log: Log) -> None:
    """Log the messages that the syphon sends to the primary, and the completions that the backlog confirms."""
    from twinbus.paired.syphon.bus_port import BusDestination, BusSource
    from twinbus.paired.syphon.port import Held, Outcomes, Parcel

    receive, send, complete = BusSource.receive, BusDestination.send, BusSource.complete
    # By id(handle): the handle, kept so that its id is not reused, and its message.
    names: dict[int, tuple[Any, str]] = {}

    async def receiving(self: BusSource, max_count: int, wait_s: float) -> list[Held]:
        found = await receive(self, max_count, wait_s)
        for held in found:
            names[id(held.handle)] = (held.handle, name_of(held.payload))
        return found

    async def sending(self: BusDestination, parcels: Sequence[Parcel], *more: Any) -> Outcomes:
        for parcel in parcels:
            for payload in parcel:
                log(Did.CARRIED, name_of(payload))
        return await send(self, parcels, *more)

    async def completing(self: BusSource, held: Sequence[Held]) -> Outcomes:
        outcomes = await complete(self, held)
        for one, error in zip(held, outcomes, strict=True):
            if error is None:
                log(Did.SETTLED, names.pop(id(one.handle))[1])
        return outcomes

    BusSource.receive = receiving  # type: ignore[method-assign]
    BusDestination.send = sending  # type: ignore[method-assign]
    BusSource.complete = completing  # type: ignore[method-assign]


def name_of(payload: bytes) -> str:
    return str(ReceivedMessage(payload, None, b"").message_id)


def syphon(log: Log, primary: str, secondary: str) -> None:
    from twinbus.cli.main import run

    watch_syphon(log)
    pair = ["--primary", primary, "--secondary", secondary, "--primary-name", "contoso"]
    sys.argv = [
        "twinbus",
        "syphon",
        "--engine",
        "local",
        "--quiet",
        *pair,
        "--backlog-queue-count",
        str(BACKLOG_QUEUES),
    ]
    run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("send", "receive", "syphon"))
    parser.add_argument("--primary", required=True)
    parser.add_argument("--secondary", required=True)
    parser.add_argument("--ca", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sync", action="store_true", help="send with the client of threads")
    options = parser.parse_args()
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    with options.log.open("a") as file:
        log = Log(file)
        if options.role == "send":
            usage = options.log.with_suffix(".usage")
            asyncio.run(send(log, options.primary, options.secondary, options.ca, options.seed, options.sync, usage))
        elif options.role == "receive":
            asyncio.run(receive(log, options.primary))
        else:
            syphon(log, options.primary, options.secondary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
