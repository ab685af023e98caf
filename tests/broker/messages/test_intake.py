"""Odd messages, sent over raw AMQP and received in every way: what is accepted can be received, and nothing is lost."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.broker.http.console.window import Window
from tests.broker.odd_messages import MARK, PLACES, in_place, others
from tests.broker.peer import Peer
from twinbus.amqp.states import Accepted, Rejected
from twinbus.amqp.types import Int
from twinbus.testing import Broker

CASES = [*PLACES, "others"]


class Web:
    """One HTTP connection to the broker."""

    def __init__(self, broker: Broker) -> None:
        endpoint = broker.endpoint()
        self.connection = HTTPConnection(endpoint.host, endpoint.port, timeout=15)

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[HTTPResponse, bytes]:
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        return response, response.read()

    def close(self) -> None:
        self.connection.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(queues=[], sync=False) as running:
        yield running


@pytest.fixture
def web(broker: Broker) -> Iterator[Web]:
    opened = Web(broker)
    yield opened
    opened.close()


def sent(broker: Broker, queue: str, place: str) -> dict[int, str]:
    """Send the messages of a place; returns the names of the accepted ones by sequence number."""
    payloads = others() if place == "others" else in_place(place)
    broker.create_queue(queue)
    names: dict[int, str] = {}
    with Peer(broker) as peer:
        link = peer.sender(queue)
        for name, payload in payloads.items():
            state = peer.send(link, payload)
            if isinstance(state, Accepted):
                names[len(names) + 1] = name
            else:
                assert isinstance(state, Rejected), name
                assert state.error is not None, name
                assert state.error.condition in ("amqp:decode-error", "com.microsoft:argument-error"), (name, state)
    assert names, "at least one is accepted"
    return names


def has_mark(place: str, name: str) -> bool:
    return place not in ("value", "sequence", "data") and not name.endswith("no body")


def check_answer(place: str, name: str, response: HTTPResponse, body: bytes) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(response.headers["BrokerProperties"], parse_constant=pytest.fail)
    if has_mark(place, name):
        assert body == MARK + name.encode(), name
    assert "X-Evil" not in response.headers, name
    for header, value in response.headers.items():
        if header.lower().startswith(("own", "other", "twinbus")):
            json.loads(value, parse_constant=pytest.fail)
    return shown


@pytest.mark.parametrize("place", CASES)
def test_received_and_deleted_over_http(broker: Broker, web: Web, place: str) -> None:
    queue = f"delete-{CASES.index(place)}"
    names = sent(broker, queue, place)
    for seq, name in names.items():
        response, body = web.ask("DELETE", f"/{queue}/messages/head?timeout=5")
        if response.status == 422:
            # What does not fit into headers stays, for AMQP.
            with Peer(broker) as peer:
                assert peer.receive(peer.receiver(queue, 1, settled=True)).payload, name
            assert name in ("large subject", "wide properties")
            continue
        assert response.status == 200, (name, body)
        assert check_answer(place, name, response, body)["SequenceNumber"] == seq
    assert web.ask("DELETE", f"/{queue}/messages/head?timeout=0")[0].status == 204


@pytest.mark.parametrize("place", CASES)
def test_locked_and_completed_over_http(broker: Broker, web: Web, place: str) -> None:
    queue = f"lock-{CASES.index(place)}"
    names = sent(broker, queue, place)
    for seq, name in names.items():
        response, body = web.ask("POST", f"/{queue}/messages/head?timeout=5")
        if response.status == 422:
            with Peer(broker) as peer:
                assert peer.receive(peer.receiver(queue, 1, settled=True)).payload, name
            continue
        assert response.status == 201, (name, body)
        assert check_answer(place, name, response, body)["SequenceNumber"] == seq
        done, _ = web.ask("DELETE", urlsplit(response.headers["Location"]).path)
        assert done.status == 200, name


@pytest.mark.parametrize("place", CASES)
def test_peeked_received_and_looked_at(broker: Broker, place: str) -> None:
    queue = f"look-{CASES.index(place)}"
    names = sent(broker, queue, place)
    window = Window(broker)
    window.greet()
    look = {"namespace": "contoso", "entity": queue}
    rows: list[dict[str, Any]] = []
    first: int | None = 0
    while first is not None:
        page = shown_by(window, "messages", **look, **{"from": first})
        rows += page["rows"]
        first = page["next"]
    assert [int(row["seq"]) for row in rows] == list(names)
    for seq, name in names.items():
        content = base64.b64decode(shown_by(window, "message", **look, seq=seq)["body"]["base64"])
        if has_mark(place, name):
            assert MARK + name.encode() in content, name
        assert window.get("body", **look, seq=seq).status == 200, name
    with Peer(broker) as peer:
        for seq, name in names.items():
            arguments = {"from-sequence-number": seq, "message-count": Int(1)}
            status, _, found = peer.call(f"{queue}/$management", "com.microsoft:peek-message", arguments)
            assert status == 200, name
            if has_mark(place, name):
                assert MARK + name.encode() in found["messages"][0]["message"], name
        receiver = peer.receiver(queue, len(names), settled=True)
        for name in names.values():
            payload = peer.receive(receiver).payload or b""
            assert not has_mark(place, name) or MARK + name.encode() in payload, name


def shown_by(window: Window, view: str, **query: Any) -> dict[str, Any]:
    answer = window.get(view, **query)
    assert answer.status == 200, (query, answer.body)
    found: dict[str, Any] = json.loads(answer.body, parse_constant=pytest.fail)
    return found
