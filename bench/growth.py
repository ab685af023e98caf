"""What a message costs beside many connections and many entities, and how long the longest accepts take.

    python bench/growth.py [--connections 4900] [--queues 9900] [--messages 30000] [--rounds 5] [--pauses 5] [--check]

Growth: three brokers run side by side, one bare, one with idle connections that each have a link, one with many queues.
Each gets the same load in turn; the figure is the broker's CPU per message, and its ratio to the bare broker's. Depth
has its own bench, depth.py. Pauses: the longest accepts of a full load in several runs, and the time for which the
broker had no core meanwhile. A last run, on asyncio's own loop, shows the CPU of the broker's longest turns: a pause of
its own making (garbage collector, map growth, ticks) would be one of them. Results: tables, and JSON in bench/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bystander import HOOKS, longest_turns
from clients import Client
from measure import load, machine, median
from twinbus_peer import TwinbusPeer

HERE = Path(__file__).resolve().parent
PHASES = ("send", "receive", "both")
# Before anything is measured.
WARM_MESSAGES = 10_000
PAUSE_FIGURES = ("rate", "p50_ms", "p99_ms", "p9999_ms", "max_ms", "waited_share")
# Targets: the ratio to the bare broker, and the p99.99 of every run.
BARS = {"ratio": 1.1, "p9999_ms": 50.0}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=4_900)
    parser.add_argument("--queues", type=int, default=9_900)
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pauses", type=int, default=5, help="runs for the longest accepts (default 5)")
    parser.add_argument("--folder", type=Path, default=HERE / ".cache")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "growth.json")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    return parser.parse_args()


def crowd(peer: TwinbusPeer, count: int) -> list[Client]:
    """Idle connections with a link each."""
    clients = []
    for number in range(count):
        client = Client(peer)
        client.open()
        client.receiver("idle", 10)
        clients.append(client)
        if number % 1000 == 999:
            print(f"  {number + 1:,} connections", flush=True)
    return clients


def connected(client: Client) -> bool:
    client.socket.setblocking(False)
    try:
        return client.socket.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def growth(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    queues = ("bench", *(f"many{number}" for number in range(options.queues)))
    with (
        TwinbusPeer(options.folder) as bare,
        TwinbusPeer(options.folder, ("bench", "idle")) as crowded,
        TwinbusPeer(options.folder, queues) as wide,
    ):
        peers = {"bare": bare, "connections": crowded, "queues": wide}
        rows: dict[str, dict[str, list[dict[str, Any]]]] = {name: {each: [] for each in PHASES} for name in peers}
        clients = crowd(crowded, options.connections)
        for peer in peers.values():
            load(peer, "both", WARM_MESSAGES)
        for number in range(options.rounds):
            for phase in PHASES:
                for name, peer in peers.items():
                    rows[name][phase].append(load(peer, phase, options.messages))
            print(f"  round {number + 1}/{options.rounds}", flush=True)
        left = sum(map(connected, clients))
        if left < options.connections:
            raise RuntimeError(f"Only {left} of {options.connections} idle connections were there to the end.")
        for client in clients:
            client.socket.close()
    return {
        name: {phase: median(found[phase], "cpu_us") for phase in PHASES} | {"waited_share": waited(found["both"])}
        for name, found in rows.items()
    }


def waited(rows: list[dict[str, Any]]) -> float:
    return max(float(row["waited_share"]) for row in rows)


def pauses(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Of each run, the waits for accepts while as many are received."""
    found = []
    with TwinbusPeer(options.folder) as peer:
        load(peer, "both", WARM_MESSAGES)
        for _ in range(options.pauses):
            row = load(peer, "both", 10 * options.messages)
            found.append(
                {name: row[name] for name in ("rate", "p50_ms", "p99_ms", "p9999_ms", "max_ms", "waited_share")}
            )
    return found


def turns(options: argparse.Namespace) -> list[tuple[float, str]]:
    """The longest turns of the broker's loop under the same load: CPU milliseconds and what ran."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file = Path(folder) / "turns"
        file.touch()
        path = os.pathsep.join([str(HOOKS), os.environ.get("PYTHONPATH", "")])
        with TwinbusPeer(options.folder, environment={"PYTHONPATH": path, "LOOP_TURNS": str(file)}) as peer:
            load(peer, "both", WARM_MESSAGES)
            skip = file.stat().st_size
            load(peer, "both", 10 * options.messages)
        return longest_turns(file, skip)[:5]


def main() -> int:
    options = arguments()
    where = machine()
    options.folder.mkdir(parents=True, exist_ok=True)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4 * options.connections + 1_000), most))
    print("growth", flush=True)
    costs = growth(options)
    print(f"{'CPU us a message':24}" + "".join(f"{phase:>16}" for phase in PHASES))
    titles = {
        "bare": "bare",
        "connections": f"{options.connections:,} connections",
        "queues": f"{options.queues:,} queues",
    }
    worst = 0.0
    for name, row in costs.items():
        ratios = {phase: row[phase] / costs["bare"][phase] for phase in PHASES}
        worst = max(worst, *ratios.values())
        print(f"{titles[name]:24}" + "".join(f"{row[phase]:9.1f} ({ratios[phase]:.2f})" for phase in PHASES))
    print("pauses", flush=True)
    runs = pauses(options)
    print(f"{'both/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'p99.99 ms':>11}{'longest ms':>12}{'without a core':>16}")
    for run in runs:
        print(
            f"{run['rate']:10,.0f}{run['p50_ms']:9.1f}{run['p99_ms']:9.1f}{run['p9999_ms']:11.1f}{run['max_ms']:12.1f}"
            f"{run['waited_share']:16.1%}"
        )
    longest = turns(options)
    for used_ms, what in longest:
        print(f"  {used_ms:7.1f} ms of CPU: {what}")
    figures = {"ratio": worst, "p9999_ms": max(run["p9999_ms"] for run in runs)}
    for name, bar in BARS.items():
        print(f"  {name:10} {figures[name]:8.2f} (at most {bar:g}): {'reached' if figures[name] <= bar else 'MISSED'}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    taken = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    found = {"taken": taken, "machine": where, "bars": BARS, "figures": figures}
    options.json.write_text(json.dumps(found | {"growth": costs, "pauses": runs, "turns": longest}, indent=2) + "\n")
    return 1 if options.check and any(figures[name] > bar for name, bar in BARS.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
