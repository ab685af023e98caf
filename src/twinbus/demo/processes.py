"""The demo's processes: two brokers and the syphon, started like a user would start them.

Rules:
- A broker keeps its port and data across restarts, so that clients find it again after a kill.
- Every process is gone at the end, even after an error.
- No command line contains a secret: keys are passed in files that only their owner can read.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from twinbus.errors import ConfigError

_STOP_S: Final = 10.0
_LOOK_S: Final = 0.02
_LOG_TAIL_CHARS: Final = 2_000

TWINBUS: Final = (sys.executable, "-m", "twinbus")


async def told(*arguments: str, heard: Callable[[str], None] = lambda _: None) -> Any:
    """Run a command of ours with --json and return its output. `heard` gets each line of stderr as it comes."""
    process = await asyncio.create_subprocess_exec(
        *TWINBUS, *arguments, "--json", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    errors = ""

    async def listen(stream: asyncio.StreamReader) -> None:
        nonlocal errors
        async for line in stream:
            errors += line.decode(errors="replace")
            heard(line.decode(errors="replace").strip())

    output, _ = await asyncio.gather(process.stdout.read(), listen(process.stderr))
    if await process.wait() != 0:
        raise ConfigError(f"`twinbus {arguments[0]}` failed: {_last_line(errors)}")
    return json.loads(output)


def _last_line(text: str) -> str:
    """The last line of a log, which says what went wrong."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


class Process:
    """A long-running command of ours, with a log file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.name = name
        self._child: asyncio.subprocess.Process | None = None
        self.folder.mkdir(mode=0o700)

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.returncode is None

    @property
    def pid(self) -> int:
        return 0 if self._child is None else self._child.pid

    async def _start(self, *arguments: str, stdout: int | None = None) -> asyncio.subprocess.Process:
        # The child has its own copy of the handle by the time this one is closed.
        handle = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._child = await asyncio.create_subprocess_exec(
                *TWINBUS, *arguments, stdout=handle if stdout is None else stdout, stderr=handle
            )
        finally:
            os.close(handle)
        return self._child

    async def kill(self) -> None:
        """Kill it with -9: it can neither flush nor say goodbye."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Terminate it gracefully, and kill it if it does not respond."""
        try:
            await asyncio.wait_for(self._end(signal.SIGTERM), _STOP_S)
        except TimeoutError:
            await self.kill()

    async def _end(self, number: signal.Signals) -> None:
        if self._child is None:
            return
        with suppress(ProcessLookupError):
            self._child.send_signal(number)
        await self._child.wait()

    def last_words(self) -> str:
        """Return the last line of the log."""
        return _last_line(self.log())

    def log(self) -> str:
        """Return the end of the log."""
        try:
            return (self.folder / "log").read_text(errors="replace")[-_LOG_TAIL_CHARS:]
        except FileNotFoundError:
            return ""


class BrokerProcess(Process):
    """`twinbus serve` for one namespace."""

    def __init__(self, folder: Path, name: str, entities: str = "") -> None:
        super().__init__(folder, name)
        # Contains a key; empty before the first start.
        self.connection_string = ""
        self.key_file = self.folder / "connection-string"
        # 0 (any free port) before the first start.
        self._port = 0
        self._entities = entities

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def ledger(self) -> Path:
        return self.data / "ledger"

    async def start(self) -> None:
        """Start the broker and wait until clients can connect: as long as it takes, if it is still running."""
        config, ready = self.folder / "twinbus.toml", self.folder / "ready.json"
        config.write_text(f"[namespaces.{self.name}]\nport = {self._port}\n{self._entities}")
        ready.unlink(missing_ok=True)
        child = await self._start(
            "serve", "--config", str(config), "--data", str(self.data), "--ready-file", str(ready)
        )
        while not ready.exists():
            if child.returncode is not None:
                raise ConfigError(f"The broker {self.name} did not start: {_last_line(self.log())}")
            await asyncio.sleep(_LOOK_S)
        found = json.loads(ready.read_text())["namespaces"][self.name]
        self._port = found["port"]
        self.connection_string = found["connection_string"]
        handle = os.open(self.key_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(self.connection_string)

    async def ca(self) -> Path:
        """Return the CA that administration clients must trust."""
        return Path((await told("trust", "--data", str(self.data)))["ca"])


class SyphonProcess(Process):
    """`twinbus syphon`, on Spark, until the backlog is empty."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "syphon")
        self.syphoned = 0
        self.dead_lettered = 0
        # Set once it works: Spark takes a while to start.
        self.at_work = False

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    async def run(self, primary: BrokerProcess, secondary: BrokerProcess, queues: int, engine: str, ca: Path) -> int:
        """Run it to the end; return its exit code."""
        child = await self._start(
            "syphon",
            *("--engine", engine, "--once", "--json"),
            *("--primary-file", str(primary.key_file), "--secondary-file", str(secondary.key_file)),
            *("--primary-name", primary.name, "--backlog-queue-count", str(queues)),
            *("--ledger", str(self.ledger), "--ca-file", str(ca)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdout is not None
        # Progress is one JSON object per line; the result is one object over many lines.
        rest: list[bytes] = []
        while line := await child.stdout.readline():
            self.at_work = True
            if not self._read(line):
                rest.append(line)
        self._read(b"".join(rest))
        return await child.wait()

    def _read(self, text: bytes) -> bool:
        """Parse a JSON object from its output; return False if it is not one."""
        try:
            found = json.loads(text)
        except ValueError:
            return False
        if not isinstance(found, dict):
            return False
        self.syphoned = int(found.get("syphoned", self.syphoned))
        self.dead_lettered = int(found.get("dead_lettered", self.dead_lettered))
        return True
