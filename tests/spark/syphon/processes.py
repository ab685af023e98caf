"""Real processes for tests: a broker that can be killed and restarted, and `twinbus syphon`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from twinbus.broker.security.certificates import ensure_ca
from twinbus.client import BusClient, ReceivedMessage

TWINBUS = [sys.executable, "-c", "from twinbus.cli.main import run; run()"]


class BrokerProcess:
    """`twinbus serve` on one port and one data folder, across many restarts, with its own keys."""

    def __init__(self, folder: Path, name: str, entities: str = "") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            # The same after every restart.
            port: int = probe.getsockname()[1]
        self.name = name
        # Configuration, data and ready file.
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        (self.folder / "twinbus.toml").write_text(f"[namespaces.{name}]\nport = {port}\n{entities}")
        # None before the first start.
        self.process: subprocess.Popen[bytes] | None = None
        # From the ready file.
        self.connection_string = ""

    @property
    def key(self) -> str:
        return self.connection_string.split("SharedAccessKey=")[1].split(";")[0]

    @property
    def ca(self) -> Path:
        return ensure_ca(self.folder / "data")

    def start(self) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [*TWINBUS, "serve", "--config", str(self.folder / "twinbus.toml"), "--ready-file", str(ready)]
        self.process = subprocess.Popen(
            [*command, "--data", str(self.folder / "data")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(ready.exists, 30)
        text = json.loads(ready.read_text())["namespaces"][self.name]["connection_string"]
        # The keys are real; only the transport is plain.
        plain = "UseDevelopmentEmulator=true"
        self.connection_string = text if plain in text else f"{text.rstrip(';')};{plain};"

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def put(self, queue: str, payloads: Sequence[bytes]) -> None:
        async def work() -> None:
            async with BusClient.from_connection_string(self.connection_string) as client:
                assert not any(await (await client.sender(queue)).send_many(payloads))

        asyncio.run(work())

    def taken(self, queue: str, count: int, wait_s: float = 3.0) -> list[ReceivedMessage]:
        async def work() -> list[ReceivedMessage]:
            found: list[ReceivedMessage] = []
            async with BusClient.from_connection_string(self.connection_string) as client:
                receiver = await client.receiver(queue, delete=True)
                while len(found) < count and (some := await receiver.receive_batch(count - len(found), wait_s)):
                    found += some
            return found

        return asyncio.run(work())


def secrets(primary: BrokerProcess, secondary: BrokerProcess) -> dict[str, str]:
    """The connection strings as environment variables of commands and applications."""
    return {"TWINBUS_PRIMARY": primary.connection_string, "TWINBUS_SECONDARY": secondary.connection_string}


def syphon_process(
    primary: BrokerProcess, secondary: BrokerProcess, *options: str, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """`twinbus syphon` on Spark, with its connection strings in the environment."""
    return subprocess.Popen(
        [*TWINBUS, "syphon", "--engine", "spark", "--primary-name", primary.name, *options],
        env={**os.environ, **secrets(primary, secondary), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
