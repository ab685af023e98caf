"""What Spark adds to moving messages: the `servicebus` source and sink compared with our client alone and an SDK loop.

The same messages of 1 KB, from and to a broker in another process, in turns:

- `batch`: peek at a whole queue. Client: pages of peeks. SDK: `peek_messages`.
- `stream`: read a queue empty. Spark: AvailableNow into nothing. Client: pages of peeks and batch deletes, which are
  the operations of the source. SDK: `receive_messages`, `complete_message`.
- `sink`: write rows to a queue. Client: encode and send in batches. SDK: `send_messages` with batches.

CPU is that of the process and all its descendants without the broker: for Spark the driver, its JVM and all Python
workers. The broker does the same work for all, so its CPU is not counted. Starting a query costs the same for any
number of rows, so each Spark run is made twice, with a tenth of the rows and with all: `cpu_us` is the difference per
row, `start_cpu_s` the rest. What Spark adds is its `cpu_us` less the client's. Only Spark decodes bodies, ids and two
properties, so this is part of what it adds.

`floor_us` is the `cpu_us` of a source or sink that does nothing (`spark_floor.py`): no Python source adds less.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spark_floor
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from measure import machine
from pyspark import cloudpickle
from syphon import Peer

from twinbus.amqp.reader import read_head
from twinbus.client import BusClient, Message
from twinbus.client.blocking import BlockingBus
from twinbus.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamReader

BODY = b"x" * 1_000
KEPT = "kept"
MOVED = "moved"
SUNK = "sunk"
ADDED_US_MAX = 5.0
PROGRAMS = ("driver", "jvm", "workers")
_TICKS_S = os.sysconf("SC_CLK_TCK")
_SUBREAPER = 36


def keep_orphans() -> None:
    """Make this process the parent of orphaned workers, so that their CPU is not lost from the sum."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def tree_cpu_s(broker: int) -> dict[str, float]:
    """CPU seconds of this process and its descendants without the broker, by program; ended ones are in their parents'
    sums."""
    stats: dict[int, tuple[int, str, float, float]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            name, fields = stat[stat.index("(") + 1 : stat.rindex(")")], stat.rpartition(")")[2].split()
            own, ended = sum(map(int, fields[11:13])) / _TICKS_S, sum(map(int, fields[13:15])) / _TICKS_S
            stats[int(folder.name)] = (int(fields[1]), name, own, ended)
    below = {os.getpid()}
    while more := {pid for pid, (parent, *_) in stats.items() if parent in below and pid != broker} - below:
        below |= more
    total = dict.fromkeys(PROGRAMS, 0.0)
    for pid in below & stats.keys():
        _, name, own, ended = stats[pid]
        total["driver" if pid == os.getpid() else "jvm" if name == "java" else "workers"] += own
        # Processes that ended were workers, or planners of Spark.
        total["workers"] += ended
    return total


def own_cpu_s() -> dict[str, float]:
    return {"driver": time.process_time()}


def message(number: int, prefix: str) -> bytes:
    return Message(
        BODY, message_id=f"{prefix}-{number}", subject="order", application_properties={"shop": "A", "number": number}
    ).encode()


class Bench:
    """One broker and one Spark session, with a method for each case and program."""

    def __init__(self, peer: Peer, spark: SparkSession, folder: Path) -> None:
        self.text = peer.connection_string
        self.broker = peer.process.pid
        self.spark = spark
        self.folder = folder
        # A different checkpoint for each stream.
        self.runs = 0

    def fill(self, queue: str, count: int) -> None:
        async def work() -> None:
            async with BusClient.from_connection_string(self.text) as client:
                sender = await client.sender(queue)
                assert not any(await sender.send_batches(message(number, queue) for number in range(count)))

        asyncio.run(work())

    def empty(self, queue: str, wanted: int) -> int:
        """Take out what was sent; returns the number of messages."""

        async def work() -> int:
            count = 0
            async with BusClient.from_connection_string(self.text) as client:
                receiver = await client.receiver(queue, prefetch=2_000, delete=True)
                # A long wait, because the machine may be busy; surplus messages arrive at once or not at all.
                while some := await receiver.receive_batch(2_000, 20 if count < wanted else 0.2):
                    count += len(some)
            return count

        return asyncio.run(work())

    def bus(self) -> BlockingBus:
        return BlockingBus(lambda: BusClient.from_connection_string(self.text))

    # --- batch ------------------------------------------------------------------------------------------------------

    def spark_batch(self, count: int) -> int:
        frame = self.spark.read.format("servicebus").options(connectionString=self.text, queueName=KEPT)
        frame.option("endingSequenceNumber", count).load().write.format("noop").mode("overwrite").save()
        return count

    def floor_batch(self, count: int) -> int:
        self.spark.read.format("floor").option("rows", count).load().write.format("noop").mode("overwrite").save()
        return count

    def client_batch(self, count: int) -> int:
        found = 0
        with self.bus() as bus:
            while found < count and (page := bus.peek(KEPT, min(250, count - found), first=found + 1)):
                found = read_head(page[-1].payload).sequence_number
        return found

    def sdk_batch(self, count: int) -> int:
        found = 0
        with (
            ServiceBusClient.from_connection_string(self.text) as client,
            client.get_queue_receiver(KEPT) as receiver,
        ):
            while found < count and (
                page := receiver.peek_messages(min(250, count - found), sequence_number=found + 1)
            ):
                found = int(page[-1].sequence_number or 0)
        return found

    # --- stream -----------------------------------------------------------------------------------------------------

    def spark_stream(self, count: int) -> int:
        stream = self.spark.readStream.format("servicebus").options(connectionString=self.text, queueName=MOVED)
        # One micro-batch for any number of rows: its cost is part of the start.
        return self.streamed(stream.option("maxMessagesPerTrigger", max(count, 1)))

    def floor_stream(self, count: int) -> int:
        return self.streamed(self.spark.readStream.format("floor").option("rows", count))

    def streamed(self, stream: DataStreamReader) -> int:
        """Read a stream to its end; returns the number of rows."""
        self.runs += 1
        checkpoint = self.folder / f"checkpoint-{self.runs}"
        writer = stream.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(checkpoint, ignore_errors=True)
        return sum(int(progress["numInputRows"]) for progress in query.recentProgress)

    def client_stream(self, count: int) -> int:
        found = 0
        with self.bus() as bus:
            head = bus.peek(MOVED, 1)
            number = read_head(head[0].payload).sequence_number
            while page := bus.peek(MOVED, 250, first=number):
                found += len(page)
                number = read_head(page[-1].payload).sequence_number + 1
            left = found
            while left > 0:
                left -= bus.delete_batch(MOVED, 500, before_ms=2**42)
        return found

    def sdk_stream(self, count: int) -> int:
        found = 0
        with (
            ServiceBusClient.from_connection_string(self.text) as client,
            client.get_queue_receiver(MOVED) as receiver,
        ):
            while found < count and (page := receiver.receive_messages(min(250, count - found), max_wait_time=5)):
                for each in page:
                    receiver.complete_message(each)
                found += len(page)
        return found

    # --- sink -------------------------------------------------------------------------------------------------------

    def rows(self, count: int) -> DataFrame:
        return self.spark.range(count).selectExpr(
            f"cast(repeat('x', {len(BODY)}) AS binary) AS body",
            "concat('row-', id) AS messageId",
            "'order' AS subject",
            "map('shop', '\"A\"', 'number', cast(id AS string)) AS properties",
        )

    def spark_sink(self, count: int) -> int:
        options = {"connectionString": self.text, "queueName": SUNK, "duplicateDetection": "ignore"}
        self.rows(count).write.format("servicebus").options(**options).mode("append").save()
        return count

    def floor_sink(self, count: int) -> int:
        self.rows(count).write.format("floor").mode("append").save()
        return count

    def client_sink(self, count: int) -> int:
        async def work() -> None:
            async with BusClient.from_connection_string(self.text) as client:
                sender = await client.sender(SUNK)
                assert not any(await sender.send_batches(message(number, SUNK) for number in range(count)))

        asyncio.run(work())
        return count

    def sdk_sink(self, count: int) -> int:
        with ServiceBusClient.from_connection_string(self.text) as client, client.get_queue_sender(SUNK) as sender:
            for first in range(0, count, 200):
                sender.send_messages(
                    [
                        ServiceBusMessage(
                            BODY,
                            message_id=f"sdk-{number}",
                            subject="order",
                            application_properties={"shop": "A", "number": number},
                        )
                        for number in range(first, min(first + 200, count))
                    ]
                )
        return count


def measured(
    work: Callable[[int], int], count: int, clock: Callable[[], dict[str, float]]
) -> tuple[float, dict[str, float]]:
    """Seconds, and CPU seconds by program."""
    started, before = time.monotonic(), clock()
    done = work(count)
    seconds, after = time.monotonic() - started, clock()
    if done != count:
        raise RuntimeError(f"{work.__name__} did {done} of {count}.")
    return seconds, {name: after[name] - before[name] for name in after}


def one_round(bench: Bench, case: str, rows: int, sdk_rows: int) -> dict[str, Any]:
    """One case with Spark, the client and the SDK."""

    def run(who: str, count: int) -> tuple[float, dict[str, float]]:
        if case == "stream" and who != "floor":
            bench.fill(MOVED, count)
        # Spark's workers may come and go while the others work, and must not be counted for them.
        clock = partial(tree_cpu_s, bench.broker) if who in ("spark", "floor") else own_cpu_s
        found = measured(getattr(bench, f"{who}_{case}"), count, clock)
        if case == "sink" and who != "floor" and (got := bench.empty(SUNK, count)) != count:
            raise RuntimeError(f"{who} sent {got} of {count}.")
        return found

    few = max(rows // 10, 1)
    little_s, little = run("spark", few)
    spark_s, spark = run("spark", rows)
    client_s, client = run("client", rows)
    sdk_s, sdk = run("sdk", sdk_rows)
    little_floor, floor = sum(run("floor", few)[1].values()), sum(run("floor", rows)[1].values())
    # Per row, without the start.
    each_us = {name: (spark[name] - little[name]) / (rows - few) * 1e6 for name in PROGRAMS}
    row_us, client_us = sum(each_us.values()), client["driver"] / rows * 1e6
    return {
        "spark_rows_per_s": round(rows / spark_s),
        "spark_cpu_us": round(row_us, 1),
        **{f"{name}_cpu_us": round(each_us[name], 1) for name in PROGRAMS},
        "start_cpu_s": round(max(sum(little.values()) - row_us * few / 1e6, 0.0), 2),
        "start_s": round(max(little_s - (spark_s - little_s) / 9, 0.0), 2),
        "whole_cpu_us": round(sum(spark.values()) / rows * 1e6, 1),
        "client_rows_per_s": round(rows / client_s),
        "client_cpu_us": round(client_us, 1),
        "sdk_rows_per_s": round(sdk_rows / sdk_s),
        "sdk_cpu_us": round(sdk["driver"] / sdk_rows * 1e6, 1),
        "added_us": round(row_us - client_us, 1),
        "floor_us": round((floor - little_floor) / (rows - few) * 1e6, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--sdk-rows", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "spark.json")
    parser.add_argument("--check", action="store_true", help="fail when Spark adds more than it may")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    keep_orphans()
    cases = ("batch", "stream", "sink")
    rounds: dict[str, list[dict[str, Any]]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory(prefix="twinbus-bench-") as name:
        folder = Path(name)
        peer = Peer(folder / "broker", "bench", [KEPT, MOVED, SUNK])
        try:
            with spark_session("bench", master="local[2]", settings={"spark.local.dir": str(folder)}) as spark:
                # Workers cannot import it.
                cloudpickle.register_pickle_by_value(spark_floor)
                spark.dataSource.register(spark_floor.Floor)
                bench = Bench(peer, spark, folder)
                bench.fill(KEPT, options.rows)
                for _ in range(2):
                    for case in cases:
                        # Start workers and compile code: the JVM needs some 100,000 rows for it.
                        one_round(bench, case, max(options.rows // 2, 100), 100)
                for _ in range(options.rounds):
                    for case in cases:
                        rounds[case].append(one_round(bench, case, options.rows, options.sdk_rows))
        finally:
            peer.stop()
    results = {
        case: {name: statistics.median(row[name] for row in rows) for name in rows[0]} for case, rows in rounds.items()
    }
    titles = (
        "Spark/s",
        "client/s",
        "SDK/s",
        "Spark us",
        "JVM us",
        "worker us",
        "client us",
        "SDK us",
        "added us",
        "floor us",
    )
    print(" " * 8 + "".join(title.rjust(11) for title in titles))
    for case, row in results.items():
        rates = "".join(f"{row[f'{who}_rows_per_s']:11,.0f}" for who in ("spark", "client", "sdk"))
        costs = "".join(f"{row[f'{who}_cpu_us']:11.1f}" for who in ("spark", "jvm", "workers", "client", "sdk"))
        print(f"{case:8}{rates}{costs}{row['added_us']:11.1f}{row['floor_us']:11.1f}")
    missed = [case for case, row in results.items() if row["added_us"] > ADDED_US_MAX]
    found = {
        "machine": machine(),
        "rows": options.rows,
        "sdk_rows": options.sdk_rows,
        "added_us_max": ADDED_US_MAX,
        "results": results,
        "rounds": rounds,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(found, indent=2) + "\n")
    print(f"Spark adds at most {ADDED_US_MAX:.0f} us a row: " + ("missed by " + ", ".join(missed) if missed else "met"))
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
