"""Sending: outcomes, windows, batches, losses."""

from __future__ import annotations

import asyncio

import pytest

from twinbus.amqp import STATE_RELEASED, AmqpError, AmqpEvent, Attached, Transfer, state_rejected
from twinbus.client import BusClient, Message
from twinbus.errors import (
    ConnectionForcedError,
    EntityNotFoundError,
    LinkDetachedError,
    MessageTooLargeError,
    QuotaExceededError,
    ServerBusyError,
    ServiceError,
)
from twinbus.limits import SEND_WINDOW_MAX

from .script import Conversation, Script

FULL = state_rejected(AmqpError("amqp:resource-limit-exceeded", "full"))


async def test_a_message_is_accepted(client: BusClient, queue: str) -> None:
    sender = await client.sender(queue)
    await sender.send(Message(b"hello", message_id="1"))
    receiver = await client.receiver(queue)
    message = await receiver.receive(5)
    assert message is not None
    assert (message.body, message.message_id) == (b"hello", "1")


async def test_many_messages_arrive_in_order(client: BusClient, queue: str) -> None:
    sender = await client.sender(queue, window=50)
    outcomes = await sender.send_many(Message(str(number), message_id=str(number)).encode() for number in range(1_000))
    assert outcomes == [None] * 1_000
    assert sender.pending == 0
    receiver = await client.receiver(queue, delete=True, prefetch=200)
    got: list[int] = []
    while len(got) < 1_000:
        got += [int(message.body) for message in await receiver.receive_batch(1_000, 5)]
    assert got == list(range(1_000))


async def test_a_batch_is_one_delivery(client: BusClient, queue: str) -> None:
    sender = await client.sender(queue)
    await sender.send_batch([Message(b"a"), Message(b"b").encode(), Message(b"c")])
    receiver = await client.receiver(queue, delete=True)
    assert [message.body for message in await receiver.receive_batch(10, 5)] == [b"a", b"b", b"c"]


async def test_a_stream_goes_in_as_few_deliveries_as_fit(client: BusClient, queue: str) -> None:
    sender = await client.sender(queue)
    outcomes = await sender.send_batches(
        [Message(b"x" * 1_000, message_id=str(n)) for n in range(600)], max_bytes=100_000
    )
    assert outcomes == [None] * 600
    receiver = await client.receiver(queue, delete=True, prefetch=1_000)
    got = 0
    while got < 600:
        got += len(await receiver.receive_batch(1_000, 5))
    assert got == 600


async def test_an_entity_that_is_not_there(client: BusClient) -> None:
    with pytest.raises(EntityNotFoundError, match="could not be found"):
        await client.sender("nowhere")


async def test_a_message_that_is_too_large_is_not_sent(client: BusClient, queue: str) -> None:
    sender = await client.sender(queue)
    with pytest.raises(MessageTooLargeError):
        await sender.send(b"x" * (sender.max_message_bytes + 1))
    good, bad = await sender.send_many([Message(b"x").encode(), b"x" * 300_000])
    assert good is None
    assert type(bad) is MessageTooLargeError
    with pytest.raises(MessageTooLargeError):
        await sender.send_batches([Message(b"x" * 300_000)])


async def test_each_message_has_its_own_outcome() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Transfer):
            last = (event.payload or b"")[-1:]
            if last == b"f":
                event.link.session.settle(event.delivery_id, FULL)
                return True
            if last == b"r":
                event.link.session.settle(event.delivery_id, STATE_RELEASED)
                return True
        return False

    async with Script(on_event) as server, server.client() as client:
        sender = await client.sender("q")
        outcomes = await sender.send_many([b"a", b"f", b"r", b"b"])
        assert [type(outcome) for outcome in outcomes] == [type(None), QuotaExceededError, ServerBusyError, type(None)]
        with pytest.raises(QuotaExceededError, match="full"):
            await sender.send(b"f")


async def test_the_window_is_never_exceeded() -> None:
    held: list[Transfer] = []

    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Transfer):
            held.append(event)
            return True
        return False

    async with Script(on_event) as server, server.client() as client:
        sender = await client.sender("q", window=5)
        sending = asyncio.create_task(sender.send_many([b"x"] * 12))
        settled = 0
        while settled < 12:
            while len(held) < min(5, 12 - settled):
                await asyncio.sleep(0.001)
            assert sender.pending <= 5
            await asyncio.sleep(0.01)
            assert len(held) <= 5
            for event in held:
                event.link.session.settle(event.delivery_id, b"\x00\x53\x24\x45")
                settled += 1
            held.clear()
            server.conversations[0].flush()
        assert await sending == [None] * 12


async def test_senders_wait_for_credit() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Attached):
            event.link.accept(max_message_size=1_000)
            return True
        return False

    async with Script(on_event) as server, server.client() as client:
        sender = await client.sender("q")
        sending = asyncio.create_task(sender.send(b"x"))
        await asyncio.sleep(0.05)
        assert not sending.done()
        assert not any(isinstance(event, Transfer) for event in server.events)
        server.links()[0].flow(1)
        server.conversations[0].flush()
        await sending


async def test_a_submitted_message_calls_back(client: BusClient, queue: str) -> None:
    sender = await client.sender(queue)
    told: list[tuple[ServiceError | None, int]] = []
    for number in range(10):
        sender.submit(Message(b"x").encode(), lambda error, token: told.append((error, token)), number)
    await sender.idle()
    assert told == [(None, number) for number in range(10)]


async def test_a_failing_callback_costs_nobody_else_an_outcome() -> None:
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))

    def fail(_error: ServiceError | None, _token: object) -> None:
        raise RuntimeError("mine")

    async with Script() as server, server.client() as client:
        sender = await client.sender("q")
        sender.submit(b"x", fail)
        await sender.send(b"y")
        assert len(failures) == 1


async def test_a_lost_connection_is_the_outcome_of_everything_on_its_way() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        return isinstance(event, Transfer)

    async with Script(on_event) as server, server.client() as client:
        sender = await client.sender("q", window=3)
        many = asyncio.create_task(sender.send_many([b"x"] * 10))
        one = asyncio.create_task(sender.send(b"y"))
        while sum(isinstance(event, Transfer) for event in server.events) < 3:
            await asyncio.sleep(0.001)
        server.conversations[0].hang_up()
        outcomes = await many
        assert [type(outcome) for outcome in outcomes] == [ConnectionForcedError] * 10
        with pytest.raises(ConnectionForcedError):
            await one
        with pytest.raises(ConnectionForcedError):
            await sender.send(b"z")
        # The client itself continues with a new connection.
        again = await client.sender("q")
        assert again.error is None
        assert len(server.conversations) == 2


async def test_a_detached_link_is_the_outcome_of_everything_on_it() -> None:
    def on_event(conversation: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Transfer):
            event.link.detach(AmqpError("amqp:link:detach-forced", "idle"))
            return True
        return False

    async with Script(on_event) as server, server.client() as client:
        sender = await client.sender("q")
        other = await client.sender("other")
        with pytest.raises(LinkDetachedError, match="idle"):
            await sender.send(b"x")
        assert other.error is None
        assert sender.room() == 0
        with pytest.raises(LinkDetachedError):
            sender.submit(b"x", lambda error, token: None)


async def test_a_cancelled_send_leaves_the_sender_good() -> None:
    held: list[Transfer] = []

    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Transfer) and not held:
            held.append(event)
            return True
        return False

    async with Script(on_event) as server, server.client() as client:
        sender = await client.sender("q")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sender.send(b"x")
        await sender.send(b"y")
        assert sender.pending == 1
        held[0].link.session.settle(held[0].delivery_id, b"\x00\x53\x24\x45")
        server.conversations[0].flush()
        await sender.idle()


async def test_close_waits_for_outcomes(client: BusClient, queue: str) -> None:
    told: list[object] = []
    async with await client.sender(queue) as sender:
        for _ in range(50):
            sender.submit(Message(b"x").encode(), lambda error, token: told.append(error))
    assert told == [None] * 50
    with pytest.raises(LinkDetachedError):
        await sender.send(b"x")


async def test_a_slow_reader_makes_senders_wait() -> None:
    async with Script() as server, server.client() as client:
        sender = await client.sender("q", window=200)
        transport = server.conversations[0].transport
        assert transport is not None
        transport.pause_reading()
        connection = await client.connection()
        sending = asyncio.create_task(sender.send_many([b"x" * 200_000] * 100))
        for _ in range(24_000):
            await asyncio.sleep(0.005)
            if connection.wire.paused:
                break
        assert connection.wire.paused
        assert sender.room() == 0
        # One write buffer and what was submitted until it was full, but not everything.
        assert connection.engine.output_bytes < 2_000_000
        transport.resume_reading()
        assert await sending == [None] * 100


@pytest.mark.parametrize("window", [0, SEND_WINDOW_MAX + 1])
async def test_windows_are_bounded(window: int) -> None:
    async with Script() as server, server.client() as client:
        with pytest.raises(ValueError, match="window"):
            await client.sender("q", window=window)
        await client.sender("q", window=SEND_WINDOW_MAX)
