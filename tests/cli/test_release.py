"""`twinbus release`: messages claimed by a dead stream can be received again, once, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.conftest import Command, counts
from twinbus.client import BusClient, Message
from twinbus.client.blocking import BlockingBus
from twinbus.testing import Broker

Done = Callable[..., str]
Lines = Callable[..., list[dict[str, Any]]]


def claimed(bus: Broker, names: list[str], claim: str | None) -> None:
    """Send messages and have a stream of this name claim them; with None, defer them like an application."""
    text = bus.connection_string()
    with BlockingBus(lambda: BusClient.from_connection_string(text)) as client:
        parcels = [[Message(f"body of {name}", message_id=name, subject="s").encode()] for name in names]
        assert not any(client.start_send("orders", parcels).result())
        messages = client.receive("orders", len(names), 10)
        client.defer("orders", messages, {} if claim is None else {"x-twinbus-claim": claim})


def test_claims_of_one_stream_become_active(bus: Broker, done: Done, json_of: Any, lines_of: Lines) -> None:
    claimed(bus, ["a", "b"], "nightly")
    claimed(bus, ["c"], "other")
    claimed(bus, ["d"], None)
    assert "2 messages of orders claimed by nightly." in done("release", "orders", "--claim", "nightly", "--dry-run")
    result = json_of("release", "orders", "--claim", "nightly", "--yes")
    assert (result["claimed"], result["released"], result["error"]) == (2, 2, None)
    found = {each["message_id"]: each for each in lines_of("peek", "orders", "--max", "9")}
    assert {name: each["state"] for name, each in found.items()} == {
        "a": "active", "b": "active", "c": "deferred", "d": "deferred"
    }  # fmt: skip
    assert (found["a"]["subject"], found["a"].get("application_properties")) in (("s", None), ("s", {}))
    assert (json_of("release", "orders", "--claim", "nightly", "--yes")["released"]) == 0


def test_where_copies_would_be_dropped_it_asks_for_new_ids(
    bus: Broker, done: Done, lines_of: Lines, twinbus: Command
) -> None:
    bus.create_queue("once", requires_duplicate_detection=True)
    claimed(bus, ["a"], "spark")
    code, _, told = twinbus("release", "orders", "--to", "once", "--yes")
    assert code != 0
    assert "--new-ids" in told
    done("release", "orders", "--to", "once", "--new-ids", "--yes")
    (found,) = lines_of("peek", "once", "--max", "9")
    assert found["message_id"].startswith("a-")
    assert counts(bus, "orders") == (0, 0)
