"""Commands killed in the middle: no message is lost, and moved ones are in exactly one place."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Process, counts
from twinbus.testing import Broker

MESSAGES = 3000


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_what_a_killed_receive_has_not_written_is_still_there(
    bus: Broker, process: Process, done: Callable[..., str], tmp_path: Path
) -> None:
    done("send", "orders", "{n}", "--count", str(MESSAGES))
    kills = 0
    for attempt in range(4):
        left = counts(bus, "orders")[0]
        with (tmp_path / str(attempt)).open("wb") as file:
            child = process("receive", "orders", "--all", "--wait", "200ms", "--json", stdout=file)
            if attempt < 3:
                until(lambda child=child, left=left: counts(bus, "orders")[0] < left - 200 or child.poll() is not None)  # type: ignore[misc]
                kills += child.poll() is None
                child.kill()
            child.communicate(timeout=40)
    assert kills >= 1
    assert counts(bus, "orders") == (0, 0)
    found: set[int] = set()
    for attempt in range(4):
        for line in (tmp_path / str(attempt)).read_bytes().split(b"\n"):
            # The last line of a killed command may be incomplete: that message was not completed.
            if line.endswith(b"}"):
                found.add(int(json.loads(line)["body"]))
    assert found == set(range(1, MESSAGES + 1))


def test_a_killed_resubmit_leaves_every_message_in_one_place(
    bus: Broker, process: Process, done: Callable[..., str]
) -> None:
    done("send", "orders", "{n}", "--count", str(MESSAGES))
    done("receive", "orders", "--max", str(MESSAGES), "--then", "dead-letter", "--body", "none")
    kills = 0
    for _ in range(3):
        dead = counts(bus, "orders")[1]
        child = process("resubmit", "orders")
        until(lambda child=child, dead=dead: counts(bus, "orders")[1] < dead - 100 or child.poll() is not None)  # type: ignore[misc]
        kills += child.poll() is None
        child.kill()
        child.communicate(timeout=40)
        # Wait until what the broker was doing when the command died is on disk.
        until(lambda: sum(counts(bus, "orders")) == MESSAGES)
    assert kills >= 1
    done("resubmit", "orders")
    assert counts(bus, "orders") == (MESSAGES, 0)
    bodies = done("receive", "orders", "--all", "--wait", "200ms", "--raw").split()
    assert sorted(map(int, bodies)) == list(range(1, MESSAGES + 1))
