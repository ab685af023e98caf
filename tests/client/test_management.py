"""Requests and responses: what the broker answers, and what an invalid answer raises."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from twinbus.amqp import AmqpError, AmqpEvent, AmqpMessage, Int, Symbol, Transfer, state_rejected
from twinbus.client import BusClient, Message
from twinbus.clock import SystemClock
from twinbus.errors import (
    ArgumentError,
    ConnectionForcedError,
    InternalError,
    MessageLockLostError,
    MessageNotFoundError,
    OperationTimeoutError,
    QuotaExceededError,
    ServiceError,
)
from twinbus.limits import REQUESTS_PENDING_MAX

from .script import Conversation, Script


async def filled(client: BusClient, queue: str, count: int) -> None:
    sender = await client.sender(queue)
    await sender.send_many([Message(str(number)).encode() for number in range(count)])


async def test_peek_from_a_number(client: BusClient, queue: str) -> None:
    await filled(client, queue, 5)
    management = await client.management(queue)
    assert [message.body for message in await management.peek(10)] == [b"0", b"1", b"2", b"3", b"4"]
    later = await management.peek(2, from_sequence_number=3)
    assert [message.sequence_number for message in later] == [3, 4]
    assert await management.peek(10, from_sequence_number=9) == []
    assert all(message.lock_token is None for message in later)


async def test_schedule_and_cancel(client: BusClient, queue: str) -> None:
    management = await client.management(queue)
    soon = SystemClock().now_ms() + 60_000
    numbers = await management.schedule(
        [Message(b"a", scheduled_ms=soon, message_id="a"), Message(b"b", scheduled_ms=soon, partition_key="p").encode()]
    )
    assert len(numbers) == 2
    assert [message.state for message in await management.peek(5)] == [2, 2]
    await management.cancel(numbers)
    assert await management.peek(5) == []
    with pytest.raises(MessageNotFoundError):
        await management.cancel(numbers)
    assert await management.schedule([]) == []
    with pytest.raises(ArgumentError):
        await management.schedule([Message(b"never")])


async def test_renew_of_a_lock_that_is_not_there(client: BusClient, queue: str) -> None:
    await filled(client, queue, 1)
    receiver = await client.receiver(queue)
    message = await receiver.receive(5)
    assert message is not None
    assert message.lock_token is not None
    management = await client.management(queue)
    assert len(await management.renew_locks([message.lock_token])) == 1
    assert await management.renew_locks([]) == []
    await receiver.complete(message)
    with pytest.raises(MessageLockLostError):
        await management.renew_locks([message.lock_token])
    with pytest.raises(MessageLockLostError):
        await management.update_disposition([message.lock_token], "completed")


async def test_delete_batch(client: BusClient, queue: str) -> None:
    await filled(client, queue, 5)
    management = await client.management(queue)
    before_ms = SystemClock().now_ms() + 1_000
    assert await management.delete_batch(3, before_ms=before_ms) == 3
    assert len(await management.peek(10)) == 2
    assert await management.delete_batch(10, before_ms=before_ms) == 2
    assert await management.delete_batch(10, before_ms=before_ms) == 0


async def test_many_requests_at_once(client: BusClient, queue: str) -> None:
    await filled(client, queue, 3)
    management = await client.management(queue)
    answers = await asyncio.gather(*(management.peek(1, from_sequence_number=1 + n % 3) for n in range(60)))
    assert [answer[0].sequence_number for answer in answers] == [1 + n % 3 for n in range(60)]


def answering(status: Any, body: Any = None, **properties: Any) -> Script:
    def on_event(conversation: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Transfer):
            event.link.session.settle(event.delivery_id, b"\x00\x53\x24\x45")
            conversation.respond(event, {"statusCode": status, **properties}, body)
            return True
        return False

    return Script(on_event)


@pytest.mark.parametrize(
    ("status", "body", "properties", "kind"),
    [
        (Int(200), "text", {}, InternalError),
        (Int(200), {}, {}, InternalError),
        (Int(200), {"expirations": 5}, {}, InternalError),
        ("200", {}, {}, InternalError),
        (Int(410), None, {"errorCondition": Symbol("com.microsoft:message-lock-lost")}, MessageLockLostError),
        (Int(404), None, {}, ServiceError),
    ],
)
async def test_answers_that_are_no_good(status: Any, body: Any, properties: Any, kind: type[ServiceError]) -> None:
    async with answering(status, body, **properties) as server, server.client() as client:
        management = await client.management("q")
        with pytest.raises(kind):
            await management.renew_session("s")


async def test_messages_in_an_answer_that_are_no_good() -> None:
    for entry in ("text", {"message": "text"}):
        async with answering(Int(200), {"messages": [entry]}) as server, server.client() as client:
            management = await client.management("q")
            with pytest.raises(InternalError):
                await management.peek(1)


async def test_no_answer_in_time_fails_that_request_alone() -> None:
    silent = True

    def on_event(conversation: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Transfer):
            event.link.session.settle(event.delivery_id, b"\x00\x53\x24\x45")
            if not silent:
                conversation.respond(event, {"statusCode": Int(200)}, {"message-count": Int(1)})
            return True
        return False

    async with Script(on_event) as server, server.client(timeout_ms=50) as client:
        management = await client.management("q")
        with pytest.raises(OperationTimeoutError):
            await management.delete_batch(1, before_ms=0)
        silent = False
        assert await management.delete_batch(1, before_ms=0) == 1
        assert len(server.conversations) == 1


async def test_an_answer_that_cannot_be_read_gets_the_next_request_a_fresh_pair() -> None:
    broken = True

    def on_event(conversation: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Transfer):
            if broken:
                link = next(link for link in event.link.session.links.values() if link.sender)
                link.send(b"nonsense", tag=b"r", settled=False)
            else:
                conversation.respond(event, {"statusCode": Int(204)})
            return True
        return False

    async with Script(on_event) as server, server.client() as client:
        management = await client.management("q")
        with pytest.raises(InternalError, match="cannot be read"):
            await management.peek(1)
        broken = False
        assert await management.peek(1) == []


async def test_a_rejected_request_fails() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Transfer):
            state = state_rejected(AmqpError("amqp:resource-limit-exceeded", "busy"))
            event.link.session.settle(event.delivery_id, state)
            return True
        return False

    async with Script(on_event) as server, server.client() as client:
        management = await client.management("q")
        with pytest.raises(QuotaExceededError):
            await management.peek(1)


async def test_requests_wait_for_credit_and_are_bounded() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        return isinstance(event, Transfer)

    async with Script(on_event) as server, server.client() as client:
        connection = await client.connection()
        node = await connection.requests("q/$management")
        waiting = [asyncio.create_task(node.ask({}, None)) for _ in range(REQUESTS_PENDING_MAX)]
        await asyncio.sleep(0.1)
        with pytest.raises(QuotaExceededError):
            await node.ask({}, None)
        server.conversations[0].hang_up()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(result) for result in results} == {ConnectionForcedError}


async def test_requests_carry_what_the_service_needs() -> None:
    async with answering(Int(204)) as server, server.client() as client:
        management = await client.management("q")
        await management.peek(1)
        (event,) = [event for event in server.events if isinstance(event, Transfer)]
        request = AmqpMessage.decode(event.payload or b"")
        assert request.message_id
        assert request.reply_to
        properties = request.application_properties or {}
        assert properties["operation"] == "com.microsoft:peek-message"
        assert properties["com.microsoft:server-timeout"] == 60_000
        assert event.link.target is not None
        assert event.link.target.address == "q/$management"
        await (await (await client.connection()).requests("q/$management")).close()
