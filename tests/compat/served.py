"""`twinbus serve` as a child process on one port and one data folder, over as many lives as a test kills."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

READY_TIMEOUT_S = 60

CONFIG = """
[namespaces.contoso]
port = {port}
sku = "Premium"

[namespaces.contoso.queues.renew]
lock_duration = "5s"

[namespaces.contoso.queues.sessions]
requires_session = true

[namespaces.contoso.queues.large]
max_message_bytes = 104857600

[namespaces.contoso.topics.topic.subscriptions.red.rules.rule]
sql = "color = 'red'"
action = "SET shade = 'dark'"

"""
PLAIN_QUEUES = ("send", "batch", "settle", "delete", "peek", "schedule", "transactions", "websocket", "kill")


class Served:
    """A broker that checks keys, with the queues of the cases."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        queues = "".join(f"[namespaces.contoso.queues.{name}]\n" for name in PLAIN_QUEUES)
        (folder / "twinbus.toml").write_text(CONFIG.format(port=port) + queues)
        # Configuration, data, ready file and log.
        self.folder = folder
        # The same in every life.
        self.port = port
        # The child; None before the first start.
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connection_string(self) -> str:
        ready = json.loads((self.folder / "ready.json").read_text())
        return str(ready["namespaces"]["contoso"]["connection_string"])

    @property
    def ca_file(self) -> Path:
        return self.folder / "data" / "ca.pem"

    def trust(self) -> None:
        """Make the CA, which otherwise comes with the first TLS connection."""
        command = [str(Path(sys.executable).with_name("twinbus")), "trust", "--data", "data"]
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [str(Path(sys.executable).with_name("twinbus")), "serve", "--config", "twinbus.toml"]
        command += ["--data", "data", "--ready-file", "ready.json"]
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + READY_TIMEOUT_S
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError((self.folder / "broker.log").read_text(errors="replace"))
            time.sleep(0.01)

    def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
