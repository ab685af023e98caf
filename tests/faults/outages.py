"""Seven outages of a primary, each with real processes and sockets, and an account of every message: `make faults`.

Each outage involves a primary and a secondary broker, an application that sends through `twinbus.paired` at a steady
rate, a receiver on the primary, and `twinbus syphon`. When the outage is over and everything has come home, the checker
compares the answers that the application got with what was received. All random choices come from a seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from pathlib import Path
from random import Random

from outages_checker import Did, Entry, Report, check
from outages_load import DETECTING, INTERVAL_S, PLAIN, TOPIC, WORKERS
from outages_proxy import Proxy
from outages_usage import Account, Watcher

from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.sas import sign
from twinbus.broker.security.certificates import ensure_ca
from twinbus.cli.directory import ask

LOAD = Path(__file__).with_name("outages_load.py")
READY_TIMEOUT_S = 30.0
HOME_TIMEOUT_S = 90.0
# Give up after this long if nothing has moved and nothing is left to move.
QUIET_S = 2.0
# The same if something is missing.
GIVEN_UP_S = 10.0
# The same if messages are in a queue and nobody moves them; the syphon's pauses are shorter after such outages.
STUCK_S = 40.0
# Well beyond the application's two seconds for one attempt.
SLOW_MS = 3_000
# If a receiver closes properly while its answers are lost, its messages come again when their locks expire.
LOCKS = 'lock_duration = "PT10S"\nmax_delivery_count = 1000'
ENTITIES = f"""
[namespaces.contoso.queues.{PLAIN}]
{LOCKS}
[namespaces.contoso.queues.{DETECTING}]
{LOCKS}
requires_duplicate_detection = true
[namespaces.contoso.topics.{TOPIC}.subscriptions.all]
{LOCKS}
"""


class Broker:
    """`twinbus serve` on one port and one data folder, across many restarts."""

    def __init__(self, folder: Path, name: str, entities: str = "") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            # The same after every restart.
            self.port: int = probe.getsockname()[1]
        # Holds configuration, data, ready file and log.
        self.folder = folder / name
        self.name = name
        # None before the first start.
        self.process: subprocess.Popen[bytes] | None = None
        # From the ready file.
        self.connection_string = ""
        self.folder.mkdir()
        (self.folder / "twinbus.toml").write_text(f"[namespaces.{name}]\nport = {self.port}\n{entities}")

    @property
    def ca(self) -> Path:
        """The CA that administration clients trust."""
        return ensure_ca(self.folder / "data")

    def start(self) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [str(Path(sys.executable).with_name("twinbus")), "serve", "--dev", "--allow-faults"]
        command += ["--config", str(self.folder / "twinbus.toml"), "--data", str(self.folder / "data")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--ready-file", str(ready)], stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"The broker {self.name} did not start:\n{self.log()}")
            time.sleep(0.01)
        self.connection_string = json.loads(ready.read_text())["namespaces"][self.name]["connection_string"]

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def fault(self, mode: str | None, **options: object) -> None:
        """Inject a fault into the whole namespace, or end it with None."""
        key = ConnectionString.parse(self.connection_string)
        token = sign(f"http://{key.host}:{self.port}/", key.key_name or "", key.key or "", int(time.time()) + 300)
        connection = HTTPConnection("127.0.0.1", self.port, timeout=READY_TIMEOUT_S)
        try:
            body = None if mode is None else json.dumps({"mode": mode, **options})
            headers = {"Authorization": token, "Content-Type": "application/json"}
            connection.request("DELETE" if mode is None else "PUT", "/$faults", body=body, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"The broker {self.name} has no fault for us: {text!r}")
        finally:
            connection.close()

    def messages(self) -> int:
        """The number of messages in its queues, including dead letters."""
        queues = ask(ConnectionString.parse(self.connection_string), "twinbus:list-queues", {})["queues"]
        return sum(int(queue["active_messages"]) + int(queue["dead_letter_messages"]) for queue in queues)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


class Stage:
    """Two brokers, a proxy in front of the primary, and three processes that know nothing of the outage."""

    def __init__(self, folder: Path, seed: int, planted: Path | None, given_up_s: float, *, sync: bool = False) -> None:
        self.folder = folder
        # Whether the application uses the sync client.
        self._sync = sync
        self.rng = Random(seed)
        self.seed = seed
        # A folder put first in the syphon's import path, to plant a fault.
        self._planted = planted
        # After this long without movement, and with nothing left to move, a missing message is lost.
        self._given_up_s = given_up_s
        self.primary = Broker(folder, "contoso", ENTITIES)
        self.secondary = Broker(folder, "fabrikam")
        # Between the application and the primary.
        self.proxy = Proxy(self.primary.port)
        # By role.
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    async def open(self) -> None:
        await asyncio.gather(asyncio.to_thread(self.primary.start), asyncio.to_thread(self.secondary.start))
        await self.proxy.start()
        self._start("receive")
        self._start(
            "send", primary=self.primary.connection_string.replace(f":{self.primary.port}", f":{self.proxy.port}")
        )
        await self.until_sends(3)
        # Now the backlog queues exist.
        self._start("syphon", planted=self._planted)

    def _start(self, role: str, primary: str | None = None, planted: Path | None = None) -> None:
        bundle = self.folder / "both.pem"
        bundle.write_text(self.primary.ca.read_text() + self.secondary.ca.read_text())
        (self.folder / role).touch()
        command = [sys.executable, str(LOAD), role, "--primary", primary or self.primary.connection_string]
        command += ["--secondary", self.secondary.connection_string, "--ca", str(bundle)]
        command += ["--log", str(self.folder / role), "--seed", str(self.seed)]
        if self._sync:
            command.append("--sync")
        environment = os.environ if planted is None else {**os.environ, "PYTHONPATH": str(planted)}
        with (self.folder / f"{role}.errors").open("wb") as errors:
            self._processes[role] = subprocess.Popen(command, stdout=errors, stderr=errors, env=environment)

    def watcher(self, role: str) -> Watcher:
        """Watches the resources of a process from now on."""
        return Watcher(self._processes[role].pid)

    # --- what happens -------------------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        found: list[Entry] = []
        for role in self._processes:
            # The last line may be incomplete.
            for line in (self.folder / role).read_text().rpartition("\n")[0].splitlines():
                did, name, number = line.split()
                found.append((Did(did), name, int(number)))
        return found

    async def until(self, what: str, happened: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not happened():
            self._check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not within {timeout_s:.0f} s.\n{self.errors()}")
            await asyncio.sleep(0.1)

    async def until_sends(self, count: int) -> None:
        """Wait until `count` more sends of every worker have returned, which shows that the application is working."""
        before = self._count(Did.RETURNED)
        wanted = count * WORKERS * 3
        await self.until("sends that return", lambda: self._count(Did.RETURNED) - before >= wanted, 60)

    async def until_failed_over(self) -> None:
        """Wait until each entity has failed over."""
        await self.until(
            "a failover", lambda: len({name for did, name, _ in self.entries() if did is Did.FAILED_OVER}) == 3
        )

    def _count(self, did: Did) -> int:
        return sum(entry[0] is did for entry in self.entries())

    def _check(self) -> None:
        for role, process in self._processes.items():
            if process.poll() is not None and process.returncode != 0:
                raise RuntimeError(f"The process '{role}' ended with code {process.returncode}.\n{self.errors()}")

    def errors(self) -> str:
        parts = [f"{role}: {(self.folder / f'{role}.errors').read_text()[-2_000:]}" for role in self._processes]
        return "\n".join([*parts, self.primary.log()[-2_000:], self.secondary.log()[-2_000:]])

    # --- the end ------------------------------------------------------------------------------------------------------

    async def come_home(self) -> None:
        """Let every send end and every message arrive; what is still missing is lost."""
        await self._end("send")
        deadline = time.monotonic() + HOME_TIMEOUT_S
        size, since = -1, time.monotonic()
        while time.monotonic() < deadline:
            self._check()
            now = sum((self.folder / role).stat().st_size for role in ("receive", "syphon"))
            if now != size:
                size, since = now, time.monotonic()
            quiet_s = time.monotonic() - since
            if quiet_s > STUCK_S:
                break
            if quiet_s > QUIET_S and await asyncio.to_thread(self._is_home, quiet_s):
                break
            await asyncio.sleep(0.2)
        await self._end("syphon")
        await self._end("receive")

    def _is_home(self, quiet_s: float) -> bool:
        if self.primary.messages() or self.secondary.messages():
            return False
        log = self.entries()
        missing = {name for did, name, _ in log if did is Did.RETURNED} - {
            name for did, name, _ in log if did is Did.RECEIVED
        }
        return not missing or quiet_s > self._given_up_s

    async def _end(self, role: str) -> None:
        process = self._processes[role]
        if process.poll() is None:
            process.terminate()
        try:
            code = await asyncio.to_thread(process.wait, 90)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"The process '{role}' does not end.\n{self.errors()}") from None
        if code != 0:
            raise RuntimeError(f"The process '{role}' ended with code {code}.\n{self.errors()}")

    async def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self.primary.kill()
        self.secondary.kill()
        await self.proxy.close()


# --- the outages ------------------------------------------------------------------------------------------------------


async def killed(stage: Stage) -> None:
    """The primary dies and comes back, with the same data on the same port."""
    await asyncio.to_thread(stage.primary.kill)
    await stage.until_failed_over()
    await asyncio.sleep(stage.rng.uniform(1, 3))
    await asyncio.to_thread(stage.primary.start)


async def silent(stage: Stage) -> None:
    """The primary accepts every byte and answers none."""
    await _faulty(stage, "silent")


async def slow(stage: Stage) -> None:
    """The primary answers too late for any attempt."""
    await _faulty(stage, "slow", delay_ms=SLOW_MS)
    # Requests that it has read and not yet handled still take effect.
    await asyncio.sleep(SLOW_MS / 1000)


async def flapping(stage: Stage) -> None:
    """The primary goes down and comes back every few seconds, for shorter and longer than the interval."""
    for seconds in (3.0, INTERVAL_S / 2, 2.0, INTERVAL_S, 2.5):
        await asyncio.to_thread(stage.primary.fault, "down")
        await asyncio.sleep(seconds * stage.rng.uniform(0.8, 1.2))
        await asyncio.to_thread(stage.primary.fault, None)
        await asyncio.sleep(stage.rng.uniform(1, 2.5))


async def lossy(stage: Stage) -> None:
    """The primary stores messages, and its answers are lost."""
    await _faulty(stage, "lossy")


async def half_open(stage: Stage) -> None:
    """Nobody serves or closes the connections any more: first only the old ones, then new ones as well."""
    if not stage.proxy.strike(stall=False):
        raise RuntimeError("The application has no connection to the primary.")
    await stage.until_sends(3)
    stage.proxy.strike(stall=True)
    await stage.until_failed_over()
    await asyncio.sleep(stage.rng.uniform(1, 3))
    stage.proxy.heal()


async def both(stage: Stage) -> None:
    """The primary dies, and the secondary goes down and comes back until after the primary is back."""
    await asyncio.to_thread(stage.primary.kill)
    await stage.until_failed_over()
    for number, mode in enumerate(("down", "lossy", "down", "silent", "down")):
        await asyncio.to_thread(stage.secondary.fault, mode)
        await asyncio.sleep(stage.rng.uniform(0.5, 2))
        await asyncio.to_thread(stage.secondary.fault, None)
        await asyncio.sleep(stage.rng.uniform(1, 2))
        if number == 3:
            await asyncio.to_thread(stage.primary.start)


async def _faulty(stage: Stage, mode: str, **options: object) -> None:
    await asyncio.to_thread(lambda: stage.primary.fault(mode, **options))
    await stage.until_failed_over()
    await asyncio.sleep(stage.rng.uniform(2, 4))
    await asyncio.to_thread(stage.primary.fault, None)


OUTAGES: Mapping[str, Callable[[Stage], Awaitable[None]]] = {
    "killed": killed,
    "silent": silent,
    "slow": slow,
    "flapping": flapping,
    "lossy": lossy,
    "half-open": half_open,
    "both": both,
}


@dataclass
class Result:
    """The result of one outage."""

    name: str
    seed: int
    seconds: float
    report: Report
    usage: Account

    @property
    def good(self) -> bool:
        """Nothing is wrong, and something happened: a run in which nothing happens proves nothing."""
        report = self.report
        happened = report.failovers > 0 and report.failbacks > 0 and report.carried > 0
        return report.good and self.usage.good and happened

    def __str__(self) -> str:
        bad = "" if self.good else " BAD"
        return f"{self.name} (seed {self.seed}, {self.seconds:.0f} s): {self.report}; {self.usage}{bad}"


async def _run(
    name: str, seed: int, folder: Path, planted: Path | None, given_up_s: float, sync: bool = False
) -> tuple[Report, Account]:
    stage = Stage(folder, seed, planted, given_up_s, sync=sync)
    try:
        await stage.open()
        watcher = stage.watcher("send")
        await OUTAGES[name](stage)
        # The outage is over: new sends go directly to the primary.
        await stage.until("the fail-back", lambda: _is_back(stage.entries()))
        await stage.until_sends(3)
        await watcher.settle()
        await stage.come_home()
        report = check(stage.entries(), {DETECTING})
        if not report.good:
            print(stage.errors(), file=sys.stderr)
        return report, watcher.account(folder / "send.usage")
    finally:
        await stage.close()


def _is_back(log: list[Entry]) -> bool:
    """Whether every entity that failed over has come back."""
    over = [name for did, name, _ in log if did is Did.FAILED_OVER]
    back = [name for did, name, _ in log if did is Did.FAILED_BACK]
    return len(over) == len(back)


def run(
    name: str, seed: int = 1, *, planted: Path | None = None, given_up_s: float = GIVEN_UP_S, sync: bool = False
) -> Result:
    """One outage; raises if it cannot be run, and leaves the verdict to the caller."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="twinbus-outage-") as folder:
        report, usage = asyncio.run(_run(name, seed, Path(folder), planted, given_up_s, sync))
    return Result(name, seed, time.monotonic() - started, report, usage)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=OUTAGES, metavar="NAME", help=", ".join(OUTAGES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sync", action="store_true", help="the application uses the client of threads")
    parser.add_argument("--json", action="store_true", help="JSON, a line for each outage")
    options = parser.parse_args()
    good = True
    for name in [options.only] if options.only else OUTAGES:
        result = run(name, options.seed, sync=options.sync)
        good = good and result.good
        if options.json:
            print(json.dumps({**asdict(result), "good": result.good}), flush=True)
            continue
        print(result, flush=True)
        for what in ("lost", "unexpected", "undoubted", "visible", "errors", "hung"):
            for message in getattr(result.report, what)[:20]:
                print(f"  {what}: {message}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
