"""What a user at a terminal sees, and what a pipe does not."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Process, counts
from twinbus.cli.view import time_text
from twinbus.testing import Broker


class Terminal:
    """Both ends of a terminal."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.seen = b""

    def until(self, text: bytes) -> None:
        """Read until a text has appeared."""
        end = time.monotonic() + 120
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536)

    def rest(self) -> bytes:
        """Return everything, once nobody writes any more."""
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return self.seen

    def type(self, text: bytes) -> None:
        os.write(self.master, text)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    for number in (made.master, made.slave):
        with contextlib.suppress(OSError):
            os.close(number)


def wait_until_asleep(child: subprocess.Popen[bytes]) -> None:
    """Wait until a process waits for input. A signal between Python's last check for one and the blocking system call
    is not seen before the next key: nobody types that fast, but a test does."""
    state = Path(f"/proc/{child.pid}/stat")
    end = time.monotonic() + 120
    asleep = 0
    while asleep < 3 and state.exists():  # only Linux has /proc
        assert time.monotonic() < end
        asleep = asleep + 1 if state.read_text().rpartition(")")[2].split()[0] == "S" else 0
        time.sleep(0.02)


def test_progress_is_for_the_terminal_and_the_result_for_the_pipe(
    bus: Broker, process: Process, terminal: Terminal
) -> None:
    child = process("send", "orders", "x", "--count", "300", "--rate", "300", stderr=terminal.slave)
    terminal.until(b"sending to orders")
    out, _ = child.communicate(timeout=30)
    assert out.startswith(b"300 messages accepted by orders in 1.")
    assert out.count(b"\n") == 1
    assert b"\x1b" not in out
    assert b"/300" in terminal.rest()


def test_without_a_terminal_there_is_no_progress(process: Process) -> None:
    child = process("send", "orders", "x", "--count", "300")
    out, err = child.communicate(timeout=30)
    assert (out.count(b"\n"), err) == (1, b"")


def test_tables_in_a_pipe_are_plain(process: Process, terminal: Terminal) -> None:
    environment = {"TERM": "xterm-256color"}
    out, _ = process("queue", "list", environment=environment).communicate(timeout=30)
    assert out.startswith(b"queue ")
    assert b"\x1b" not in out
    child = process("queue", "list", environment=environment, stdout=terminal.slave)
    child.communicate(timeout=30)
    assert b"\x1b[1m" in terminal.rest()


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 1, 3), (b"y\n", 0, 0)])
def test_purge_asks_on_a_terminal(
    bus: Broker,
    process: Process,
    terminal: Terminal,
    done: Callable[..., str],
    answer: bytes,
    code: int,
    left: int,
) -> None:
    done("send", "orders", "x", "--count", "3")
    ends: dict[str, int] = {"stdin": terminal.slave, "stdout": terminal.slave, "stderr": terminal.slave}
    child = process("purge", "orders", **ends)
    terminal.until(b"Delete 3 messages of orders? [y/N]")
    terminal.type(answer)
    assert child.wait(30) == code
    assert counts(bus, "orders")[0] == left
    if code:
        assert b"twinbus: Nothing was changed." in terminal.rest()


def test_an_interrupt_at_the_question_changes_nothing(
    bus: Broker, process: Process, terminal: Terminal, done: Callable[..., str]
) -> None:
    done("send", "orders", "x")
    child: subprocess.Popen[bytes] = process("queue", "delete", "orders", stdin=terminal.slave, stdout=terminal.slave)
    terminal.until(b"Delete queue orders and its 1 message?")
    wait_until_asleep(child)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert (child.returncode, err.strip()) == (130, b"")
    assert counts(bus, "orders") == (1, 0)


def test_deleting_without_a_terminal_needs_a_yes(bus: Broker, process: Process) -> None:
    child = process("queue", "delete", "orders")
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (2, b"")
    assert b"pass --yes" in err
    assert counts(bus, "orders") == (0, 0)
    child = process("queue", "delete", "orders", "--yes")
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err) == (0, b"Deleted queue orders.\n", b"")


def test_a_peek_at_80_columns_keeps_its_numbers(bus: Broker, process: Process, done: Callable[..., str]) -> None:
    done("send", "orders", "x" * 400, "--message-id", "m" * 60)
    terminal = Terminal()
    child = process("peek", "orders", stdout=terminal.slave, environment={"TERM": "dumb", "COLUMNS": "80"})
    assert child.wait(40) == 0
    heading, row = terminal.rest().decode().splitlines()[:2]
    assert heading.split() == ["number", "message", "id", "state", "enqueued", "body", "bytes", "body"]
    assert row.split()[0] == "1"
    assert "active" in row
    assert max(len(heading.rstrip()), len(row.rstrip())) <= 80


def test_times_that_no_calendar_has() -> None:
    assert time_text(1_700_000_000_000) == "2023-11-14 22:13:20 UTC"
    assert time_text(2**63 - 1) == "9223372036854775807 ms"
    assert time_text(None) == "-"
