"""Kills the Spark syphon in mid-round with SIGKILL, and accounts for every message: `make faults`.

First the driver: `twinbus syphon` is started on `local[2]` and killed when it has moved some messages, with its JVM
only or with every process that it started; at the end one more runs until the backlog is empty. Then executors: one
syphon runs on a standalone master with two workers on loopback, and the JVM of an executor is killed. The primary's
messages are compared with those that were put into the backlog.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from spark_cluster import Cluster, command_line, descendants, environment, kill
from syphon_kill import DETECTING, NAME, PLAIN, QUEUES, Account, account, drained, fill, moved

from twinbus.auth.connection_string import ConnectionString
from twinbus.cli.directory import ask
from twinbus.entities.settings import QueueSettings
from twinbus.limits import MAX_DELIVERY_COUNT_MAX, SYPHON_BATCH_MESSAGES
from twinbus.paired.options import backlog_names
from twinbus.testing import Broker

# A session has to start before anything moves.
PROGRESS_TIMEOUT_S = 300.0
END_TIMEOUT_S = 240.0
# Moved in one run of the syphon before it is killed.
MOVED = (50, 900)


@dataclass
class Report:
    """The result of one kind of kill."""

    test: str
    seed: int
    kills: int
    kills_in_transfer: int
    plain: Account
    detecting: Account
    backlog_left: int
    dead_lettered: int
    exit_code: int

    @property
    def repeats_max(self) -> int:
        """One receive batch per slot and kill."""
        return self.kills * QUEUES * SYPHON_BATCH_MESSAGES

    @property
    def good(self) -> bool:
        both = (self.plain, self.detecting)
        return (
            not any(each.lost or each.unexpected for each in both)
            and self.plain.repeated <= self.repeats_max
            and self.detecting.repeated == 0
            and self.backlog_left == 0
            and self.dead_lettered == 0
            and self.exit_code == 0
        )

    def row(self) -> str:
        both = (self.plain, self.detecting)
        return (
            f"| {self.test} | {self.kills_in_transfer} of {self.kills} | {sum(each.sent for each in both):,} "
            f"| {sum(len(each.lost) for each in both)} | {sum(len(each.unexpected) for each in both)} "
            f"| {self.plain.repeated:,} (at most {self.repeats_max:,}) | {self.detecting.repeated} "
            f"| {self.backlog_left} | {'good' if self.good else 'BAD'} |"
        )


HEAD = (
    "| test | killed in transfer | messages | lost | unexpected | repeated | with duplicate detection | left | |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


class Stage:
    """Two brokers with a backlog between them."""

    def __init__(self, count: int) -> None:
        # As the paired client creates them, because every kill counts as a delivery.
        queues = [
            QueueSettings(path=name, max_delivery_count=MAX_DELIVERY_COUNT_MAX) for name in backlog_names(NAME, QUEUES)
        ]
        self.primary = Broker([NAME], [PLAIN], sync=False)
        self.secondary = Broker(["second"], queues, sync=False)
        self.count = count
        # Message ids by destination.
        self.ids: dict[str, list[str]] = {}

    def __enter__(self) -> Stage:
        self.primary.start()
        self.secondary.start()
        self.primary.create_queue(DETECTING, requires_duplicate_detection=True)
        self.ids = asyncio.run(fill(self.secondary, self.count))
        return self

    def __exit__(self, *_: object) -> None:
        self.primary.close()
        self.secondary.close()

    def syphon(self, *options: str) -> subprocess.Popen[bytes]:
        """`twinbus syphon`, with its secrets in the environment."""
        secrets = {
            "TWINBUS_PRIMARY": self.primary.connection_string(),
            "TWINBUS_SECONDARY": self.secondary.connection_string(),
        }
        command = [sys.executable, "-c", "from twinbus.cli.main import run; run()", "syphon", "--engine", "spark"]
        pair = ["--quiet", "--primary-name", NAME, "--backlog-queue-count", str(QUEUES)]
        return subprocess.Popen(
            [*command, *pair, *options],
            env={**environment(), **secrets},
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("TWINBUS_FAULTS_LOUD") else subprocess.DEVNULL,
        )

    def wait_for(self, wanted: int, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + PROGRESS_TIMEOUT_S
        while moved(self.primary) < wanted and process.poll() is None:
            if time.monotonic() > end:
                slay(process)
                raise RuntimeError("The syphon moves nothing.")
            time.sleep(0.003)

    def report(self, test: str, seed: int, kills: int, in_transfer: int, exit_code: int) -> Report:
        counts = ask(ConnectionString.parse(self.secondary.connection_string()), "twinbus:list-queues", {})["queues"]
        return Report(
            test=test,
            seed=seed,
            kills=kills,
            kills_in_transfer=in_transfer,
            plain=account(self.ids[PLAIN], asyncio.run(drained(self.primary, PLAIN))),
            detecting=account(self.ids[DETECTING], asyncio.run(drained(self.primary, DETECTING))),
            backlog_left=sum(int(queue["active_messages"]) for queue in counts),
            dead_lettered=sum(int(queue["dead_letter_messages"]) for queue in counts),
            exit_code=exit_code,
        )


def slay(process: subprocess.Popen[bytes], *, alone: bool = False) -> None:
    """Kill a driver, with everything it started or only with its JVM."""
    family = descendants(process.pid)
    if alone:
        family = [pid for pid in family if "java" in command_line(pid).split(" ")[0]]
    for pid in [process.pid, *family]:
        kill(pid)
    process.wait()


def ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        slay(process)
        return -1


def drivers(kills: int, seed: int, count: int) -> Report:
    """Kill the driver again and again; every other time the processes that it started survive."""
    rng = random.Random(seed)
    in_transfer = 0
    with Stage(count) as stage:
        for number in range(kills):
            before = moved(stage.primary)
            process = stage.syphon("--master", "local[2]")
            stage.wait_for(before + rng.randint(*MOVED), process)
            cut = process.poll() is None
            slay(process, alone=number % 2 == 1)
            in_transfer += cut and moved(stage.primary) < count
        code = ended(stage.syphon("--master", "local[2]", "--once"))
        return stage.report("driver, local[2]", seed, kills, in_transfer, code)


def executors(kills: int, seed: int, count: int) -> Report:
    """Kill the JVM of an executor while the driver keeps running."""
    rng = random.Random(seed)
    in_transfer = 0
    with Stage(count) as stage, Cluster(2) as cluster:
        # Short rounds, so that lost work is planned again soon.
        process = stage.syphon("--master", cluster.url, "--once", "--round-seconds", "5")
        try:
            for _ in range(kills):
                stage.wait_for(moved(stage.primary) + rng.randint(*MOVED), process)
                victims = cluster.executors()
                if process.poll() is None and victims and moved(stage.primary) < count:
                    kill(rng.choice(victims))
                    in_transfer += 1
            code = ended(process)
        finally:
            slay(process)
        return stage.report("executor, standalone, 2 workers", seed, kills, in_transfer, code)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--driver-kills", type=int, default=3)
    parser.add_argument("--executor-kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--json", type=Path, help="write the figures to a file as well")
    options = parser.parse_args()
    reports = []
    if options.driver_kills:
        reports.append(drivers(options.driver_kills, options.seed, options.messages))
    if options.executor_kills:
        reports.append(executors(options.executor_kills, options.seed, options.messages))
    print(HEAD)
    for report in reports:
        print(report.row())
    good = all(report.good for report in reports)
    if options.json is not None:
        found = [{**asdict(report), "repeats_max": report.repeats_max, "good": report.good} for report in reports]
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
