"""What systemd is told. `tests/docs/test_deployment.py` starts a broker by its unit."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from twinbus.cli.supervisor import Supervisor


@pytest.fixture
def systemd() -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as door:
        # An abstract socket, as systemd's may be.
        door.bind(f"\0twinbus-test-{os.getpid()}")
        door.settimeout(60)
        yield door


def address_of(door: socket.socket) -> str:
    return f"@{door.getsockname()[1:].decode()}"


async def test_it_tells_ready_life_and_stopping(systemd: socket.socket) -> None:
    given = {"NOTIFY_SOCKET": address_of(systemd), "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}
    supervisor = Supervisor(given)
    assert given == {}, "no child process speaks for the broker"
    supervisor.ready("serving contoso")
    supervisor.stopping()
    assert [systemd.recv(100) for _ in range(3)] == [b"READY=1\nSTATUS=serving contoso", b"WATCHDOG=1", b"STOPPING=1"]


@pytest.mark.parametrize("watchdog", [{}, {"WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}])
async def test_signs_of_life_are_for_whoever_waits_for_them(systemd: socket.socket, watchdog: dict[str, str]) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": address_of(systemd), **watchdog})
    supervisor.ready("serving")
    supervisor.stopping()
    assert [systemd.recv(100) for _ in range(2)] == [b"READY=1\nSTATUS=serving", b"STOPPING=1"]


@pytest.mark.parametrize("given", [{}, {"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "60000000"}])
async def test_nobody_to_tell_is_no_error(given: dict[str, str]) -> None:
    supervisor = Supervisor(given)
    supervisor.ready("serving")
    supervisor.stopping()
    assert given == {}
