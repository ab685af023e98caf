"""What the ledger costs: the same load on a broker with a ledger and on one without, in interleaved rounds.

    python bench/metering.py [--rounds 7] [--count 20000] [--without SOURCE]

All brokers run all the time. Each round loads one after the other, each being first in turn, so that a slow minute of
the machine affects all. A second broker without a ledger shows the size of the noise. `--without` adds a broker from a
source tree that counts nothing, which shows the cost of the counters too. The figures of each round are compared in
pairs; the medians are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from measure import load, machine, median
from twinbus_peer import TwinbusPeer

PHASES = ("send", "receive", "both")


def peer(folder: Path, ledger: bool, source: str | None) -> TwinbusPeer:
    made = TwinbusPeer(folder, environment={} if source is None else {"PYTHONPATH": source})
    if not ledger and source is None:
        config = made.folder / "twinbus.toml"
        config.write_text('ledger = "off"\n' + config.read_text())
    return made


def cpu_ns(pid: int) -> int:
    """CPU time of a process' threads: the clock ticks of /proc/PID/stat are too coarse for a few per cent."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


def rounds(peers: dict[str, TwinbusPeer], count: int, number: int) -> dict[str, dict[str, list[dict[str, Any]]]]:
    found: dict[str, dict[str, list[dict[str, Any]]]] = {phase: {name: [] for name in peers} for phase in PHASES}
    names = list(peers)
    for at in range(number + 1):
        for phase in PHASES:
            for name in names if at % 2 else reversed(names):
                before = cpu_ns(peers[name].pid)
                figures = load(peers[name], phase, count)
                figures["cpu_us"] = (cpu_ns(peers[name].pid) - before) / 1_000 / count
                if at:  # the first round warms up
                    found[phase][name].append(figures)
        print(f"round {at} of {number}", file=sys.stderr)
    return found


def compared(found: dict[str, list[dict[str, Any]]], base: str) -> dict[str, Any]:
    """Medians of each broker, and the median of each round's ratio to `base`."""
    shown: dict[str, Any] = {}
    for name, rows in found.items():
        shown[name] = {"rate": round(median(rows, "rate")), "cpu_us": round(median(rows, "cpu_us"), 2)}
        if name != base:
            for figure in ("rate", "cpu_us"):
                ratios = [row[figure] / other[figure] for row, other in zip(rows, found[base], strict=True)]
                shown[name][f"{figure}_ratio"] = round(statistics.median(ratios), 4)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--without", metavar="SOURCE", help="a source tree that counts nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="metering-") as folder, ExitStack() as stack:
        wanted: dict[str, tuple[bool, str | None]] = {
            "off": (False, None),
            "on": (True, None),
            "off_again": (False, None),
        }
        if options.without:
            wanted = {"without": (False, options.without), **wanted}
        peers = {name: stack.enter_context(peer(Path(folder), *how)) for name, how in wanted.items()}
        found = rounds(peers, options.count, options.rounds)
        base = next(iter(peers))
        figures = {phase: compared(found[phase], base) for phase in PHASES}
        ledger = peers["on"].folder / "data" / "ledger"
        written = sum(path.stat().st_size for path in ledger.iterdir())
    report = {"machine": machine(), "rounds": options.rounds, "count": options.count, "base": base}
    print(json.dumps({**report, "figures": figures, "ledger_bytes": written}, indent=2))


if __name__ == "__main__":
    main()
