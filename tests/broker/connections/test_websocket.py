"""AMQP over WebSocket: a byte stream in messages, bounded in both directions, with and without TLS."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import websocket

from tests.broker.loops import LOOPS, broker_on
from tests.broker.peer import Peer, body_of, connected, text
from twinbus.amqp.events import Closed
from twinbus.amqp.states import Accepted
from twinbus.broker.connections.websocket import ServerWebSocket
from twinbus.broker.http import app as http_app
from twinbus.entities.settings import QueueSettings
from twinbus.limits import (
    STRANGER_FRAMES_MAX,
    STRANGER_INPUT_BYTES_MAX,
    WEBSOCKET_MESSAGE_BYTES_MAX,
    WRITE_BUFFER_BYTES_MAX,
)
from twinbus.testing import Broker

PATH = "/$servicebus/websocket"
QUEUES = [QueueSettings(path="q"), QueueSettings(path="large", max_message_bytes=2 * 1024 * 1024)]


@pytest.fixture(params=LOOPS, scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with broker_on(request.param, queues=QUEUES) as broker:
        yield broker


class WebSocketStream:
    """A WebSocket with the methods of a socket, for `Peer`."""

    def __init__(self, broker: Broker, *, tls: bool = False, path: str = PATH, piece_bytes: int = 0, **options: Any):
        plain: Any = connected(broker)
        if tls:
            context = ssl.create_default_context(cafile=str(broker.ca_file))
            plain = context.wrap_socket(plain, server_hostname="localhost")
        # The underlying socket.
        self.plain = plain
        options.setdefault("subprotocols", ["AMQPWSB10"])
        url = f"{'wss' if tls else 'ws'}://localhost:{broker.endpoint().port}{path}"
        try:
            self.websocket: Any = websocket.create_connection(url, socket=plain, timeout=10, **options)
        except BaseException:
            plain.close()
            raise
        # Bytes per message; 0 for all.
        self.piece_bytes = piece_bytes

    def __enter__(self) -> WebSocketStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sendall(self, data: bytes) -> None:
        size = self.piece_bytes or len(data)
        for at in range(0, len(data), size):
            self.websocket.send_binary(data[at : at + size])

    def recv(self, _: int) -> bytes:
        try:
            data = self.websocket.recv()
        except websocket.WebSocketTimeoutException:
            raise TimeoutError from None
        except websocket.WebSocketException as error:
            raise OSError(str(error)) from None
        assert isinstance(data, bytes) or data == ""
        return data or b""

    def settimeout(self, timeout_s: float) -> None:
        self.websocket.settimeout(timeout_s)

    def close(self) -> None:
        self.plain.close()


def exchange(peer: Peer, body: str = "through", queue: str = "q") -> str:
    assert isinstance(peer.send(peer.sender(queue), text(body)), Accepted)
    delivery = peer.receive(peer.receiver(queue, 1))
    peer.settle(delivery)
    return body_of(delivery)


def transports(broker: Broker) -> list[ServerWebSocket]:
    return broker.call(
        lambda server: [
            each._transport
            for each in server.hosts["contoso"]._connections
            if isinstance(each._transport, ServerWebSocket)
        ]
    )


def gone(broker: Broker) -> bool:
    """Whether all WebSocket connections end soon."""
    end = time.monotonic() + 120
    while transports(broker) and time.monotonic() < end:
        time.sleep(0.01)
    return not transports(broker)


@pytest.mark.parametrize("tls", [False, True])
def test_amqp_goes_through(broker: Broker, tls: bool) -> None:
    with Peer(broker, over=WebSocketStream(broker, tls=tls)) as peer:
        assert exchange(peer) == "through"
        assert exchange(peer, "x" * 1_000_000, "large") == "x" * 1_000_000
        assert peer.close() is None
        # Our side also closes the WebSocket.
        assert peer.socket.recv(1) == b""
    assert gone(broker)


@pytest.mark.parametrize("path", [PATH + "/", "/$ServiceBus/WebSocket", PATH + "?sb-hc-action=connect"])
def test_the_path_may_be_written_otherwise(broker: Broker, path: str) -> None:
    with Peer(broker, over=WebSocketStream(broker, path=path)) as peer:
        assert exchange(peer) == "through"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_messages_and_frames_need_not_agree(broker: Broker, size: int) -> None:
    with Peer(broker, over=WebSocketStream(broker, piece_bytes=size)) as peer:
        assert exchange(peer, "x" * 3000) == "x" * 3000


@pytest.mark.parametrize("name", ["AMQPWSB10", "amqp"])
def test_both_names_of_the_subprotocol_are_accepted(broker: Broker, name: str) -> None:
    with Peer(broker, over=WebSocketStream(broker, subprotocols=["chat", name])) as peer:
        assert exchange(peer) == "through"


@pytest.mark.parametrize("offered", [None, ["chat"], ["amqps"]])
def test_another_subprotocol_is_refused(broker: Broker, offered: list[str] | None) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException, match="400") as caught:
        WebSocketStream(broker, subprotocols=offered)
    assert b"AMQPWSB10" in (caught.value.resp_body or b"")


@pytest.mark.parametrize("name", ["AMQPWSB10", "amqp"])
def test_the_subprotocol_is_echoed_as_it_is_written(broker: Broker, name: str) -> None:
    request = (
        f"GET {PATH} HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        f"Sec-WebSocket-Protocol: chat, {name}\r\n\r\n"
    )
    with connected(broker) as stream:
        stream.sendall(request.encode())
        answer = stream.recv(65536).decode()
    assert answer.startswith("HTTP/1.1 101")
    assert f"Sec-WebSocket-Protocol: {name}\r\n" in answer
    assert "Sec-WebSocket-Extensions" not in answer


def test_a_page_of_another_site_is_refused_in_development(broker: Broker) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        WebSocketStream(broker, origin="https://evil.example")
    with WebSocketStream(broker, origin="http://localhost:3000"):
        pass


def test_a_plain_request_is_no_websocket(broker: Broker) -> None:
    with connected(broker) as stream:
        stream.sendall(f"GET {PATH} HTTP/1.1\r\nHost: here\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n".encode())
        assert stream.recv(65536).startswith(b"HTTP/1.1 400")


def test_a_hang_up_in_the_handshake_is_no_error(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    lines = (f"GET {PATH} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade")
    lines += ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + "A" * 22 + "==", "Sec-WebSocket-Protocol: amqp")
    request = "\r\n".join((*lines, "", "")).encode()

    def ask_and_reset(_: object) -> None:
        """On the broker's own thread: it sees the request and the end of the connection at the same time."""
        client = connected(broker)
        client.sendall(request)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    for _ in range(10):
        broker.call(ask_and_reset)
    assert gone(broker)
    with Peer(broker, over=WebSocketStream(broker)) as peer:
        exchange(peer)
    assert caplog.text == ""


def test_pings_are_answered(broker: Broker) -> None:
    with WebSocketStream(broker) as stream:
        stream.websocket.ping(b"there?")
        opcode, data = stream.websocket.recv_data(control_frame=True)
        assert (opcode, data) == (websocket.ABNF.OPCODE_PONG, b"there?")


def closed_with(stream: WebSocketStream) -> int:
    """The code with which the broker closes the WebSocket."""
    while True:
        opcode, data = stream.websocket.recv_data(control_frame=True)
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            return int.from_bytes(data[:2], "big")


def test_text_is_refused(broker: Broker) -> None:
    with WebSocketStream(broker) as stream:
        stream.websocket.send("AMQP")
        assert closed_with(stream) == 1003
    assert gone(broker)


def test_a_message_too_large_is_refused(broker: Broker) -> None:
    with WebSocketStream(broker) as stream:
        # The size comes first, so the body need not be sent.
        head = bytes([0x82, 0x80 | 127]) + (WEBSOCKET_MESSAGE_BYTES_MAX + 1).to_bytes(8, "big") + bytes(4)
        stream.plain.sendall(head + b"x" * 1000)
        assert closed_with(stream) == 1009
    assert gone(broker)


def test_a_message_that_is_not_finished_holds_little_before_the_token() -> None:
    with Broker(dev=False) as strict, WebSocketStream(strict) as stream:
        # A fragment of a message whose other parts never come.
        size = STRANGER_INPUT_BYTES_MAX + 1
        stream.plain.sendall(bytes([0x02, 0x80 | 127]) + size.to_bytes(8, "big") + bytes(4))
        with suppress(OSError):
            for _ in range(11):
                stream.plain.sendall(bytes(size // 10))
        assert gone(strict)


EMPTY = bytes((0x82, 0x80)) + bytes(4)


def small(opcode: int) -> bytes:
    """An empty frame."""
    return bytes((opcode, 0x80)) + bytes(4)


@pytest.mark.parametrize(
    "frames",
    [small(0x82) * 1_001, small(0x89) * 1_001, small(0x8A) * 1_001, small(0x02) + small(0x00) * 1_000],
    ids=["empty", "ping", "pong", "continuation"],
)
def test_frames_cost_before_the_token_however_small(frames: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert len(frames) == 6 * (STRANGER_FRAMES_MAX + 1)
    caplog.set_level(logging.INFO)
    with Broker(dev=False) as strict, WebSocketStream(strict) as stream:
        with suppress(OSError):
            stream.plain.sendall(frames)
        assert gone(strict)
    assert "sent too much before its token" in caplog.text


def test_frames_that_come_with_the_handshake_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Broker(dev=False) as strict, connected(strict) as plain:
        head = (
            f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
        )
        with suppress(OSError):
            plain.sendall(head.encode() + EMPTY * (STRANGER_FRAMES_MAX + 1))
            while plain.recv(65_536):
                pass
    assert "sent too much before its token" in caplog.text


def test_a_frame_without_a_mask_ends_the_connection(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with WebSocketStream(broker) as stream:
        stream.plain.sendall(b"\x82\x00")
        with suppress(OSError):
            while stream.plain.recv(65_536):
                pass
    assert gone(broker)
    assert "not masked" in caplog.text


def test_a_client_may_send_any_number_of_frames(broker: Broker) -> None:
    """Parsed a few at a time; a message in many pieces arrives whole, and every ping is answered."""
    with Peer(broker, over=WebSocketStream(broker, piece_bytes=1)) as peer:
        link = peer.sender("q")
        peer.socket.plain.sendall(EMPTY * 5_000)
        assert isinstance(peer.send(link, text("x" * 3_000)), Accepted)
        delivery = peer.receive(peer.receiver("q", 1))
        assert body_of(delivery) == "x" * 3_000
        peer.settle(delivery)
    with WebSocketStream(broker) as stream:
        stream.plain.sendall(small(0x89) * 3_000)
        for _ in range(3_000):
            assert stream.websocket.recv_data(control_frame=True) == (websocket.ABNF.OPCODE_PONG, b"")
    assert gone(broker)


def test_nonsense_ends_the_connection(broker: Broker) -> None:
    with WebSocketStream(broker) as stream:
        stream.websocket.send_binary(b"GET / HTTP/1.1\r\n\r\n")
        stream.settimeout(5)
        while stream.recv(1):
            pass
    assert gone(broker)


def test_a_peer_that_vanishes_loses_its_locks_at_once(broker: Broker) -> None:
    first = Peer(broker, over=WebSocketStream(broker))
    first.send(first.sender("q"), text("mine"))
    assert body_of(first.receive(first.receiver("q", 1))) == "mine"
    first.socket.plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    first.socket.plain.close()
    with Peer(broker) as second:
        delivery = second.receive(second.receiver("q", 1))
        assert body_of(delivery) == "mine"
        second.settle(delivery)
    assert gone(broker)


@pytest.mark.parametrize("tls", [False, True])
def test_a_peer_that_does_not_read_is_not_written_to(broker: Broker, tls: bool) -> None:
    count, size = 12, 1_000_000
    body = "x" * size
    with Peer(broker) as sender:
        link = sender.sender("large")
        for _ in range(count):
            assert isinstance(sender.send(link, text(body)), Accepted)
    with Peer(broker, over=WebSocketStream(broker, tls=tls)) as peer:
        receiver = peer.receiver("large", count)
        (transport,) = transports(broker)
        end = time.monotonic() + 120
        most = 0
        while time.monotonic() < end and not broker.call(lambda _: transport._paused):
            time.sleep(0.01)
        for _ in range(20):
            most = max(most, broker.call(lambda _: transport.get_write_buffer_size()))
            time.sleep(0.01)
        assert 0 < most < WRITE_BUFFER_BYTES_MAX
        with Peer(broker) as bystander:
            assert exchange(bystander) == "through"
        for _ in range(count):
            delivery = peer.receive(receiver)
            assert len(delivery.payload or b"") > size
            delivery.link.session.dispose(delivery.delivery_id, delivery.delivery_id, b"\x00\x53\x24\x45", True)
        peer.flush()
    assert gone(broker)


def test_a_paused_connection_is_not_read(broker: Broker) -> None:
    with Peer(broker, over=WebSocketStream(broker)) as peer:
        link = peer.sender("q")
        (transport,) = transports(broker)
        broker.call(lambda _: transport.pause_reading())
        assert broker.call(lambda _: transport.is_reading()) is False
        # One read is already in progress, and its message still arrives.
        for number in range(3):
            link.send(text(str(number)).encode(), tag=bytes([number]), settled=True)
            peer.flush()
            time.sleep(0.05)
        depth = broker.call(lambda server: server.hosts["contoso"].entities.queue("q").counts.active)
        assert depth <= 1
        broker.call(lambda _: transport.resume_reading())
        receiver = peer.receiver("q", 3, settled=True)
        assert sorted(body_of(peer.receive(receiver)) for _ in range(3)) == ["0", "1", "2"]


def test_a_silent_peer_is_cut(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.broker.connections.connection.HANDSHAKE_TIMEOUT_MS", 300)
    monkeypatch.setattr(http_app, "HANDSHAKE_TIMEOUT_MS", 100)
    with WebSocketStream(broker) as stream:
        start = time.monotonic()
        stream.settimeout(5)
        with pytest.raises(OSError, match=r"closed|lost|reset"):
            stream.recv(1)
        # The AMQP connection's own timeout fired, not that of the HTTP request before it.
        assert time.monotonic() - start > 0.25
    assert gone(broker)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stop_says_good_bye(loop: str) -> None:
    with broker_on(loop, queues=["q"]) as broker, Peer(broker, over=WebSocketStream(broker)) as peer:
        broker.stop()
        error = peer.wait(Closed).error
        assert error is not None
        assert error.condition == "amqp:connection:forced"
