"""A standalone Spark cluster on loopback from the pip package: a master and some workers, each a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from twinbus.spark.java import find_java

START_TIMEOUT_S = 180.0


def environment() -> dict[str, str]:
    """The environment of Spark's processes: our Java, this Python, loopback only."""
    return {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
    }


class Cluster:
    """A context manager; `url` is the master's. `settings` are environment variables of master and workers."""

    def __init__(self, workers: int = 2, settings: Mapping[str, str] | None = None) -> None:
        # Logs and working folders.
        self._folder = tempfile.TemporaryDirectory(prefix="twinbus-cluster-", ignore_cleanup_errors=True)
        # The master, and then the workers.
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""
        self._workers = workers
        self._settings = dict(settings or {})

    def __enter__(self) -> Cluster:
        try:
            self._spawn("master", "org.apache.spark.deploy.master.Master", "--port", "0", "--webui-port", "0")
            self.url = self._wait("master", r"Starting Spark master at (spark://\S+)")
            for number in range(self._workers):
                name = f"worker-{number}"
                worker = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", self._path(name)]
                self._spawn(name, "org.apache.spark.deploy.worker.Worker", *worker, self.url)
            for number in range(self._workers):
                self._wait(f"worker-{number}", r"(Successfully registered with master)")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self._processes):
            for pid in [*descendants(process.pid), process.pid]:
                kill(pid)
            process.wait()
        self._processes = []
        self._folder.cleanup()

    def lose_worker(self, number: int) -> None:
        """Kill a worker with all that it started, as when its machine fails."""
        process = self._processes[1 + number]
        for pid in [process.pid, *descendants(process.pid)]:
            kill(pid)
        process.wait()

    def executors(self) -> list[int]:
        """The JVMs that run tasks."""
        found = []
        for process in self._processes[1:]:
            found += [pid for pid in descendants(process.pid) if "CoarseGrainedExecutorBackend" in command_line(pid)]
        return found

    def _path(self, name: str) -> str:
        return str(Path(self._folder.name) / name)

    def _spawn(self, name: str, kind: str, *options: str) -> None:
        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with open(self._path(f"{name}.log"), "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(script), kind, "--host", "127.0.0.1", *options],
                    env={**environment(), **self._settings},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def _wait(self, name: str, pattern: str) -> str:
        log = Path(self._path(f"{name}.log"))
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            if found := re.search(pattern, log.read_text(errors="replace")):
                return found[1]
            time.sleep(0.1)
        raise RuntimeError(f"Spark's {name} did not start:\n{log.read_text(errors='replace')[-3_000:]}")


def descendants(pid: int) -> list[int]:
    """The processes that a process started, recursively."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        some = children.get(waiting.pop(), [])
        found += some
        waiting += some
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue
            # The name in brackets may contain anything.
            yield int(folder.name), int(text.rpartition(")")[2].split()[1])


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
