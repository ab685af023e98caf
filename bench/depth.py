"""What depth costs: a queue with ten messages compared with one with a million; memory, pauses and restart time.

Two brokers run side by side, one with each depth, filled with 1 KB messages. Both get the same mixed load (one message
sent for each received, so the depth stays) and the same single sends in turn, so that other work on the machine
affects both. Results: a table, and JSON in bench/results/depth.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from measure import load, machine, median, rss_bytes
from twinbus_peer import TwinbusPeer

HERE = Path(__file__).resolve().parent
SHALLOW = 10
SINGLES = 1000
# Targets.
BARS = {"cost_ratio": 1.25, "bytes_a_message": 300.0, "restart_s": 3.0, "longest_accept_ms": 50.0}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=1_000_000)
    parser.add_argument("--messages", type=int, default=30_000, help="of the mixed load (default 30000)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=HERE / ".cache")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "depth.json")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    return parser.parse_args()


class AtDepth:
    """One broker whose queue holds `depth` messages, before and after each round."""

    def __init__(self, peer: TwinbusPeer, depth: int) -> None:
        self.peer = peer
        self.depth = depth
        # Figures of the mixed load and of the single sends, one per round.
        self.mixed: list[dict[str, Any]] = []
        self.singles: list[dict[str, Any]] = []

    def round(self, messages: int) -> None:
        self.mixed.append(load(self.peer, "both", messages))
        self.singles.append(load(self.peer, "latency", SINGLES))
        load(self.peer, "receive", SINGLES)

    def figures(self) -> dict[str, float]:
        return {
            "depth": self.depth,
            "both_rate": median(self.mixed, "rate"),
            "both_cpu_us": median(self.mixed, "cpu_us"),
            "longest_accept_ms": max(one["max_ms"] for one in self.mixed),
            "waited_share": median(self.mixed, "waited_share"),
            "p50_ms": median(self.singles, "p50_ms"),
            "p99_ms": median(self.singles, "p99_ms"),
        }


def restart(peer: TwinbusPeer, *, killed: bool) -> dict[str, float]:
    """Seconds from exec to the ready file, and to a message received and settled."""
    if killed:
        assert peer.process is not None
        peer.process.kill()
        peer.process.wait()
    else:
        peer.stop()
    started = time.perf_counter()
    ready_s = peer.start()
    # Includes starting the load process; the time to serve an empty queue is not subtracted.
    load(peer, "receive", 1, prefetch=1)
    return {"ready_s": ready_s, "first_message_s": time.perf_counter() - started}


def show(result: dict[str, Any]) -> None:
    columns = (("messages queued", 16), ("both/s", 9), ("CPU us a message", 17), ("longest accept ms", 18))
    print("\n" + " ".join(f"{name:>{width}}" for name, width in (*columns, ("p50 ms", 7), ("p99 ms", 7))))
    for row in (result["shallow"], result["deep"]):
        print(
            f"{row['depth']:16,} {row['both_rate']:9,.0f} {row['both_cpu_us']:17.1f} {row['longest_accept_ms']:18.1f} "
            f"{row['p50_ms']:7.2f} {row['p99_ms']:7.2f}"
        )
    waited = max(result[name]["waited_share"] for name in ("shallow", "deep", "filling"))
    print(f"ready to run but without a core for up to {waited:.0%} of a phase: pauses are the machine's too")
    for name, stopped in (("after a stop", result["restart"]), ("after kill -9", result["restart_killed"])):
        print(
            f"restart {name:14} ready in {stopped['ready_s']:.2f} s, first message {stopped['first_message_s']:.2f} s"
        )
    for name, bar in BARS.items():
        found = result["figures"][name]
        print(f"  {name:18} {found:8.2f} (at most {bar:g}): {'reached' if found <= bar else 'MISSED'}")


def main() -> int:
    options = arguments()
    # Called before the load starts, so that the load average shows what else ran.
    where = machine()
    options.folder.mkdir(parents=True, exist_ok=True)
    with TwinbusPeer(options.folder) as few, TwinbusPeer(options.folder) as many:
        for peer in (few, many):
            load(peer, "both", 20_000)
            load(peer, "send", SHALLOW)
        before = rss_bytes(many.pid)
        print(f"filling to {options.depth:,} ...", flush=True)
        filling = load(many, "send", options.depth - SHALLOW)
        filled = rss_bytes(many.pid)
        depths = AtDepth(few, SHALLOW), AtDepth(many, options.depth)
        for number in range(options.rounds):
            for each in depths:
                each.round(options.messages)
            print(f"round {number + 1}/{options.rounds}", flush=True)
        shallow, deep = (each.figures() for each in depths)
        stopped = restart(many, killed=False)
        # Recovered, nothing cached yet: the difference from the same process with an empty queue is the index alone.
        recovered = rss_bytes(many.pid)
        killed = restart(many, killed=True)
        with TwinbusPeer(options.folder) as empty:
            empty_bytes = rss_bytes(empty.pid)
    figures = {
        "cost_ratio": deep["both_cpu_us"] / shallow["both_cpu_us"],
        "bytes_a_message": (recovered - empty_bytes) / options.depth,
        "restart_s": max(stopped["first_message_s"], killed["first_message_s"]),
        "longest_accept_ms": max(filling["max_ms"], deep["longest_accept_ms"], shallow["longest_accept_ms"]),
    }
    result = {
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": where,
        "depth": options.depth,
        "figures": figures,
        "bars": BARS,
        "shallow": shallow,
        "deep": deep,
        "filling": filling,
        "rss_a_message_while_filling": (filled - before) / options.depth,
        "restart": stopped,
        "restart_killed": killed,
    }
    show(result)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"Written: {options.json}")
    return 1 if options.check and any(figures[name] > bar for name, bar in BARS.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
