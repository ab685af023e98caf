"""`twinbus send|receive|peek|purge` against a real broker, in this process and in others."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.cli.conftest import Command, Process, counts
from twinbus.clock import SystemClock
from twinbus.testing import Broker

Done = Callable[..., str]
Lines = Callable[..., list[dict[str, Any]]]


class Input(io.TextIOWrapper):
    """A standard input that is not a file."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))


def until(true: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


# --- send -------------------------------------------------------------------------------------------------------------


def test_everything_that_a_message_can_carry(done: Done, lines_of: Lines) -> None:
    options = {
        "--message-id": "order-7",
        "--session": "s",
        "--content-type": "application/json",
        "--subject": "created",
        "--correlation-id": "c",
        "--to": "t",
        "--reply-to": "r",
        "--partition-key": "s",
        "--ttl": "1h",
    }
    own = ["-p", "region=eu", "-p", "count:=5", "-p", "price:=1.5", "-p", "vip:=true", "-p", "empty="]
    words = [text for pair in options.items() for text in pair]
    assert done("send", "orders", '{"id": 7}', *words, *own) == "Accepted by orders: order-7.\n"
    (message,) = lines_of("peek", "orders")
    assert {name: message[name] for name in message if name != "enqueued_ms"} == {
        "sequence_number": 1,
        "message_id": "order-7",
        "session_id": "s",
        "state": "active",
        "delivery_count": 0,
        "content_type": "application/json",
        "subject": "created",
        "correlation_id": "c",
        "to": "t",
        "reply_to": "r",
        "partition_key": "s",
        "ttl_ms": 3_600_000,
        "application_properties": {"region": "eu", "count": 5, "price": 1.5, "vip": True, "empty": ""},
        "body_bytes": 9,
        "body": '{"id": 7}',
    }


def test_bodies_come_from_files_and_the_standard_input(
    done: Done, lines_of: Lines, twinbus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"\xff\x00binary")
    done("send", "orders", "--file", str(file))
    monkeypatch.setattr("sys.stdin", Input(b"piped\n"))
    done("send", "orders", "-")
    monkeypatch.setattr("sys.stdin", Input(b"piped too"))
    done("send", "orders")
    first, second, third = lines_of("peek", "orders")
    assert (first["body_base64"], second["body"], third["body"]) == ("/wBiaW5hcnk=", "piped\n", "piped too")
    assert twinbus("send", "orders", "x", "--file", str(file))[0] == 2
    code, _, err = twinbus("send", "orders", "--file", str(tmp_path / "none"))
    assert code == 1
    assert "No such file" in err


def test_many_are_counted_and_numbered(bus: Broker, done: Done, lines_of: Lines, json_of: Any) -> None:
    result = json_of("send", "orders", "order {n}", "--count", "1200", "--message-id", "id-{n}")
    assert (result["accepted"], result["refused"], result["error"]) == (1200, 0, None)
    assert counts(bus, "orders") == (1200, 0)
    messages = lines_of("peek", "orders", "--max", "2000")
    assert [each["body"] for each in messages] == [f"order {n}" for n in range(1, 1201)]
    assert [each["message_id"] for each in messages] == [f"id-{n}" for n in range(1, 1201)]
    assert "1,200 messages accepted by others in" in done("send", "others", "same", "--count", "1200")
    assert len({each["message_id"] for each in lines_of("peek", "others", "--max", "2000")}) == 1200


def test_a_rate_is_kept(done: Done, json_of: Any) -> None:
    assert json_of("send", "orders", "x", "--count", "11", "--rate", "20")["seconds"] >= 0.5


def test_what_is_received_as_json_can_be_sent_again(
    bus: Broker, done: Done, lines_of: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    done("send", "orders", "--file", str(tmp_path / "binary"), "-p", "n:=5", "--subject", "s", "--ttl", "1h")
    done("send", "orders", "text", "--message-id", "mine")
    written = done("receive", "orders", "--all", "--wait", "1s", "--json")
    file = tmp_path / "lines"
    file.write_text(written + "\n" + json.dumps({"body": {"as": "JSON"}}) + "\n")
    assert "3 messages accepted" in done("send", "others", "--lines", str(file))
    left = ("sequence_number", "enqueued_ms", "locked_until_ms")
    first, second, third = lines_of("receive", "others", "--all", "--wait", "1s")
    before = [json.loads(line) for line in written.splitlines()]
    for old, new in zip(before, (first, second), strict=True):
        assert {key: value for key, value in old.items() if key not in left} == {
            key: value for key, value in new.items() if key not in left
        }
    assert third["body"] == '{"as": "JSON"}'
    assert len(third["message_id"]) == 32
    with file.open() as opened:  # as a shell's < does
        monkeypatch.setattr("sys.stdin", opened)
        assert "3 messages accepted" in done("send", "others", "--lines", "-", "-p", "again:=true")
    assert all(each["application_properties"]["again"] is True for each in lines_of("peek", "others"))


def test_lines_that_come_by_a_pipe_are_sent_as_they_come(bus: Broker, process: Process) -> None:
    child = process("send", "orders", "--lines", "-", stdin=subprocess.PIPE)
    assert child.stdin is not None
    for count in (1, 2):
        child.stdin.write(b'{"body": "one"}\n')
        child.stdin.flush()
        until(lambda count=count: counts(bus, "orders")[0] == count)  # type: ignore[misc]
    child.stdin.close()
    child.stdin = None
    out, _ = child.communicate(timeout=30)
    assert (child.returncode, out[:19]) == (0, b"2 messages accepted")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "Line 2 is not JSON"),
        ("[]", "Line 2 is not a JSON object"),
        ('{"bdy": 1}', "Line 2 has the unknown field 'bdy'. Did you mean 'body'?"),
        ('{"body_value": 1}', "which cannot be sent"),
        ('{"body_base64": "%"}', "body_base64 is not valid base64"),
        ('{"ttl_ms": "1h"}', "whole number of milliseconds"),
        ('{"application_properties": {"a": {"$uuid": "x"}}}', "The value of $uuid is invalid"),
    ],
)
def test_a_line_that_is_none_says_which(twinbus: Command, tmp_path: Path, line: str, problem: str) -> None:
    file = tmp_path / "lines"
    file.write_text('{"body": "good"}\n' + line + "\n")
    code, _, err = twinbus("send", "orders", "--lines", str(file))
    assert (code, err.count("\n")) == (2, 1)
    assert problem in err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["x", "--ttl", "60d"], "1ms to 49d"),
        (["x", "--ttl", "soon"], "is not a duration"),
        (["x", "--schedule", "tomorrow"], "write a duration such as 10m, or"),
        (["x", "--property", "alone"], "write name=text"),
        (["x", "--lines", "f"], "--lines cannot be combined"),
        (["--lines", "nowhere"], "There is no file nowhere"),
    ],
)
def test_a_send_that_is_none(twinbus: Command, arguments: list[str], problem: str) -> None:
    code, _, err = twinbus("send", "orders", *arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert problem in err


def test_a_scheduled_message_waits(done: Done, lines_of: Lines) -> None:
    now_ms = SystemClock().now_ms()
    done("send", "orders", "later", "--schedule", "10m")
    done("send", "orders", "new year", "--schedule", "2100-01-01T00:00Z")
    first, second = lines_of("peek", "orders")
    assert (first["state"], second["state"]) == ("scheduled", "scheduled")
    assert 600_000 <= first["scheduled_ms"] - now_ms < 660_000
    assert second["scheduled_ms"] == 4_102_444_800_000


def test_the_first_refusal_ends_it_and_names_the_message(bus: Broker, twinbus: Command, tmp_path: Path) -> None:
    bus.create_queue("small", max_message_bytes=1024)
    file = tmp_path / "lines"
    lines = [{"body": "a", "message_id": "good"}, {"body": "b" * 2000, "message_id": "large"}, {"body": "c"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, out, err = twinbus("send", "small", "--lines", str(file), "--json")
    result = json.loads(out)
    assert (code, result["accepted"], result["refused"]) == (1, 1, 1)
    assert "1 not accepted (large)" in err
    assert counts(bus, "small") == (1, 0)


def test_an_interrupted_send_tells_what_was_accepted(bus: Broker, process: Process) -> None:
    child = process("send", "orders", "x", "--count", "100000", "--rate", "200", "--json")
    until(lambda: counts(bus, "orders")[0] > 20)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (130, b"")
    assert json.loads(out)["accepted"] == counts(bus, "orders")[0] < 100_000


# --- receive ----------------------------------------------------------------------------------------------------------


def test_one_message_is_shown_and_gone(bus: Broker, done: Done, twinbus: Command) -> None:
    done("send", "orders", "hello", "--message-id", "one", "-p", "region=eu", "--content-type", "text/plain")
    heading, kind, own, body, end = done("receive", "orders").split("\n", 4)
    assert heading.split()[:2] == ["#1", "one"]
    assert (kind, own, body, end) == ("  content-type: text/plain", '  region = "eu"', "hello", "\n")
    assert counts(bus, "orders") == (0, 0)
    assert twinbus("receive", "orders", "--wait", "100ms") == (0, "", "No messages received from orders.\n")


def test_bodies_alone(done: Done) -> None:
    done("send", "orders", "order {n}", "--count", "3")
    assert done("receive", "orders", "--max", "2", "--raw") == "order 1\norder 2\n"


def test_what_could_steer_a_terminal_is_shown_in_hex(done: Done, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"\x1b]0;owned\x07text")
    done("send", "orders", "--file", str(file), "--message-id", "\x1b[31mred", "-p", "a=\x1b[2J")
    for shown in (done("peek", "orders"), done("peek", "orders", "--body", "text"), done("receive", "orders")):
        assert "\x1b" not in shown
    assert "\\x1b[31mred" in shown
    assert "00000000  1b 5d 30 3b 6f 77 6e 65 64 07 74 65 78 74" in shown


def test_what_commands_a_terminal_is_escaped_everywhere(bus: Broker, twinbus: Any, done: Done) -> None:
    """As JSON, in tables and in errors; JSON keeps the value."""
    hostile = "a\x9b31m\u202eb\x7f\u2066[link=http://x]c[/link]ä"
    done("send", "orders", "x", "--message-id", hostile, "--session", hostile, "-p", f"n={hostile}")
    for arguments in (("peek", "orders"), ("peek", "orders", "--json")):
        code, out, err = twinbus(*arguments)
        assert code == 0
        assert (out + err).replace("\n", "").isprintable(), arguments
        assert "ä" in out
    assert json.loads(twinbus("peek", "orders", "--json")[1].splitlines()[0])["message_id"] == hostile
    code, out, err = twinbus("peek", "none\x9b31m\u202e")
    assert code == 1
    assert err.replace("\n", "").isprintable()
    assert "\\x9b31m\\u202e" in err


def test_settled_in_other_ways(bus: Broker, done: Done, lines_of: Lines) -> None:
    done("send", "orders", "order {n}", "--count", "4")
    (first,) = lines_of("receive", "orders", "--then", "abandon")
    (again,) = lines_of("receive", "orders", "--then", "abandon")
    assert (first["body"], again["body"], again["delivery_count"]) == ("order 1", "order 1", 1)
    lines_of("receive", "orders", "--then", "dead-letter", "--reason", "bad", "--description", "very bad")
    (dead,) = lines_of("peek", "orders", "--dead")
    assert (dead["dead_letter_reason"], dead["dead_letter_description"]) == ("bad", "very bad")
    assert "application_properties" not in dead
    (deferred,) = lines_of("receive", "orders", "--then", "defer")
    (peeked, *_) = lines_of("peek", "orders")
    assert (peeked["sequence_number"], peeked["state"]) == (deferred["sequence_number"], "deferred")
    assert "deferred" in done("peek", "orders", "--max", "1")
    (fetched,) = lines_of("receive", "orders", "--deferred", str(deferred["sequence_number"]))
    assert fetched["body"] == "order 2"
    (gone,) = lines_of("receive", "orders", "--delete")
    assert gone["body"] == "order 3"
    assert counts(bus, "orders") == (1, 1)
    (letter,) = lines_of("receive", "orders", "--dead")
    assert letter["body"] == "order 1"
    assert counts(bus, "orders") == (1, 0)


def test_several_that_are_abandoned_are_several(bus: Broker, lines_of: Lines, done: Done) -> None:
    done("send", "orders", "order {n}", "--count", "3")
    assert (
        len({each["sequence_number"] for each in lines_of("receive", "orders", "--max", "3", "--then", "abandon")}) == 3
    )
    assert counts(bus, "orders") == (3, 0)


def test_sessions(bus: Broker, done: Done, lines_of: Lines, twinbus: Command) -> None:
    bus.create_queue("talks", requires_session=True)
    code, _, err = twinbus("send", "talks", "x")
    assert (code, err.endswith("Give --session ID.\n")) == (1, True)
    for session in ("a", "b", "b", "c"):
        done("send", "talks", f"of {session}", "--session", session)
    code, _, err = twinbus("receive", "talks")
    assert (code, err.endswith("Give --session ID, or --any-session.\n")) == (1, True)
    assert [each["body"] for each in lines_of("peek", "talks", "--session", "b")] == ["of b", "of b"]
    assert [each["body"] for each in lines_of("receive", "talks", "--session", "c")] == ["of c"]
    found = lines_of("receive", "talks", "--any-session", "--all", "--wait", "200ms")
    assert sorted(each["session_id"] for each in found) == ["a", "b", "b"]
    assert counts(bus, "talks") == (0, 0)


def test_a_session_is_held_for_as_long_as_it_is_followed(bus: Broker, process: Process, done: Done) -> None:
    bus.create_queue("talks", requires_session=True, lock_duration_ms=5_000)
    done("send", "talks", "first", "--session", "s")
    child = process("receive", "talks", "--session", "s", "--follow", "--raw")
    assert child.stdout is not None
    assert child.stdout.readline() == b"first\n"
    session = bus.call(lambda server: server.hosts["contoso"].entities.queue("talks").sessions.by_id["s"])
    until_ms = session.locked_until_ms
    until(lambda: session.locked_until_ms > until_ms)
    done("send", "talks", "second", "--session", "s")
    assert child.stdout.readline() == b"second\n"
    until(lambda: counts(bus, "talks")[0] == 0)
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 0


def test_subscriptions_by_name_and_by_path(bus: Broker, done: Done, twinbus: Command) -> None:
    bus.create_topic("news")
    bus.create_subscription("news", "all")
    done("send", "news", "item {n}", "--count", "2")
    assert done("receive", "news", "--subscription", "all", "--raw") == "item 1", "one body, byte for byte"
    assert done("receive", "news/Subscriptions/all", "--raw") == "item 2"
    code, _, err = twinbus("receive", "news/subscriptions/all", "--subscription", "all")
    assert code == 2
    assert "leave --subscription out" in err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--delete", "--then", "defer"], "--delete and --then cannot be combined"),
        (["--reason", "x"], "need --then dead-letter"),
        (["--then", "abandon", "--all"], "with --max, not --all"),
        (["--dead", "--then", "dead-letter"], "cannot be dead-lettered again"),
        (["--session", "a", "--any-session"], "--any-session cannot be combined"),
        (["--deferred", "1", "--follow"], "--deferred cannot be combined"),
        (["--wait", "long"], "is not a duration"),
    ],
)
def test_a_receive_that_is_none(twinbus: Command, options: list[str], problem: str) -> None:
    code, _, err = twinbus("receive", "orders", *options)
    assert (code, err.count("\n")) == (2, 1)
    assert problem in err


def test_a_message_whose_output_failed_is_not_settled(
    bus: Broker, process: Process, done: Done, lines_of: Lines
) -> None:
    done("send", "orders", "order {n}", "--count", "150")
    with open("/dev/full", "wb") as full:
        child = process("receive", "orders", "--all", "--json", stdout=full)
        _, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (1, b"twinbus: No space left on device.\n")
    assert counts(bus, "orders") == (150, 0)
    # Released at once, without counting as a failed delivery.
    again = lines_of("receive", "orders", "--all", "--wait", "100ms")
    assert [each["body"] for each in again] == [f"order {n}" for n in range(1, 151)]
    assert {each["delivery_count"] for each in again} == {0}


def test_a_reader_that_goes_away_loses_nothing(bus: Broker, process: Process, done: Done, lines_of: Lines) -> None:
    done("send", "orders", "x" * 2000, "--count", "500")
    child = process("receive", "orders", "--all", "--json")
    assert child.stdout is not None
    read = json.loads(child.stdout.readline())
    child.stdout.close()
    child.stdout = None
    _, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (1, b"")
    left = [each["sequence_number"] for each in lines_of("receive", "orders", "--all", "--wait", "100ms")]
    # Completed messages had been written to the pipe, in order; the rest is here.
    assert left == list(range(501 - len(left), 501))
    assert read["sequence_number"] == 1
    assert len(left) >= 300


def test_following_ends_with_an_interrupt_and_is_no_failure(bus: Broker, process: Process, done: Done) -> None:
    child = process("receive", "orders", "--follow", "--raw")
    for number in range(3):
        done("send", "orders", f"order {number}")
        assert child.stdout is not None
        assert child.stdout.readline() == f"order {number}\n".encode()
    until(lambda: counts(bus, "orders")[0] == 0)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err) == (0, b"", b"3 messages received from orders.\n")


def test_following_outlives_the_broker(bus: Broker, process: Process, done: Done) -> None:
    child = process("receive", "orders", "--follow", "--raw")
    assert child.stdout is not None
    done("send", "orders", "before")
    assert child.stdout.readline() == b"before\n"
    until(lambda: counts(bus, "orders")[0] == 0)
    bus.restart()
    done("send", "orders", "after")
    assert child.stdout.readline() == b"after\n"
    until(lambda: counts(bus, "orders")[0] == 0)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 0
    assert b"Trying again." in err
    assert err.endswith(b"2 messages received from orders.\n")


def test_following_what_was_never_there_ends(twinbus: Command) -> None:
    code, out, err = twinbus("receive", "ordrs", "--follow")
    assert (code, out) == (1, "")
    assert "Did you mean 'orders'?" in err


def test_an_interrupt_while_waiting_ends_at_once(process: Process, done: Done) -> None:
    done("send", "orders", "order 1")
    child = process("receive", "orders", "--max", "2", "--wait", "10m", "--raw")
    assert child.stdout is not None
    assert child.stdout.readline() == b"order 1\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (130, b"", b"1 message received from orders.\n")


def test_a_file_that_is_written_is_whole(bus: Broker, process: Process, done: Done, tmp_path: Path) -> None:
    done("send", "orders", "order {n}", "--count", "250")
    with (tmp_path / "orders.jsonl").open("wb") as file:
        child = process("receive", "orders", "--all", "--wait", "200ms", "--json", stdout=file)
        _, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (0, b"250 messages received from orders.\n")
    lines = (tmp_path / "orders.jsonl").read_text().splitlines()
    assert [json.loads(line)["body"] for line in lines] == [f"order {n}" for n in range(1, 251)]
    assert counts(bus, "orders") == (0, 0)


# --- peek -------------------------------------------------------------------------------------------------------------


def test_peeking_changes_nothing(bus: Broker, done: Done, lines_of: Lines) -> None:
    done("send", "orders", '{"n": {n}}', "--count", "300")
    table = done("peek", "orders").splitlines()
    assert table[0].split() == ["number", "message", "id", "state", "enqueued", "body", "bytes", "body"]
    assert len(table) == 21
    assert table[1].rstrip().endswith('{"n": 1}')
    assert [each["sequence_number"] for each in lines_of("peek", "orders", "--from", "295")] == list(range(295, 301))
    assert len(lines_of("peek", "orders", "--max", "280")) == 280
    assert counts(bus, "orders") == (300, 0)


def test_peek_and_receive_agree_on_the_size(done: Done, lines_of: Lines) -> None:
    """The broker adds different properties to a peeked and a received message; the body is the same."""
    done("send", "orders", "größer", "--message-id", "m", "-p", "region=eu")
    assert [each["body_bytes"] for each in lines_of("peek", "orders")] == [8]
    head, row = done("peek", "orders").splitlines()
    assert "body bytes" in head
    assert row.split() == ["1", "m", "active", *row.split()[3:6], "8", "größer"]
    assert "8 body bytes" in done("peek", "orders", "--body", "text").splitlines()[0]
    assert [each["body_bytes"] for each in lines_of("receive", "orders", "--then", "abandon")] == [8]
    assert "8 body bytes" in done("receive", "orders").splitlines()[0]


def test_bodies_in_every_form(done: Done, lines_of: Lines) -> None:
    done("send", "orders", '{"a":1}')
    assert '{\n  "a": 1\n}\n' in done("peek", "orders", "--body", "json")
    assert '{"a":1}\n' in done("peek", "orders", "--body", "text")
    assert "00000000  7b 22 61 22 3a 31 7d" in done("peek", "orders", "--body", "hex")
    assert '"a"' not in done("peek", "orders", "--body", "none")
    assert lines_of("peek", "orders", "--body", "json")[0]["body"] == {"a": 1}
    assert lines_of("peek", "orders", "--body", "hex")[0]["body_hex"] == "7b2261223a317d"
    assert "body" not in lines_of("peek", "orders", "--body", "none")[0]


def test_json_nested_too_deep_is_shown_as_text(done: Done, lines_of: Lines) -> None:
    body = "[" * 100_000
    done("send", "orders", body)
    assert body in done("peek", "orders", "--body", "json")
    assert lines_of("peek", "orders", "--body", "json")[0]["body"] == body


def test_nothing_to_see(twinbus: Command) -> None:
    assert twinbus("peek", "orders") == (0, "", "No messages in orders.\n")
    assert twinbus("peek", "orders", "--json") == (0, "", "")


# --- purge ------------------------------------------------------------------------------------------------------------


def test_purge_asks_first(bus: Broker, twinbus: Command, done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    done("send", "orders", "x", "--count", "3")
    code, _, err = twinbus("purge", "orders")
    assert (code, err) == (2, "twinbus: Delete 3 messages of orders? There is no terminal to ask on: pass --yes.\n")
    for answer, code, left in ((b"n\n", 1, 3), (b"y\n", 0, 0)):
        terminal = Input(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr("sys.stdin", terminal)
        found, out, err = twinbus("purge", "orders")
        assert (found, counts(bus, "orders")[0]) == (code, left)
        assert "Delete 3 messages of orders?" in out + err


def test_purge_deletes_all_of_it(bus: Broker, done: Done, json_of: Any) -> None:
    done("send", "orders", "x", "--count", "1300")
    assert json_of("purge", "orders", "--yes") == {"entity": "orders", "deleted": 1300, "left": 0}
    assert counts(bus, "orders") == (0, 0)


def test_purge_of_dead_letters_and_by_age(bus: Broker, done: Done) -> None:
    done("send", "orders", "x", "--count", "3")
    done("receive", "orders", "--max", "2", "--then", "dead-letter")
    assert done("purge", "orders", "--before", "1h", "--yes") == "0 messages of orders deleted.\n"
    assert done("purge", "orders", "--before", "2001-01-01", "--yes") == "0 messages of orders deleted.\n"
    assert done("purge", "orders", "--dead", "--yes") == "2 messages of orders/$DeadLetterQueue deleted.\n"
    assert counts(bus, "orders") == (1, 0)
    assert done("purge", "orders", "--before", "2100-01-01T00:00Z", "--yes") == "1 message of orders deleted.\n"
    assert counts(bus, "orders") == (0, 0)


def test_purge_without_a_request_that_deletes_many(bus: Broker, done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    from twinbus.client import Management
    from twinbus.errors import UnsupportedError

    async def unknown(*arguments: Any, **options: Any) -> int:
        raise UnsupportedError("not known")

    monkeypatch.setattr(Management, "delete_batch", unknown)
    done("send", "orders", "x", "--count", "700")
    assert done("purge", "orders", "--yes") == "700 messages of orders deleted.\n"
    assert counts(bus, "orders") == (0, 0)


def test_the_number_stands_in_every_text(done: Callable[..., str]) -> None:
    done(
        "send",
        "orders",
        "order {n}",
        "--count",
        "2",
        "--session",
        "s-{n}",
        "--subject",
        "no {n}",
        "--message-id",
        "m{n}",
    )
    found = [json.loads(line) for line in done("receive", "orders", "--max", "2", "--json").splitlines()]
    assert [(each["message_id"], each["session_id"], each["subject"], each["body"]) for each in found] == [
        ("m1", "s-1", "no 1", "order 1"),
        ("m2", "s-2", "no 2", "order 2"),
    ]


def test_peek_shows_a_message_on_one_line(done: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    done("send", "orders", "a body that is longer than its column on a narrow terminal", "--session", "s" * 40)
    monkeypatch.setattr("twinbus.cli.view.console", lambda: Console(width=80))
    lines = done("peek", "orders").splitlines()
    assert len(lines) == 2
    assert all(len(line) <= 80 for line in lines)
    done("send", "others", "a body that is longer than its column on a narrow terminal")
    head, row = done("peek", "others").splitlines()
    assert "body bytes" in head
    assert " UTC " in row, "a time is shown whole"
