"""One port for everything: who is let in, with which protocol, and who is disconnected."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.loops import LOOPS, broker_on
from tests.broker.peer import Peer, body_of, connected, text
from twinbus.amqp.events import Closed
from twinbus.amqp.states import Accepted
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.connections import doorway, listener
from twinbus.broker.connections.doorway import Speech, speech_of
from twinbus.broker.http import app as http_app
from twinbus.testing import Broker

SHORT_MS = 400
TLS_HEADER = b"AMQP\x02\x01\x00\x00"
# A TLS record that claims to be longer than what follows.
HALF_A_HELLO = bytes.fromhex("1603010200010001fc0303")


@pytest.fixture(params=LOOPS, scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    namespace = NamespaceConfig("contoso", amqp_port=0, amqps_port=0, admin_port=0)
    with broker_on(request.param, [namespace], ["q", "health"]) as broker:
        yield broker


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with short timeouts for its peers."""
    monkeypatch.setattr(listener, "HANDSHAKE_TIMEOUT_MS", SHORT_MS)
    monkeypatch.setattr(http_app, "HANDSHAKE_TIMEOUT_MS", SHORT_MS)
    monkeypatch.setattr(http_app, "HTTP_BODY_TIMEOUT_MS", SHORT_MS)
    monkeypatch.setattr(http_app, "HTTP_IDLE_TIMEOUT_MS", SHORT_MS)


def trusting(broker: Broker) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(broker.ca_file))


def encrypted(broker: Broker, port: int | None = None) -> ssl.SSLSocket:
    return trusting(broker).wrap_socket(connected(broker, port=port), server_hostname="localhost")


def exchange(peer: Peer) -> str:
    state = peer.send(peer.sender("q"), text("through"))
    assert isinstance(state, Accepted)
    delivery = peer.receive(peer.receiver("q", 1))
    peer.settle(delivery)
    return body_of(delivery)


def is_cut(stream: socket.socket) -> bool:
    """Whether the broker ends the stream; TimeoutError if it does not."""
    return cut_after(stream) >= 0


def cut_after(stream: socket.socket, patience_s: float = 40) -> float:
    """Seconds until the broker ends the stream."""
    start = time.monotonic()
    stream.settimeout(patience_s)
    try:
        while stream.recv(65536):
            pass
    except (ConnectionError, ssl.SSLError):
        pass
    return time.monotonic() - start


def asked(broker: Broker, path: str = "/health", *, tls: bool = False, port: int | None = None, **options: Any) -> Any:
    """Status and body of an answer."""
    endpoint = broker.endpoint()
    at = (endpoint.host if not tls else "localhost", port or endpoint.port)
    client = (
        http.client.HTTPSConnection(*at, timeout=10, context=trusting(broker))
        if tls
        else http.client.HTTPConnection(*at, timeout=10)
    )
    try:
        client.request(options.pop("method", "GET"), path, **options)
        response = client.getresponse()
        return response.status, response.read().decode()
    finally:
        client.close()


# --- who speaks -------------------------------------------------------------------------------------------------------


def test_the_first_bytes_tell() -> None:
    assert speech_of(b"AMQP\x00\x01\x00\x00") is Speech.AMQP
    for method in ("GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"):
        assert speech_of(f"{method} / HTTP/1.1".encode()) is Speech.HTTP
        assert speech_of(method.encode()) is Speech.UNDECIDED
    for head in (b"", b"A", b"AMQ", b"P", b"OPTIONS"):
        assert speech_of(head) is Speech.UNDECIDED
    for head in (b"AMQX", b"GETS ", b"get ", b"PRI * HTTP/2.0", b"\x16\x03\x01", b"\x00", b"SSH-2.0"):
        assert speech_of(head) is Speech.NONSENSE


def test_one_port_takes_amqp_and_http_with_and_without_tls(broker: Broker) -> None:
    with Peer(broker) as peer:
        assert exchange(peer) == "through"
    with Peer(broker, over=encrypted(broker)) as peer:
        assert exchange(peer) == "through"
    for tls in (False, True):
        status, body = asked(broker, tls=tls)
        assert (status, json.loads(body)) == (200, {"namespace": "contoso", "store": "ok"})


def test_a_client_may_skip_sasl(broker: Broker) -> None:
    # The JavaScript client does, when its connection string holds a signature instead of a key.
    with Peer(broker, sasl=None) as peer:
        assert exchange(peer) == "through"


def upgraded(broker: Broker, piece_bytes: int = 8) -> ssl.SSLSocket:
    """A stream that asked for TLS in AMQP's own way, with protocol id 2."""
    plain = connected(broker)
    for at in range(0, 8, piece_bytes):
        plain.sendall(TLS_HEADER[at : at + piece_bytes])
        # Each piece must arrive separately.
        time.sleep(0.03)
    assert plain.recv(8) == TLS_HEADER
    return trusting(broker).wrap_socket(plain, server_hostname="localhost")


@pytest.mark.parametrize("piece_bytes", [8, 3])
@pytest.mark.parametrize("sasl", [("ANONYMOUS", b""), None])
def test_tls_by_upgrade(broker: Broker, sasl: tuple[str, bytes] | None, piece_bytes: int) -> None:
    with Peer(broker, sasl=sasl, over=upgraded(broker, piece_bytes)) as peer:
        assert exchange(peer) == "through"


def test_so_do_the_classic_ports(broker: Broker) -> None:
    endpoint = broker.endpoint()
    for port in (endpoint.amqp_port, endpoint.amqps_port, endpoint.admin_port):
        assert port
        with Peer(broker, over=connected(broker, port=port)) as peer:
            assert exchange(peer) == "through"
        with Peer(broker, over=encrypted(broker, port)) as peer:
            assert exchange(peer) == "through"
        assert asked(broker, port=port)[0] == asked(broker, port=port, tls=True)[0] == 200


@pytest.mark.parametrize("tls", [False, True])
def test_first_bytes_may_come_one_by_one(broker: Broker, tls: bool) -> None:
    for said, answer in ((b"AMQP\x03\x01\x00\x00", b"AMQP"), (b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n", b"HTTP")):
        with encrypted(broker) if tls else connected(broker) as stream:
            for byte in said:
                stream.sendall(bytes([byte]))
                time.sleep(0.002)
            assert stream.recv(4) == answer


@pytest.mark.parametrize("said", [b"\x00", b"SSH-2.0-OpenSSH\r\n", b"AMQX\x00\x01\x00\x00", b"PRI * HTTP/2.0\r\n\r\n"])
@pytest.mark.parametrize("tls", [False, True])
def test_nonsense_is_cut_at_once(broker: Broker, said: bytes, tls: bool) -> None:
    with encrypted(broker) if tls else connected(broker) as stream:
        stream.sendall(said)
        assert is_cut(stream)


def test_tls_inside_tls_is_nonsense(broker: Broker) -> None:
    with encrypted(broker) as stream:
        stream.sendall(HALF_A_HELLO)
        assert is_cut(stream)


def test_old_tls_is_refused(broker: Broker) -> None:
    context = trusting(broker)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with connected(broker) as stream, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(stream, server_hostname="localhost")


def test_a_client_that_does_not_trust_us_harms_nobody(broker: Broker) -> None:
    for _ in range(3):
        with connected(broker) as stream, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(stream, server_hostname="localhost")
    with Peer(broker, over=encrypted(broker)) as peer:
        assert exchange(peer) == "through"


def test_clients_that_only_look_in_are_let_go(broker: Broker) -> None:
    for _ in range(20):
        connected(broker).close()
    assert asked(broker)[0] == 200
    assert broker.call(lambda server: len(server._listeners[0]._arrivals)) == 0


# --- who is too slow --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"AM", HALF_A_HELLO, b"GET", b"GET /health HTTP/1.1\r\nHost: here\r\n"])
@pytest.mark.usefixtures("hurried")
def test_a_peer_that_stops_half_way_is_cut_on_time(broker: Broker, said: bytes) -> None:
    asked(broker)
    with connected(broker) as stream:
        if said:
            stream.sendall(said)
        assert cut_after(stream) > 0.2


@pytest.mark.parametrize("said", [b"", b"AM", b"GET /health HTTP/1.1\r\nHost: here\r\n"])
@pytest.mark.usefixtures("hurried")
def test_so_is_one_inside_tls(broker: Broker, said: bytes) -> None:
    with encrypted(broker) as stream:
        if said:
            stream.sendall(said)
        assert cut_after(stream) > 0.2


@pytest.mark.usefixtures("hurried")
def test_a_peer_that_drips_is_cut_as_well(broker: Broker) -> None:
    with connected(broker) as stream:

        def drip() -> None:
            for byte in b"GET /health HTTP/1.1\r\nX: " + b"x" * 100:
                stream.sendall(bytes([byte]))
                time.sleep(0.05)

        with pytest.raises(ConnectionError):
            drip()


@pytest.mark.usefixtures("hurried")
def test_an_idle_http_connection_is_cut(broker: Broker) -> None:
    with connected(broker) as stream:
        stream.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n")
        assert stream.recv(65536).startswith(b"HTTP/1.1 200")
        assert cut_after(stream) > 0.2


@pytest.mark.usefixtures("hurried")
def test_a_body_that_does_not_come_is_not_waited_for(broker: Broker) -> None:
    with connected(broker) as stream:
        stream.sendall(b"PUT /q HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\nhalf")
        assert stream.recv(65536).startswith(b"HTTP/1.1 408")
        assert is_cut(stream)
    assert broker.call(lambda server: server.hosts["contoso"]._http._held_bytes) == 0


def test_when_too_many_are_undecided_the_oldest_goes(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "ARRIVALS_MAX", 5)
    silent = [connected(broker) for _ in range(5)]
    with Peer(broker) as peer:
        assert is_cut(silent[0])
        assert exchange(peer) == "through"
    for stream in silent[1:]:
        stream.settimeout(0.05)
        with pytest.raises(TimeoutError):
            stream.recv(1)
    for stream in silent:
        stream.close()


def test_two_hundred_silent_peers_leave_others_alone(broker: Broker) -> None:
    silent = [connected(broker) for _ in range(200)]
    for number, stream in enumerate(silent):
        stream.sendall((b"AM", HALF_A_HELLO, b"GET")[number % 3])
    with Peer(broker) as peer:
        for _ in range(20):
            assert exchange(peer) == "through"
    for stream in silent:
        stream.close()


# --- HTTP -------------------------------------------------------------------------------------------------------------


def test_health_tells_when_the_store_failed(broker: Broker) -> None:
    def set_failed(failed: bool) -> None:
        broker.call(lambda server: setattr(server.hosts["contoso"].commits, "failed", failed))

    set_failed(True)
    try:
        status, body = asked(broker)
        assert (status, json.loads(body)["store"]) == (503, "failed")
    finally:
        set_failed(False)
    assert asked(broker)[0] == 200
    assert asked(broker, method="POST")[0] == 405


def test_a_queue_called_health_can_be_asked_for(broker: Broker) -> None:
    status, body = asked(broker, "/health?api-version=2021-05", headers={"Authorization": "SharedAccessSignature any"})
    assert status in (200, 401)
    assert '"store"' not in body


def test_requests_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_app, "HTTP_BODY_BYTES_MAX", 1000)
    too_large = "<Error><Code>413</Code>"
    status, body = asked(broker, "/q", method="PUT", body=b"x" * 1001)
    assert (status, body[: len(too_large)]) == (413, too_large)
    chunks = (b"x" * 100 for _ in range(11))
    assert asked(broker, "/q", method="PUT", body=chunks, encode_chunked=True)[0] == 413
    assert asked(broker, "/q", method="PUT", body=b"x" * 1000)[0] not in (413, 503)
    assert asked(broker, headers={"X-Long": "x" * 40_000})[0] == 400
    assert asked(broker, "/health?" + "x" * 10_000)[0] == 400
    assert asked(broker, headers={f"X-{number}": "x" for number in range(200)})[0] == 400


def test_bodies_are_bounded_together(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_app, "HTTP_BODIES_BYTES_MAX", 1000)
    with connected(broker) as other:
        other.sendall(b"PUT /q HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n" + b"x" * 900)
        time.sleep(0.1)
        assert asked(broker, "/q", method="PUT", body=b"x" * 101)[0] != 503
        assert is_cut(other), "whoever has been at it longest makes room"
    assert asked(broker, "/q", method="PUT", body=b"x" * 1_001)[0] == 503
    time.sleep(0.1)
    assert broker.call(lambda server: server.hosts["contoso"]._http._held_bytes) == 0


def test_http_connections_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def connections() -> int:
        return broker.call(lambda server: len(server.hosts["contoso"]._http._server.connections))

    asked(broker)
    end = time.monotonic() + 120
    while connections() and time.monotonic() < end:
        time.sleep(0.02)
    monkeypatch.setattr(http_app, "HTTP_CONNECTIONS_MAX", 1)
    with connected(broker) as first, connected(broker) as second:
        first.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n")
        assert first.recv(65536).startswith(b"HTTP/1.1 200")
        second.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n")
        assert second.recv(65536).startswith(b"HTTP/1.1 200")
        assert is_cut(first)


def test_nothing_is_kept_of_a_connection_that_is_over(broker: Broker) -> None:
    def timers() -> int:
        return broker.call(lambda server: len(server.hosts["contoso"]._http._timers))

    for tls in (False, True):
        asked(broker, tls=tls)
        asked(broker, "/q", tls=tls, method="PUT", body=b"x")
    with connected(broker) as stream:
        stream.sendall(b"PUT /q HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\nhalf")
        time.sleep(0.05)
    end = time.monotonic() + 120
    while timers() and time.monotonic() < end:
        time.sleep(0.02)
    assert timers() == 0


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
    ],
)
def test_pages_of_other_sites_are_kept_out_in_development(broker: Broker, origin: str, status: int) -> None:
    assert asked(broker, headers={"Origin": origin})[0] == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("contoso.localhost:5672", 200),
        ("127.0.0.1:5672", 200),
        ("[::1]:5672", 200),
        ("servicebus-emulator", 200),
        ("evil.example:5672", 403),
        ("127.0.0.1.evil.example", 403),
        ("evil.example.", 403),
    ],
)
def test_names_of_other_sites_do_not_lead_here_in_development(broker: Broker, host: str, status: int) -> None:
    assert asked(broker, headers={"Host": host})[0] == status


# --- where ------------------------------------------------------------------------------------------------------------


def wide(**options: Any) -> Broker:
    broker = Broker(queues=["q"], dev=False)
    broker._config = replace(broker._config, host="0.0.0.0", **options)
    return broker


def test_other_machines_need_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with wide(tls_names=["bus.example"]) as broker:
        endpoint = broker.endpoint()
        assert endpoint.connection_string.startswith(f"Endpoint=sb://bus.example:{endpoint.port};")
        assert "UseDevelopmentEmulator" not in endpoint.connection_string
        assert endpoint.admin_url == f"https://bus.example:{endpoint.port}"
        # Clients on this machine may connect without TLS.
        assert asked(broker)[0] == 200
        monkeypatch.setattr(listener, "is_loopback", lambda address: False)
        for said in (b"AMQP\x03\x01\x00\x00", b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"):
            with connected(broker) as stream:
                stream.sendall(said)
                assert is_cut(stream)
        assert asked(broker, tls=True)[0] == 200
        context = trusting(broker)
        with context.wrap_socket(connected(broker), server_hostname="bus.example") as stream:
            assert stream.getpeercert()


def test_unless_plaintext_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "is_loopback", lambda address: False)
    with wide(allow_plaintext=True) as broker:
        assert "UseDevelopmentEmulator=true" in broker.connection_string()
        assert broker.endpoint().admin_url == f"http://localhost:{broker.endpoint().port}"
        assert asked(broker)[0] == 200


def test_all_addresses_of_a_name_have_one_port() -> None:
    broker = Broker(queues=["q"])
    broker._config = replace(broker._config, host="localhost")
    with broker:
        ports = broker.call(lambda server: {each.getsockname()[1] for each in server._listeners[0]._sockets})
        assert ports == {broker.endpoint().port}


# --- life -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stop_ends_every_kind_of_connection(loop: str) -> None:
    with broker_on(loop, queues=["q"]) as broker:
        streams = [connected(broker) for _ in range(4)]
        streams[1].sendall(HALF_A_HELLO)
        streams[2].sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n")
        streams[3].sendall(b"PUT /q HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\n")
        with Peer(broker, over=encrypted(broker)) as peer:
            broker.stop()
            assert peer.wait(Closed).error is not None
        for stream in streams:
            assert is_cut(stream)
            stream.close()


def test_without_descriptors_it_waits_and_goes_on(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_EXHAUSTED_WAIT_S", 0.2)

    class Exhausted:
        """A listening socket of a process without free descriptors."""

        def __init__(self, real: socket.socket) -> None:
            self.fileno = real.fileno

        def accept(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    def exhaust(server: Any) -> None:
        front = server._listeners[0]
        real = front._sockets[0]
        again = front._accept_again
        monkeypatch.setattr(front, "_accept_again", lambda _: again(real))
        front._accept(Exhausted(real))

    broker.call(exhaust)
    start = time.monotonic()
    assert asked(broker)[0] == 200
    assert time.monotonic() - start > 0.1


def test_nothing_heavy_is_loaded_for_plain_clients() -> None:
    script = """
import sys
from twinbus.testing import Broker
from tests.broker.peer import Peer, text
with Broker(queues=["q"]) as broker, Peer(broker) as peer:
    peer.send(peer.sender("q"), text("light"))
print([name for name in ("aiohttp", "cryptography", "lxml") if name in sys.modules])
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_doorway_gives_up_when_http_cannot_be_loaded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise ImportError("no such library")

    def replaced(server: Any) -> None:
        monkeypatch.setattr(server.hosts["contoso"], "http", broken)

    monkeypatch.setattr(doorway.logger, "exception", lambda *_: None)
    broker.call(replaced)
    with connected(broker) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert is_cut(stream)
