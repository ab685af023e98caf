"""The bell: whoever waits is told, and whoever comes too late."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from twinbus.spark.syphon import bell as bell_module
from twinbus.spark.syphon.bell import Bell

from .processes import until


@pytest.fixture
def bell() -> Iterator[Bell]:
    made = Bell("127.0.0.1")
    yield made
    made.close()


def task(bell: Bell) -> socket.socket:
    connection = socket.create_connection(bell.address, 5)
    connection.settimeout(5)
    return connection


def test_it_rings_for_all(bell: Bell) -> None:
    with task(bell) as first, task(bell) as second:
        until(lambda: len(bell._waiting) == 2)
        first.settimeout(0.2)
        with pytest.raises(TimeoutError):
            first.recv(1)
        bell.ring()
        assert (first.recv(1), second.recv(1)) == (b"", b"")
    with task(bell) as late:
        assert late.recv(1) == b""


def test_tasks_that_have_ended_are_forgotten(bell: Bell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell_module, "_CONNECTIONS_MAX", 2)
    for _ in range(5):
        task(bell).close()
    with task(bell) as alive:
        alive.settimeout(0.2)
        with pytest.raises(TimeoutError):
            alive.recv(1)


def test_one_too_many_is_let_go(bell: Bell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell_module, "_CONNECTIONS_MAX", 1)
    with task(bell) as first, task(bell) as second:
        # It stops, as if told to: what it has moved is moved, and the next round goes on.
        assert second.recv(1) == b""
        first.settimeout(0.2)
        with pytest.raises(TimeoutError):
            first.recv(1)


def test_closing_ends_it(bell: Bell) -> None:
    bell.close()
    with pytest.raises(OSError):
        task(bell)
