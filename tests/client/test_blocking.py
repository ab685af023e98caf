from __future__ import annotations

from collections.abc import Iterator

import pytest

from twinbus.client import BusClient, Message
from twinbus.client.blocking import BlockingBus
from twinbus.client.description import describe
from twinbus.errors import (
    ConnectionForcedError,
    EntityNotFoundError,
    MessageNotFoundError,
    MessageTooLargeError,
    ServiceError,
)
from twinbus.testing import Broker


@pytest.fixture
def bus(broker: Broker) -> Iterator[BlockingBus]:
    with BlockingBus(lambda: BusClient.from_connection_string(broker.connection_string())) as made:
        yield made


def send(bus: BlockingBus, queue: str, *ids: str) -> None:
    assert bus.start_send(queue, [[Message(b"x", message_id=each).encode()] for each in ids]).result() == [None] * len(
        ids
    )


def test_sending_receiving_settling(bus: BlockingBus, queue: str) -> None:
    send(bus, queue, "a", "b", "c", "d")
    assert [message.message_id for message in bus.peek(queue, 10)] == ["a", "b", "c", "d"]
    assert [message.message_id for message in bus.peek(queue, 10, first=3)] == ["c", "d"]
    held = bus.receive(queue, 3, 1)
    assert bus.complete(queue, held[:1]) == [None]
    assert bus.defer(queue, held[1:2], {"mark": "m"}) == [None]
    bus.release(queue, held[2:])
    (deferred,) = [message for message in bus.peek(queue, 10) if message.message_id == "b"]
    assert deferred.application_properties["mark"] == "m"
    assert [message.message_id for message in bus.take_deferred(queue, [2])] == ["b"]
    with pytest.raises(MessageNotFoundError):
        bus.take_deferred(queue, [2])
    again = bus.receive(queue, 5, 1)
    assert [(message.message_id, message.delivery_count) for message in again] == [("c", 0), ("d", 0)]


def test_receiving_without_waiting(bus: BlockingBus, queue: str) -> None:
    assert bus.receive(queue, 5, 0) == []
    send(bus, queue, "a")
    assert len(bus.receive(queue, 5, 0)) == 1


def test_deleting(bus: BlockingBus, queue: str) -> None:
    send(bus, queue, "a", "b")
    assert bus.delete_batch(queue, 1, before_ms=2**42) == 1
    assert [message.message_id for message in bus.peek(queue, 10)] == ["b"]


def test_parcels_have_an_outcome_each(bus: BlockingBus, queue: str) -> None:
    small = Message(b"x").encode()
    outcomes = bus.start_send(queue, [[small, small], [Message(b"x" * 300_000).encode()], [small]]).result()
    assert outcomes[0] is None
    assert isinstance(outcomes[1], MessageTooLargeError)
    assert outcomes[2] is None
    assert bus.largest_message_bytes(queue) == 256 * 1024
    assert isinstance(bus.start_send("nowhere", [[small]]).result()[0], EntityNotFoundError)


def test_it_comes_back_after_a_restart() -> None:
    with Broker(queues=["q"], sync=False) as broker:
        text = broker.connection_string()
        with BlockingBus(lambda: BusClient.from_connection_string(text)) as bus:
            send(bus, "q", "a")
            assert len(bus.receive("q", 1, 0)) == 1
            broker.restart()
            assert [message.message_id for message in bus.peek("q", 10)] == ["a"]
            assert len(bus.receive("q", 1, 1)) == 1


def test_it_gives_up_in_the_end() -> None:
    with BlockingBus(lambda: BusClient("localhost", 1, tls=False), attempts_max=2) as bus, pytest.raises(ServiceError):
        bus.peek("q")


def test_it_can_be_closed_and_used_again(bus: BlockingBus, queue: str) -> None:
    send(bus, queue, "a")
    bus.close()
    assert len(bus.peek(queue, 10)) == 1
    bus.close()
    bus.close()


def test_descriptions(broker: Broker, queue: str) -> None:
    found = describe(broker.connection_string(), queue)
    assert found["RequiresDuplicateDetection"] == "false"
    assert found["LockDuration"] == "PT1M"
    with pytest.raises(EntityNotFoundError):
        describe(broker.connection_string(), "nowhere")
    with pytest.raises(ConnectionForcedError, match="does not answer"):
        describe("Endpoint=sb://localhost:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true", "q")
