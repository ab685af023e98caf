"""`twinbus move` and `twinbus copy`: nothing lost, nothing duplicated, everything as sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command, Process, counts
from tests.cli.test_killed import until
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

Done = Callable[..., str]
Lines = Callable[..., list[dict[str, Any]]]
MESSAGES = 4_000


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    broker = ("sequence_number", "enqueued_ms")
    return [{name: value for name, value in each.items() if name not in broker} for each in messages]


def test_messages_move_as_they_were_sent(bus: Broker, done: Done, json_of: Any, lines_of: Lines) -> None:
    done("send", "orders", "order {n}", "--count", "150", "-p", "region=eu", "--ttl", "1h", "--message-id", "id-{n}")
    before = plain(lines_of("peek", "orders", "--max", "200"))
    assert json_of("move", "orders", "others", "--max", "20") == {
        "entity": "orders",
        "to": "others",
        "moved": 20,
        "atomic": True,
        "error": None,
    }
    assert done("move", "orders", "others") == "130 messages of orders moved to others.\n"
    assert (counts(bus, "orders")[0], counts(bus, "others")[0]) == (0, 150)
    assert plain(lines_of("peek", "others", "--max", "200")) == before


def test_dead_letters_move_without_their_marks(bus: Broker, done: Done, lines_of: Lines) -> None:
    done("send", "orders", "bad")
    done("receive", "orders", "--then", "dead-letter", "--reason", "x")
    done("move", "orders", "others", "--dead")
    (moved,) = lines_of("peek", "others")
    assert (moved["body"], "dead_letter_reason" in moved) == ("bad", False)
    assert counts(bus, "orders") == (0, 0)


def test_sessions_move_one_after_the_other(bus: Broker, done: Done, lines_of: Lines) -> None:
    for path in ("from", "to"):
        bus.create_queue(QueueSettings(path=path, requires_session=True))
    for session in ("a", "b"):
        done("send", "from", "{n}", "--count", "3", "--session", session)
    assert done("move", "from", "to") == "6 messages of from moved to to.\n"
    found = [(each["session_id"], each["body"]) for each in lines_of("peek", "to")]
    assert sorted(found) == [(session, str(n)) for session in ("a", "b") for n in (1, 2, 3)]
    assert [body for session, body in found if session == "a"] == ["1", "2", "3"]


@pytest.mark.parametrize("verb", ["move", "copy"])
def test_mistakes_are_told_before_anything_moves(bus: Broker, twinbus: Command, done: Done, verb: str) -> None:
    done("send", "orders", "x")
    code, _, err = twinbus(verb, "orders", "ORDERS")
    assert (code, "choose another destination" in err) == (2, True)
    bus.create_queue(QueueSettings(path="once", requires_duplicate_detection=True))
    code, _, err = twinbus(verb, "orders", "once")
    assert (code, "--new-ids" in err) == (2, True)
    code, _, err = twinbus(verb, "orders", "othres", "--keep-ids")
    assert (code, "Did you mean 'others'" in err) == (1, True)
    assert counts(bus, "orders")[0] == 1


def test_what_is_refused_stays(bus: Broker, twinbus: Command, done: Done) -> None:
    bus.create_queue(QueueSettings(path="strict", requires_session=True))
    done("send", "orders", "no session")
    code, _, err = twinbus("move", "orders", "strict")
    assert (code, "The others stay in orders" in err) == (1, True)
    assert counts(bus, "orders")[0] == 1


@pytest.mark.parametrize("verb", ["move", "copy"])
def test_those_accepted_before_and_after_a_refused_one_are_counted(
    bus: Broker, twinbus: Command, done: Done, tmp_path: Path, verb: str
) -> None:
    with Broker(queues=[QueueSettings(path="strict", requires_session=True)], sync=False) as other:
        file = tmp_path / "other.txt"
        file.write_text(other.connection_string())
        for session in (["--session", "a"], [], ["--session", "b"]):
            done("send", "orders", "x", *session)
        code, out, err = twinbus(verb, "orders", "strict", "--to-connection-file", str(file))
        verbs = {"move": "moved", "copy": "copied"}
        assert (code, out) == (1, f"2 messages of orders {verbs[verb]} to strict.\n")
        assert (counts(bus, "orders")[0], counts(other, "strict")[0]) == ({"move": 1, "copy": 3}[verb], 2)
        if verb == "copy":
            assert "Continue with --from 2, which copies 1 message once more." in err
        else:
            assert "The others stay in orders" in err


def test_a_killed_move_leaves_every_message_in_one_place(bus: Broker, process: Process, done: Done) -> None:
    done("send", "orders", "{n}", "--count", str(MESSAGES))
    kills = 0
    for _ in range(3):
        left = counts(bus, "orders")[0]
        child = process("move", "orders", "others")
        until(lambda child=child, left=left: counts(bus, "orders")[0] < left - 100 or child.poll() is not None)  # type: ignore[misc]
        kills += child.poll() is None
        child.kill()
        child.communicate(timeout=40)
        # Wait until what the broker was doing when the command died is on disk.
        until(lambda: counts(bus, "orders")[0] + counts(bus, "others")[0] == MESSAGES)
    assert kills >= 1
    # Messages locked by the killed command stay locked until the broker notices that it is gone.
    until(lambda: bool(done("move", "orders", "others")) and counts(bus, "others")[0] == MESSAGES)
    bodies = done("receive", "others", "--all", "--wait", "200ms", "--raw").split()
    assert sorted(map(int, bodies)) == list(range(1, MESSAGES + 1))


def test_a_killed_copy_can_be_repeated(bus: Broker, process: Process, done: Done, lines_of: Lines) -> None:
    """With the ids kept, duplicate detection drops what the killed copy has brought already."""
    bus.create_queue(QueueSettings(path="once", requires_duplicate_detection=True))
    done("send", "orders", "{n}", "--count", str(MESSAGES))
    child = process("copy", "orders", "once", "--keep-ids")
    until(lambda: counts(bus, "once")[0] > 100 or child.poll() is not None)
    child.kill()
    child.communicate(timeout=40)
    done("copy", "orders", "once", "--keep-ids")
    found = [each["body"] for each in lines_of("peek", "once", "--max", str(2 * MESSAGES))]
    assert sorted(map(int, found)) == list(range(1, MESSAGES + 1))
    assert counts(bus, "orders")[0] == MESSAGES


def test_a_copy_leaves_the_originals(bus: Broker, done: Done, json_of: Any, lines_of: Lines) -> None:
    done("send", "orders", "order {n}", "--count", "7", "--message-id", "id-{n}")
    done("send", "orders", "later", "--schedule", "1h")
    found = json_of("copy", "orders", "others", "--max", "3")
    assert (found["copied"], found["last"]) == (3, 3)
    assert done("copy", "orders", "others", "--from", "4", "--new-ids") == "4 messages of orders copied to others.\n"
    copies = lines_of("peek", "others")
    assert [each["body"] for each in copies] == [f"order {n}" for n in range(1, 8)]
    assert [each["message_id"] for each in copies[:3]] == ["id-1", "id-2", "id-3"]
    assert copies[3]["message_id"] != "id-4"
    assert counts(bus, "orders")[0] == 7
    assert {each["delivery_count"] for each in lines_of("receive", "orders", "--all", "--wait", "1s")} == {0}


def test_messages_move_to_another_namespace(bus: Broker, done: Done, json_of: Any, tmp_path: Path) -> None:
    with Broker(queues=["orders"], dev=False, sync=False) as other:
        file = tmp_path / "other.txt"
        file.write_text(other.connection_string())
        done("send", "orders", "{n}", "--count", "120")
        found = json_of("move", "orders", "orders", "--to-connection-file", str(file))
        assert (found["moved"], found["atomic"]) == (120, False)
        assert (counts(bus, "orders")[0], counts(other, "orders")[0]) == (0, 120)
