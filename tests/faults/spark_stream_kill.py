"""Kills a Spark stream in mid-batch with SIGKILL, and accounts for every message: `make faults`.

A stream reads one queue with the `servicebus` source and writes another with the sink, or Parquet files. First the
driver is killed with its JVM again and again, and restarted on its checkpoint; then executors of a standalone cluster
(a master and two workers on loopback) are killed while the driver keeps running. The destination's messages are
compared with those of the source: none may be missing, at most one micro-batch per kill may come twice, and none if the
destination detects duplicates or is a folder of files.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow.parquet import read_table
from spark_cluster import Cluster, command_line, descendants, environment, kill
from syphon_kill import Account, account

from twinbus.client import BusClient, Message
from twinbus.client.blocking import BlockingBus
from twinbus.testing import Broker

SOURCE = "source"
PLAIN = "plain"
DETECTING = "detecting"
FILES = "files"
NAME = "contoso"
JOB = Path(__file__).with_name("spark_stream_job.py")
# A session has to start before anything moves.
PROGRESS_TIMEOUT_S = 900.0
END_TIMEOUT_S = 900.0


@dataclass
class Report:
    """The result of one run."""

    test: str
    mode: str
    ids: str
    target: str
    seed: int
    kills: int
    kills_in_batch: int
    batch: int
    account: Account
    left: int
    exit_code: int

    @property
    def repeats_max(self) -> int:
        return self.kills * self.batch if self.target == PLAIN else 0

    @property
    def good(self) -> bool:
        return (
            not self.account.lost
            and not self.account.unexpected
            and self.account.repeated <= self.repeats_max
            and self.left == 0
            and self.exit_code == 0
        )

    def row(self) -> str:
        return (
            f"| {self.test} | {self.mode} | {self.ids} | {self.target} | {self.kills_in_batch} of {self.kills} "
            f"| {self.account.sent:,} | {len(self.account.lost)} | {len(self.account.unexpected)} "
            f"| {self.account.repeated:,} (at most {self.repeats_max:,}) | {self.left} "
            f"| {'good' if self.good else 'BAD'} |"
        )


HEAD = (
    "| killed | source | ids | destination | in mid-batch | messages | lost | unexpected | repeated | left | |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


class Stage:
    """A broker with a full source, and the stream as a process."""

    def __init__(self, count: int, batch: int, *, mode: str, ids: str, target: str) -> None:
        self.broker = Broker([NAME], [SOURCE, PLAIN], sync=False)
        self.count = count
        self.batch = batch
        self.mode = mode
        self.ids = ids
        self.target = target
        # Holds the checkpoint, and the files if they are the destination.
        self._folder = tempfile.TemporaryDirectory(prefix="twinbus-stream-", ignore_cleanup_errors=True)
        self._checkpoint = Path(self._folder.name) / "checkpoint"
        self._files = Path(self._folder.name) / FILES

    def __enter__(self) -> Stage:
        self.broker.start()
        self.broker.create_queue(DETECTING, requires_duplicate_detection=True)
        with self._bus() as bus:
            for first in range(0, self.count, 100):
                numbers = range(first, min(first + 100, self.count))
                parcel = [Message(str(number).ljust(500), message_id=f"m{number}").encode() for number in numbers]
                assert bus.start_send(SOURCE, [parcel]).result() == [None]
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.close()
        self._folder.cleanup()

    def start(self, master: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(JOB), "--master", master, "--mode", self.mode, "--source", SOURCE]
        target = str(self._files) if self.target == FILES else self.target
        command += ["--target", target, "--ids", self.ids, "--batch", str(self.batch)]
        return subprocess.Popen(
            [*command, "--checkpoint", str(self._checkpoint)],
            env={**environment(), "TWINBUS_CONNECTION_STRING": self.broker.connection_string()},
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("TWINBUS_FAULTS_LOUD") else subprocess.DEVNULL,
        )

    def moved(self) -> int:
        """The number of messages at the destination; an estimate for files, which a task writes whole."""
        if self.target == FILES:
            return len(list(self._files.glob("*.parquet"))) * self.batch // 2
        return self.broker.call(lambda server: server.hosts[NAME].entities.queue(self.target).counts.active)

    def strike(self, process: subprocess.Popen[bytes], wanted: int, blow: Callable[[], None]) -> bool:
        """Kill when the destination has `wanted` messages; returns whether that was in the middle of a batch: planned,
        partly written, and not committed."""
        end = time.monotonic() + PROGRESS_TIMEOUT_S
        while self.moved() < wanted:
            if process.poll() is not None:
                return False
            if time.monotonic() > end:
                raise RuntimeError("The stream moves nothing.")
            time.sleep(0.001)
        blow()
        return self._latest("offsets") > self._latest("commits")

    def _latest(self, log: str) -> int:
        """The last batch in one of the checkpoint's logs."""
        folder = self._checkpoint / log
        return max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=-1)

    def report(self, test: str, seed: int, kills: int, in_batch: int, exit_code: int) -> Report:
        with self._bus() as bus:
            left = len(bus.peek(SOURCE, 250))
        return Report(
            test=test,
            mode=self.mode,
            ids=self.ids,
            target=self.target,
            seed=seed,
            kills=kills,
            kills_in_batch=in_batch,
            batch=self.batch,
            account=account(map(str, range(self.count)), asyncio.run(self._drained())),
            left=left,
            exit_code=exit_code,
        )

    async def _drained(self) -> list[str]:
        if self.target == FILES:
            return [each.decode().strip() for each in in_files(self._files, "body")]
        found: list[str] = []
        async with BusClient.from_connection_string(self.broker.connection_string()) as client:
            receiver = await client.receiver(self.target, prefetch=1_000, delete=True)
            while messages := await receiver.receive_batch(1_000, 0.5):
                found += [bytes(message.body).decode().strip() for message in messages]
        return found

    def _bus(self) -> BlockingBus:
        return BlockingBus(lambda: BusClient.from_connection_string(self.broker.connection_string()))


def in_files(folder: Path, column: str) -> list[Any]:
    """A column of the files that count: those that Spark's own log of the folder names."""
    named = set()
    for log in (folder / "_spark_metadata").glob("*[0-9t]"):
        for line in log.read_text().splitlines()[1:]:
            named.add(unquote(urlsplit(json.loads(line)["path"]).path))
    return [value for path in sorted(named) for value in read_table(path, columns=[column])[column].to_pylist()]


def slay(process: subprocess.Popen[bytes], *, alone: bool = False) -> None:
    """Kill a driver, with everything it started or only with its JVM, so that its workers must notice by themselves."""
    family = descendants(process.pid)
    rest = family
    if alone:
        family = [pid for pid in family if "java" in command_line(pid).split(" ")[0]]
    for pid in [process.pid, *family]:
        kill(pid)
    process.wait()
    end = time.monotonic() + 30
    while alone and any(command_line(pid) for pid in rest) and time.monotonic() < end:
        time.sleep(0.05)


def ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        slay(process)
        return -1


def drivers(kills: int, seed: int, count: int, batch: int, *, mode: str, ids: str, target: str) -> Report:
    """Kill the driver again and again, and restart it on its checkpoint."""
    rng = random.Random(seed)
    in_batch = 0
    with Stage(count, batch, mode=mode, ids=ids, target=target) as stage:
        for number in range(kills):
            process = stage.start("local[2,4]")
            try:
                # Hit the batch that is replayed first, or the one after it.
                wanted = stage.moved() // batch * batch + batch + rng.randint(batch // 10, batch // 2)
                alone = number % 2 == 1
                in_batch += stage.strike(process, wanted, lambda: slay(process, alone=alone))  # noqa: B023 - at once
            finally:
                slay(process)
        return stage.report("driver", seed, kills, in_batch, ended(stage.start("local[2,4]")))


def executors(kills: int, seed: int, count: int, batch: int, *, mode: str, ids: str, target: str) -> Report:
    """Kill the JVM of an executor while the driver keeps running."""
    rng = random.Random(seed)
    in_batch = 0
    with Stage(count, batch, mode=mode, ids=ids, target=target) as stage, Cluster(2) as cluster:
        process = stage.start(cluster.url)
        try:
            for _ in range(kills):
                wanted = stage.moved() // batch * batch + batch + rng.randint(batch // 10, batch // 2)
                in_batch += stage.strike(process, wanted, lambda: kill(rng.choice(cluster.executors())))
            code = ended(process)
        finally:
            slay(process)
        return stage.report("executor", seed, kills, in_batch, code)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--driver-kills", type=int, default=3)
    parser.add_argument("--executor-kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", type=int, default=12_000)
    parser.add_argument("--batch", type=int, default=2_000)
    parser.add_argument("--target", choices=(PLAIN, DETECTING, FILES), help="only this destination")
    parser.add_argument("--json", type=Path, help="write the figures to a file as well")
    options = parser.parse_args()
    shape = (options.seed, options.messages, options.batch)
    reports = []
    print(HEAD, flush=True)
    for test, kills, mode, ids, target in (
        (drivers, options.driver_kills, "browse", "column", PLAIN),
        (drivers, options.driver_kills, "browse", "position", DETECTING),
        (drivers, options.driver_kills, "claim", "column", DETECTING),
        (drivers, options.driver_kills, "browse", "column", FILES),
        (drivers, options.driver_kills, "claim", "column", FILES),
        (executors, options.executor_kills, "browse", "column", PLAIN),
        (executors, options.executor_kills, "browse", "position", DETECTING),
        (executors, options.executor_kills, "browse", "column", FILES),
        (executors, options.executor_kills, "claim", "column", FILES),
    ):
        if kills and options.target in (None, target):
            reports.append(test(kills, *shape, mode=mode, ids=ids, target=target))
            print(reports[-1].row(), flush=True)
    if options.json is not None:
        found = [{**asdict(report), "repeats_max": report.repeats_max, "good": report.good} for report in reports]
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if all(report.good for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
