"""Odd HTTP requests get a documented error, never a failure of the broker."""

from __future__ import annotations

import asyncio
import json
import logging
import select
import socket
import ssl
import threading
import uuid
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.broker.http.rest.test_api import ask
from tests.broker.peer import Peer, connected, decoded, text
from twinbus.amqp.events import Transfer
from twinbus.amqp.states import Accepted
from twinbus.broker.http import app
from twinbus.broker.http.app import unwritten_bytes
from twinbus.broker.http.rest.api import BATCH_TYPE
from twinbus.entities.settings import QueueSettings
from twinbus.limits import HTTP_HEAD_BYTES_MAX
from twinbus.testing import Broker


@pytest.fixture
def broker(caplog: pytest.LogCaptureFixture) -> Iterator[Broker]:
    queues = [QueueSettings(path="q"), QueueSettings(path="s", requires_session=True)]
    queues.append(QueueSettings(path="off", status="Disabled"))
    with Broker(queues=queues, sync=False) as broker:
        yield broker
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_half_of_a_surrogate_pair_is_no_body(broker: Broker) -> None:
    batch = json.dumps([{"Body": "\udcff"}])
    assert ask(broker, "POST", "/q/messages", batch, Content_Type=BATCH_TYPE).status == 400


def test_a_lock_of_a_session_is_not_for_http(broker: Broker) -> None:
    for method in ("DELETE", "PUT", "POST"):
        assert ask(broker, method, f"/s/messages/1/{uuid.uuid4()}").status == 404


def test_a_disabled_queue_is_refused(broker: Broker) -> None:
    for method, path in (("POST", "/off/messages"), ("POST", "/off/messages/head"), ("DELETE", "/off/messages/head")):
        assert ask(broker, method, path + "?timeout=0", b"x").status == 400


def test_a_fault_without_a_mode(broker: Broker) -> None:
    assert ask(broker, "PUT", "/$faults", '{"mode": null}').status == 400


@pytest.mark.parametrize("path", ["/q/messages", "/q?api-version=2021-05", "/console/$api/send", "/$faults"])
def test_bodies_that_are_not_encoded_as_they_say(broker: Broker, path: str) -> None:
    for encoding in ("gzip", "deflate"):
        assert ask(broker, "POST", path, b"not compressed", Content_Encoding=encoding).status == 400


@pytest.mark.parametrize("path", ["/q/messages", "/q?api-version=2021-05", "/console/$api/send", "/$faults"])
def test_a_client_that_goes_before_its_body_is_no_failure(broker: Broker, path: str) -> None:
    endpoint = broker.endpoint()
    for _ in range(5):
        with socket.create_connection((endpoint.host, endpoint.port)) as stream:
            stream.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc".encode())
            stream.shutdown(socket.SHUT_WR)
            while stream.recv(1000):
                pass
    assert ask(broker, "GET", "/health").status == 200


def test_a_broker_with_a_failed_store_lives_but_is_not_ready(broker: Broker) -> None:
    assert [ask(broker, "GET", f"/health{part}").status for part in ("", "/ready", "/live")] == [200, 200, 200]
    broker.call(lambda server: setattr(server.hosts["contoso"].commits, "failed", True))
    try:
        assert [ask(broker, "GET", f"/health{part}").status for part in ("", "/ready", "/live")] == [503, 503, 200]
    finally:
        broker.call(lambda server: setattr(server.hosts["contoso"].commits, "failed", False))


def test_answers_do_not_name_versions(broker: Broker) -> None:
    for path in (
        "/health",
        "/metrics",
        "/console/",
        "/$Resources/queues?api-version=2021-05",
        "/nothing/messages/head",
    ):
        assert ask(broker, "GET", path).headers["Server"] == "Twinbus"


def test_a_queue_disabled_under_its_receivers(broker: Broker) -> None:
    """Messages that arrive then are kept, and nobody gets them."""
    with Peer(broker) as peer:
        peer.receiver("q", 10)
        settings = QueueSettings(path="q", status="ReceiveDisabled")
        broker.call(lambda server: server.hosts["contoso"].update_queue(settings))
        assert isinstance(peer.send(peer.sender("q"), text("kept")), Accepted)
        assert peer.quiet(Transfer)


async def test_a_tls_transport_that_is_gone_has_nothing_to_write() -> None:
    protocol = SSLProtocol(asyncio.get_running_loop(), asyncio.Protocol(), ssl.create_default_context(), None)
    transport = protocol._get_app_transport()
    transport.close()
    transport.close()
    with pytest.raises(AttributeError):
        transport.get_write_buffer_size()
    assert unwritten_bytes(transport) == 0


def cut(stream: socket.socket) -> bool:
    """Whether the broker ends the connection."""
    stream.settimeout(10)
    try:
        return stream.recv(1) == b""
    except ConnectionError:
        return True


def begun(broker: Broker, data: bytes) -> socket.socket:
    made = connected(broker)
    made.sendall(data)
    return made


def answers(stream: socket.socket, count: int) -> bytes:
    """Read until so many answers have come, or the broker hangs up."""
    stream.settimeout(60)
    got = b""
    while got.count(b"HTTP/1.1 ") < count and (piece := stream.recv(1 << 20)):
        got += piece
    return got


def test_many_requests_in_one_read_are_parsed_in_pieces(broker: Broker) -> None:
    """Thousands of them are answered one after the other, and each has its turn of the loop."""
    count = 3_000
    with connected(broker) as stream:
        request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        sender = threading.Thread(target=stream.sendall, args=(request * count,))
        sender.start()
        assert answers(stream, count).count(b"HTTP/1.1 200 OK") == count
        sender.join()


@pytest.mark.parametrize("piece", [1, 7, 3_000])
def test_a_body_in_chunks_of_any_size_arrives(broker: Broker, piece: int) -> None:
    body = bytes(range(256)) * 80
    with connected(broker) as stream:
        stream.sendall(b"POST /q/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        parts = (body[at : at + piece] for at in range(0, len(body), piece))
        stream.sendall(b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n")
        assert b" 201 " in answers(stream, 1)
    with Peer(broker) as peer:
        assert b"".join(decoded(peer.receive(peer.receiver("q", 1))).data or []) == body


def test_what_follows_an_upgrade_that_does_not_happen_is_dropped(broker: Broker) -> None:
    upgrade = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with connected(broker) as stream:
        stream.sendall(upgrade)
        assert answers(stream, 1).startswith(b"HTTP/1.1 200")
        stream.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answers(stream, 1).startswith(b"HTTP/1.1 200"), "a connection that was not upgraded goes on"
    with connected(broker) as stream:
        with suppress(OSError):
            stream.sendall(upgrade + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2_000)
        with suppress(OSError):
            assert answers(stream, 2_001).count(b"HTTP/1.1 ") == 1
    assert ask(broker, "GET", "/health").status == 200


def test_a_head_without_an_end_is_cut(broker: Broker) -> None:
    field = b"X: " + b"y" * 30_000 + b"\r\n"
    with begun(broker, b"GET /q HTTP/1.1\r\n" + field) as stream:
        with suppress(ConnectionError):
            for _ in range(HTTP_HEAD_BYTES_MAX // len(field) + 1):
                stream.sendall(field)
        assert cut(stream)


def test_heads_of_all_clients_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "HTTP_HEADS_BYTES_MAX", 50_000)
    ask(broker, "GET", "/health")
    head = b"GET /q HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n"
    with begun(broker, head), begun(broker, head), begun(broker, head) as third:
        assert cut(third)
        assert ask(broker, "POST", "/q/messages", b"x").status == 201, "whole requests are answered"


def test_connections_that_are_waited_for_make_room(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(broker, "GET", "/health")
    monkeypatch.setattr(app, "HTTP_CONNECTIONS_MAX", 2)
    head = b"POST /q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
    with begun(broker, head + b"\r\n12345") as reading:
        assert not select.select([reading], [], [], 0.3)[0]
        half = begun(broker, head)
        assert not select.select([half], [], [], 0.3)[0]
        assert ask(broker, "POST", "/q/messages", b"x").status == 201
        assert cut(reading)
        assert not select.select([half], [], [], 0)[0], "only the oldest goes"
        half.close()


def test_bodies_that_do_not_end_make_room(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "HTTP_BODIES_BYTES_MAX", 100_000)
    head = b"POST /q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99000\r\n\r\n"
    with begun(broker, head + bytes(90_000)) as slow:
        assert not select.select([slow], [], [], 0.3)[0]
        assert ask(broker, "POST", "/q/messages", bytes(50_000)).status == 201
        assert cut(slow)
