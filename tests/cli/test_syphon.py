"""`twinbus syphon`, `twinbus backlog` and `twinbus pair` against two real brokers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from twinbus.cli import syphon as syphon_module
from twinbus.cli import view
from twinbus.cli.main import run
from twinbus.client import BusClient, Message
from twinbus.client.envelope import wrap
from twinbus.ledger.files import complete_files
from twinbus.ledger.totals import Totals
from twinbus.testing import Broker

Command = Callable[..., tuple[int, str, str]]

# Without Spark, which has its own tests: a session takes seconds to start.
LOCAL = ["--engine", "local"]
QUEUES = [f"first/x-servicebus-transfer/{index}" for index in range(3)]


@pytest.fixture(scope="module")
def primary() -> Iterator[Broker]:
    with Broker(["first"], ["orders"], sync=False) as broker:
        yield broker


@pytest.fixture
def secondary() -> Iterator[Broker]:
    with Broker(["second"], [*QUEUES, "unrelated"], sync=False) as broker:
        yield broker


@pytest.fixture
def command(
    primary: Broker, secondary: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Run `twinbus ...`; return exit code, output and errors."""
    monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string())
    monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string())
    monkeypatch.setenv("COLUMNS", "250")

    def ran(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            run(arguments)
        captured = capsys.readouterr()
        for broker in (primary, secondary):
            key = broker.connection_string().split("SharedAccessKey=")[1].split(";")[0]
            assert key not in captured.out + captured.err
        return int(caught.value.code or 0), captured.out, captured.err

    return ran


def put(broker: Broker, queue: str, payloads: Sequence[bytes]) -> None:
    async def work() -> None:
        async with BusClient.from_connection_string(broker.connection_string()) as client:
            assert not any(await (await client.sender(queue)).send_many(payloads))

    asyncio.run(work())


def taken(broker: Broker, queue: str, count: int, wait_s: float = 3) -> list[Any]:
    async def work() -> list[Any]:
        found: list[Any] = []
        async with BusClient.from_connection_string(broker.connection_string()) as client:
            receiver = await client.receiver(queue, delete=True)
            while len(found) < count and (some := await receiver.receive_batch(count - len(found), wait_s)):
                found += some
        return [message.message_id for message in found]

    return asyncio.run(work())


def diverted(path: str, *names: str) -> list[bytes]:
    return [wrap(Message(b"x", message_id=name).encode(), path) for name in names]


def test_until_it_is_empty(command: Command, primary: Broker, secondary: Broker) -> None:
    put(secondary, QUEUES[0], diverted("orders", "a", "b"))
    put(secondary, QUEUES[1], diverted("nowhere", "c"))
    code, out, err = command("syphon", *LOCAL, "--once", "--primary-name", "first", "--backlog-queue-count", "3")
    assert (code, out) == (0, "2 messages syphoned, 1 dead-lettered.\n")
    assert "backlog peek --dead" in err
    assert taken(primary, "orders", 2) == ["a", "b"]


def test_json(command: Command, primary: Broker, secondary: Broker, tmp_path: Path) -> None:
    put(secondary, QUEUES[0], diverted("orders", "a"))
    text = tmp_path / "primary.txt"
    text.write_text(primary.connection_string() + "\n")
    options = ["--primary-file", str(text), "--primary-name", "first", "--backlog-queue-count", "4", "--json"]
    code, out, _ = command("syphon", *LOCAL, "--once", "--quiet", *options)
    found = json.loads(out)
    assert code == 0
    assert (found["syphoned"], found["missing"]) == (1, ["first/x-servicebus-transfer/3"])
    assert found["queues"][QUEUES[0]]["syphoned"] == 1
    taken(primary, "orders", 1)


def test_the_ledger_calls_namespaces_as_they_call_themselves(
    command: Command, secondary: Broker, primary: Broker, tmp_path: Path
) -> None:
    put(secondary, QUEUES[0], diverted("orders", "a"))
    options = ["--primary-name", "first", "--backlog-queue-count", "1", "--ca-file", str(secondary.ca_file)]
    code, _, _ = command("syphon", *LOCAL, "--once", "--ledger", str(tmp_path / "ledger"), *options)
    assert code == 0
    totals = Totals()
    totals.read(complete_files(tmp_path / "ledger"))
    assert {group.namespace for group in totals.groups} == {"first", "second"}
    taken(primary, "orders", 1)


def test_what_is_left_is_told(command: Command, secondary: Broker) -> None:
    put(secondary, QUEUES[0], diverted("orders", "a"))
    nobody = "Endpoint=sb://localhost:1;SharedAccessKeyName=n;SharedAccessKey=hidden;UseDevelopmentEmulator=true"
    options = ["--primary", nobody, "--primary-name", "first", "--backlog-queue-count", "1", "--patience", "1"]
    code, out, err = command("syphon", *LOCAL, "--once", *options)
    assert code == 1
    assert "0 messages" in out
    assert f"Not empty: {QUEUES[0]}" in err
    assert "cannot be reached" in err
    assert "hidden" not in out + err


def test_no_backlog_queue(command: Command) -> None:
    code, _, err = command("syphon", *LOCAL, "--once", "--primary-name", "other", "--backlog-queue-count", "2")
    assert code == 1
    assert "No backlog queues found" in err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--engine", "steam"], "steam"),
        (["--transport", "pigeon"], "pigeon"),
        (["--transport", "sdk", "--engine", "spark"], "--engine local"),
        (["--slots", "2", "--engine", "local"], "--slots is for --engine spark"),
        (["--master", "local[1]", "--transport", "sdk"], "--engine local"),
        (["--slots", "0"], "from 1 to 32"),
        (["--slots", "33"], "from 1 to 32"),
        (["--round-seconds", "0.5"], "from 1 to 3600"),
        (["--primary-name", "a/b"], "primary_name"),
        (["--primary", "nonsense"], "connection string"),
        (["--secondary-file", "/nowhere"], "cannot be read"),
    ],
)
def test_what_is_wrong_is_told(command: Command, options: list[str], text: str) -> None:
    code, _, err = command("syphon", "--primary-name", "first", *options)
    assert code == 2
    assert text in err


@pytest.mark.parametrize("lacking", ["pyspark", "java"])
def test_without_spark_it_runs_here_and_says_so(
    command: Command, secondary: Broker, primary: Broker, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking == "pyspark":
        monkeypatch.setattr(syphon_module, "find_spec", lambda name: None)
    else:
        # Java is neither found nor bundled.
        monkeypatch.setenv("TWINBUS_JAVA", "found")
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.delenv("JAVA_HOME", raising=False)
    put(secondary, QUEUES[0], diverted("orders", "a"))
    code, out, err = command("syphon", "--once", "--primary-name", "first", "--backlog-queue-count", "3")
    assert (code, out) == (0, "1 message syphoned, 0 dead-lettered.\n")
    assert "runs in this process" in err
    assert "twinbus[spark]" in err
    assert taken(primary, "orders", 1) == ["a"]


def test_the_same_namespace_twice(command: Command, primary: Broker) -> None:
    code, _, err = command("syphon", "--primary-name", "first", "--secondary", primary.connection_string())
    assert code == 2
    assert "two different namespaces" in err


def test_it_runs_until_it_is_told_to_stop(primary: Broker, secondary: Broker) -> None:
    put(secondary, QUEUES[0], diverted("orders", "a", "b", "c"))
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from twinbus.cli.main import run; run()",
            "syphon",
            *LOCAL,
            "--primary-name",
            "first",
            "--json",
        ],
        env={
            **os.environ,
            "TWINBUS_PRIMARY": primary.connection_string(),
            "TWINBUS_SECONDARY": secondary.connection_string(),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    # A process takes a while to start on a busy machine.
    assert taken(primary, "orders", 3, wait_s=30) == ["a", "b", "c"]
    assert process.stdout is not None
    line = json.loads(process.stdout.readline())
    assert line["syphoned"] == 3
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=15)
    assert process.returncode == 0
    assert '"syphoned": 3' in out


def test_the_backlog_is_listed_and_peeked(command: Command, secondary: Broker) -> None:
    ca = ["--ca-file", str(secondary.ca_file)]
    put(secondary, QUEUES[0], diverted("orders", "a", "b"))
    put(secondary, QUEUES[0], diverted("bills", "c"))
    put(secondary, QUEUES[1], diverted("nowhere", "d"))
    code, out, _ = command("backlog", "list", "--json", *ca)
    assert code == 0
    first, second, third = json.loads(out)
    assert (first["name"], first["active"], first["destinations"]) == (QUEUES[0], 3, {"orders": 2, "bills": 1})
    assert first["oldest_ms"] > 0
    assert (second["active"], third["active"]) == (1, 0)
    code, out, _ = command("backlog", "list", *ca)
    assert "orders (2), bills (1)" in out
    assert "unrelated" not in out
    code, out, _ = command("backlog", "peek", "--json", "--path", "orders", *ca)
    assert [(each["message_id"], each["path"]) for each in json.loads(out)] == [("a", "orders"), ("b", "orders")]
    code, out, _ = command("pair", "status", "--primary-name", "first", *ca)
    assert code == 6, "nobody receives them"
    assert "primary first: reachable" in out
    assert "diverted: 4 messages in 2 of 3 backlog queues" in out
    assert "bills is refused by the primary: " in out
    assert "orders is refused" not in out
    code, out, _ = command("pair", "status", "--primary-name", "first", "--json", *ca)
    assert json.loads(out)["destinations"] == {"orders": 2, "bills": 1, "nowhere": 1}


def test_names_of_queues_are_not_broken_at_80_columns(
    command: Command, secondary: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_PIPE_COLUMNS", 80)
    put(secondary, QUEUES[0], diverted("a-destination-with-a-long-name", *map(str, range(1_000))))
    code, out, _ = command("backlog", "list", "--ca-file", str(secondary.ca_file))
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        [QUEUES[0], "1,000"],
        [QUEUES[1], "0"],
        [QUEUES[2], "0"],
    ]
    assert max(map(len, out.splitlines())) <= 80


def test_dead_letters_go_back(command: Command, primary: Broker, secondary: Broker) -> None:
    ca = ["--ca-file", str(secondary.ca_file)]
    put(secondary, QUEUES[0], [*diverted("nowhere", "a"), Message(b"x", message_id="b").encode()])
    syphon = ["syphon", *LOCAL, "--once", "--primary-name", "first", "--backlog-queue-count", "3"]
    command(*syphon)
    code, out, _ = command("backlog", "peek", "--dead", "--json", *ca)
    found = {each["message_id"]: each for each in json.loads(out)}
    assert found["a"]["reason"] == "DestinationNotFound"
    assert "nowhere" in found["a"]["description"]
    assert found["b"]["reason"] == "CannotBeRestored"
    primary.create_queue("nowhere")
    code, out, _ = command("pair", "status", "--primary-name", "first", *ca)
    assert "diverted: 0 messages in 0 of 3 backlog queues; dead letters: 2\n" in out
    code, out, err = command("backlog", "resubmit", *ca)
    assert (code, out) == (1, "1 dead letter is back in the backlog.\n")
    assert "--to PATH" in err
    code, out, _ = command("backlog", "resubmit", "--to", "nowhere", *ca)
    assert (code, out) == (0, "1 dead letter is back in the backlog.\n")
    code, out, _ = command(*syphon)
    assert out.startswith("2 messages syphoned, 0 dead-lettered")
    assert taken(primary, "nowhere", 2) == ["a", "b"]
    primary.delete_queue("nowhere")


def test_dead_letters_that_come_back_meanwhile_stay(command: Command, secondary: Broker) -> None:
    """A syphon that still fails dead-letters them again at once, for as long as somebody resubmits them."""
    put(secondary, QUEUES[0], diverted("orders", "a", "b", "c"))
    stop = threading.Event()

    async def fail(count: int) -> None:
        async with BusClient.from_connection_string(secondary.connection_string()) as client:
            receiver = await client.receiver(QUEUES[0])
            while count and not stop.is_set():
                for message in await receiver.receive_batch(1, 0.2):
                    count -= 1
                    await receiver.dead_letter(message, "Test")

    asyncio.run(fail(3))
    failing = threading.Thread(target=lambda: asyncio.run(fail(20)))
    failing.start()
    code, out, err = command("backlog", "resubmit", "--ca-file", str(secondary.ca_file))
    stop.set()
    failing.join()
    assert (code, out, err) == (0, "3 dead letters are back in the backlog.\n", "")


def test_unused_queues(command: Command, secondary: Broker) -> None:
    ca = ["--ca-file", str(secondary.ca_file), "--primary-name", "first", "--backlog-queue-count", "1"]
    put(secondary, QUEUES[2], diverted("orders", "a"))
    code, out, err = command("backlog", "remove-unused", *ca)
    assert (code, out) == (0, f"unused: {QUEUES[1]}\n")
    assert f"not empty, kept: {QUEUES[2]}" in err
    code, out, _ = command("backlog", "remove-unused", "--yes", "--json", *ca)
    assert json.loads(out) == {"unused": [QUEUES[1]], "not_empty": [QUEUES[2]], "deleted": True}
    code, out, _ = command("backlog", "list", "--json", *ca[:2])
    assert [each["name"] for each in json.loads(out)] == [QUEUES[0], QUEUES[2]]
    code, _, err = command("backlog", "remove-unused", *ca[:2])
    assert code == 2
    assert "--primary-name" in err


def test_without_a_trusted_certificate(command: Command, secondary: Broker) -> None:
    by_tls = secondary.connection_string().replace("UseDevelopmentEmulator=true", "")
    code, _, err = command("backlog", "list", "--secondary", by_tls)
    assert code == 1
    assert "--ca-file" in err
