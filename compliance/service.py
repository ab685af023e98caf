"""A Twinbus broker as a child process, for the time of one run.

It is started the way a user starts it (`twinbus serve`), with a fresh data folder; its ready file says where it is.
"""

from __future__ import annotations

import json
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

READY_TIMEOUT_S = 30.0
# Shared access policies of limited rights, for the tests of rights.
POLICIES = {"everything": ["Manage", "Send", "Listen"], "listen-only": ["Listen"], "send-only": ["Send"]}
STOP_TIMEOUT_S = 20.0


def free_port() -> int:
    """A loopback port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Service:
    """`with Service("compliance", dev=True, log=path) as service: service.connection_string`."""

    def __init__(self, namespace: str, *, dev: bool, log: Path) -> None:
        # Name of the one namespace served.
        self.namespace = namespace
        # True: any key and any token is good, as with the official emulator.
        self.dev = dev
        # Where the broker's own output goes; kept after the run.
        self.log = log
        # What the ready file says of the namespace; set when it serves.
        self.ready: dict[str, object] = {}
        # Policy name -> its key, made for this run.
        self.policies = {name: secrets.token_urlsafe(32) for name in POLICIES}
        # The data folder, removed at the end.
        self.folder = tempfile.TemporaryDirectory(prefix="twinbus-compliance-")
        # The child; None before start and after stop.
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def connection_string(self) -> str:
        return str(self.ready["connection_string"])

    @property
    def endpoint(self) -> str:
        return f"{self.ready['host']}:{self.ready['port']}"

    @property
    def ca_file(self) -> Path:
        """What clients need to trust the broker over TLS; it makes the file when it starts."""
        return Path(self.folder.name) / "data" / "ca.pem"

    def __enter__(self) -> Service:
        ready_file = Path(self.folder.name) / "ready.json"
        configuration = Path(self.folder.name) / "twinbus.toml"
        configuration.write_text(self._configuration())
        command = [str(Path(sys.executable).with_name("twinbus")), "serve", "--config", str(configuration)]
        command += ["--data", str(Path(self.folder.name) / "data"), "--ready-file", str(ready_file)]
        if self.dev:
            command.append("--dev")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not ready_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise RuntimeError(f"The broker did not start; its output:\n{self.log.read_text(errors='replace')}")
            time.sleep(0.02)
        self.ready = json.loads(ready_file.read_text())["namespaces"][self.namespace]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.folder.cleanup()

    def _configuration(self) -> str:
        place = f"namespaces.{self.namespace}"
        lines = [f"[{place}]", f"port = {free_port()}"]
        for name, rights in POLICIES.items():
            # A JSON list of texts is one in TOML too.
            lines += [f"[{place}.policies.{name}]", f"rights = {json.dumps(rights)}"]
            lines += [f'primary_key = "{self.policies[name]}"']
        return "\n".join(lines) + "\n"

    def troubles(self) -> list[str]:
        """What went wrong in the broker itself, whatever the tests say: it died, or it logged a traceback."""
        found = []
        if self.process is not None and self.process.poll() is not None:
            found.append(f"the broker ended with code {self.process.returncode}")
        tracebacks = self.log.read_text(errors="replace").count("Traceback (most recent call last)")
        if tracebacks:
            found.append(f"{tracebacks} tracebacks in {self.log.name}")
        return found
