"""What a peer can make the broker hold is limited; a store that fails stops everything with a clear error."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.broker.peer import Peer, text
from twinbus.amqp.events import Disposed
from twinbus.amqp.states import Accepted, Rejected
from twinbus.broker import commits
from twinbus.errors import StoreError
from twinbus.limits import WRITE_BUFFER_BYTES_HIGH
from twinbus.store.facts import Facts
from twinbus.store.lmdb_store import Prepared, Store
from twinbus.testing import Broker


def test_slow_disk_holds_senders_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a commit hangs, the broker stops reading instead of accumulating what it cannot store."""
    monkeypatch.setattr(commits, "PENDING_BYTES_MAX", 1_000_000)
    held = threading.Event()
    commit = Prepared.commit

    def slow(prepared: Prepared) -> None:
        held.wait(20)
        commit(prepared)

    with Broker(queues=["q"]) as broker, Peer(broker) as peer:
        monkeypatch.setattr(Prepared, "commit", slow)
        link = peer.sender("q")
        payload = text("x" * 100_000).encode()
        sent = 0
        peer.socket.settimeout(0.5)
        try:
            for _ in range(400):
                link.send(payload, tag=str(sent).encode(), settled=False)
                peer.socket.sendall(peer.engine.take_output())
                sent += 1
        except TimeoutError:
            pass
        pending = broker.server.hosts["contoso"].commits.pending_bytes if broker.server else 0
        assert pending < 3_000_000
        assert sent < 400
        held.set()


def test_slow_reader_is_not_fed_beyond_its_buffer() -> None:
    with Broker(queues=["q"]) as broker:
        with Peer(broker) as filler:
            link = filler.sender("q")
            payload = text("x" * 200_000).encode()
            ids = {link.send(payload, tag=str(number).encode(), settled=False) for number in range(100)}
            while ids:
                ids -= {each[0] for each in filler.wait(Disposed).deliveries}
        with Peer(broker) as peer:
            peer.receiver("q", 100)
            # It has credit for 20 MB but does not read: the broker stops once socket and buffer are full.
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                buffered = broker.call(
                    lambda server: [
                        connection._transport.get_write_buffer_size()
                        for connection in server.hosts["contoso"]._connections
                        if connection._transport is not None
                    ]
                )
                if any(size > 0 for size in buffered):
                    break
            assert max(buffered) < WRITE_BUFFER_BYTES_HIGH + 251 * 200_000
            received = 0
            while received < 100:
                received += 1 if peer.receive(next(iter(peer.session.links.values()))) else 0


def test_full_store_refuses_sends_and_lets_receives_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(queues=["q"]) as broker, Peer(broker) as peer:
        link = peer.sender("q")
        assert isinstance(peer.send(link, text("in")), Accepted)
        monkeypatch.setattr(Store, "full", True)
        outcome = peer.send(link, text("out"))
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == "amqp:resource-limit-exceeded"
        delivery = peer.receive(peer.receiver("q", 1))
        assert isinstance(peer.settle(delivery), Accepted)


def test_failing_store_stops_the_broker_and_answers_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(queues=["q"], data=tmp_path)
    broker.start()
    with Peer(broker) as peer:
        link = peer.sender("q")
        assert isinstance(peer.send(link, text("safe")), Accepted)

        def broken(store: Store, txn: Any, facts: Facts) -> None:
            txn.abort()
            store._stale = True
            store._prepared = None
            raise store._fail(lmdb.Error("the disk is gone"))

        monkeypatch.setattr(Store, "_commit", broken)
        link.send(text("doubtful").encode(), tag=b"1", settled=False)
        assert peer.quiet(Disposed, 0.5)
        assert peer.lost
        monkeypatch.undo()
    assert broker.server is not None
    assert isinstance(broker.server.failure, StoreError)
    broker.stop()
    with Broker(queues=["q"], data=tmp_path) as again, Peer(again) as peer:
        receiver = peer.receiver("q", 5)
        assert peer.receive(receiver).payload
        assert peer.quiet(Disposed)
