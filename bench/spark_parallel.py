"""How the Spark source and sink gain by more tasks: one queue and eight queues, by 1, 2 and 4 tasks at once.

Messages of 1 KB, a broker in its own process, a session with four slots. Starting a query costs the same for any number
of rows, so each run is made with a tenth of the rows and with all, and the figures are those of the difference:
rows/s, which mean little on a busy machine, and the CPU of the broker and of Spark per row. A broker has one core, so
it delivers at most 1,000,000 / `broker us` rows/s, whatever the number of tasks.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import tempfile
import time
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import machine
from syphon import Peer

from spark import BODY, Bench, keep_orphans, tree_cpu_s
from twinbus.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASKS = (1, 2, 4)
QUEUES = (1, 8)
CASES = ("batch", "stream", "sink")
_TICKS_S = os.sysconf("SC_CLK_TCK")


def names(case: str, queues: int) -> list[str]:
    return [f"{case}-{queues}-{number}" for number in range(queues)]


def process_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / _TICKS_S


class Parallel:
    """The cases; each moves so many rows by so many tasks."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._options = {"connectionString": bench.text, "duplicateDetection": "ignore"}

    def batch(self, queues: int, tasks: int, rows: int) -> None:
        frames = [self._reader(False, path, tasks, queues, rows) for path in names("batch", queues)]
        self._united(frames, queues, tasks).write.format("noop").mode("overwrite").save()

    def stream(self, queues: int, tasks: int, rows: int) -> None:
        frames = [self._reader(True, path, tasks, queues, rows) for path in names("stream", queues)]
        self._bench.runs += 1
        checkpoint = self._bench.folder / f"checkpoint-{self._bench.runs}"
        writer = self._united(frames, queues, tasks).writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination()
        shutil.rmtree(checkpoint, ignore_errors=True)
        moved = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        if moved != rows:
            raise RuntimeError(f"The stream moved {moved} of {rows}.")

    def sink(self, queues: int, tasks: int, rows: int) -> None:
        frame = self._bench.spark.range(0, rows, 1, tasks).selectExpr(
            f"cast(repeat('x', {len(BODY)}) AS binary) AS body",
            "concat('row-', id) AS messageId",
            "'order' AS subject",
            "map('shop', '\"A\"', 'number', cast(id AS string)) AS properties",
            f"concat('sink-{queues}-', cast(id % {queues} AS string)) AS entity",
        )
        frame.write.format("servicebus").options(**self._options).mode("append").save()

    def _reader(self, stream: bool, path: str, tasks: int, queues: int, rows: int) -> DataFrame:
        reader = self._bench.spark.readStream if stream else self._bench.spark.read
        each = rows // queues
        given = {"connectionString": self._bench.text, "queueName": path, "maxMessagesPerTrigger": each}
        # Of eight queues each is a partition, and a task has several.
        given |= {"numPartitions": tasks if queues == 1 else 1, "minPartitions": tasks if queues == 1 else 1}
        if not stream:
            given["endingSequenceNumber"] = each
        return reader.format("servicebus").options(**given).load()

    def _united(self, frames: list[DataFrame], queues: int, tasks: int) -> DataFrame:
        united = reduce(lambda one, other: one.unionAll(other), frames)
        return united if queues == 1 else united.coalesce(tasks)


def one(bench: Bench, case: str, queues: int, tasks: int, rows: int) -> dict[str, float]:
    """Rows a second, and CPU per row, of the difference between a run and a tenth of it."""
    taken = []
    for count in (rows // 10, rows):
        if case == "stream":
            for path in names(case, queues):
                bench.fill(path, count // queues)
        before = (time.monotonic(), process_cpu_s(bench.broker), sum(tree_cpu_s(bench.broker).values()))
        getattr(Parallel(bench), case)(queues, tasks, count)
        after = (time.monotonic(), process_cpu_s(bench.broker), sum(tree_cpu_s(bench.broker).values()))
        taken.append([late - early for early, late in zip(before, after, strict=True)])
        if case == "sink":
            found = sum(bench.empty(path, count // queues) for path in names(case, queues))
            if found != count:
                raise RuntimeError(f"{found} of {count} rows were sent.")
    seconds, broker_s, spark_s = (whole - part for part, whole in zip(*taken, strict=True))
    done = rows - rows // 10
    return {"rows_per_s": done / seconds, "broker_us": broker_s / done * 1e6, "spark_us": spark_s / done * 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=80_000, help="a multiple of 80")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "spark_parallel.json")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    keep_orphans()
    shapes = [(case, queues, tasks) for case in CASES for queues in QUEUES for tasks in TASKS]
    found: dict[tuple[str, int, int], list[dict[str, float]]] = {shape: [] for shape in shapes}
    with tempfile.TemporaryDirectory(prefix="twinbus-bench-") as name:
        folder = Path(name)
        queues = [path for case in CASES for count in QUEUES for path in names(case, count)]
        peer = Peer(folder / "broker", "bench", queues)
        try:
            settings = {"spark.local.dir": str(folder)}
            with spark_session("bench", master=f"local[{max(TASKS)}]", settings=settings) as spark:
                bench = Bench(peer, spark, folder)
                for count in QUEUES:
                    for path in names("batch", count):
                        bench.fill(path, options.rows // count)
                for shape in shapes:
                    one(bench, *shape, options.rows // 4)  # the JVM compiles what it does often
                for _ in range(options.rounds):
                    for shape in shapes:
                        found[shape].append(one(bench, *shape, options.rows))
        finally:
            peer.stop()
    results: list[dict[str, Any]] = []
    print(f"{'':8}{'queues':>8}{'tasks':>7}{'rows/s':>10}{'broker us':>11}{'spark us':>11}")
    for (case, count, tasks), rounds in found.items():
        row = {what: statistics.median(each[what] for each in rounds) for what in rounds[0]}
        results.append({"case": case, "queues": count, "tasks": tasks, **row})
        print(f"{case:8}{count:8}{tasks:7}{row['rows_per_s']:10,.0f}{row['broker_us']:11.1f}{row['spark_us']:11.1f}")
    report = {"machine": machine(), "rows": options.rows, "results": results}
    options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
