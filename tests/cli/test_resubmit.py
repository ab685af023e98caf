"""`twinbus resubmit`: dead letters return once, as they were sent, and none is lost."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Command, counts
from twinbus.auth.policies import Policy, rights_of
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.cli.main import run
from twinbus.client import BusClient
from twinbus.client.management import Management
from twinbus.errors import UnsupportedError
from twinbus.testing import Broker

Done = Callable[..., str]
Lines = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def copying(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that cannot resubmit dead letters itself."""

    async def unknown(node: Management, sequence_numbers: object) -> int:
        raise UnsupportedError("The operation is not known to this node.")

    monkeypatch.setattr(Management, "resubmit", unknown)


@pytest.fixture(params=["transaction", "accepted first"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, copying: None) -> str:
    """Both ways to send a copy: in one transaction, and without transactions."""
    if request.param == "accepted first":

        async def without(client: Any, sender: Any) -> None:
            return None

        monkeypatch.setattr("twinbus.cli.moving.transactions_of", without)
    return str(request.param)


def dead(done: Done, count: int, entity: str = "orders", reason: str = "bad", *options: str) -> None:
    done("send", entity, "order {n}", "--count", str(count), *options)
    done("receive", entity, "--max", str(count), "--then", "dead-letter", "--reason", reason)


def test_all_of_them_go_back_as_they_were_sent(
    bus: Broker, done: Done, json_of: Any, lines_of: Lines, way: str
) -> None:
    options = ["-p", "region=eu", "--subject", "s", "--ttl", "1h", "--partition-key", "k", "--message-id", "id-{n}"]
    done("send", "orders", "order {n}", "--count", "130", *options)
    before = lines_of("peek", "orders", "--max", "200")
    done("receive", "orders", "--max", "130", "--then", "dead-letter", "--reason", "bad", "--json")
    assert counts(bus, "orders") == (0, 130)
    result = json_of("resubmit", "orders")
    assert (result["wanted"], result["resubmitted"], result["atomic"]) == (130, 130, way == "transaction")
    assert counts(bus, "orders") == (130, 0)
    after = lines_of("peek", "orders", "--max", "200")
    for each in (*before, *after):
        del each["sequence_number"], each["enqueued_ms"]
    assert after == before


def test_only_some_of_them(bus: Broker, done: Done, json_of: Any, lines_of: Lines, twinbus: Command, way: str) -> None:
    dead(done, 3, "orders", "bad")
    dead(done, 3, "orders", "worse")
    assert done("resubmit", "orders", "--dry-run") == "6 dead letters of orders would go to orders.\n"
    assert counts(bus, "orders") == (0, 6)
    assert json_of("resubmit", "orders", "--reason", "worse", "--max", "2")["resubmitted"] == 2
    assert counts(bus, "orders") == (2, 4)
    assert [each["body"] for each in lines_of("peek", "orders")] == ["order 1", "order 2"]
    code, out, err = twinbus("resubmit", "orders", "--number", "2", "--number", "77")
    assert (code, err) == (1, "Not in the dead-letter queue: 77.\n")
    assert out == "1 dead letter of orders resubmitted to orders.\n"
    assert sorted(each["sequence_number"] for each in lines_of("peek", "orders", "--dead")) == [1, 3, 6]
    # Skipped messages are not locked, and the delivery does not count as failed.
    assert {each["delivery_count"] for each in lines_of("receive", "orders", "--dead", "--all", "--wait", "1s")} == {0}


def test_what_is_dead_again_at_once_stays_dead(bus: Broker, done: Done, way: str) -> None:
    """A consumer that dead-letters everything must not keep the command busy forever."""
    bus.create_topic("mill")
    # The filter fails on every message, so each is dead-lettered at once.
    bus.create_subscription("mill", "stone", filter="1 / 0 = 1")
    for number in range(3):
        done("send", "mill", f"grain {number}")
    assert done("resubmit", "mill", "--subscription", "stone") == (
        "3 dead letters of mill/Subscriptions/stone resubmitted to mill.\n"
    )
    assert done("resubmit", "mill", "-s", "stone", "--dry-run").startswith("3 dead letters")


def test_ids_that_the_queue_knows_are_refused_before_anything_is_lost(
    bus: Broker, done: Done, twinbus: Command, lines_of: Lines, copying: None
) -> None:
    bus.create_queue("once", requires_duplicate_detection=True)
    dead(done, 2, "once")
    code, _, err = twinbus("resubmit", "once")
    assert code == 2
    assert "pass --new-ids to send all of them, or --keep-ids" in err
    assert counts(bus, "once") == (0, 2)
    names = [each["message_id"] for each in lines_of("peek", "once", "--dead")]
    assert done("resubmit", "once", "--new-ids") == "2 dead letters of once resubmitted to once.\n"
    assert counts(bus, "once") == (2, 0)
    renamed = [each["message_id"] for each in lines_of("peek", "once")]
    assert [name[:32] for name in renamed] == names
    assert all(len(name) == 45 for name in renamed)


def test_a_key_that_cannot_know_must_say(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, copying: None
) -> None:
    worker = Policy("worker", rights_of(["Send", "Listen"]), "worker-key")
    with Broker([NamespaceConfig("contoso", policies=[worker])], queues=["orders"], dev=False, sync=False) as bus:
        text = bus.connection_string()
        head = text.partition("SharedAccessKeyName")[0]
        limited = f"{head}SharedAccessKeyName=worker;SharedAccessKey=worker-key;UseDevelopmentEmulator=true"
        monkeypatch.setenv("TWINBUS_CONNECTION_STRING", limited)

        def ran(*arguments: str) -> tuple[int, str, str]:
            with pytest.raises(SystemExit) as caught:
                run(arguments)
            captured = capsys.readouterr()
            return int(caught.value.code or 0), captured.out, captured.err

        assert ran("send", "orders", "x")[0] == 0
        assert ran("receive", "orders", "--then", "dead-letter")[0] == 0
        code, _, err = ran("resubmit", "orders")
        assert code == 2
        assert "pass --new-ids or --keep-ids" in err
        assert ran("resubmit", "orders", "--keep-ids")[0] == 0
        assert counts(bus, "orders") == (1, 0)
        # The other message commands need no further rights either.
        assert ran("purge", "orders", "--yes")[:2] == (0, "1 message of orders deleted.\n")
        code, _, err = ran("queue", "list")
        assert code == 1
        assert "`twinbus policy list`" in err


def test_a_destination_that_refuses_leaves_them_dead(bus: Broker, done: Done, twinbus: Command, way: str) -> None:
    dead(done, 3)
    bus.create_queue("shut", status="SendDisabled")
    code, out, err = twinbus("resubmit", "orders", "--to", "shut", "--json")
    assert code == 1
    assert json.loads(out)["resubmitted"] == 0
    assert "3 dead letters not resubmitted: " in err
    assert counts(bus, "orders") == (0, 3)
    # They are not locked: the next attempt receives them at once.
    assert done("resubmit", "orders") == "3 dead letters of orders resubmitted to orders.\n"


def test_dead_letters_of_a_subscription_go_to_its_topic_or_elsewhere(
    bus: Broker, done: Done, twinbus: Command, lines_of: Lines, copying: None
) -> None:
    bus.create_topic("news")
    for name in ("eu", "us"):
        bus.create_subscription("news", name)
    done("send", "news", "item {n}", "--count", "2")
    place = ("news", "--subscription", "eu")
    done("receive", *place, "--max", "2", "--then", "dead-letter")
    code, out, err = twinbus("resubmit", *place, "--max", "1")
    assert (code, out) == (0, "1 dead letter of news/Subscriptions/eu resubmitted to news.\n")
    assert "every subscription" in err
    assert [each["body"] for each in lines_of("peek", "news", "-s", "us")] == ["item 1", "item 2", "item 1"]
    assert done("resubmit", *place, "--to", "others") == (
        "1 dead letter of news/Subscriptions/eu resubmitted to others.\n"
    )
    assert [each["body"] for each in lines_of("peek", "others")] == ["item 2"]


def test_sessions_stay_together(bus: Broker, done: Done, lines_of: Lines, way: str) -> None:
    bus.create_queue("talks", requires_session=True)
    done("send", "talks", "word {n}", "--count", "3", "--session", "s")
    done("receive", "talks", "--session", "s", "--max", "3", "--then", "dead-letter")
    done("resubmit", "talks")
    assert [each["body"] for each in lines_of("receive", "talks", "--session", "s", "--max", "3")] == [
        "word 1",
        "word 2",
        "word 3",
    ]


def test_nothing_is_dead(done: Done) -> None:
    assert done("resubmit", "orders") == "0 dead letters of orders resubmitted to orders.\n"


def test_what_somebody_else_holds_stays_and_the_command_ends(bus: Broker, done: Done, twinbus: Command) -> None:
    dead(done, 3)
    held, ended = threading.Event(), threading.Event()

    async def hold() -> None:
        async with BusClient.from_connection_string(bus.connection_string()) as client:
            receiver = await client.receiver("orders", dead_letters=True)
            (first,) = await receiver.receive_batch(1)
            held.set()
            await asyncio.to_thread(ended.wait)
            receiver.release([first])

    holder = threading.Thread(target=asyncio.run, args=(hold(),))
    holder.start()
    try:
        assert held.wait(30)
        code, out, err = twinbus("resubmit", "orders", "--number", "1")
        assert (code, out) == (1, "0 dead letters of orders resubmitted to orders.\n")
        assert err == "1 dead letter not resubmitted: locked by another receiver.\n"
    finally:
        ended.set()
        holder.join()
    assert done("resubmit", "orders", "--number", "1") == "1 dead letter of orders resubmitted to orders.\n"
    assert counts(bus, "orders") == (1, 2)


# --- resubmitted by the broker, as in its console ---------------------------------------------------------------------


def test_a_subscriptions_dead_letters_go_back_to_it_alone(
    bus: Broker, done: Done, json_of: Any, lines_of: Lines
) -> None:
    bus.create_topic("news", requires_duplicate_detection=True)
    for name in ("eu", "us"):
        bus.create_subscription("news", name)
    done("send", "news", "item {n}", "--count", "3")
    place = ("news", "--subscription", "eu")
    done("receive", *place, "--max", "3", "--then", "dead-letter", "--reason", "bad")
    assert done("resubmit", *place, "--dry-run") == (
        "3 dead letters of news/Subscriptions/eu would go to news/Subscriptions/eu.\n"
    )
    result = json_of("resubmit", *place, "--max", "2")
    assert (result["to"], result["resubmitted"], result["atomic"]) == ("news/Subscriptions/eu", 2, True)
    found = lines_of("peek", *place)
    assert [each["body"] for each in found] == ["item 1", "item 2"]
    assert {each["delivery_count"] for each in found} == {0}
    assert "DeadLetterReason" not in str(found)
    assert [each["body"] for each in lines_of("peek", "news", "-s", "us")] == ["item 1", "item 2", "item 3"]


def test_none_is_a_duplicate_of_itself(bus: Broker, done: Done, twinbus: Command) -> None:
    bus.create_queue("once", requires_duplicate_detection=True)
    dead(done, 3, "once")
    code, out, err = twinbus("resubmit", "once", "--number", "1", "--number", "3", "--number", "77")
    assert (code, out) == (1, "2 dead letters of once resubmitted to once.\n")
    assert err == "Not in the dead-letter queue: 77.\n"
    assert counts(bus, "once") == (2, 1)


def test_it_needs_listen_and_send(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    policies = [Policy(name, rights_of([name]), f"{name}-key") for name in ("Listen", "Send")]
    policies.append(Policy("worker", rights_of(["Send", "Listen"]), "worker-key"))
    with Broker([NamespaceConfig("contoso", policies=policies)], queues=["orders"], dev=False, sync=False) as bus:

        def ran(name: str, *arguments: str) -> int:
            head = bus.connection_string().partition("SharedAccessKeyName")[0]
            text = f"{head}SharedAccessKeyName={name};SharedAccessKey={name}-key;UseDevelopmentEmulator=true"
            monkeypatch.setenv("TWINBUS_CONNECTION_STRING", text)
            with pytest.raises(SystemExit) as caught:
                run(arguments)
            return int(caught.value.code or 0)

        assert ran("worker", "send", "orders", "x") == 0
        assert ran("worker", "receive", "orders", "--then", "dead-letter") == 0
        assert ran("Listen", "resubmit", "orders") == 1
        assert counts(bus, "orders") == (0, 1)
        capsys.readouterr()
        assert ran("worker", "resubmit", "orders") == 0, "no Manage is needed to know about ids"
        assert capsys.readouterr().out == "1 dead letter of orders resubmitted to orders.\n"
        assert counts(bus, "orders") == (1, 0)
