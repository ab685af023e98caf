"""The envelope on the SDK's messages, through a real broker: any message that the SDK can build comes back equal."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.client.test_envelope import fields
from twinbus.client import BusClient, Receiver
from twinbus.client.envelope import RESERVED
from twinbus.paired.envelope import encoded, fill, sessions, unwrap
from twinbus.testing import Broker


class Backlog:
    """A backlog queue on a real broker: the SDK sends, our own client receives."""

    def __init__(self, broker: Broker) -> None:
        self.runner = asyncio.Runner()
        self.sdk = ServiceBusClient.from_connection_string(broker.connection_string())
        self.sender: ServiceBusSender = self.sdk.get_queue_sender("backlog")
        self.client = self.runner.run(self._client(broker))
        self.receiver: Receiver = self.runner.run(self.client.receiver("backlog", delete=True, prefetch=100))

    async def _client(self, broker: Broker) -> BusClient:
        return BusClient.from_connection_string(broker.connection_string())

    def through(self, payloads: list[bytes], path: str = "orders") -> list[bytes]:
        """Wrap, send, receive, unwrap."""
        batch = self.sender.create_message_batch()
        assert fill(batch, payloads, path) == batch.size_in_bytes
        self.sender.send_messages(batch)
        found: list[bytes] = []
        while len(found) < len(payloads):
            for message in self.runner.run(self.receiver.receive_batch(100, wait_s=10)):
                restored = unwrap(message.payload)
                assert restored.path == path
                found += restored.payloads
        return found

    def close(self) -> None:
        self.sdk.close()
        self.runner.run(self.client.close())
        self.runner.close()


@pytest.fixture(scope="module")
def backlog() -> Iterator[Backlog]:
    with Broker(queues=["backlog", "orders"], sync=False) as broker:
        backlog = Backlog(broker)
        yield backlog
        backlog.close()


TEXT = some.text(max_size=20)
NAMES = some.text(some.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=20)
TIMES = some.integers(86_400, 4_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
INTS = some.integers(-(2**31), 2**31 - 1)
SIMPLE = some.none() | some.booleans() | INTS | some.floats() | TEXT | some.uuids() | TIMES | some.binary(max_size=20)
TYPED = some.builds(
    lambda kind, value: {"TYPE": kind, "VALUE": value},
    some.sampled_from(["UBYTE", "USHORT", "UINT", "ULONG", "BYTE", "SHORT", "LONG"]),
    some.integers(0, 127),
) | some.builds(lambda text: {"TYPE": "SYMBOL", "VALUE": text.encode()}, NAMES)
VALUES = some.recursive(
    SIMPLE, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXT, inner, max_size=3), max_leaves=5
)
# Senders refuse properties with the envelope's own names; Hypothesis finds those in the source.
OWN = some.dictionaries(
    TEXT.filter(lambda name: name not in RESERVED),
    some.none() | some.booleans() | INTS | some.floats() | TEXT | some.uuids() | TIMES | TYPED,
)
ANNOTATIONS = some.dictionaries(NAMES.map(lambda name: f"x-opt-my-{name}"), VALUES | TYPED, max_size=3)
IDS = some.text(min_size=1, max_size=20) | some.uuids() | some.binary(min_size=1, max_size=20)
SESSION_IDS = some.text(min_size=1, max_size=20)


@some.composite
def service_bus_messages(draw: Any) -> ServiceBusMessage:
    session_id = draw(some.none() | SESSION_IDS)
    return ServiceBusMessage(
        draw(some.none() | some.text() | some.binary()),
        application_properties=draw(some.none() | OWN),
        session_id=session_id,
        partition_key=session_id or draw(some.none() | SESSION_IDS),
        message_id=draw(some.text(min_size=1, max_size=20)),
        scheduled_enqueue_time_utc=draw(some.none() | TIMES),
        time_to_live=draw(some.none() | some.timedeltas(timedelta(seconds=1), timedelta(days=40))),
        content_type=draw(some.none() | NAMES),
        correlation_id=draw(some.none() | TEXT),
        subject=draw(some.none() | TEXT),
        to=draw(some.none() | TEXT),
        reply_to=draw(some.none() | TEXT),
        reply_to_session_id=draw(some.none() | SESSION_IDS),
    )


@some.composite
def annotated_messages(draw: Any) -> AmqpAnnotatedMessage:
    uints = some.none() | some.integers(0, 2**32 - 1)
    body = draw(
        some.sampled_from(
            [
                {"data_body": draw(some.lists(some.binary(max_size=50), min_size=1, max_size=3))},
                {"value_body": draw(VALUES)},
                {"sequence_body": draw(some.lists(some.lists(VALUES, max_size=3), min_size=1, max_size=3))},
            ]
        )
    )
    header = AmqpMessageHeader(
        durable=draw(some.none() | some.booleans()),
        priority=draw(some.none() | some.integers(0, 255)),
        time_to_live=draw(uints),
        first_acquirer=draw(some.none() | some.booleans()),
        delivery_count=draw(uints),
    )
    properties = AmqpMessageProperties(
        message_id=draw(IDS),
        user_id=draw(some.none() | some.binary(max_size=10)),
        to=draw(some.none() | TEXT),
        subject=draw(some.none() | TEXT),
        reply_to=draw(some.none() | TEXT),
        correlation_id=draw(some.none() | IDS),
        content_type=draw(some.none() | NAMES),
        content_encoding=draw(some.none() | NAMES),
        creation_time=draw(some.none() | some.integers(0, 2**40)),
        absolute_expiry_time=draw(some.none() | some.integers(0, 2**40)),
        group_id=draw(some.none() | SESSION_IDS),
        group_sequence=draw(uints),
        reply_to_group_id=draw(some.none() | TEXT),
    )
    annotations: dict[Any, Any] = draw(some.just({}) | ANNOTATIONS)
    if draw(some.booleans()):
        annotations["x-opt-partition-key"] = properties.group_id or draw(SESSION_IDS)
    if draw(some.booleans()):
        annotations["x-opt-scheduled-enqueue-time"] = draw(TIMES)
    return AmqpAnnotatedMessage(
        **body,
        header=header,
        properties=properties,
        application_properties=draw(some.none() | OWN),
        annotations=annotations,
        delivery_annotations=draw(some.none() | ANNOTATIONS),
        footer=draw(some.none() | ANNOTATIONS),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=some.lists(service_bus_messages() | annotated_messages(), min_size=1, max_size=3))
def test_any_message_comes_back_equal(backlog: Backlog, messages: list[Any]) -> None:
    payloads = encoded(messages)
    assert [fields(each) for each in backlog.through(payloads)] == [fields(each) for each in payloads]


def test_one_message_a_mapping_a_list_and_a_batch_are_encoded_alike() -> None:
    message = ServiceBusMessage("x", message_id="m", session_id="s")
    batch = ServiceBusMessageBatch()
    batch.add_message(message)
    (payload,) = encoded(message)
    assert encoded({"body": "x", "message_id": "m", "session_id": "s"}) == [payload]
    assert encoded([message, message.raw_amqp_message]) == [payload, payload]
    assert encoded(batch) == [payload]
    assert sessions(message) == sessions([message]) == sessions(batch) == sessions(message.raw_amqp_message) == {"s"}
    assert sessions(ServiceBusMessage("x")) == sessions(AmqpAnnotatedMessage(data_body=b"")) == set()


def test_a_received_message_can_be_sent_on(backlog: Backlog) -> None:
    with backlog.sdk.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x", message_id="m", application_properties={"a": "b"}))
    with backlog.sdk.get_queue_receiver("orders", max_wait_time=5) as receiver:
        (received,) = receiver.receive_messages(1)
        receiver.complete_message(received)
    (payload,) = encoded(received)
    assert [fields(each) for each in backlog.through([payload])] == [fields(payload)]


def test_what_would_not_fit_is_compressed(backlog: Backlog) -> None:
    limit = backlog.sender.create_message_batch().max_size_in_bytes
    (payload,) = encoded(ServiceBusMessage(b"x" * (limit - 100), message_id=str(uuid.uuid4())))
    assert len(payload) < limit
    assert backlog.through([payload], "a" * 200) == [payload]


def test_a_full_batch_still_moves_as_a_whole(backlog: Backlog) -> None:
    batch = backlog.sender.create_message_batch()
    while batch.size_in_bytes < batch.max_size_in_bytes - 100:
        batch.add_message(ServiceBusMessage(b"x" * 30, message_id=str(len(batch))))
    payloads = encoded(batch)
    assert len(payloads) > 1000
    assert backlog.through(payloads) == payloads


def test_what_does_not_fit_even_so_says_by_how_much(backlog: Backlog) -> None:
    batch = backlog.sender.create_message_batch()
    noise = uuid.uuid4().bytes
    body = b"".join(uuid.uuid5(uuid.NAMESPACE_OID, f"{noise!r}{n}").bytes for n in range(batch.max_size_in_bytes // 16))
    with pytest.raises(
        MessageSizeExceededError, match=r"^The message of .* for 'orders' cannot go .*Nothing was sent"
    ) as raised:
        fill(batch, encoded(ServiceBusMessage(body)), "orders")
    assert len(batch) == 0
    told = re.search(r"(\d+) bytes remain, (\d+) more than the (\d+)", str(raised.value))
    assert told is not None
    remain, more, limit = map(int, told.groups())
    assert (remain - limit, limit) == (more, batch.max_size_in_bytes)
    with pytest.raises(MessageSizeExceededError, match=r"^The 2 messages of \d+ bytes for 'orders' cannot go"):
        fill(batch, encoded([ServiceBusMessage(body), ServiceBusMessage("small")]), "orders")
    assert len(batch) == 0
