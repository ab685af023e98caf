"""Kills the broker under load with SIGKILL, again and again, and accounts for every message: `make faults`.

A load process sends, receives, completes and dead-letters all the time, across every kill of the broker, and logs what
it did and which answers it got. The broker restarts on the same port with the same data. At the end all remaining
messages are received, and the checker compares. A seed determines the moments of the kills, so that a run can be
repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kill_checker import Did, Report, check

LOAD = Path(__file__).with_name("kill_load.py")
NAMESPACE = "faults"
QUEUE = "kill"
READY_TIMEOUT_S = 30.0
PROGRESS_TIMEOUT_S = 30.0
# Between two kills: long enough for a few hundred commits, short enough to hit the middle of one.
ALIVE_S = (0.1, 1.2)


class Broker:
    """`twinbus serve` on one port and one data folder, across many restarts."""

    def __init__(self, folder: Path, path: Path | None = None, *, entities: str = "", **environment: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        # Holds configuration, data, ready file and log.
        self.folder = folder
        # A folder put first in the broker's import path, to plant a fault.
        self.environment = {**os.environ, "PYTHONPATH": str(path), **environment} if path is not None else None
        # The same after every restart.
        self.port: int = port
        # None before the first start.
        self.process: subprocess.Popen[bytes] | None = None
        # From the ready file; the same after every restart.
        self.connection_string = ""
        # Locks outlive the run: an expired one would redeliver messages that nobody lost.
        entities = entities or f'[namespaces.{NAMESPACE}.queues.{QUEUE}]\nlock_duration = "PT5M"\n'
        (folder / "twinbus.toml").write_text(f"[namespaces.{NAMESPACE}]\nport = {port}\n{entities}")

    def start(self) -> float:
        """Returns the seconds until it is ready."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [
            str(Path(sys.executable).with_name("twinbus")),
            "serve",
            "--config",
            str(self.folder / "twinbus.toml"),
        ]
        command += ["--data", str(self.folder / "data"), "--ready-file", str(ready), "--dev"]
        started = time.monotonic()
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=self.environment)
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() - started > READY_TIMEOUT_S:
                self.kill()
                raise RuntimeError(f"The broker did not come back:\n{self.log()}")
            time.sleep(0.005)
        self.connection_string = json.loads(ready.read_text())["namespaces"][NAMESPACE]["connection_string"]
        return time.monotonic() - started

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(READY_TIMEOUT_S)

    def log(self) -> str:
        return (self.folder / "broker.log").read_text(errors="replace")


class Load:
    """The load process and its log."""

    def __init__(self, broker: Broker, log: Path, *options: str) -> None:
        # What it did and which answers it got, one line each.
        self.log = log
        # How many bytes of the log `progressed` has read.
        self.seen_bytes = 0
        command = [sys.executable, str(LOAD), "--connection-string", broker.connection_string, "--queue", QUEUE]
        self.process = subprocess.Popen([*command, "--log", str(log), *options], stderr=subprocess.PIPE, text=True)

    def progressed(self) -> bool:
        """Whether a send was accepted and a completion confirmed since the last call that returned True."""
        with self.log.open() as file:
            file.seek(self.seen_bytes)
            text = file.read()
        if f"{Did.ACCEPTED} " in text and f"{Did.COMPLETED} " in text:
            self.seen_bytes += len(text)
            return True
        return False

    def wait(self) -> None:
        _, errors = self.process.communicate(timeout=60)
        if self.process.returncode != 0:
            raise RuntimeError(f"The load ended with code {self.process.returncode}:\n{errors}")

    def stop(self) -> None:
        self.process.terminate()
        self.wait()


def entries(log: Path) -> list[tuple[Did, str]]:
    found = []
    for line in log.read_text().splitlines():
        did, message = line.split()
        found.append((Did(did), message))
    return found


def run(kills: int, seed: int, *, echo: bool = False, planted: Path | None = None) -> Report:
    """The whole test; raises if it cannot be run, and leaves the verdict to the caller."""
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="twinbus-kill-") as name:
        folder = Path(name)
        broker = Broker(folder, planted)
        load: Load | None = None
        try:
            broker.start()
            (folder / "log").touch()
            load = Load(broker, folder / "log")
            for number in range(1, kills + 1):
                _await_progress(load, broker)
                time.sleep(moments.uniform(*ALIVE_S))
                broker.kill()
                seconds = broker.start()
                if echo:
                    print(f"kill {number}/{kills}: back in {seconds:.2f} s", flush=True)
            _await_progress(load, broker)
            load.stop()
            # Restart once more, so that what is found comes from the disk and no lock hides anything.
            broker.kill()
            broker.start()
            (folder / "found").touch()
            Load(broker, folder / "found", "--drain").wait()
            return check(entries(folder / "log") + entries(folder / "found"))
        finally:
            if load is not None and load.process.poll() is None:
                load.process.kill()
                load.process.wait()
            broker.kill()


def _await_progress(load: Load, broker: Broker) -> None:
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while not load.progressed():
        if load.process.poll() is not None:
            load.wait()
        if time.monotonic() > deadline:
            raise RuntimeError(f"The load makes no progress. The broker says:\n{broker.log()}")
        time.sleep(0.02)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report = run(options.kills, options.seed, echo=True)
    print(f"{options.kills} kills, seed {options.seed}: {report}")
    for name in ("lost", "resurrected", "unexpected"):
        for message in getattr(report, name)[:20]:
            print(f"  {name}: {message}")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
