"""Compare builds of the broker, for instance before and after a change, with the load of bench/run.py.

    python bench/compare.py before=../old/src after=src [--blocks 20] [--json FILE]

Each NAME=FOLDER names a folder with a `twinbus` package in it: `src` of another worktree, or `build/compiled` after
`make compiled`. All brokers run at once, and each block gives every phase to each of them in random order, so that the
machine's good and bad moments are shared out evenly. A ratio is the median over the blocks, against the first folder.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from measure import load, machine
from run import PHASES
from twinbus_peer import TwinbusPeer

HERE = Path(__file__).resolve().parent
# Phase -> what is compared: a rate should be high, a wait and CPU time low.
COLUMNS = dict.fromkeys(PHASES, ("rate", "cpu_us")) | {"latency": ("p50_ms", "p99_ms", "cpu_us")}

Figures = dict[str, dict[str, list[dict[str, Any]]]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--messages", type=int, default=40_000, help="a phase (default 40000)")
    parser.add_argument("--folder", type=Path, default=HERE / ".cache", help="where the brokers keep their data")
    parser.add_argument("--json", type=Path, help="write the figures to a file as well")
    options = parser.parse_args()
    options.builds = dict(build.split("=", 1) for build in options.builds if "=" in build)
    for name, folder in options.builds.items():
        if not (Path(folder) / "twinbus").is_dir():
            parser.error(f"{name}: there is no twinbus package in {folder}")
    if len(options.builds) < 2:
        parser.error("give at least two builds, as NAME=FOLDER")
    return options


def measured(builds: dict[str, str], blocks: int, messages: int, folder: Path) -> Figures:
    """Build -> phase -> the figures of each block."""
    found: Figures = {name: {phase: [] for phase in PHASES} for name in builds}
    with ExitStack() as stack:
        peers = {}
        for name, source in builds.items():
            environment = {"PYTHONPATH": str(Path(source).resolve())}
            peers[name] = stack.enter_context(TwinbusPeer(folder, environment=environment, name=name))
            load(peers[name], "both", 5_000)
        for block in range(1, blocks + 1):
            for phase, share in PHASES.items():
                for name in random.sample(list(builds), len(builds)):
                    found[name][phase].append(load(peers[name], phase, int(messages * share)))
                    if phase == "latency":  # leave the queue empty
                        load(peers[name], "receive", int(messages * share))
            print(f"\rblock {block} of {blocks}", end="" if block < blocks else "\n", file=sys.stderr, flush=True)
    return found


def ratio(found: Figures, name: str, first: str, phase: str, column: str) -> float:
    pairs = zip(found[name][phase], found[first][phase], strict=True)
    return statistics.median(ours[column] / theirs[column] for ours, theirs in pairs)


def show(found: Figures) -> None:
    first = next(iter(found))
    print(f"{'':24}" + "".join(f"{name:>16}" for name in found))
    for phase, columns in COLUMNS.items():
        for column in columns:
            line = f"{phase + ' ' + column:24}"
            for name in found:
                middle = statistics.median(one[column] for one in found[name][phase])
                figure = f"{middle:,.0f}" if column == "rate" else f"{middle:.3g}"
                if name != first:
                    figure += f" ({ratio(found, name, first, phase, column):.3f})"
                line += f"{figure:>16}"
            print(line)


def main() -> int:
    options = arguments()
    # Called before the load starts, so that the load average shows what else ran.
    where = machine()
    options.folder.mkdir(parents=True, exist_ok=True)
    found = measured(options.builds, options.blocks, options.messages, options.folder)
    show(found)
    if options.json is not None:
        result = {"machine": where, "blocks": options.blocks, "messages": options.messages, "figures": found}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
