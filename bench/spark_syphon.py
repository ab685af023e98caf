"""How fast the Spark syphon drains a backlog, compared with the local engine and a plain loop of the SDK.

All three move messages of 1 KB from backlog queues of one broker to a queue of another, in the same run. Each broker is
a separate process with real disk flushes; a message is completed only when the primary has accepted it. Starting Spark
and a first small round are not counted. The SDK's loop moves fewer messages, because it would take too long, and its
rate is compared. Results: a table, and JSON in bench/results/spark_syphon.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from syphon import AT_LEAST, NAME, PATH, QUEUES, SDK_QUEUES, Peer, fill, ours, taken, the_sdks

from twinbus.paired.options import backlog_names
from twinbus.paired.syphon import Pairing
from twinbus.spark.session import spark_session
from twinbus.spark.syphon.rounds import Rounds

HERE = Path(__file__).parent
WARM_UP = 2_000
_TICKS_S = os.sysconf("SC_CLK_TCK")


def family_cpu_s(brokers: set[int]) -> dict[str, float]:
    """CPU of this process and its descendants without the brokers, by program, including ended ones."""
    fields = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            name = stat[stat.index("(") + 1 : stat.rindex(")")]
            fields[int(folder.name)] = (name, stat[stat.rindex(")") + 2 :].split())
    total = {"driver": 0.0, "jvm": 0.0, "tasks": 0.0}
    for pid, (name, values) in fields.items():
        ancestor = pid
        while ancestor in fields and ancestor not in brokers and ancestor != os.getpid():
            ancestor = int(fields[ancestor][1][1])
        if ancestor != os.getpid():
            continue
        used = sum(int(value) for value in values[11:13])
        if pid == os.getpid():
            kind = "driver"
        else:
            kind = "jvm" if name == "java" else "tasks"
            used += sum(int(value) for value in values[13:15])
        total[kind] += used / _TICKS_S
    return total


def on_spark(spark: Any, first: Peer, second: Peer, count: int, options: argparse.Namespace) -> dict[str, Any]:
    queues = backlog_names(NAME, QUEUES)
    pairing = Pairing(first.connection_string, second.connection_string, NAME)
    brokers = {first.process.pid, second.process.pid}
    asyncio.run(fill(second.connection_string, queues, count, f"spark-{time.monotonic_ns()}"))
    rounds = Rounds(spark, pairing, queues, slots=options.slots)
    before, started = family_cpu_s(brokers), time.monotonic()
    report = rounds.run(once=True)
    seconds = time.monotonic() - started
    used = {name: value - before[name] for name, value in family_cpu_s(brokers).items()}
    assert report.total.syphoned == count, report
    assert asyncio.run(taken(first.connection_string)) == count
    return {
        "messages": count,
        "seconds": round(seconds, 3),
        "per_second": round(count / seconds, 1),
        "cpu_us_per_message": round(sum(used.values()) / count * 1e6, 1),
        "cpu_us_by_process": {name: round(value / count * 1e6, 1) for name, value in used.items()},
        "rounds": rounds.rounds,
        "repeated": report.total.repeated,
        "dead_lettered": report.total.dead_lettered,
    }


def one_round(spark: Any, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="twinbus-bench-") as folder:
        first = Peer(Path(folder) / "first", NAME, [PATH])
        second = Peer(Path(folder) / "second", "second", backlog_names(NAME, QUEUES) + SDK_QUEUES)
        try:
            pair = first.connection_string, second.connection_string
            sdk = asyncio.run(the_sdks(*pair, options.sdk_messages))
            local = asyncio.run(ours(*pair, options.messages))
            on_spark(spark, first, second, WARM_UP, options)
            found = on_spark(spark, first, second, options.messages, options)
        finally:
            first.stop()
            second.stop()
    return {
        "spark": found,
        "local": local,
        "sdk_loop": sdk,
        "times_sdk": round(found["per_second"] / sdk["per_second"], 2),
        "times_local": round(found["per_second"] / local["per_second"], 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--sdk-messages", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "spark_syphon.json")
    options = parser.parse_args()
    with spark_session("bench", master=options.master, brisk=True) as spark:
        rounds = [one_round(spark, options) for _ in range(options.rounds)]
    times = statistics.median(each["times_sdk"] for each in rounds)
    print("| engine | messages | seconds | messages/s | CPU us a message |")
    print("| --- | --- | --- | --- | --- |")
    for each in rounds:
        for name in ("sdk_loop", "local", "spark"):
            row = each[name]
            print(
                f"| {name} | {row['messages']:,} | {row['seconds']:.2f} | {row['per_second']:,.0f} "
                f"| {row['cpu_us_per_message']} |"
            )
    print(f"Spark: {times:.1f} times the SDK's loop (at least {AT_LEAST:g}), CPU by process, us a message:")
    print(json.dumps(rounds[-1]["spark"]["cpu_us_by_process"]))
    good = times >= AT_LEAST
    text = json.dumps({"rounds": rounds, "times": times, "wanted": AT_LEAST, "good": good}, indent=2)
    options.json.parent.mkdir(exist_ok=True)
    options.json.write_text(text + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
