"""Every limit on a client's use of resources: allowed one below it, and enforced one above."""

from __future__ import annotations

import gc
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from aiohttp.web import RequestHandler

from tests.broker.connections.test_listener import cut_after, encrypted, is_cut
from tests.broker.loops import LOOPS, broker_on
from tests.broker.peer import Peer, connected, text
from twinbus.amqp.connection import Connection as Engine
from twinbus.amqp.events import Closed, Detached, Disposed
from twinbus.amqp.states import Accepted
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Symbol
from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.sas import sign
from twinbus.broker import host
from twinbus.broker.connections import connection, listener, patience
from twinbus.broker.connections.attachment import _WaitingLink
from twinbus.broker.connections.connection import BrokerConnection
from twinbus.broker.connections.doorway import Doorway
from twinbus.broker.memory import MemoryKind
from twinbus.broker.nodes import cbs
from twinbus.broker.server import Server
from twinbus.clock import SteppedClock
from twinbus.entities.queue import Queue
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.limits import CHANNEL_MAX, IDLE_TIMEOUT_MS, LINK_OBJECT_BYTES, LINKLESS_TIMEOUT_MS, TOKEN_EXPIRY_GRACE_MS
from twinbus.testing import Broker

STALL_MS = 800
SASL = b"AMQP\x03\x01\x00\x00"


@pytest.fixture(params=LOOPS, scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with broker_on(request.param, queues=["q"]) as broker:
        yield broker


@pytest.fixture
def stalling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PEER_STALL_TIMEOUT_MS", STALL_MS)


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(int(time.time() * 1000))


def stepped(broker: Broker, clock: SteppedClock, milliseconds: int) -> None:
    clock.step(seconds=milliseconds / 1000)
    broker.call(lambda server: server.step())


def root_token(broker: Broker, clock: SteppedClock, lives_s: int = 10**6) -> str:
    root = ConnectionString.parse(broker.connection_string())
    return sign("sb://localhost/", root.key_name or "", root.key or "", clock.now_ms() // 1000 + lives_s)


def filled(broker: Broker, count: int, size: int = 200_000) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        payload = text("x" * size).encode()
        ids = {link.send(payload, tag=str(number).encode(), settled=False) for number in range(count)}
        while ids:
            ids -= {each[0] for each in peer.wait(Disposed).deliveries}


def emptied(broker: Broker) -> None:
    broker.call(lambda server: server.hosts["contoso"].delete_queue("q"))
    broker.create_queue("q")


# --- how many ---------------------------------------------------------------------------------------------------------


def test_connections_of_a_namespace(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline = time.monotonic() + 120
    while broker.call(lambda server: server.hosts["contoso"].connection_count) and time.monotonic() < deadline:
        time.sleep(0.01)
    monkeypatch.setattr(host, "CONNECTIONS_MAX", 2)
    with Peer(broker), Peer(broker) as second:
        with connected(broker) as stream:
            stream.sendall(SASL)
            assert is_cut(stream)
        second.close()
        second.socket.close()
        while broker.call(lambda server: server.hosts["contoso"].connection_count) > 1:
            time.sleep(0.01)
        with Peer(broker) as third:
            third.sender("q")


def test_links_of_a_connection(broker: Broker) -> None:
    def narrow(server: Server) -> None:
        for one in server.hosts["contoso"]._connections:
            one.engine.links_max = 3

    with Peer(broker) as peer:
        for _ in range(3):
            peer.sender("q")
        broker.call(narrow)
        peer.session.attach_sender("one more", source=Source("peer"), target=Target("q"))
        peer.flush()
        while not peer.lost and not any(isinstance(event, Closed) for event in peer.events):
            peer.read(5)
        closed = peer.wait(Closed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:resource-limit-exceeded"


def test_sessions_of_a_connection(broker: Broker) -> None:
    """Channels count from 0; a begin above our channel-max ends the connection."""
    begin = bytes.fromhex("00000000 02 00 0000 00 53 11 c0 08 04 40 52 00 52 01 52 ff")
    with Peer(broker) as peer:
        for channel, fine in ((CHANNEL_MAX, True), (CHANNEL_MAX + 1, False)):
            frame = bytearray(begin)
            frame[0:4] = len(frame).to_bytes(4, "big")
            frame[6:8] = channel.to_bytes(2, "big")
            peer.socket.sendall(bytes(frame))
            peer.socket.settimeout(5)
            answer = peer.socket.recv(65536)
            # 0x11 is begin, 0x18 close.
            assert answer[10] == (0x11 if fine else 0x18)


def test_tokens_of_a_connection(monkeypatch: pytest.MonkeyPatch, clock: SteppedClock) -> None:
    monkeypatch.setattr(cbs, "TOKENS_PER_CONNECTION_MAX", 2)
    with Broker(queues=["a", "b", "c"], dev=False, clock=clock) as broker, Peer(broker) as peer:
        token = root_token(broker, clock)
        assert [peer.put_token(f"sb://localhost/{name}", token) for name in "ab"] == [202, 202]
        assert peer.put_token("sb://localhost/c", token) == 403
        assert peer.put_token("sb://localhost/a", token) == 202


# --- how long: header, TLS and open -----------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [SASL, SASL + b"\x00\x00\x00"])
@pytest.mark.parametrize("tls", [False, True])
def test_time_to_open(broker: Broker, monkeypatch: pytest.MonkeyPatch, said: bytes, tls: bool) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_TIMEOUT_MS", 400)
    with encrypted(broker) if tls else connected(broker) as stream:
        stream.sendall(said)
        assert cut_after(stream) > 0.2


def test_dripping_does_not_put_the_open_off(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_TIMEOUT_MS", 400)
    with connected(broker) as stream:
        stream.sendall(SASL + b"\x00\x00\x10\x00\x02\x01\x00\x00")
        start = time.monotonic()

        def drip() -> None:
            while time.monotonic() - start < 40:
                stream.sendall(b"\x00")
                time.sleep(0.02)

        with pytest.raises(ConnectionError):
            drip()


# --- how long: tokens and links ---------------------------------------------------------------------------------------


def test_attaching_again_does_not_put_the_token_off(clock: SteppedClock) -> None:
    with Broker(queues=["q"], dev=False, clock=clock) as broker, Peer(broker) as peer:
        for _ in range(3):
            assert peer.put_token("sb://localhost/", "SharedAccessSignature sr=x&sig=x&se=1&skn=x") == 401
            link = peer.sender("$cbs")
            link.detach()
            peer.flush()
            stepped(broker, clock, 6_000)
        assert peer.quiet(Closed)
        stepped(broker, clock, 3_000)
        closed = peer.wait(Closed)
        assert closed.error is not None
        assert "no valid token" in closed.error.description


def test_a_connection_whose_tokens_have_run_out_is_closed(clock: SteppedClock) -> None:
    with Broker(queues=["q"], dev=False, clock=clock) as broker, Peer(broker) as peer:
        assert peer.put_token("sb://localhost/", root_token(broker, clock, 100)) == 202
        link = peer.receiver("q")
        stepped(broker, clock, 100_000 + TOKEN_EXPIRY_GRACE_MS + 1_000)
        assert peer.wait(Detached, lambda event: event.link is link).error is not None
        assert peer.quiet(Closed)
        stepped(broker, clock, 21_000)
        assert peer.wait(Closed).error is not None


def test_a_connection_without_links_is_closed(clock: SteppedClock) -> None:
    with Broker(queues=["q"], clock=clock) as broker, Peer(broker) as idle, Peer(broker) as busy:
        kept = busy.receiver("q")
        link = idle.sender("q")
        stepped(broker, clock, LINKLESS_TIMEOUT_MS - 1_000)
        link.detach()
        idle.flush()
        assert idle.quiet(Closed)
        busy.sender("q")
        stepped(broker, clock, LINKLESS_TIMEOUT_MS - 1_000)
        assert idle.quiet(Closed)
        stepped(broker, clock, 2_000)
        closed = idle.wait(Closed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:connection:forced"
        assert kept.attached
        assert busy.quiet(Closed)
        assert not busy.lost


def test_a_silent_peer_is_cut(clock: SteppedClock) -> None:
    with Broker(queues=["q"], clock=clock) as broker, Peer(broker) as peer:
        peer.receiver("q")
        stepped(broker, clock, 2 * IDLE_TIMEOUT_MS - 1_000)
        assert peer.quiet(Closed)
        assert not peer.lost
        stepped(broker, clock, 2_000)
        assert cut_after(peer.socket) < 1


# --- how slowly -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("stalling")
@pytest.mark.parametrize("tls", [False, True])
def test_a_frame_that_is_never_finished(broker: Broker, tls: bool) -> None:
    with Peer(broker, over=encrypted(broker)) if tls else Peer(broker) as peer:
        link = peer.sender("q")
        assert isinstance(peer.send(link, text()), Accepted)
        # Half of a frame, byte by byte: bytes alone are not a sign of life.
        peer.socket.sendall(b"\x00\x00\x01\x00\x02\x00")
        start = time.monotonic()

        def drip() -> None:
            while time.monotonic() - start < 40:
                peer.socket.sendall(b"\x00")
                time.sleep(0.05)

        with pytest.raises(OSError, match=r"."):
            drip()
        assert time.monotonic() - start > STALL_MS / 1000 * 0.9
    emptied(broker)


@pytest.mark.usefixtures("stalling")
def test_frames_that_are_finished_slowly_are_fine(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        start = time.monotonic()
        while time.monotonic() - start < 2.5 * STALL_MS / 1000:
            link.send(text("x" * 100).encode(), tag=b"t", settled=False)
            data = peer.engine.take_output()
            # Every chunk ends in the middle of a frame.
            peer.socket.sendall(data[:20])
            time.sleep(0.2)
            peer.socket.sendall(data[20:])
            peer.wait(Disposed)
        assert not peer.lost
    emptied(broker)


@pytest.mark.usefixtures("stalling")
def test_a_client_that_reads_nothing(broker: Broker) -> None:
    filled(broker, 40)
    with Peer(broker, over=small_window(broker)) as peer:
        peer.receiver("q", 40)
        start = time.monotonic()
        while broker.call(lambda server: server.hosts["contoso"].connection_count):
            time.sleep(0.05)
        assert time.monotonic() - start > STALL_MS / 1000 * 0.9
    emptied(broker)


@pytest.mark.usefixtures("stalling")
def test_a_client_that_reads_slowly_is_served(broker: Broker) -> None:
    filled(broker, 40)
    stream = small_window(broker)
    with Peer(broker, over=stream) as peer:
        peer.receiver("q", 40)
        start = time.monotonic()
        while time.monotonic() - start < 3 * STALL_MS / 1000:
            assert stream.recv(100_000)
            time.sleep(STALL_MS / 8000)
        assert broker.call(lambda server: server.hosts["contoso"].connection_count) == 1


@pytest.mark.usefixtures("stalling")
def test_a_slow_but_steady_reader_stays(broker: Broker) -> None:
    filled(broker, 15)
    stream = small_window(broker)
    with Peer(broker, over=stream) as peer:
        link = peer.receiver("q", 15)
        received = 0
        while received < 15:
            peer.receive(link)
            received += 1
            time.sleep(0.15)
        assert not peer.lost
    emptied(broker)


@pytest.mark.usefixtures("stalling")
def test_a_closed_connection_that_is_not_read_goes_too(broker: Broker) -> None:
    """An orderly close waits for the peer to read, but not forever."""
    filled(broker, 40)
    stream = small_window(broker)
    with Peer(broker, over=stream) as peer:
        peer.receiver("q", 40)
        time.sleep(0.2)
        peer.engine.close()
        stream.sendall(peer.engine.take_output())
        deadline = time.monotonic() + 120
        while broker.call(lambda server: server.hosts["contoso"].connection_count):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    emptied(broker)


def small_window(broker: Broker) -> Any:
    """A socket whose receive buffer is minimal."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    made.settimeout(10)
    endpoint = broker.endpoint()
    made.connect((endpoint.host, endpoint.port))
    return made


# --- what grows with a client's numbers -------------------------------------------------------------------------------


def test_a_session_that_ends_costs_no_look_at_the_links_of_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peer(broker) as peer:
        other = peer.begin()
        for number in range(50):
            peer.session.attach_sender(str(number), target=Target("q"))
        kept = other.attach_sender("kept", target=Target("q"))
        peer.begin()
        left: list[str] = []
        sound = BrokerConnection._leave

        def noted(self: BrokerConnection, link: Any, orderly: bool) -> None:
            left.append(link.name)
            sound(self, link, orderly)

        monkeypatch.setattr(BrokerConnection, "_leave", noted)
        kept.session.end()
        peer.begin()
        assert left == ["kept"]
        (connection,) = broker.call(lambda server: list(server.hosts["contoso"]._connections))
        assert broker.call(lambda server: len(connection._links)) == 50


def test_of_a_large_attach_little_is_kept(broker: Broker) -> None:
    lists = {Symbol("x"): [[] for _ in range(10_000)]}
    with Peer(broker) as peer:
        peer.session.attach_sender("a", source=Source("a", lists), target=Target("q"))
        peer.session.attach_receiver("b", source=Source("q"), target=Target("b"), properties=lists)
        peer.begin()
        (connection,) = broker.call(lambda server: list(server.hosts["contoso"]._connections))
        links = broker.call(lambda server: list(connection._links))
        assert len(links) == 2
        for link in links:
            assert link.properties is None
            assert link.source is not None
            assert not link.source.filter
            assert len(link.source.raw) < 100
        held = connection.memory[MemoryKind.LINKS].held_bytes
        # Plus two sessions and two links.
        assert 20_000 < held - 4 * LINK_OBJECT_BYTES < 21_000
    deadline = time.monotonic() + 120
    while connection.memory[MemoryKind.LINKS].held_bytes:
        assert time.monotonic() < deadline


# --- what is left of a client -----------------------------------------------------------------------------------------


def test_a_connection_that_is_gone_leaves_nothing_for_the_collector(broker: Broker) -> None:
    """A broker's garbage collector rarely runs: clients that come and go must not depend on it."""

    def engines() -> int:
        return sum(isinstance(each, Engine) and not each.client for each in gc.get_objects())

    gc.collect()
    before = engines()
    gc.disable()
    try:
        for number in range(20):
            with Peer(broker) as peer:
                peer.sender("q")
                peer.receiver("q", 10)
                if number % 2:
                    peer.close()
        deadline = time.monotonic() + 120
        while broker.call(lambda server: server.hosts["contoso"].connection_count):
            assert time.monotonic() < deadline
        # The last consumer in line is released by the next one.
        assert engines() - before <= 2
    finally:
        gc.enable()


def test_arrivals_and_waiters_that_are_gone_leave_nothing_for_the_collector(broker: Broker) -> None:
    broker.create_queue("sessions", requires_session=True)
    kinds = (BrokerConnection, Doorway, _WaitingLink)

    def left() -> int:
        return sum(isinstance(each, kinds) for each in gc.get_objects())

    gc.collect()
    before = left()
    gc.disable()
    try:
        for number in range(20):
            with Peer(broker) as peer:
                filters = {Symbol("com.microsoft:session-filter"): None}
                peer.session.attach_receiver("waits", source=Source("sessions", filters))
                peer.begin()
                if number % 2:
                    peer.close()
        deadline = time.monotonic() + 120
        while broker.call(lambda server: server.hosts["contoso"].connection_count):
            assert time.monotonic() < deadline
        # The loop may still hold the last one.
        assert left() - before <= 3
    finally:
        gc.enable()


@pytest.mark.parametrize("said", [b"", b"AM", b"AMQP\x02", b"nonsense", b"\x16\x03\x01\x02\x00\x01", b"GET / HT"])
def test_clients_that_only_look_in_leave_nothing_for_the_collector(
    broker: Broker, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_TIMEOUT_MS", STALL_MS)
    kinds = (listener._Arrival, Doorway, BrokerConnection, RequestHandler)

    def left() -> int:
        return sum(isinstance(each, kinds) for each in gc.get_objects())

    gc.collect()
    before = left()
    gc.disable()
    try:
        for _ in range(20):
            with closing(connected(broker)) as stream:
                stream.sendall(said)
        # The first of them may have to wait for a certificate.
        deadline = time.monotonic() + 60
        while (found := left() - before) > 3:
            assert time.monotonic() < deadline, f"{found} are left"
            time.sleep(0.01)
    finally:
        gc.enable()


def test_entities_that_are_deleted_leave_nothing_for_the_collector(broker: Broker) -> None:
    def left() -> int:
        return sum(isinstance(each, Queue | Topic | Subscription) for each in gc.get_objects())

    gc.collect()
    before = left()
    gc.disable()
    try:
        for number in range(10):
            broker.create_queue(f"queue-{number}")
            broker.create_topic(f"topic-{number}")
            broker.create_subscription(f"topic-{number}", "all")
            with Peer(broker) as peer:
                peer.send(peer.sender(f"queue-{number}"), text())
                peer.receive(peer.receiver(f"queue-{number}", 1))
            broker.delete_queue(f"queue-{number}")
            broker.delete_topic(f"topic-{number}")
        assert left() - before <= 6
    finally:
        gc.enable()


def test_receivers_that_came_and_went_behind_an_idle_one_are_forgotten(broker: Broker) -> None:
    """An idle receiver with credit is first in line: those behind it must not stay there when they leave."""
    broker.create_queue("idle")
    with Peer(broker) as idle, Peer(broker) as peer:
        idle.receiver("idle", 1)
        for _ in range(50):
            link = peer.receiver("idle", 1)
            link.detach()
            peer.flush()
            peer.wait(Detached, lambda event, link=link: event.link is link)
        assert broker.call(lambda server: _line(server, "idle")) == (1, 0)


def test_session_waiters_that_came_and_went_behind_an_idle_one_are_forgotten(broker: Broker) -> None:
    broker.create_queue("waited", requires_session=True)
    with Peer(broker) as idle, Peer(broker) as peer:
        for _ in range(20):
            link = peer.session.attach_receiver(
                str(uuid.uuid4()), source=Source("waited", {Symbol("com.microsoft:session-filter"): None})
            )
            peer.flush()
            link.detach()
            peer.flush()
            peer.wait(Detached, lambda event, link=link: event.link is link)
        idle.flush()
        assert broker.call(lambda server: _line(server, "waited")) == (0, 0)


def _line(server: Server, path: str) -> tuple[int, int]:
    host = server.hosts["contoso"]
    dispatcher = host.dispatcher(host.entities.queue(path))
    return len(dispatcher._line), len(dispatcher._waiters)
