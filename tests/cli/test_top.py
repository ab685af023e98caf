"""`twinbus top`: a single update for programs, and a live display on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from tests.cli.conftest import Command, Process
from twinbus.testing import Broker


def flush(bus: Broker) -> None:
    bus.call(lambda server: server.hosts["contoso"].meter.flush())


def test_one_look_has_rates_and_depths(bus: Broker, done: Callable[..., str], json_of: Callable[..., Any]) -> None:
    done("send", "others", "x", "--count", "30")
    flush(bus)
    found = json_of("top", "--once")
    assert found["rates"]["sent"] > 0
    assert [each["path"] for each in found["entities"]] == ["others", "orders"]
    assert found["entities"][0]["active_messages"] == 30
    by_name = json_of("top", "--once", "--sort", "name", "--filter", "ORD")
    assert [each["path"] for each in by_name["entities"]] == ["orders"]
    text = done("top", "--once", "--sort", "active")
    assert "sent/s" in text
    columns = done("queue", "list").splitlines()[0].split()
    assert {"active", "scheduled", "dead-letter"} <= set(columns) & set(text.splitlines()[2].split())
    assert text.splitlines()[3].split()[0] == "others"


@pytest.mark.parametrize("column", ["name", "active", "dead-letter", "bytes"])
def test_top_sorts_by_the_names_of_a_list_s_columns(done: Callable[..., str], column: str) -> None:
    done("send", "others", "x", "--count", "2")
    done("receive", "others", "--then", "dead-letter", "--body", "none")
    expected = [line.split()[0] for line in done("queue", "list", "--sort", column).splitlines()[1:]]
    assert [line.split()[0] for line in done("top", "--once", "--sort", column).splitlines()[3:]] == expected


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_number_is_cut_on_a_narrow_terminal(
    bus: Broker, done: Callable[..., str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """A long name is shortened, and columns are left out, before a number loses a digit."""
    long = f"contoso/x-servicebus-transfer/{'0' * 60}"
    bus.create_queue(long)
    done("send", "orders", "x", "--count", "1234")
    done("send", long, "x", "--count", "2345")
    monkeypatch.setattr("twinbus.cli.view.console", lambda: Console(width=width, highlight=False))
    head, *rows = done("top", "--once", "--sort", "active").splitlines()[-4:]
    assert max(map(len, (head, *rows))) <= width
    at = head.split().index("active")
    assert [row.split()[at] for row in rows] == ["2,345", "1,234", "0"]
    assert [row.split()[0][:8] for row in rows] == [long[:8], "orders", "others"]
    assert (width < 80) == ("scheduled" not in head)


def test_an_interval_must_be_a_time(twinbus: Command) -> None:
    assert twinbus("top", "--interval", "0s")[0] == 2


def test_lines_of_json_go_on_until_they_are_interrupted(process: Process) -> None:
    child = process("top", "--json", "--interval", "50ms")
    assert child.stdout is not None
    looks = [json.loads(child.stdout.readline()) for _ in range(3)]
    assert {each["namespace"] for each in looks} == {"contoso"}
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 0


def test_a_terminal_is_redrawn(process: Process) -> None:
    parent, other = pty.openpty()
    child = process("top", "--interval", "50ms", stdout=other, environment={"TERM": "xterm", "COLUMNS": "80"})
    os.close(other)
    shown = b""
    while shown.count(b"sent/s") < 2:
        shown += os.read(parent, 65_536)
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 0
    os.close(parent)
    assert b"orders" in shown
