"""Sessions: accepting, state, locks."""

from __future__ import annotations

import asyncio

import pytest

from twinbus.amqp import AmqpEvent, Attached
from twinbus.client import BusClient, Message
from twinbus.errors import (
    InternalError,
    NotAllowedError,
    OperationTimeoutError,
    ServiceError,
    SessionCannotBeLockedError,
)

from .script import Conversation, Script


async def send(client: BusClient, queue: str, *sessions: str) -> None:
    sender = await client.sender(queue)
    for session_id in sessions:
        await sender.send(Message(session_id, session_id=session_id))


async def test_a_session_by_its_id(client: BusClient, session_queue: str) -> None:
    await send(client, session_queue, "a", "b", "a")
    receiver = await client.accept_session(session_queue, "a")
    assert receiver.session_id == "a"
    assert receiver.locked_until_ms is not None
    taken = await receiver.receive_batch(10, 5)
    assert [message.session_id for message in taken] == ["a", "a"]
    assert await receiver.complete_many(taken) == [None, None]


async def test_the_next_session(client: BusClient, session_queue: str) -> None:
    await send(client, session_queue, "a", "b")
    first = await client.accept_session(session_queue, prefetch=5)
    second = await client.accept_session(session_queue)
    assert {first.session_id, second.session_id} == {"a", "b"}
    message = await first.receive(5)
    assert message is not None
    assert message.session_id == first.session_id


async def test_no_session_is_free(client: BusClient, session_queue: str) -> None:
    with pytest.raises(OperationTimeoutError):
        await client.accept_session(session_queue, timeout_ms=200)


async def test_a_session_is_waited_for(client: BusClient, session_queue: str) -> None:
    accepting = asyncio.create_task(client.accept_session(session_queue, timeout_ms=10_000))
    await asyncio.sleep(0.05)
    await send(client, session_queue, "late")
    assert (await accepting).session_id == "late"


async def test_a_session_is_held_by_one(client: BusClient, session_queue: str) -> None:
    receiver = await client.accept_session(session_queue, "a")
    with pytest.raises(SessionCannotBeLockedError):
        await client.accept_session(session_queue, "a")
    await receiver.close()
    again = await client.accept_session(session_queue, "a")
    assert again.session_id == "a"


async def test_state_is_kept(client: BusClient, session_queue: str) -> None:
    receiver = await client.accept_session(session_queue, "a")
    assert await receiver.get_state() is None
    await receiver.set_state(b"half way")
    assert await receiver.get_state() == b"half way"
    await receiver.set_state(None)
    assert await receiver.get_state() is None


async def test_the_lock_is_renewed(client: BusClient, session_queue: str) -> None:
    receiver = await client.accept_session(session_queue, "a")
    before = receiver.locked_until_ms
    assert before is not None
    await asyncio.sleep(0.02)
    assert await receiver.renew_session() > before


async def test_deferred_messages_of_a_session(client: BusClient, session_queue: str) -> None:
    await send(client, session_queue, "a")
    receiver = await client.accept_session(session_queue, "a")
    message = await receiver.receive(5)
    assert message is not None
    await receiver.defer(message)
    (fetched,) = await receiver.receive_deferred([message.sequence_number])
    await receiver.complete(fetched)
    with pytest.raises(ServiceError):
        await receiver.receive_deferred([message.sequence_number])


async def test_sessions_are_listed(client: BusClient, session_queue: str) -> None:
    await send(client, session_queue, *(str(number) for number in range(120)))
    management = await client.management(session_queue)
    assert sorted(await management.list_sessions(), key=int) == [str(number) for number in range(120)]


async def test_a_plain_receiver_is_refused(client: BusClient, session_queue: str, queue: str) -> None:
    with pytest.raises(NotAllowedError):
        await client.receiver(session_queue)
    with pytest.raises(NotAllowedError):
        await client.accept_session(queue, "a")


async def test_a_service_that_does_not_say_which_session() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Attached):
            assert event.link.source is not None
            event.link.accept(source=event.link.source.with_filter(None))
            return True
        return False

    async with Script(on_event) as server, server.client() as client:
        with pytest.raises(InternalError, match="did not name the accepted session"):
            await client.accept_session("q")
