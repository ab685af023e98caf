"""A real broker for the commands, and two ways to run them: in this process, and in a separate one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from twinbus.cli.main import run
from twinbus.testing import Broker

Command = Callable[..., tuple[int, str, str]]
Process = Callable[..., "subprocess.Popen[bytes]"]

_PROGRAM = "from twinbus.cli.main import run; run()"


@pytest.fixture
def bus() -> Iterator[Broker]:
    """A broker with its own keys and some entities."""
    with Broker(queues=["orders", "others"], dev=False, sync=False) as broker:
        yield broker


@pytest.fixture
def twinbus(bus: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `twinbus ...` in this process; return exit code, output and errors."""
    monkeypatch.setenv("TWINBUS_CONNECTION_STRING", bus.connection_string())

    def ran(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            run(arguments)
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return ran


@pytest.fixture
def done(twinbus: Command) -> Callable[..., str]:
    """Run `twinbus ...` in this process, which must succeed; return its output."""

    def ran(*arguments: str) -> str:
        code, out, err = twinbus(*arguments)
        assert code == 0, err
        return out

    return ran


@pytest.fixture
def json_of(done: Callable[..., str]) -> Callable[..., Any]:
    """Return the JSON that `twinbus ... --json` prints."""
    return lambda *arguments: json.loads(done(*arguments, "--json"))


@pytest.fixture
def lines_of(done: Callable[..., str]) -> Callable[..., list[dict[str, Any]]]:
    """Return the JSON lines that `twinbus ... --json` prints."""
    return lambda *arguments: [json.loads(line) for line in done(*arguments, "--json").splitlines()]


@pytest.fixture
def process(bus: Broker) -> Iterator[Process]:
    """Start `twinbus ...` as a separate process; those still running at the end are killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, environment: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        told = {**os.environ, "TWINBUS_CONNECTION_STRING": bus.connection_string(), **(environment or {})}
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        child = subprocess.Popen([sys.executable, "-c", _PROGRAM, *arguments], env=told, **{**pipes, **options})
        started.append(child)
        return child

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
        child.communicate()


def counts(broker: Broker, path: str) -> tuple[int, int]:
    """Return the numbers of active messages and dead letters in a queue."""

    def look(server: Any) -> tuple[int, int]:
        found = server.hosts["contoso"].entities.queue(path).counts
        return found.active, found.dead_letter

    return broker.call(look)
