"""The ledger records exactly what was done: over real sockets, through restarts, and after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter as Tally
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.broker.http.rest.test_api import ask
from tests.broker.links.test_transactions import control, declare, discharge, send_in
from tests.broker.peer import Peer, text
from twinbus.amqp.events import Closed
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import (
    STATE_ACCEPTED,
    STATE_RELEASED,
    AmqpError,
    Modified,
    encode_state,
    state_rejected,
    state_transactional,
)
from twinbus.amqp.types import Int, Timestamp
from twinbus.auth.connection_string import ConnectionString
from twinbus.broker.messages.intake import BATCH_FORMAT, PING_CONTENT_TYPE
from twinbus.broker.metering.metrics import render_metrics
from twinbus.broker.metering.scribe import Scribe
from twinbus.broker.server import Server
from twinbus.clock import SteppedClock, SystemClock
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.ledger.files import complete_files, open_files
from twinbus.ledger.records import ConnectionsRecord, decode
from twinbus.ledger.totals import Totals
from twinbus.limits import LEDGER_INTERVALS_WAITING_MAX, METER_INTERVAL_MS, OPERATION_STEP_BYTES
from twinbus.testing import Broker

STATE_ABANDONED = encode_state(Modified(False, False, None))
STATE_DEFERRED = encode_state(Modified(False, True, None))
STATE_REJECTED = state_rejected(AmqpError("com.microsoft:dead-letter", "", None))


def read(folder: Path) -> Totals:
    totals = Totals()
    totals.read(complete_files(folder))
    assert totals.bad_lines == 0, totals.findings
    return totals


def counts(folder: Path, entity: str | None = None) -> dict[tuple[str, str], int]:
    """Operations by kind and outcome."""
    found: Tally[tuple[str, str]] = Tally()
    for group, sums in read(folder).groups.items():
        if entity is None or group.entity == entity:
            found[group.kind, group.outcome] += sums.count
    return dict(found)


def batch(*bodies: str) -> bytes:
    message = AmqpMessage()
    message.data = [text(body).encode() for body in bodies]
    return message.encode()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def test_everything_done_is_there_once(ledger: Path) -> None:
    queues = [
        QueueSettings(path="orders", lock_duration_ms=300_000),
        QueueSettings(path="small", max_message_bytes=2_000),
    ]
    with Broker(queues=queues, ledger=ledger) as broker, Peer(broker) as peer:
        sender = peer.sender("orders")
        payloads = [text("x" * size).encode() for size in (10, 1_000, 70_000, 140_000)]
        for payload in payloads:
            peer.send(sender, payload)
        peer.send(sender, batch("a", "b", "c"), message_format=BATCH_FORMAT)
        for _ in range(2):
            peer.send(sender, text("", content_type=PING_CONTENT_TYPE))
        assert peer.send(sender, b"nonsense") is not None
        assert peer.send(peer.sender("small"), text("x" * 3_000)) is not None

        receiver = peer.receiver("orders", 7)
        received = [peer.receive(receiver) for _ in range(7)]
        outcomes = (STATE_ABANDONED, STATE_DEFERRED, STATE_REJECTED, STATE_RELEASED)
        for delivery, state in zip(received, outcomes, strict=False):
            peer.settle(delivery, state)
        for delivery in received[4:]:
            peer.settle(delivery)
        # Already settled: the second time the lock is lost.
        peer.call(
            "orders/$management",
            "com.microsoft:update-disposition",
            {"disposition-status": "completed", "lock-tokens": [peer_token(received[4])]},
        )
        receiver.detach(None)
        peer.flush()
    size = sum(len(payload) for payload in payloads)
    found = read(ledger)
    sends = next(sums for group, sums in found.groups.items() if (group.entity, group.kind) == ("orders", "send"))
    assert sends.count == 4 + 3
    assert sends.units == 2 + 2 + 3 + 3
    assert sends.bytes == size + 3 * len(text("a").encode())
    assert counts(ledger, "orders") == {
        ("send", "ok"): 7,
        ("send", "com.microsoft:argument-error"): 1,
        ("ping", "ok"): 2,
        # Abandoned and released messages wait for credit, and there is none.
        ("receive", "ok"): 7,
        ("abandon", "ok"): 1,
        ("defer", "ok"): 1,
        ("dead-letter", "ok"): 1,
        ("release", "ok"): 1,
        ("complete", "ok"): 3,
        ("complete", "com.microsoft:message-lock-lost"): 1,
    }
    assert counts(ledger, "small") == {("send", "amqp:link:message-size-exceeded"): 1}
    assert {group.stage for group in found.groups if group.kind == "ping"} == {"ping"}


def peer_token(delivery: Any) -> Any:
    return uuid.UUID(bytes_le=delivery.tag)


def test_requests_are_counted_by_message(ledger: Path) -> None:
    clock = SystemClock()
    with Broker(queues=["orders"], ledger=ledger) as broker, Peer(broker) as peer:
        node = "orders/$management"

        def ask(operation: str, body: dict[str, Any]) -> Any:
            return peer.call(node, f"com.microsoft:{operation}", body)

        later = text("later")
        later.message_annotations = {"x-opt-scheduled-enqueue-time": Timestamp(clock.now_ms() + 3_600_000)}
        messages = [{"message-id": str(n), "message": later.encode()} for n in range(3)]
        _, _, answer = ask("schedule-message", {"messages": messages})
        numbers = list(answer["sequence-numbers"])
        ask("cancel-scheduled-message", {"sequence-numbers": numbers[:2]})
        ask("peek-message", {"from-sequence-number": 0, "message-count": Int(10)})
        ask("peek-message", {"from-sequence-number": 1_000, "message-count": Int(10)})
        sender = peer.sender("orders")
        for _ in range(4):
            peer.send(sender, text())
        receiver = peer.receiver("orders", 2)
        tokens = [peer_token(peer.receive(receiver)) for _ in range(2)]
        ask("renew-lock", {"lock-tokens": tokens})
        ask("update-disposition", {"disposition-status": "completed", "lock-tokens": tokens})
        ask(
            "batch-delete-messages", {"message-count": Int(10), "enqueued-time-utc": Timestamp(clock.now_ms() + 60_000)}
        )
        ask("no-such-operation", {})
        ask("renew-session-lock", {"session-id": "s"})
        peer.call("$management", "twinbus:list-queues", {})
    assert counts(ledger, "orders") == {
        ("schedule", "ok"): 3,
        ("cancel", "ok"): 2,
        ("peek", "ok"): 2,
        ("send", "ok"): 4,
        ("receive", "ok"): 2,
        ("renew", "ok"): 2,
        ("complete", "ok"): 2,
        ("delete", "ok"): 2,
        ("manage", "amqp:not-implemented"): 1,
        ("renew-session", "amqp:not-allowed"): 1,
    }
    assert counts(ledger, "") == {("manage", "ok"): 1}


def test_a_drain_that_brings_nothing_is_an_empty_poll(ledger: Path) -> None:
    with Broker(queues=["orders"], ledger=ledger) as broker, Peer(broker) as peer:
        sender = peer.sender("orders")
        for settled in (False, True):
            receiver = peer.receiver("orders", settled=settled)
            for full in (False, True, False):
                if full:
                    peer.send(sender, text())
                receiver.flow(5)
                peer.flush()
                if full:
                    peer.receive(receiver)
                peer.quiet(Closed, 0.05)
                receiver.flow(5, drain=True)
                peer.flush()
                while receiver.credit:
                    assert peer.read(5)
            receiver.detach(None)
            peer.flush()
    assert counts(ledger, "orders") == {("send", "ok"): 2, ("receive", "ok"): 2, ("empty-poll", "ok"): 4}


def test_sessions_are_counted(ledger: Path) -> None:
    queue = QueueSettings(path="talks", requires_session=True)
    with Broker(queues=[queue], ledger=ledger) as broker, Peer(broker) as peer, Peer(broker) as other:
        peer.send(peer.sender("talks"), text(group_id="s1"))
        receiver = peer.receiver("talks", 1, session_filter="s1")
        peer.settle(peer.receive(receiver))
        assert other.refusal(lambda: other.receiver("talks", session_filter="s1")) is not None
        for operation in ("get-session-state", "renew-session-lock"):
            peer.call("talks/$management", f"com.microsoft:{operation}", {"session-id": "s1"})
        peer.call(
            "talks/$management", "com.microsoft:set-session-state", {"session-id": "s1", "session-state": b"state"}
        )
    assert counts(ledger, "talks") == {
        ("send", "ok"): 1,
        ("accept-session", "ok"): 1,
        ("accept-session", "com.microsoft:session-cannot-be-locked"): 1,
        ("receive", "ok"): 1,
        ("complete", "ok"): 1,
        ("get-session-state", "ok"): 1,
        ("renew-session", "ok"): 1,
        ("set-session-state", "ok"): 1,
    }


def test_the_stages_of_a_backlog_queue_follow_from_its_name(ledger: Path) -> None:
    backlog = "contoso/x-servicebus-transfer/0"
    with Broker(queues=[backlog], ledger=ledger) as broker, Peer(broker) as peer:
        peer.send(peer.sender(backlog), text())
        peer.settle(peer.receive(peer.receiver(backlog, 1)))
    assert {(group.kind, group.stage) for group in read(ledger).groups} == {
        ("send", "to-backlog"),
        ("receive", "from-backlog"),
        ("complete", "from-backlog"),
    }


def test_a_topic_counts_what_comes_in_and_subscriptions_what_goes_out(ledger: Path) -> None:
    with Broker(ledger=ledger) as broker:

        def make(server: Server) -> None:
            host = server.hosts["contoso"]
            host.create_topic(TopicSettings(path="news"))
            for name in ("a", "b"):
                host.create_subscription(SubscriptionSettings(topic="news", name=name))

        broker.call(make)
        with Peer(broker) as peer:
            peer.send(peer.sender("news"), text())
            for name in ("a", "b"):
                peer.settle(peer.receive(peer.receiver(f"news/subscriptions/{name}", 1)))
    assert counts(ledger, "news") == {("send", "ok"): 1}
    for name in ("a", "b"):
        assert counts(ledger, f"news/Subscriptions/{name}") == {("receive", "ok"): 1, ("complete", "ok"): 1}


def test_what_is_rolled_back_was_not_done(ledger: Path) -> None:
    with Broker(queues=["orders", "bills"], ledger=ledger) as broker, Peer(broker) as peer:
        peer.send(peer.sender("orders"), text())
        delivery = peer.receive(peer.receiver("orders", 1))
        coordinator = control(peer)
        bills = peer.sender("bills")
        for fail in (True, False):
            txn_id = declare(peer, coordinator)
            send_in(peer, bills, txn_id, text())
            if not fail:
                peer.settle(delivery, state_transactional(txn_id, STATE_ACCEPTED))
            discharge(peer, coordinator, txn_id, fail)
    assert counts(ledger, "orders") == {("send", "ok"): 1, ("receive", "ok"): 1, ("complete", "ok"): 1}
    assert counts(ledger, "bills") == {("send", "ok"): 1}


def test_http_counts_as_amqp_does(ledger: Path) -> None:
    with Broker(queues=["orders"], ledger=ledger) as broker:
        for _ in range(2):
            assert ask(broker, "POST", "/orders/messages", b"hello").status == 201
        assert ask(broker, "DELETE", "/orders/messages/head").status == 200
        locked = ask(broker, "POST", "/orders/messages/head")
        place = urlsplit(locked.headers["Location"]).path
        for method, status in (("POST", 200), ("DELETE", 200), ("DELETE", 404)):
            assert ask(broker, method, place).status == status
        assert ask(broker, "POST", "/orders/messages/head?timeout=0").status == 204
        assert ask(broker, "GET", "/orders?api-version=2021-05").status == 200
        assert ask(broker, "DELETE", "/nothing?api-version=2021-05").status == 404
    assert counts(ledger, "orders") == {
        ("send", "ok"): 2,
        ("receive", "ok"): 2,
        ("renew", "ok"): 1,
        ("complete", "ok"): 1,
        ("complete", "com.microsoft:message-lock-lost"): 1,
        ("empty-poll", "ok"): 1,
    }
    assert counts(ledger, "") == {("manage", "ok"): 1, ("manage", "http:404"): 1}


def test_an_idle_broker_writes_nothing(ledger: Path) -> None:
    with Broker(queues=["orders"], ledger=ledger) as broker:
        for _ in range(3):
            broker.call(lambda server: server.hosts["contoso"].meter.flush())
    assert list(ledger.iterdir()) == []


def test_connections_are_told_when_they_change_and_once_a_minute(ledger: Path) -> None:
    clock = SteppedClock()
    start = clock.now_ms()

    def flush() -> None:
        clock.step(seconds=1)
        broker.call(lambda server: server.hosts["contoso"].meter.flush())

    with Broker(queues=["orders"], ledger=ledger, clock=clock) as broker:
        with Peer(broker):
            with Peer(broker):
                pass
            until(lambda: broker.call(lambda server: server.hosts["contoso"].connection_count) == 1)
            flush()  # two at once, though one is left
            flush()
            for _ in range(61):
                flush()  # nothing changes: told once more
        until(lambda: broker.call(lambda server: server.hosts["contoso"].connection_count) == 0)
        flush()  # there was one in this interval too
        for _ in range(100):
            flush()
    found = [
        (record.end_ms - start, record.peak)
        for file in complete_files(ledger)
        for line in file.read_text().splitlines()
        if isinstance(record := decode(line), ConnectionsRecord)
    ]
    assert found == [(1_000, 2), (2_000, 1), (62_000, 1), (65_000, 0)]


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_intervals_follow_each_other_by_the_clock(ledger: Path) -> None:
    clock = SteppedClock()
    with Broker(queues=["orders"], ledger=ledger, clock=clock) as broker, Peer(broker) as peer:
        sender = peer.sender("orders")
        for _ in range(2):
            peer.send(sender, text())
            clock.step(seconds=1)
            broker.call(lambda server: server.hosts["contoso"].meter.flush())
    (file,) = complete_files(ledger)
    found = [json.loads(line) for line in file.read_text().splitlines() if '"operations"' in line]
    start = 1_700_000_000_000
    assert [(each["start_ms"], each["end_ms"], each["count"]) for each in found] == [
        (start, start + 1_000, 1),
        (start + 1_000, start + 2_000, 1),
    ]
    assert len({each["id"] for each in found}) == 2


def test_restarts_add_up_and_two_namespaces_share_a_ledger(tmp_path: Path) -> None:
    with Broker(["contoso", "ledger"], queues=["orders"], data=tmp_path, ledger=True) as broker:
        for _ in range(2):
            for namespace in ("contoso", "ledger"):
                with Peer(broker, namespace) as peer:
                    peer.send(peer.sender("orders"), text())
            broker.restart()
    found = {(group.namespace, group.kind): sums.count for group, sums in read(tmp_path / "ledger").groups.items()}
    assert found == {("contoso", "send"): 2, ("ledger", "send"): 2}


def test_the_counters_of_a_deleted_queue_go_after_they_are_written(ledger: Path) -> None:
    with Broker(queues=["orders"], ledger=ledger) as broker:
        with Peer(broker) as peer:
            peer.send(peer.sender("orders"), text())
        broker.delete_queue("orders")
        broker.call(lambda server: server.hosts["contoso"].meter.flush())
        assert broker.call(lambda server: [each.path for each in server.hosts["contoso"].meter]) == []
        broker.create_queue("orders")
        with Peer(broker) as peer:
            peer.send(peer.sender("orders"), text())
    assert counts(ledger, "orders") == {("send", "ok"): 2}


def test_the_broker_goes_on_without_its_ledger(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Broker(queues=["orders"], ledger=tmp_path / "file" / "ledger") as broker, Peer(broker) as peer:
        assert peer.send(peer.sender("orders"), text()) is not None
        broker.call(lambda server: server.hosts["contoso"].meter.flush())
        assert peer.send(peer.sender("orders"), text()) is not None


def test_a_disk_that_hangs_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scribe = Scribe(tmp_path, SteppedClock())  # never started: its thread takes nothing
    for _ in range(LEDGER_INTERVALS_WAITING_MAX + 5):
        scribe.put([(None, 0, 0, 0, 0, 0)])  # type: ignore[list-item]
    assert scribe.lost_records == 5
    # It answers, and hangs again: each time is logged once.
    scribe._work.get()
    for _ in range(3):
        scribe.put([(None, 0, 0, 0, 0, 0)])  # type: ignore[list-item]
    assert scribe.lost_records == 7
    assert [record.getMessage()[:29] for record in caplog.records] == ["the ledger's disk hangs: oper"] * 2


def test_large_deliveries_are_counted_in_steps(ledger: Path) -> None:
    with Broker(queues=["orders"], ledger=ledger) as broker, Peer(broker) as peer:
        peer.send(peer.sender("orders"), text("x" * (2 * OPERATION_STEP_BYTES)))
        for settled in (False, True):
            receiver = peer.receiver("orders", 1, settled=settled)
            delivery = peer.receive(receiver)
            if not settled:
                peer.settle(delivery, STATE_ABANDONED)
            receiver.detach(None)
            peer.flush()
    (received,) = [sums for group, sums in read(ledger).groups.items() if group.kind == "receive"]
    assert (received.count, received.units) == (2, 6)
    assert received.bytes > 4 * OPERATION_STEP_BYTES


CHILD = """
import asyncio, sys
from pathlib import Path
from twinbus.broker.configuration.config import BrokerConfig, NamespaceConfig
from twinbus.broker.server import Server
from twinbus.entities.settings import QueueSettings

async def main():
    data = Path(sys.argv[1])
    queue = QueueSettings(path="orders")
    namespace = NamespaceConfig("contoso", queues=[queue])
    server = Server(BrokerConfig([namespace], data=data, dev=True, ledger=data / "ledger"))
    await server.start()
    print(server.endpoints["contoso"].port, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Remote:
    """The part of `Broker` that `Peer` needs, for a broker in another process."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.host = "127.0.0.1"

    def endpoint(self, _: str | None = None) -> Remote:
        return self


def test_after_a_kill_at_most_the_last_interval_is_missing(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        accepted: list[float] = []
        with Peer(Remote(port)) as peer:  # type: ignore[arg-type]
            sender = peer.sender("orders")
            end = time.monotonic() + 3.5
            while time.monotonic() < end:
                peer.send(sender, text())
                accepted.append(time.monotonic())
            killed = time.monotonic()
            os.kill(child.pid, signal.SIGKILL)
    finally:
        child.kill()
        child.communicate()
    assert len(open_files(tmp_path / "ledger")) == 1
    with Broker(queues=["orders"], data=tmp_path, ledger=True) as broker:
        stored = broker.call(lambda server: server.hosts["contoso"].entities.queue("orders").counts.active)
    recorded = counts(tmp_path / "ledger").get(("send", "ok"), 0)
    # One second of tolerance for a busy machine: a thread writes the interval.
    certain = sum(1 for at in accepted if at < killed - METER_INTERVAL_MS / 1000 - 1)
    assert len(accepted) <= stored
    assert 0 < certain <= recorded <= stored
    assert open_files(tmp_path / "ledger") == []


def test_no_secret_gets_into_ledger_or_metrics(tmp_path: Path) -> None:
    with Broker(queues=["orders"], data=tmp_path, dev=False, ledger=True) as broker:
        key = ConnectionString.parse(broker.connection_string()).key
        assert key is not None
        name = ConnectionString.parse(broker.connection_string()).key_name
        with Peer(broker, sasl=("PLAIN", f"\0{name}\0{key}".encode())) as peer:
            secret = f"SharedAccessKey={key}"
            message = text(secret, subject=secret, content_type=secret)
            message.application_properties = {secret: secret}
            peer.send(peer.sender("orders"), message)
            peer.send(peer.sender("orders"), text(secret, message_id=secret * 10))
            delivery = peer.receive(peer.receiver("orders", 1))
            peer.settle(delivery, state_rejected(AmqpError("x:" + key, secret, {"DeadLetterReason": secret})))
            peer.call("orders/$management", f"com.microsoft:{key}", {key: secret})
        shown = broker.call(lambda server: render_metrics(server.hosts["contoso"]))
    written = "".join(path.read_text() for path in complete_files(tmp_path / "ledger"))
    assert written.count('"type":"operations"') == 5
    assert key not in written
    assert key not in shown
