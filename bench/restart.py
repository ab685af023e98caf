"""How long a broker takes to start with many copies: subscriptions times messages, all active.

    python bench/restart.py [--subscriptions 1000] [--messages 2000]

Builds the folder with the rules and the store, then starts `twinbus serve` on it and waits for the ready file.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from twinbus.clock import SystemClock
from twinbus.entities.message import NewMessage
from twinbus.entities.namespace import Namespace
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.store.facts import Facts
from twinbus.store.lmdb_store import Store

BATCH = 100


def built(folder: Path, subscriptions: int, messages: int) -> None:
    namespace = Namespace("contoso", tokens=lambda: os.urandom(16))
    now_ms = SystemClock().now_ms()
    with Store.open(folder, sync=False) as store:

        def commit(facts: Facts) -> None:
            store.commit(facts)
            for call, argument in facts.then:
                call(argument)

        facts = Facts()
        topic = namespace.create_topic(TopicSettings(path="news"), now_ms, facts)
        for number in range(subscriptions):
            settings = SubscriptionSettings(topic="news", name=f"s{number}")
            namespace.create_subscription(settings, now_ms, facts)
        commit(facts)
        for first in range(0, messages, BATCH):
            facts = Facts()
            topic.send([NewMessage(str(first + each), b"x" * 100, 100) for each in range(BATCH)], now_ms, facts)
            commit(facts)


def start_s(data: Path, ready: Path) -> tuple[float, float]:
    """Seconds until it is ready, and CPU seconds of the process."""
    ready.unlink(missing_ok=True)
    cpu_s = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    start = time.perf_counter()
    command = [sys.executable, "-m", "twinbus", "serve", "--namespace", "contoso", "--data", data]
    with subprocess.Popen([*command, "--ready-file", ready], stdout=subprocess.DEVNULL) as process:
        while not (ready.exists() and ready.stat().st_size):
            if process.poll() is not None:
                sys.exit("The broker did not start.")
            time.sleep(0.01)
        taken_s = time.perf_counter() - start
        process.kill()
    return taken_s, sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twinbus-restart-") as name:
        built(Path(name) / "data" / "contoso", options.subscriptions, options.messages)
        for _ in range(3):
            taken_s, cpu_s = start_s(Path(name) / "data", Path(name) / "ready")
            print(f"{options.subscriptions * options.messages:,} copies: ready in {taken_s:.1f} s, CPU {cpu_s:.1f} s")


if __name__ == "__main__":
    main()
