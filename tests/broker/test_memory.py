"""What clients make the broker hold is limited, individually and in total, and released when they leave."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.peer import Peer, text
from twinbus.amqp.events import Attached, Detached, Disposed
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import Accepted, Declared, Rejected, state_transactional
from twinbus.amqp.terminus import Coordinator, Source, Target
from twinbus.amqp.types import Described, Int, Symbol, ULong
from twinbus.broker.links import transactions
from twinbus.broker.memory import OF_ENTITIES, Memory, MemoryKind
from twinbus.broker.messages import intake
from twinbus.broker.server import Server
from twinbus.entities.account import Account
from twinbus.entities.settings import QueueSettings
from twinbus.limits import ANSWER_BYTES_MAX, LINK_OBJECT_BYTES
from twinbus.testing import Broker

MIB = 1024 * 1024


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(queues=[QueueSettings(path="q", max_message_bytes=8 * MIB)]) as broker:
        yield broker


def bound(broker: Broker, kind: MemoryKind, bytes_max: int) -> None:
    def change(server: Server) -> None:
        server.hosts["contoso"].memory[kind].bytes_max = bytes_max

    broker.call(change)


def held(broker: Broker, kind: MemoryKind, until: int | None = None) -> int:
    """The bytes held; with `until`, wait for that number."""
    end = time.monotonic() + 120
    while True:
        found = broker.call(lambda server: server.hosts["contoso"].memory[kind].held_bytes)
        if until is None or found == until or time.monotonic() > end:
            return found
        time.sleep(0.01)


def begun(peer: Peer, size: int) -> None:
    """Send all of a message except its last bytes."""
    link = peer.sender("q")
    link.send(bytes(size), tag=b"1", settled=False)
    output = b""
    while piece := peer.engine.take_output():
        output += piece
        peer.engine.pump()
    peer.socket.sendall(output[:-100])


def test_unfinished_deliveries_of_all_are_bounded(broker: Broker) -> None:
    bound(broker, MemoryKind.PARTIAL, 5 * MIB)
    with Peer(broker) as first, Peer(broker) as second:
        begun(first, 4 * MIB)
        while held(broker, MemoryKind.PARTIAL) < 3 * MIB:
            time.sleep(0.01)
        outcome = second.send(second.sender("q"), text("x" * (3 * MIB)))
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == "com.microsoft:server-busy"
        # Small ones need no assembling, and continue.
        assert isinstance(second.send(second.sender("q"), text("small")), Accepted)
    assert held(broker, MemoryKind.PARTIAL, until=0) == 0
    with Peer(broker) as peer:
        assert isinstance(peer.send(peer.sender("q"), text("x" * (3 * MIB))), Accepted)
    assert held(broker, MemoryKind.PARTIAL, until=0) == 0


def test_answers_without_credit_are_bounded(broker: Broker) -> None:
    with Peer(broker) as peer:
        assert isinstance(peer.send(peer.sender("q"), text("x" * (7 * MIB))), Accepted)
        link = peer.session.attach_receiver("r", source=Source("q/$management"), target=Target("r"))
        peer.flush()
        peer.wait(Attached, lambda event: event.link is link)
        sender = peer.sender("q/$management")
        for number in range(5):
            request = AmqpMessage()
            request.message_id, request.reply_to = str(number), "r"
            request.application_properties = {"operation": "com.microsoft:peek-message"}
            request.value, request.has_value = {"message-count": Int(1), "from-sequence-number": 0}, True
            sender.send(request.encode(), tag=str(number).encode(), settled=True)
        peer.flush()
        detached = peer.wait(Detached, lambda event: event.link is link)
        assert detached.error is not None
        assert detached.error.condition == "amqp:resource-limit-exceeded"
        assert held(broker, MemoryKind.ANSWERS) == 0 < ANSWER_BYTES_MAX


def declared(peer: Peer) -> tuple[Any, bytes]:
    control = peer.session.attach_sender("c", source=Source("s"), target=Coordinator())
    peer.flush()
    peer.wait(Attached, lambda event: event.link is control)
    outcome = peer.send(control, AmqpMessage.of_value(Described(ULong(0x31), [None])))
    assert isinstance(outcome, Declared)
    return control, outcome.txn_id


def send_in(peer: Peer, link: Any, txn_id: bytes, size: int) -> Any:
    number = link.send(
        text("x" * size).encode(), tag=str(size).encode(), settled=False, state=state_transactional(txn_id, None)
    )
    peer.flush()
    return peer.wait(Disposed, lambda event: any(each[0] == number for each in event.deliveries)).state


def test_open_transactions_are_bounded_and_let_go(broker: Broker) -> None:
    bound(broker, MemoryKind.TRANSACTIONS, 5 * MIB)
    with Peer(broker) as peer:
        control, txn_id = declared(peer)
        link = peer.sender("q")
        assert not isinstance(send_in(peer, link, txn_id, 3 * MIB), Rejected)
        refused = send_in(peer, link, txn_id, 3 * MIB + 1)
        assert isinstance(refused, Rejected)
        assert refused.error is not None
        assert refused.error.condition == "com.microsoft:server-busy"
        assert held(broker, MemoryKind.TRANSACTIONS) > 3 * MIB
        discharge = AmqpMessage.of_value(Described(ULong(0x32), [txn_id, False]))
        assert isinstance(peer.send(control, discharge), Accepted)
        assert held(broker, MemoryKind.TRANSACTIONS) == 0
        assert len(peer.receive(peer.receiver("q", 1)).payload or b"") > 3 * MIB
        _, txn_id = declared(peer)
        send_in(peer, link, txn_id, 2 * MIB)
    assert held(broker, MemoryKind.TRANSACTIONS, until=0) == 0


def test_a_transaction_that_nobody_discharges_is_let_go(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "TRANSACTION_MS_MAX", 300)
    with Peer(broker) as peer:
        control, txn_id = declared(peer)
        link = peer.sender("q")
        send_in(peer, link, txn_id, 2 * MIB)
        assert held(broker, MemoryKind.TRANSACTIONS, until=0) == 0
        # Anything that comes too late is rejected and has no effect.
        assert isinstance(send_in(peer, link, txn_id, 10), Rejected)
        discharge = AmqpMessage.of_value(Described(ULong(0x32), [txn_id, False]))
        assert isinstance(peer.send(control, discharge), Rejected)
        assert broker.call(lambda server: server.hosts["contoso"].entities.queue("q").counts.active) == 0


def test_sessions_and_tokens_count_beside_links(broker: Broker) -> None:
    with Peer(broker) as peer:
        base = held(broker, MemoryKind.LINKS)
        assert base == LINK_OBJECT_BYTES
        session = peer.begin()
        assert held(broker, MemoryKind.LINKS) == 2 * base
        session.end()
        assert peer.put_token("a", "token") == 202
        assert held(broker, MemoryKind.LINKS, until=2 * base + 2) == 2 * base + 2
        bound(broker, MemoryKind.LINKS, 7 * base)
        assert [peer.put_token(name, "token") for name in ("b", "c", "d", "e")].count(403) > 0
    assert held(broker, MemoryKind.LINKS, until=0) == 0


def test_of_an_open_little_is_kept(broker: Broker) -> None:
    with Peer(broker, container="c" * 3_000, properties={Symbol("x"): [[] for _ in range(3_000)]}):
        (connection,) = broker.call(lambda server: list(server.hosts["contoso"]._connections))
        opened = connection.engine.remote_open
        assert opened is not None
        assert len(opened.container_id) <= 200
        assert Symbol("x") not in (opened.properties or {})


def test_odd_headers_are_not_kept(broker: Broker) -> None:
    intake._HEADERS.clear()
    with Peer(broker) as peer:
        link = peer.sender("q")
        for number in range(3):
            # A header with an unknown field of 50,000 bytes.
            field = b"\xb0" + (50_000).to_bytes(4, "big") + bytes([number]) * 50_000
            fields = b"\x41\x40\x40\x40\x40" + field
            header = b"\x00\x53\x70\xd0" + (len(fields) + 4).to_bytes(4, "big") + (6).to_bytes(4, "big") + fields
            assert isinstance(peer.send(link, header + text("x").encode()), Accepted)
    assert sum(map(len, intake._HEADERS)) < 1_000


def test_an_account_counts_in_all_its_parents_or_in_none() -> None:
    process = Account(10)
    first, second = Account(8, process), Account(8, process)
    assert first.take(6)
    assert not second.take(6)
    assert (first.held_bytes, second.held_bytes, process.held_bytes) == (6, 0, 6)
    assert not first.take(3)
    first.give(6)
    assert second.take(8)
    assert process.held_bytes == 8


def test_every_kind_has_a_bound_on_every_level() -> None:
    process = Memory()
    namespace = Memory(process)
    connection = Memory(namespace)
    for kind in MemoryKind:
        assert namespace[kind].bytes_max < process[kind].bytes_max
        if kind not in OF_ENTITIES:
            assert connection[kind].bytes_max < namespace[kind].bytes_max


def test_metrics_show_what_is_held(broker: Broker) -> None:
    from twinbus.broker.metering.metrics import render_metrics

    shown = broker.call(lambda server: render_metrics(server.hosts["contoso"]))
    assert 'twinbus_held_bytes{namespace="contoso",kind="partial"} 0' in shown
    assert 'twinbus_strangers{namespace="contoso"} 0' in shown
