"""A Twinbus broker in its own process, started as a user starts it, for one run.

It has the same attributes as the other peers (see rabbitmq.py), so that the bench can treat all alike.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from peer_tools import free_port

import twinbus

NAMESPACE = "bench"
START_TIMEOUT_S = 60.0


class TwinbusPeer:
    """`with TwinbusPeer(folder) as peer:`; `kill`, `stop` and `start` may be called in between, and the data
    persists."""

    version = twinbus.__version__
    # Whether it answers settlements that are sent unsettled.
    confirms = True

    def __init__(
        self,
        folder: Path,
        queues: tuple[str, ...] = ("bench",),
        environment: dict[str, str] | None = None,
        topics: list[str] | None = None,
        name: str = "twinbus",
    ):
        self.name = name
        # Data and configuration; removed at the end.
        self.folder = Path(tempfile.mkdtemp(prefix="twinbus-", dir=folder))
        # Kept over restarts; one port for both protocols.
        self.port = self.tls_port = free_port()
        # Added to the broker's environment.
        self.environment = environment or {}
        self.ready_file = self.folder / "ready.json"
        # The broker; None while stopped.
        self.process: subprocess.Popen[bytes] | None = None
        # From the connection string of the ready file.
        self.user = self.password = ""
        lines = [f"[namespaces.{NAMESPACE}]", f"port = {self.port}"]
        for queue in queues:
            # Five minutes, so that no lock expires during a measurement; and room for a million kilobytes.
            lines += [
                f"[namespaces.{NAMESPACE}.queues.{queue}]",
                'lock_duration = "PT5M"',
                "max_megabytes = 5120",
                "max_message_bytes = 104857600",
            ]
        # TOML tables of topics.
        lines += topics or []
        (self.folder / "twinbus.toml").write_text("\n".join(lines) + "\n")

    def __enter__(self) -> TwinbusPeer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> float:
        """Seconds from exec to the ready file."""
        self.ready_file.unlink(missing_ok=True)
        command = [
            str(Path(sys.executable).with_name("twinbus")),
            "serve",
            "--config",
            str(self.folder / "twinbus.toml"),
        ]
        command += ["--data", str(self.folder / "data"), "--ready-file", str(self.ready_file)]
        started = time.perf_counter()
        with (self.folder / "broker.log").open("ab") as log:
            environment = {**os.environ, **self.environment}
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        while not self.ready_file.exists():
            if self.process.poll() is not None or time.perf_counter() - started > START_TIMEOUT_S:
                text = self.log()
                self.stop()
                raise RuntimeError(f"The broker did not start:\n{text}")
            time.sleep(0.002)
        seconds = time.perf_counter() - started
        text = json.loads(self.ready_file.read_text())["namespaces"][NAMESPACE]["connection_string"]
        parts = dict(part.split("=", 1) for part in text.split(";") if part)
        self.user, self.password = parts["SharedAccessKeyName"], parts["SharedAccessKey"]
        return seconds

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self) -> str:
        return (self.folder / "broker.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def declare(self, *queues: str) -> None:
        """The queues are in the configuration."""

    def address(self, queue: str) -> str:
        return queue
