"""How fast the local syphon drains a backlog, compared with a plain loop of the SDK: receive, send, complete.

Both move messages of 1 KB from backlog queues of one broker to a queue of another. Each broker is a separate process
with real disk flushes; a message is completed only when the primary has accepted it. The SDK's loop moves fewer
messages, because it would take too long, and its rate is compared. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from azure.servicebus.aio import ServiceBusClient

from twinbus.client import BusClient, Message
from twinbus.client.envelope import wrap
from twinbus.paired.options import backlog_names
from twinbus.paired.syphon import Syphon

NAME = "first"
PATH = "orders"
QUEUES = 10
SDK_QUEUES = backlog_names("sdk", 1)
BODY = b"x" * 1_000
BATCH = 100
AT_LEAST = 5.0


class Peer:
    """A broker in its own process."""

    def __init__(self, folder: Path, name: str, queues: list[str]) -> None:
        folder.mkdir()
        # The broker writes it when it is ready.
        ready = folder / "ready.json"
        tables = "".join(f'[namespaces.{name}.queues."{queue}"]\n' for queue in queues)
        (folder / "twinbus.toml").write_text(f"[namespaces.{name}]\nport = 0\n{tables}")
        command = [sys.executable, "-c", "from twinbus.cli.main import run; run()", "serve", "--dev"]
        command += ["--config", str(folder / "twinbus.toml"), "--data", str(folder / "data")]
        self.process = subprocess.Popen(
            [*command, "--ready-file", str(ready)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 30
        while not ready.exists():
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("The broker did not start.")
            time.sleep(0.01)
        self.connection_string = str(json.loads(ready.read_text())["namespaces"][name]["connection_string"])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


async def fill(secondary: str, queues: list[str], count: int, prefix: str) -> None:
    async with BusClient.from_connection_string(secondary) as client:
        for number, queue in enumerate(queues):
            share = count // len(queues) + (number < count % len(queues))
            sender = await client.sender(queue)
            payloads = (
                wrap(Message(BODY, message_id=f"{prefix}-{number}-{index}").encode(), PATH) for index in range(share)
            )
            assert not any(await sender.send_batches(payloads))


async def taken(primary: str) -> int:
    """Empty the destination; returns the number of different messages."""
    ids = set()
    async with BusClient.from_connection_string(primary) as client:
        receiver = await client.receiver(PATH, prefetch=2_000, delete=True)
        while messages := await receiver.receive_batch(2_000, 1.0):
            ids |= {message.message_id for message in messages}
    return len(ids)


async def ours(primary: str, secondary: str, count: int) -> dict[str, Any]:
    await fill(secondary, backlog_names(NAME, QUEUES), count, "ours")
    syphon = Syphon.from_connection_strings(primary, secondary, primary_name=NAME, backlog_queue_count=QUEUES)
    started, cpu = time.monotonic(), time.process_time()
    running = asyncio.create_task(syphon.run())
    while syphon.tally.total().syphoned < count:
        await asyncio.sleep(0.005)
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    syphon.stop()
    report = await running
    assert await taken(primary) == count
    return {
        "messages": count,
        "seconds": round(seconds, 3),
        "per_second": round(count / seconds, 1),
        "cpu_us_per_message": round(cpu / count * 1e6, 1),
        "repeated": report.total.repeated,
        "dead_lettered": report.total.dead_lettered,
    }


async def the_sdks(primary: str, secondary: str, count: int) -> dict[str, Any]:
    """What a user writes with the SDK alone: the same guarantees, and lists of messages where the SDK has them."""
    await fill(secondary, SDK_QUEUES, count, "sdk")
    moved = 0
    async with (
        ServiceBusClient.from_connection_string(secondary) as source,
        ServiceBusClient.from_connection_string(primary) as target,
        source.get_queue_receiver(SDK_QUEUES[0]) as receiver,
        target.get_queue_sender(PATH) as sender,
    ):
        started, cpu = time.monotonic(), time.process_time()
        while moved < count:
            messages = await receiver.receive_messages(max_message_count=BATCH, max_wait_time=5)
            if not messages:
                break
            await sender.send_messages([restored(message) for message in messages])
            for message in messages:
                await receiver.complete_message(message)
            moved += len(messages)
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    assert await taken(primary) == count
    return {
        "messages": count,
        "seconds": round(seconds, 3),
        "per_second": round(count / seconds, 1),
        "cpu_us_per_message": round(cpu / count * 1e6, 1),
    }


def restored(message: Any) -> Any:
    """The minimum to restore a message: a new one with the same body, id and properties."""
    from azure.servicebus import ServiceBusMessage

    own = {name: value for name, value in (message.application_properties or {}).items() if name != b"x-ms-path"}
    return ServiceBusMessage(b"".join(message.body), message_id=message.message_id, application_properties=own)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--sdk-messages", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures to a file as well")
    options = parser.parse_args()
    rounds = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="twinbus-bench-") as folder:
            first = Peer(Path(folder) / "first", NAME, [PATH])
            second = Peer(Path(folder) / "second", "second", backlog_names(NAME, QUEUES) + SDK_QUEUES)
            try:
                pair = first.connection_string, second.connection_string
                sdk = asyncio.run(the_sdks(*pair, options.sdk_messages))
                own = asyncio.run(ours(*pair, options.messages))
            finally:
                first.stop()
                second.stop()
        rounds.append({"syphon": own, "sdk_loop": sdk, "times": round(own["per_second"] / sdk["per_second"], 2)})
    times = statistics.median(each["times"] for each in rounds)
    text = json.dumps({"rounds": rounds, "times": times, "wanted": AT_LEAST, "good": times >= AT_LEAST}, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")
    return 0 if times >= AT_LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
