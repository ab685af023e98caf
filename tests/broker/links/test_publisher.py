"""Sending: accepted after the commit, or rejected with a reason, and nothing else."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.peer import Peer, body_of, text
from twinbus.amqp import frames
from twinbus.amqp.events import Disposed
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import STATE_ACCEPTED, Accepted, Rejected, State
from twinbus.amqp.types import Symbol, Timestamp
from twinbus.broker.messages.intake import BATCH_FORMAT, PING_CONTENT_TYPE
from twinbus.entities.settings import QueueSettings
from twinbus.store.lmdb_store import Prepared
from twinbus.testing import Broker

TAIL = re.compile(r" TrackingId:[0-9a-f-]{36}, SystemTracker:[^,]+, Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    queues = [
        "q",
        "batches",
        "pings",
        "presettled",
        QueueSettings(path="sessions", requires_session=True),
        QueueSettings(path="disabled", status="SendDisabled"),
        QueueSettings(path="small", max_megabytes=1),
        QueueSettings(path="once", requires_duplicate_detection=True),
    ]
    with Broker(queues=queues) as broker:
        yield broker


def rejected(state: State | None, condition: str) -> str:
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == condition
    assert TAIL.search(state.error.description)
    return state.error.description


def test_no_accept_before_the_disk_answered(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    commit = Prepared.commit

    def slow(prepared: Prepared) -> None:
        held.wait(10)
        commit(prepared)

    with Peer(broker) as peer:
        link = peer.sender("q")
        monkeypatch.setattr(Prepared, "commit", slow)
        link.send(text().encode(), tag=b"1", settled=False)
        assert peer.quiet(Disposed)
        receiver = peer.receiver("q", 1)
        # No receiver gets it either.
        assert peer.quiet(Disposed)
        held.set()
        assert isinstance(peer.wait(Disposed).state, Accepted)
        assert body_of(peer.receive(receiver)) == "hello"


def test_overlapped_sends_take_about_one_round_trip(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Prepared.commit

    def slow(prepared: Prepared) -> None:
        commits.append(prepared)
        time.sleep(0.08)
        commit(prepared)

    commits = []
    monkeypatch.setattr(Prepared, "commit", slow)
    with Peer(broker) as peer:
        link = peer.sender("q")
        ids = {link.send(text().encode(), tag=str(number).encode(), settled=False) for number in range(100)}
        while ids:
            ids -= {each[0] for each in peer.wait(Disposed).deliveries}
        # One after the other they would take a hundred.
        assert len(commits) < 20


def test_batch_is_all_or_none(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("batches")
        batch = AmqpMessage()
        batch.data = [text("a").encode(), text("b").encode()]
        assert isinstance(peer.send(link, batch, message_format=BATCH_FORMAT), Accepted)
        bad = AmqpMessage()
        bad.data = [text("c").encode(), text("d", message_id="x" * 129).encode()]
        rejected(peer.send(link, bad, message_format=BATCH_FORMAT), "com.microsoft:argument-error")
        receiver = peer.receiver("batches", 10)
        assert [body_of(peer.receive(receiver)), body_of(peer.receive(receiver))] == ["a", "b"]
        assert (
            peer.call(
                "batches/$management", "com.microsoft:peek-message", {"from-sequence-number": 3, "message-count": 5}
            )[0]
            == 204
        )


def test_rejections_carry_condition_text_and_tracking_id(broker: Broker) -> None:
    with Peer(broker) as peer:
        message = rejected(peer.send(peer.sender("q"), text("x" * 300_000)), "amqp:link:message-size-exceeded")
        assert "262144" in message
        message = rejected(peer.send(peer.sender("sessions"), text()), "amqp:not-allowed")
        assert "SessionId" in message
        rejected(peer.send(peer.sender("disabled"), text()), "com.microsoft:entity-disabled")
        rejected(peer.send(peer.sender("q"), b"nonsense"), "com.microsoft:argument-error")
        rejected(peer.send(peer.sender("q"), text(message_id="x" * 129)), "com.microsoft:argument-error")
        no_text = text(message_id="aaaa").encode().replace(b"aaaa", b"\xff\xfe\xfd\xfc")
        rejected(peer.send(peer.sender("q"), no_text), "com.microsoft:argument-error")
        # The link survives a rejection.
        assert isinstance(peer.send(peer.sender("q"), text()), Accepted)


def test_full_queue_refuses_sends_and_still_gives(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("small")
        outcome: Any = None
        for _ in range(10):
            outcome = peer.send(link, text("x" * 200_000))
            if isinstance(outcome, Rejected):
                break
        rejected(outcome, "amqp:resource-limit-exceeded")
        receiver = peer.receiver("small", 1)
        peer.settle(peer.receive(receiver))
        assert isinstance(peer.send(link, text("x" * 200_000)), Accepted)


def test_presettled_is_stored_and_never_answered(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("presettled")
        link.send(text("fire").encode(), tag=b"1", settled=True)
        link.send(b"nonsense", tag=b"2", settled=True)
        assert peer.quiet(Disposed)
        assert body_of(peer.receive(peer.receiver("presettled", 1))) == "fire"


def test_ping_is_accepted_counted_and_never_seen(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("pings")
        ping = text("", content_type=Symbol(PING_CONTENT_TYPE))
        assert isinstance(peer.send(link, ping), Accepted)
        assert isinstance(peer.send(link, text("real")), Accepted)
        assert body_of(peer.receive(peer.receiver("pings", 5))) == "real"
        status, _, body = peer.call("$management", "twinbus:get-queue", {"name": "pings"})
        assert status == 200
        assert body["queue"]["active_messages"] == 1
    assert broker.call(lambda server: server.hosts["contoso"].entities.queue("pings").pings) == 1


def test_duplicate_is_accepted_and_dropped(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("once")
        for body in ("first", "second"):
            assert isinstance(peer.send(link, text(body, message_id="same")), Accepted)
        assert isinstance(peer.send(link, text("third", message_id="other")), Accepted)
        receiver = peer.receiver("once", 5)
        assert [body_of(peer.receive(receiver)) for _ in range(2)] == ["first", "third"]


def test_large_message_over_many_frames(broker: Broker) -> None:
    with Peer(broker) as peer:
        body = "0123456789" * 20_000
        assert isinstance(peer.send(peer.sender("q"), text(body, message_id="large")), Accepted)
        receiver = peer.receiver("q", 500)
        while True:
            delivery = peer.receive(receiver)
            if b"large" in (delivery.payload or b"")[:400]:
                assert body_of(delivery) == body
                break


def test_schedule_by_annotation(broker: Broker) -> None:
    with Peer(broker) as peer:
        broker.create_queue("later")
        now_ms = int(time.time() * 1000)
        due_ms = now_ms + 400
        message = text("due", message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(due_ms)})
        assert isinstance(peer.send(peer.sender("later"), message), Accepted)
        peer.receive(peer.receiver("later", 1))
        assert time.time() * 1000 >= due_ms


def test_a_sender_may_settle_what_it_sent() -> None:
    # Clients whose senders settle second say so when the outcome has come; others when they give up waiting.
    with Broker(queues=["q"], sync=False) as broker, Peer(broker) as peer:
        link = peer.sender("q")
        assert isinstance(peer.send(link, b"\x00\x53\x75\xa0\x01a"), Accepted)
        peer.socket.sendall(frames.disposition_frame(peer.session.channel, False, 0, 0, True, STATE_ACCEPTED))
        assert isinstance(peer.send(link, b"\x00\x53\x75\xa0\x01b"), Accepted)
        assert not peer.lost
