"""The stop signal reaches waiting tasks and those that connect later."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from twinbus.spark.syphon import stop_signal as stop_signal_module
from twinbus.spark.syphon.stop_signal import StopSignal

from .processes import until


@pytest.fixture
def signal() -> Iterator[StopSignal]:
    made = StopSignal("127.0.0.1")
    yield made
    made.close()


def task(signal: StopSignal) -> socket.socket:
    connection = socket.create_connection(signal.address, 5)
    connection.settimeout(5)
    return connection


def test_all_tasks_are_told(signal: StopSignal) -> None:
    with task(signal) as first, task(signal) as second:
        until(lambda: len(signal._waiting) == 2)
        first.settimeout(0.2)
        with pytest.raises(TimeoutError):
            first.recv(1)
        signal.send()
        assert (first.recv(1), second.recv(1)) == (b"", b"")
    with task(signal) as late:
        assert late.recv(1) == b""


def test_tasks_that_have_ended_are_forgotten(signal: StopSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_signal_module, "_CONNECTIONS_MAX", 2)
    for _ in range(5):
        task(signal).close()
    with task(signal) as alive:
        alive.settimeout(0.2)
        with pytest.raises(TimeoutError):
            alive.recv(1)


def test_one_too_many_is_let_go(signal: StopSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_signal_module, "_CONNECTIONS_MAX", 1)
    with task(signal) as first, task(signal) as second:
        # The task stops as if told to: its progress counts, and the next round continues.
        assert second.recv(1) == b""
        first.settimeout(0.2)
        with pytest.raises(TimeoutError):
            first.recv(1)


def test_closing_ends_it(signal: StopSignal) -> None:
    signal.close()
    with pytest.raises(OSError):
        task(signal)
