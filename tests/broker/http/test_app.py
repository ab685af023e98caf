"""Odd HTTP requests get a documented error, never a failure of the broker."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import uuid
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterator

import pytest

from tests.broker.http.rest.test_api import ask
from tests.broker.peer import Peer, text
from twinbus.amqp.events import Transfer
from twinbus.amqp.states import Accepted
from twinbus.broker.http.app import unwritten_bytes
from twinbus.broker.http.rest.api import BATCH_TYPE
from twinbus.entities.settings import QueueSettings
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
