"""What a sender is asked to do: with an SDK sender, and as messages for the backlog."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from twinbus.client import ReceivedMessage
from twinbus.ledger.words import Kind
from twinbus.paired.work import BatchMaking, Cancelling, Scheduling, Sending, Work

WHEN = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


class Recorded:
    """Records each request, and returns it."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **options: (name, given, options)


def done(work: Work) -> Any:
    return work.direct(Recorded(), 1.5)


def read(payload: bytes) -> ReceivedMessage:
    return ReceivedMessage(payload, None, b"")


def test_sending() -> None:
    message = ServiceBusMessage(b"x", message_id="m", session_id="s")
    work = Sending(message)
    assert (work.kind, work.went_direct) == (Kind.SEND, False)
    name, (sent,), options = done(work)
    assert (name, options) == ("send_messages", {"timeout": 1.5})
    assert (list(sent.body), sent.message_id) == ([b"x"], "m")
    assert [(read(each).body, read(each).message_id) for each in work.payloads()] == [(b"x", "m")]
    assert work.sessions() == {"s"}


def test_scheduling() -> None:
    messages = [ServiceBusMessage(b"x", session_id="s"), AmqpAnnotatedMessage(data_body=b"y")]
    work = Scheduling(messages, WHEN)
    assert (work.kind, work.went_direct) == (Kind.SCHEDULE, False)
    name, (sent, when), options = done(work)
    assert (name, when, options) == ("schedule_messages", WHEN, {"timeout": 1.5})
    assert [type(each) for each in sent] == [ServiceBusMessage, AmqpAnnotatedMessage]
    stored = [read(each) for each in work.payloads()]
    assert [each.body for each in stored] == [b"x", b"y"]
    assert {each.scheduled_ms for each in stored} == {round(WHEN.timestamp() * 1000)}
    assert work.sessions() == {"s"}


def test_scheduling_one() -> None:
    work = Scheduling(AmqpAnnotatedMessage(data_body=b"y", properties=AmqpMessageProperties(group_id="t")), WHEN)
    (stored,) = [read(each) for each in work.payloads()]
    assert stored.scheduled_ms == round(WHEN.timestamp() * 1000)
    assert work.sessions() == {"t"}


def test_making_a_batch() -> None:
    work = BatchMaking(500)
    assert (work.kind, work.went_direct, work.max_size_in_bytes) == (Kind.MANAGE, False, 500)
    assert done(work) == ("create_message_batch", (500,), {})
    assert (work.payloads(), work.sessions()) == ([], set())


def test_cancelling() -> None:
    work = Cancelling([1, 2])
    assert work.kind is Kind.CANCEL
    assert done(work) == ("cancel_scheduled_messages", ([1, 2],), {"timeout": 1.5})
    assert (work.payloads(), work.sessions()) == ([], set())
