"""A client hangs up while its HTTP request waits: the next message is neither removed nor locked for it."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.broker.peer import Peer, body_of, connected, text
from twinbus.broker.http.rest.receiver import OneReceiver
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

METHODS = ["DELETE", "POST"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(queues=["q", QueueSettings(path="big", max_message_bytes=100_000_000)]) as running:
        yield running


def line_length(broker: Broker) -> int:
    def look(server: Any) -> int:
        host = server.hosts["contoso"]
        return len(host.dispatcher(host.entities.queue("q"))._line)

    return broker.call(look)


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def waiting(broker: Broker, method: str) -> socket.socket:
    """A client whose request waits for a message."""
    client = connected(broker)
    client.sendall(f"{method} /q/messages/head?timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    until(lambda: line_length(broker) == 1)
    return client


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


HANG_UPS: dict[str, Callable[[socket.socket], None]] = {
    "closed": lambda client: client.close(),
    "reset": reset,
    "half closed": lambda client: client.shutdown(socket.SHUT_WR),
}


def received(broker: Broker) -> str:
    """The body of the one message, which nobody else has."""
    with Peer(broker) as peer:
        delivery = peer.receive(peer.receiver("q", 1))
        peer.settle(delivery)
        return str(body_of(delivery))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", HANG_UPS)
def test_hang_up_before_the_message(broker: Broker, method: str, how: str) -> None:
    client = waiting(broker, method)
    HANG_UPS[how](client)
    with Peer(broker) as peer:
        until(lambda: line_length(broker) == 0)
        peer.send(peer.sender("q"), text("kept"))
    assert received(broker) == "kept"
    client.close()


@pytest.mark.parametrize("method", METHODS)
def test_hang_up_in_the_turn_of_the_message(broker: Broker, method: str) -> None:
    client = waiting(broker, method)

    def both(server: Any) -> None:
        host = server.hosts["contoso"]
        now_ms = host.clock.now_ms()
        new = host.intake.message(text("kept").encode(), now_ms, 2**40)
        client.close()
        host.entities.queue("q").send([new], now_ms, host.commits.facts)
        host.commits.request()

    broker.call(both)
    assert received(broker) == "kept"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_hang_up_while_the_message_is_handed_over(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, method: str, how: str
) -> None:
    client = waiting(broker, method)
    feed = OneReceiver.feed

    def hung_up(self: OneReceiver, now_ms: int, facts: Any) -> int:
        fed = feed(self, now_ms, facts)
        if fed:
            HANG_UPS[how](client)
        return fed

    monkeypatch.setattr(OneReceiver, "feed", hung_up)
    with Peer(broker) as peer:
        peer.send(peer.sender("q"), text("kept"))
    assert received(broker) == "kept"


def test_requests_that_timed_out_leave_the_line(broker: Broker) -> None:
    with Peer(broker) as peer:
        # The first in line waits, and nobody behind it is considered.
        receiver = peer.receiver("q", 1)
        until(lambda: line_length(broker) == 1)
        client = connected(broker)
        for method in METHODS * 5:
            client.sendall(f"{method} /q/messages/head?timeout=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 204")
        assert line_length(broker) == 1
        client.close()
        peer.send(peer.sender("q"), text("mine"))
        assert body_of(peer.receive(receiver)) == "mine"


@pytest.mark.parametrize("method", METHODS)
def test_a_message_that_cannot_be_shown_stays(broker: Broker, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    client = connected(broker)
    with Peer(broker) as peer:
        peer.send(peer.sender("q"), text("kept"))
    with monkeypatch.context() as planted:
        planted.setattr("twinbus.broker.http.rest.api.render", broken)
        client.sendall(f"{method} /q/messages/head?timeout=5 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 500")
    assert received(broker) == "kept"
    client.close()


def test_an_answer_that_was_not_written_whole_removes_nothing(broker: Broker) -> None:
    """The client leaves in the middle of a large body: a message is removed only after all of it was written."""
    with Peer(broker) as peer:
        link = peer.sender("big")
        peer.send(link, text("x" * 20_000_000))
        client = connected(broker)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"DELETE /big/messages/head?timeout=5 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        reset(client)
        delivery = peer.receive(peer.receiver("big", 1))
        assert len(body_of(delivery)) == 20_000_000


def test_an_answer_that_was_written_whole_removes_the_message(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("big")
        peer.send(link, text("x" * 20_000_000))
        endpoint = broker.endpoint()
        http = HTTPConnection(endpoint.host, endpoint.port, timeout=15)
        http.request("DELETE", "/big/messages/head?timeout=5")
        assert len(http.getresponse().read()) == 20_000_000
        # The same connection continues.
        http.request("DELETE", "/big/messages/head?timeout=0")
        assert http.getresponse().status == 204
        http.close()
    assert broker.call(lambda server: server.hosts["contoso"].entities.queue("big").counts.active) == 0
