"""The unmodified Python SDK, sync and aio, on topics and subscriptions. Each scenario is run in both colours."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError
from python_sdk import COLOURS, Bus, call, opened

from twinbus.entities.filters import CorrelationFilter, FalseFilter
from twinbus.testing import Broker

pytestmark = pytest.mark.parametrize("colour", COLOURS)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(sync=False) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"topic-{uuid.uuid4().hex}").path


class TopicBus(Bus):
    """A client with shorthands for topics."""

    def topic_sender(self, topic: str) -> Any:
        return opened(self.client.get_topic_sender(topic))

    def subscriber(self, topic: str, subscription: str, **options: Any) -> Any:
        return opened(self.client.get_subscription_receiver(topic, subscription, **options))

    async def publish(self, topic: str, *messages: ServiceBusMessage) -> None:
        async with self.topic_sender(topic) as sender:
            await call(sender.send_messages, list(messages))

    async def taken(self, topic: str, subscription: str, count: int, **options: Any) -> list[Any]:
        """Messages of a subscription, completed."""
        async with self.subscriber(topic, subscription, **options) as receiver:
            found = await self.receive(receiver, count)
            for message in found:
                await call(receiver.complete_message, message)
        return found


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def message(body: str, **fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, **fields)


def test_copies_by_rules(broker: Broker, topic: str, colour: str) -> None:
    broker.create_subscription(topic, "all")
    broker.create_subscription(topic, "sql", filter="color = 'red' AND size >= 10")
    broker.create_subscription(topic, "label", filter=CorrelationFilter(label="x", properties={"color": "blue"}))
    broker.create_subscription(topic, "none", filter=FalseFilter())
    broker.create_rule(topic, "sql", "loud", "size > 50", "SET loud = TRUE; SET sys.Label = 'loud'; REMOVE color")

    async def scenario() -> None:
        bus = TopicBus(colour, broker.connection_string())
        await bus.publish(
            topic,
            message("small", application_properties={"color": "red", "size": 1}),
            message("big", application_properties={"color": "red", "size": 99}),
            message("blue", subject="x", application_properties={"color": "blue"}),
        )
        found = await bus.taken(topic, "all", 3)
        assert [str(each) for each in found] == ["small", "big", "blue"]
        assert [each.sequence_number for each in found] == [1, 2, 3]
        plain, loud = await bus.taken(topic, "sql", 2)
        assert (str(plain), str(loud)) == ("big", "big")
        assert plain.application_properties == {b"color": b"red", b"size": 99}
        assert loud.application_properties == {b"size": 99, b"loud": True}
        assert (plain.subject, loud.subject) == (None, "loud")
        assert (loud.sequence_number, loud.enqueued_sequence_number) == (2, 2)
        (blue,) = await bus.taken(topic, "label", 1)
        assert (str(blue), blue.enqueued_sequence_number) == ("blue", 3)
        async with bus.subscriber(topic, "none") as receiver:
            assert await call(receiver.receive_messages, max_wait_time=0.5) == []

    run(scenario())


def test_settling_and_dead_letters(broker: Broker, topic: str, colour: str) -> None:
    broker.create_subscription(topic, "s")

    async def scenario() -> None:
        bus = TopicBus(colour, broker.connection_string())
        await bus.publish(topic, *(message(name) for name in "abcd"))
        async with bus.subscriber(topic, "s") as receiver:
            done, again, later, bad = await bus.receive(receiver, 4)
            await call(receiver.renew_message_lock, done)
            await call(receiver.complete_message, done)
            await call(receiver.abandon_message, again)
            await call(receiver.defer_message, later)
            await call(receiver.dead_letter_message, bad, reason="bad", error_description="very")
            (returned,) = await bus.receive(receiver, 1)
            assert (str(returned), returned.delivery_count) == ("b", 1)
            await call(receiver.complete_message, returned)
            (deferred,) = await call(receiver.receive_deferred_messages, later.sequence_number)
            assert (str(deferred), deferred.enqueued_sequence_number) == ("c", 3)
            await call(receiver.complete_message, deferred)
            assert await call(receiver.peek_messages, 10, sequence_number=1) == []
        (letter,) = await bus.taken(topic, "s", 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        assert (str(letter), letter.dead_letter_reason, letter.dead_letter_error_description) == ("d", "bad", "very")

    run(scenario())


def test_receive_and_delete_and_peek(broker: Broker, topic: str, colour: str) -> None:
    broker.create_subscription(topic, "s")

    async def scenario() -> None:
        bus = TopicBus(colour, broker.connection_string())
        await bus.publish(topic, *(message(name) for name in "ab"))
        async with bus.subscriber(topic, "s") as receiver:
            assert [str(each) for each in await call(receiver.peek_messages, 5)] == ["a", "b"]
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        async with bus.subscriber(topic, "s", receive_mode=mode, prefetch_count=10) as receiver:
            assert [str(each) for each in await bus.receive(receiver, 2)] == ["a", "b"]

    run(scenario())


def test_sessions(broker: Broker, topic: str, colour: str) -> None:
    broker.create_subscription(topic, "s", requires_session=True)

    async def scenario() -> None:
        bus = TopicBus(colour, broker.connection_string())
        await bus.publish(topic, *(message(name, session_id="red") for name in "ab"), message("c", session_id="blue"))
        async with bus.subscriber(topic, "s", session_id="red") as receiver:
            await call(receiver.session.set_state, b"state")
            assert await call(receiver.session.get_state) == b"state"
            found = await bus.receive(receiver, 2)
            assert [str(each) for each in found] == ["a", "b"]
            for each in found:
                await call(receiver.complete_message, each)
        async with bus.subscriber(topic, "s", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
            assert receiver.session.session_id == "blue"

    run(scenario())


def test_scheduling_and_cancelling(broker: Broker, topic: str, colour: str) -> None:
    broker.create_subscription(topic, "s")

    async def scenario() -> None:
        bus = TopicBus(colour, broker.connection_string())
        async with bus.topic_sender(topic) as sender:
            soon = datetime.now(UTC) + timedelta(seconds=1)
            numbers = await call(sender.schedule_messages, [message("a"), message("b")], soon)
            await call(sender.cancel_scheduled_messages, numbers[:1])
        (found,) = await bus.taken(topic, "s", 1)
        assert str(found) == "b"

    run(scenario())


def test_batches(broker: Broker, topic: str, colour: str) -> None:
    broker.create_subscription(topic, "odd", filter="n % 2 = 1")

    async def scenario() -> None:
        bus = TopicBus(colour, broker.connection_string())
        async with bus.topic_sender(topic) as sender:
            batch = await call(sender.create_message_batch)
            for n in range(10):
                batch.add_message(message(str(n), application_properties={"n": n}))
            await call(sender.send_messages, batch)
        assert [str(each) for each in await bus.taken(topic, "odd", 5)] == list("13579")

    run(scenario())


def test_forwarding(broker: Broker, topic: str, colour: str) -> None:
    target, source = f"target-{topic}", f"source-{topic}"
    broker.create_queue(target)
    broker.create_subscription(topic, "s", forward_to=target, dead_letter_on_expiry=True)
    broker.create_queue(source, forward_to=topic)

    async def scenario() -> None:
        bus = TopicBus(colour, broker.connection_string())
        await bus.send(source, message("a"))
        async with bus.receiver(target) as receiver:
            (found,) = await bus.receive(receiver, 1)
            assert (str(found), found.enqueued_sequence_number) == ("a", 1)
            await call(receiver.dead_letter_message, found)
        with pytest.raises(ServiceBusError):
            async with bus.subscriber(topic, "s"):
                pass
        broker.delete_queue(target)
        await bus.send(source, message("b"))
        sub_queue = ServiceBusSubQueue.TRANSFER_DEAD_LETTER
        (stuck,) = await bus.taken(topic, "s", 1, sub_queue=sub_queue)
        assert (str(stuck), stuck.dead_letter_reason) == ("b", "MessagingEntityNotFound")

    run(scenario())


def test_mistakes(broker: Broker, topic: str, colour: str) -> None:
    broker.create_subscription(topic, "s")

    async def scenario() -> None:
        bus = TopicBus(colour, broker.connection_string())
        with pytest.raises(ServiceBusAuthenticationError):
            async with bus.subscriber(topic, "nobody"):
                pass
        with pytest.raises(ServiceBusAuthenticationError):
            async with bus.topic_sender("nobody"):
                pass
        with pytest.raises(ServiceBusError, match="subscription"):
            async with bus.receiver(topic):
                pass

    run(scenario())
