"""Both builds of Twinbus compared with ActiveMQ Artemis and RabbitMQ, under one load: `make bench-peers`.

The load is a separate C program (load.c). All brokers run all the time and are loaded in turn, case by case and round
by round; figures are medians over the rounds, and only ratios within one run are meaningful. Artemis confirms no
settlement, so its receives count when the settlement is written. Brokers that are not available here are listed and
left out. Results: one table, and one JSON file in bench/results/.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from artemis import Artemis
from measure import cpu_s, machine, median, memory_bytes, rss_bytes, waited_s
from peer_tools import PeerMissing
from rabbitmq import RabbitMq
from twinbus_peer import TwinbusPeer

HERE = Path(__file__).resolve().parent
COMPILED = HERE.parent / "build" / "compiled"
MANY_QUEUES = 100
QUEUES = ("bench", "deep", *(f"many{number}" for number in range(MANY_QUEUES)))
# A rate is steady when this many loads in a row differ by at most this share.
STEADY_ROUNDS, STEADY_SHARE, WARM_ROUNDS_MAX = 3, 0.1, 20


class Case(NamedTuple):
    """One column of the table: a load, and which of its figures counts."""

    title: str
    phase: str
    # Share of a run's messages: large and slow ones need fewer.
    share: float = 1.0
    figures: tuple[str, ...] = ("rate",)
    options: Mapping[str, int] = MappingProxyType({})
    queue: str = "bench"
    tls: bool = False
    # The phase that fills the queue before, or empties it afterwards; not counted.
    before: str = ""
    after: str = ""


CASES = (
    Case("send/s", "send"),
    Case("receive/s", "receive"),
    Case("both/s", "both"),
    Case("single send p50, p99 ms", "latency", 0.04, ("p50_ms", "p99_ms"), after="receive"),
    Case("8 connections: send/s", "send", options={"connections": 8}, after="receive"),
    Case("8 connections: both/s", "both", options={"connections": 8}),
    Case("50 connections: both/s", "both", options={"connections": 50, "window": 100, "prefetch": 100}),
    Case("100 queues: both/s", "both", options={"connections": 10, "queues": MANY_QUEUES}, queue="many"),
    Case("64 KB: both/s", "both", 0.1, options={"bytes": 65536, "window": 50, "prefetch": 50}),
    Case("one by one: settled/s", "single", 0.04, before="send"),
    Case("TLS: both/s", "both", tls=True),
    Case("deep queue: both/s", "both", queue="deep"),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=50_000, help="messages of a case (default 50000)")
    parser.add_argument("--deep", type=int, default=1_000_000, help="messages in the deep queue (default 1000000)")
    parser.add_argument("--quick", action="store_true", help="one round of 5000 messages, 10000 in the deep queue")
    parser.add_argument("--only", default="", help="peers to measure, with commas: pure,compiled,artemis,rabbitmq")
    parser.add_argument("--cases", default="", help="only columns whose title contains one of these, with commas")
    parser.add_argument(
        "--tree", action="append", default=[], metavar="NAME=SRC", help="also measure another source tree of Twinbus"
    )
    parser.add_argument("--folder", type=Path, default=HERE / ".cache", help="where the brokers keep their data")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "peers.json")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.messages, options.deep = 1, 5_000, 10_000
    return options


class Loader:
    """The C program, built for this run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "load"
        compiler = shutil.which("cc")
        if compiler is None:
            raise PeerMissing("The load needs a C compiler: apt-get install gcc libc6-dev libssl-dev")
        command = [compiler, "-O2", "-o", str(self.path), str(HERE / "load.c")]
        # TLS needs OpenSSL's headers.
        self.tls = subprocess.run([*command, "-lssl", "-lcrypto"], capture_output=True, check=False).returncode == 0
        if not self.tls:
            subprocess.run([*command, "-DNO_TLS"], check=True)

    def run(self, peer: Any, case: Case, count: int, phase: str = "") -> dict[str, Any]:
        command = [str(self.path), "--user", peer.user, "--password", peer.password]
        command += ["--port", str(peer.tls_port if case.tls else peer.port), "--address", peer.address(case.queue)]
        command += ["--phase", phase or case.phase, "--count", str(count), *(["--tls"] if case.tls else [])]
        command += ["--confirms", str(int(peer.confirms))]
        for name, value in case.options.items():
            command += [f"--{name}", str(value)]
        before, waited = cpu_s(peer.pid), waited_s(peer.pid)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"The load on {peer.name} ({case.title}) failed:\n{done.stdout}{done.stderr}")
        figures: dict[str, Any] = json.loads(done.stdout)
        figures["rate"] = count / figures["seconds"]
        figures["cpu_us"] = 1e6 * (cpu_s(peer.pid) - before) / count
        figures["waited_share"] = (waited_s(peer.pid) - waited) / figures["seconds"]
        return figures


class Memory:
    """The most memory that a broker had, in MiB."""

    def __init__(self) -> None:
        # What a user sees; for an LMDB map that includes the file's pages.
        self.resident = 0.0
        # Without the pages of files, which the system drops when it needs them.
        self.anonymous = 0.0

    def look(self, pid: int) -> None:
        self.resident = max(self.resident, memory_bytes(pid, "VmRSS") / 2**20)
        self.anonymous = max(self.anonymous, rss_bytes(pid) / 2**20)


def find_peers(options: argparse.Namespace) -> tuple[list[Any], dict[str, str]]:
    """The brokers available here, and what is missing for the others."""

    def compiled() -> TwinbusPeer:
        if not list(COMPILED.rglob("*.so")):
            raise PeerMissing("There is no compiled build: run make compiled (it needs a C compiler)")
        return TwinbusPeer(options.folder, QUEUES, {"PYTHONPATH": str(COMPILED)}, name="compiled")

    makers = {
        "pure": lambda: TwinbusPeer(options.folder, QUEUES, name="pure"),
        "compiled": compiled,
        "artemis": lambda: Artemis(options.folder, QUEUES),
        "rabbitmq": lambda: RabbitMq(options.folder),
    }
    found, missing = [], {}
    for tree in options.tree:
        name, _, source = tree.partition("=")
        found.append(TwinbusPeer(options.folder, QUEUES, {"PYTHONPATH": source}, name=name))
    for name, make in makers.items():
        if options.only and name not in options.only.split(","):
            continue
        try:
            found.append(make())
        except PeerMissing as reason:
            missing[name] = str(reason)
            print(f"{name} is left out. {reason}", file=sys.stderr)
    return found, missing


def warm(loader: Loader, peer: Any, messages: int) -> list[float]:
    """Load a broker until its rate is steady; returns the rates on the way."""
    rates: list[float] = []
    while len(rates) < WARM_ROUNDS_MAX:
        rates.append(loader.run(peer, Case("warming up", "both"), messages)["rate"])
        last = rates[-STEADY_ROUNDS:]
        if len(last) == STEADY_ROUNDS and max(last) - min(last) <= STEADY_SHARE * max(last):
            break
    return rates


def measure(loader: Loader, peer: Any, case: Case, messages: int) -> dict[str, Any]:
    count = max(int(messages * case.share), 100)
    if case.before:
        loader.run(peer, case, count, case.before)
    figures = loader.run(peer, case, count)
    if case.after:
        loader.run(peer, case, count, case.after)
    return figures


def show(table: dict[str, dict[str, list[float]]], memory: dict[str, Memory], cases: list[Case]) -> None:
    names = list(table)
    print(f"\n| | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for case in cases:
        cells = []
        for name in names:
            values = table[name].get(case.title)
            cells.append(" / ".join(f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in values or []))
        print(f"| {case.title} | {' | '.join(cells)} |")
    for kind in ("resident", "anonymous"):
        print(f"| {kind} memory MiB | {' | '.join(f'{getattr(memory[name], kind):,.0f}' for name in names)} |")


def main() -> int:
    options = arguments()
    # Called before the load starts, so that the load average shows what else ran.
    where = machine()
    options.folder.mkdir(parents=True, exist_ok=True)
    loader = Loader(options.folder)
    peers, missing = find_peers(options)
    wanted = [part for part in options.cases.split(",") if part]
    cases = [case for case in CASES if not wanted or any(part in case.title for part in wanted)]
    if not loader.tls:
        missing["TLS"] = "The load was built without TLS: apt-get install libssl-dev"
        cases = [case for case in cases if not case.tls]
    rounds: dict[str, dict[str, list[dict[str, Any]]]] = {
        peer.name: {case.title: [] for case in cases} for peer in peers
    }
    warmed, versions = {}, {}
    memory = {peer.name: Memory() for peer in peers}
    with ExitStack() as stack:
        for peer in peers:
            stack.enter_context(peer)
            peer.declare(*QUEUES)
            warmed[peer.name] = warm(loader, peer, max(2_000, options.messages // 2))
            memory[peer.name].look(peer.pid)
            if any(case.queue == "deep" for case in cases):
                loader.run(peer, Case("filling", "send", queue="deep"), options.deep)
            print(f"{peer.name} is warm after {len(warmed[peer.name])} loads", flush=True)
        for number in range(options.rounds):
            for case in cases:
                # Each has every place in turn: what ran before leaves its traces in caches and on the disk.
                first = number % len(peers)
                for peer in peers[first:] + peers[:first]:
                    if case.phase == "single" and not peer.confirms:
                        continue
                    figures = measure(loader, peer, case, options.messages)
                    rounds[peer.name][case.title].append(figures)
                    if case.queue != "deep":
                        memory[peer.name].look(peer.pid)
            print(f"round {number + 1}/{options.rounds}", flush=True)
        versions = {peer.name: peer.version for peer in peers}
    table = {
        # A case that a peer cannot do, such as settlements without a confirmation, has no cell.
        name: {
            case.title: [median(results[case.title], figure) for figure in case.figures]
            for case in cases
            if results[case.title]
        }
        for name, results in rounds.items()
    }
    show(table, memory, cases)
    for name, reason in missing.items():
        print(f"{name} is missing. {reason}")
    result = {
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": where,
        "versions": versions,
        "missing": missing,
        "messages": options.messages,
        "deep": options.deep,
        "medians": table,
        "memory_mib": {name: vars(found) for name, found in memory.items()},
        "warming": warmed,
        "rounds": rounds,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"Written: {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
