"""Kills the syphon in mid-transfer with SIGKILL, again and again, and accounts for every message: `make faults`.

The backlog queues of the secondary hold messages for two queues of the primary: a plain one, and one with duplicate
detection. `twinbus syphon` is started and killed when it has moved some messages; at the end one more runs until the
backlog is empty. Then everything is received from the primary and compared with what was put in.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from twinbus.auth.connection_string import ConnectionString
from twinbus.cli.directory import ask
from twinbus.client import BusClient, Message
from twinbus.client.envelope import wrap
from twinbus.entities.settings import QueueSettings
from twinbus.limits import MAX_DELIVERY_COUNT_MAX
from twinbus.paired.options import backlog_names
from twinbus.testing import Broker

PLAIN = "plain"
DETECTING = "detecting"
NAME = "first"
QUEUES = 4
PROGRESS_TIMEOUT_S = 30.0
# Moved in one run of the syphon before it is killed.
MOVED = (50, 900)


@dataclass
class Account:
    """The messages sent to and received from one queue."""

    sent: int = 0
    received: int = 0
    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    repeated: int = 0


@dataclass
class Report:
    """The result of a run."""

    seed: int
    kills: int
    kills_in_transfer: int
    plain: Account
    detecting: Account
    backlog_left: int
    dead_lettered: int
    drain_exit_code: int

    @property
    def good(self) -> bool:
        both = (self.plain, self.detecting)
        return (
            not any(each.lost or each.unexpected for each in both)
            and self.detecting.repeated == 0
            and self.backlog_left == 0
            and self.dead_lettered == 0
            and self.drain_exit_code == 0
        )


def account(sent: Iterable[str], received: Iterable[str]) -> Account:
    """Compare: lost messages were sent and never received, unexpected ones received and never sent."""
    wanted = set(sent)
    found = Counter(received)
    return Account(
        sent=len(wanted),
        received=found.total(),
        lost=sorted(wanted - set(found)),
        unexpected=sorted(set(found) - wanted),
        repeated=sum(count - 1 for name, count in found.items() if name in wanted),
    )


def command(primary: Broker, secondary: Broker, *more: str) -> list[str]:
    """The command line of `twinbus syphon`."""
    main = [sys.executable, "-c", "from twinbus.cli.main import run; run()", "syphon", "--engine", "local", "--quiet"]
    pair = ["--primary", primary.connection_string(), "--secondary", secondary.connection_string()]
    return [*main, *pair, "--primary-name", NAME, "--backlog-queue-count", str(QUEUES), *more]


def moved(primary: Broker) -> int:
    """The number of messages in the primary."""
    broker = ConnectionString.parse(primary.connection_string())
    queues = ask(broker, "twinbus:list-queues", {})["queues"]
    return sum(int(queue["active_messages"]) for queue in queues)


async def fill(secondary: Broker, count: int) -> dict[str, list[str]]:
    """Divert messages, as a paired client would; returns the ids for each destination."""
    ids: dict[str, list[str]] = {PLAIN: [], DETECTING: []}
    async with BusClient.from_connection_string(secondary.connection_string()) as client:
        for number, queue in enumerate(backlog_names(NAME, QUEUES)):
            payloads = []
            for index in range(count // QUEUES):
                path = (PLAIN, DETECTING)[index % 2]
                name = f"{number}-{index}"
                ids[path].append(name)
                payloads.append(wrap(Message(b"x" * 1_000, message_id=name).encode(), path))
            outcomes = await (await client.sender(queue)).send_many(payloads)
            assert not any(outcomes), outcomes
    return ids


async def drained(broker: Broker, path: str) -> list[str]:
    """Receive everything from a queue."""
    found: list[str] = []
    async with BusClient.from_connection_string(broker.connection_string()) as client:
        receiver = await client.receiver(path, prefetch=1_000, delete=True)
        while messages := await receiver.receive_batch(1_000, 0.5):
            found += [str(message.message_id) for message in messages]
    return found


def one_life(primary: Broker, secondary: Broker, wanted: int) -> bool:
    """Run a syphon until it has moved `wanted` messages, then kill it; returns whether it was in the middle of its
    work."""
    before = moved(primary)
    process = subprocess.Popen(command(primary, secondary), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = time.monotonic()
    while moved(primary) - before < wanted and process.poll() is None:
        if time.monotonic() - started > PROGRESS_TIMEOUT_S:
            process.kill()
            process.wait()
            raise RuntimeError("The syphon moves nothing.")
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return process.returncode == -signal.SIGKILL


def run(kills: int, seed: int, count: int, *, planted: str | None = None) -> Report:
    """`planted` is Python source that runs before the last syphon, to plant a fault."""
    rng = random.Random(seed)
    # As the paired client creates them: every kill counts as a delivery, and must not lead to the dead-letter queue.
    queues = [
        QueueSettings(path=name, max_delivery_count=MAX_DELIVERY_COUNT_MAX) for name in backlog_names(NAME, QUEUES)
    ]
    in_transfer = 0
    with Broker([NAME], [PLAIN], sync=False) as primary, Broker(["second"], queues, sync=False) as secondary:
        primary.create_queue(DETECTING, requires_duplicate_detection=True)
        ids = asyncio.run(fill(secondary, count))
        for _ in range(kills):
            killed = one_life(primary, secondary, rng.randint(*MOVED))
            in_transfer += killed and moved(primary) < count
        last = command(primary, secondary, "--once", "--patience", "20")
        if planted is not None:
            last[2] = planted + "\n" + last[2]
        code = subprocess.run(last, stdout=subprocess.DEVNULL, check=False).returncode
        counts = ask(ConnectionString.parse(secondary.connection_string()), "twinbus:list-queues", {})["queues"]
        return Report(
            seed=seed,
            kills=kills,
            kills_in_transfer=in_transfer,
            plain=account(ids[PLAIN], asyncio.run(drained(primary, PLAIN))),
            detecting=account(ids[DETECTING], asyncio.run(drained(primary, DETECTING))),
            backlog_left=sum(int(queue["active_messages"]) for queue in counts),
            dead_lettered=sum(int(queue["dead_letter_messages"]) for queue in counts),
            drain_exit_code=code,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--json", type=Path, help="write the figures to a file as well")
    options = parser.parse_args()
    report = run(options.kills, options.seed, options.messages)
    text = json.dumps({**asdict(report), "good": report.good}, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
