"""Measures for the benchmarks: CPU and memory of a process, one run of the load, and medians."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import twinbus.amqp.connection

LOAD = Path(__file__).with_name("load.py")


class PeerProcess(Protocol):
    """What the bench needs of a broker."""

    name: str
    port: int
    user: str
    password: str

    @property
    def pid(self) -> int: ...

    def address(self, queue: str) -> str: ...


def cpu_s(pid: int) -> float:
    """CPU seconds a process used so far, user and system, all its threads, those that have ended included."""
    # The kernel's clock of that process, as clock_getcpuclockid(3) names it: /proc counts in steps of 10 ms.
    return time.clock_gettime((~pid << 3) | 2)


def waited_s(pid: int) -> float:
    """Seconds that the process waited for a CPU, in all threads: the machine's share of a delay, not the broker's."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total_ns += int((task / "schedstat").read_text().split()[1])
        except FileNotFoundError:
            continue  # the thread ended meanwhile
    return total_ns / 1e9


def rss_bytes(pid: int) -> int:
    """Anonymous memory: what the process holds itself. The system can drop the pages of a mapped file."""
    return memory_bytes(pid, "RssAnon")


def memory_bytes(pid: int, name: str) -> int:
    """A field of /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/PID/status")


def load(peer: PeerProcess, phase: str, count: int, *, queue: str = "bench", **options: int) -> dict[str, Any]:
    """One run of load.py in its own process; adds the broker's CPU time per message to its figures."""
    command = [sys.executable, str(LOAD), "--port", str(peer.port), "--user", peer.user, "--password", peer.password]
    command += ["--address", peer.address(queue), "--phase", phase, "--count", str(count)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    before, waited = cpu_s(peer.pid), waited_s(peer.pid)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"The load on {peer.name} ({phase}) failed:\n{done.stdout}{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    figures["rate"] = figures["messages"] / figures["seconds"]
    # 0.1: the broker waited for a CPU in a tenth of the run, so pauses and rates are partly the machine's.
    figures["waited_share"] = (waited_s(peer.pid) - waited) / figures["seconds"]
    figures["cpu_us"] = 1e6 * (cpu_s(peer.pid) - before) / count
    return figures


def median(rows: Iterable[dict[str, Any]], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def machine() -> dict[str, Any]:
    """The machine of the figures, which mean nothing elsewhere."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cores": os.cpu_count(),
        "cpu": model[0].partition(":")[2].strip() if model else platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "uvloop": importlib.util.find_spec("uvloop") is not None,
        "compiled": not str(twinbus.amqp.connection.__file__).endswith(".py"),
        "load_average": os.getloadavg()[0],
    }
