"""`twinbus connections` against a real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from tests.broker.peer import Peer
from tests.cli.conftest import Command
from twinbus.auth.connection_string import ConnectionString
from twinbus.cli.view import time_text
from twinbus.testing import Broker


def test_a_connection_is_listed_filtered_and_closed(
    bus: Broker, twinbus: Command, done: Callable[..., str], json_of: Callable[..., Any]
) -> None:
    own = ConnectionString.parse(bus.connection_string())
    with Peer(bus, sasl=("PLAIN", f"\0{own.key_name}\0{own.key}".encode()), product="till") as till:
        till.receiver("orders", 5)
        (found,) = json_of("connections", "list", "--filter", "orders")
        assert (found["receivers"], found["own"]) == (1, False)
        assert found["client"] == "till"
        assert json_of("connections", "list", "--filter", "nobody") == []
        text = done("connections", "list")
        assert "orders" in text
        assert time_text(found["opened_ms"]) in text, "as every command writes times"
        assert time_text(found["opened_ms"]).endswith(" UTC")
        assert len(text.splitlines()) == 3, "with the command's own"

        code, out, err = twinbus("connections", "close", str(found["number"]))
        assert (code, out) == (2, "")
        assert "pass --yes" in err
        assert done("connections", "close", str(found["number"]), "--yes") == (
            f"Closed connection {found['number']}.\n"
        )
        assert json_of("connections", "list", "--filter", "orders") == []
    code, _, err = twinbus("connections", "close", "4711", "--yes")
    assert code == 1
    assert "There is no connection 4711" in err


def test_a_connection_is_one_line_with_the_paths_of_its_entities(
    bus: Broker, done: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The official SDKs attach to amqps://HOST/PATH and have long names."""
    own = ConnectionString.parse(bus.connection_string())
    login = ("PLAIN", f"\0{own.key_name}\0{own.key}".encode())
    with Peer(bus, sasl=login, product="azsdk-python-servicebus/7.15.0 Python/3.11") as client:
        client.receiver("amqps://localhost:5671/orders", 5)
        assert "amqps://" not in done("connections", "list", "--filter", "azsdk")
        monkeypatch.setattr("twinbus.cli.view.console", lambda: Console(width=80, highlight=False))
        head, row, *_ = done("connections", "list", "--filter", "azsdk").splitlines()
        assert head.split() == ["number", "address", "since", "entities", "client"]
        assert row.split()[-2] == "orders"
        assert len(row) <= 80
