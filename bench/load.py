"""The load: a process that sends, receives or both over AMQP 1.0 with our own client, and prints its figures as JSON.

The same code loads every broker, so that only the broker differs. The broker confirms every send and every receive:
settlements are sent unsettled and their answers awaited. It authenticates with SASL PLAIN, which every peer supports.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import struct
import sys
import time
from array import array
from contextlib import AsyncExitStack

from twinbus.amqp import STATE_ACCEPTED
from twinbus.client import BusClient
from twinbus.client.receiver import Receiver
from twinbus.client.sender import Sender
from twinbus.errors import ServiceError

PHASES = ("send", "receive", "both", "latency")


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Payloads:
    """Encoded messages: durable, each with its own message id and a body of the given size."""

    def __init__(self, body_bytes: int) -> None:
        header = b"\x00\x53\x70\xc0\x02\x01\x41"
        # Properties with only the message id, a string of 24 characters.
        self.before = header + b"\x00\x53\x73\xc0\x1b\x01\xa1\x18"
        self.after = b"\x00\x53\x75\xb0" + struct.pack(">I", body_bytes) + b"x" * body_bytes

    def make(self, number: int) -> bytes:
        return self.before + b"%024d" % number + self.after


class Sending:
    """Keeps the sender's window full until `count` messages are accepted, and times each answer."""

    def __init__(self, sender: Sender, options: argparse.Namespace) -> None:
        self.sender = sender
        self.options = options
        self.payloads = Payloads(options.bytes)
        # When each message was sent, and how long its answer took.
        self.sent_at = array("d")
        self.waits = array("d")
        # The first refusal; it ends the run.
        self.error: ServiceError | None = None

    async def run(self) -> None:
        sender, sent_at, make, answered = self.sender, self.sent_at, self.payloads.make, self.answered
        number, count, first = 0, self.options.count, self.options.first
        while number < count and self.error is None:
            room = min(sender.room(), count - number)
            if room <= 0:
                await sender.wait_for_room()
                continue
            now = time.perf_counter()
            for each in range(number, number + room):
                sent_at.append(now)
                sender.submit(make(first + each), answered, each)
            number += room
        await sender.idle()
        if self.error is not None:
            raise self.error

    def answered(self, error: ServiceError | None, number: int) -> None:
        self.waits.append(time.perf_counter() - self.sent_at[number])
        if error is not None:
            self.error = error


async def receiving(receiver: Receiver, options: argparse.Namespace) -> None:
    """Receives `count` messages and waits until each settlement is confirmed."""
    # The link's mode is "first", because RabbitMQ has no other; both brokers still answer unsettled settlements.
    receiver.echo = True
    left = options.count
    answers = []
    while left > 0:
        messages = await receiver.receive_batch(min(left, options.prefetch), wait_s=None)
        left -= len(messages)
        answers.append(receiver.settle_nowait(messages, STATE_ACCEPTED))
    for outcomes in await asyncio.gather(*answers):
        for error in outcomes:
            if error is not None:
                raise error


async def run(options: argparse.Namespace) -> dict[str, float | int | str]:
    figures: dict[str, float | int | str] = {"phase": options.phase, "messages": options.count}
    async with AsyncExitStack() as stack:

        async def client() -> BusClient:
            made = BusClient.with_password(options.host, options.port, options.user, options.password)
            return await stack.enter_async_context(made)

        work = []
        sending: Sending | None = None
        if options.phase != "receive":
            window = 1 if options.phase == "latency" else options.window
            sending = Sending(await (await client()).sender(options.address, window=window), options)
            work.append(sending.run())
        connected = await client() if options.phase in ("receive", "both") else None
        started = time.perf_counter()
        if connected is not None:
            receiver = await connected.receiver(options.address, prefetch=options.prefetch, echo=False)
            work.append(receiving(receiver, options))
        await asyncio.gather(*work)
        figures["seconds"] = time.perf_counter() - started
    if sending is not None:
        waits = sorted(sending.waits)
        for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p9999_ms", 0.9999), ("max_ms", 1.0)):
            figures[name] = 1000 * percentile(waits, share)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--password", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--phase", choices=PHASES, required=True)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first message id")
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--window", type=int, default=500)
    parser.add_argument("--prefetch", type=int, default=500)
    options = parser.parse_args()
    # The load must not pause while it measures the broker's pauses.
    gc.disable()
    print(json.dumps(asyncio.run(run(options))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
