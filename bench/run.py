"""Load compared with RabbitMQ, in the same run: `make bench`.

1 KB durable messages, send window and prefetch 500, from a separate process with our own engine. Both brokers run all
the time and are loaded in turn, round by round; the figures are medians over the rounds, and only their ratios are
meaningful on another machine. Results: a table, and JSON in bench/results/.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from measure import load, machine, median
from peer_tools import PeerMissing
from rabbitmq import RabbitMq
from twinbus_peer import TwinbusPeer

HERE = Path(__file__).resolve().parent
# Phase -> share of the messages: one in flight is slow, and its percentiles need no more.
PHASES = {"send": 1.0, "receive": 1.0, "both": 1.0, "latency": 0.04}
# Targets as ratios to RabbitMQ, in pure Python: minimum for rates, maximum for waits.
BARS = {"send": 1.3, "receive": 2.0, "both": 2.0, "p50_ms": 1.0, "p99_ms": 1.0}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=50_000, help="a phase (default 50000)")
    parser.add_argument("--alone", action="store_true", help="without RabbitMQ")
    parser.add_argument("--folder", type=Path, default=HERE / ".cache", help="where the brokers keep their data")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "load.json")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    return parser.parse_args()


def one_round(peer: Any, messages: int) -> dict[str, dict[str, Any]]:
    figures = {}
    for phase, share in PHASES.items():
        count = int(messages * share)
        figures[phase] = load(peer, phase, count)
        if phase == "latency":  # leave the queue empty
            load(peer, "receive", count)
    return figures


def summary(rounds: dict[str, list[dict[str, dict[str, Any]]]]) -> dict[str, dict[str, float]]:
    """Broker -> figure -> median."""
    table: dict[str, dict[str, float]] = {}
    for name, results in rounds.items():
        row = table[name] = {}
        for phase in ("send", "receive", "both"):
            row[phase] = median((one[phase] for one in results), "rate")
            row[f"waited_share_{phase}"] = median((one[phase] for one in results), "waited_share")
            row[f"cpu_us_{phase}"] = median((one[phase] for one in results), "cpu_us")
            if phase != "receive":
                row[f"max_ms_{phase}"] = max(one[phase]["max_ms"] for one in results)
        for name_ms in ("p50_ms", "p99_ms"):
            row[name_ms] = median((one["latency"] for one in results), name_ms)
    return table


def ratios(table: dict[str, dict[str, float]]) -> dict[str, float]:
    ours, theirs = table["twinbus"], table["rabbitmq"]
    return {name: ours[name] / theirs[name] for name in BARS}


def reached(found: dict[str, float]) -> dict[str, bool]:
    return {name: found[name] <= bar if name.endswith("_ms") else found[name] >= bar for name, bar in BARS.items()}


def show(table: dict[str, dict[str, float]]) -> None:
    cpu = "CPU us a message (s/r/b)"
    print(f"\n{'':10} {'send/s':>9} {'receive/s':>10} {'both/s':>9} {cpu:>26} {'p50 ms':>7} {'p99 ms':>7}")
    for name, row in table.items():
        cpu = " / ".join(f"{row[f'cpu_us_{phase}']:.1f}" for phase in ("send", "receive", "both"))
        print(
            f"{name:10} {row['send']:9,.0f} {row['receive']:10,.0f} {row['both']:9,.0f} {cpu:>26} "
            f"{row['p50_ms']:7.2f} {row['p99_ms']:7.2f}"
        )
    if "rabbitmq" in table:
        found = ratios(table)
        good = reached(found)
        for name, bar in BARS.items():
            want = f"at most {bar}" if name.endswith("_ms") else f"at least {bar}"
            print(f"  {name:8} {found[name]:5.2f} times RabbitMQ ({want}): {'reached' if good[name] else 'MISSED'}")


def main() -> int:
    options = arguments()
    # Called before the load starts, so that the load average shows what else ran.
    where = machine()
    options.folder.mkdir(parents=True, exist_ok=True)
    peers: list[Any] = [TwinbusPeer(options.folder)]
    try:
        if not options.alone:
            peers.append(RabbitMq(options.folder))
    except PeerMissing as missing:
        print(f"{missing}\n(or measure the broker alone: --alone)", file=sys.stderr)
        return 2
    rounds: dict[str, list[dict[str, dict[str, Any]]]] = {peer.name: [] for peer in peers}
    with ExitStack() as stack:
        for peer in peers:
            stack.enter_context(peer)
            peer.declare("bench")
            # Warm up: the first messages pay for what is loaded and compiled once.
            load(peer, "both", max(1000, options.messages // 10))
        for number in range(options.rounds):
            for peer in peers:
                figures = one_round(peer, options.messages)
                rounds[peer.name].append(figures)
                rates = ", ".join(f"{phase} {figures[phase]['rate']:,.0f}/s" for phase in ("send", "receive", "both"))
                print(f"round {number + 1}/{options.rounds} {peer.name:9} {rates}", flush=True)
        versions = {peer.name: peer.version for peer in peers}
    table = summary(rounds)
    show(table)
    result: dict[str, Any] = {
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": where,
        "versions": versions,
        "messages": options.messages,
        "medians": table,
        "rounds": rounds,
    }
    if "rabbitmq" in table:
        result |= {"ratios": ratios(table), "bars": BARS, "reached": reached(ratios(table))}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"Written: {options.json}")
    return 1 if options.check and not all(result.get("reached", {}).values()) else 0


if __name__ == "__main__":
    sys.exit(main())
