"""The unmodified Python SDK, sync and aio, in everyday use against a broker.

Every scenario is written once, on a queue of its own, and run in both colours.
"""

from __future__ import annotations

import asyncio
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from python_sdk import COLOURS, Bus, call, each, opened

from twinbus.testing import Broker

DEAD = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}
# Settings that a scenario asks for by name.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "session": {"requires_session": True},
    "short": {"lock_duration_ms": 5000},
    "shortsession": {"lock_duration_ms": 5000, "requires_session": True},
    "expiring": {"dead_letter_on_expiry": True},
    "unique": {"requires_duplicate_detection": True},
    "nosend": {"status": "SendDisabled"},
    "noreceive": {"status": "ReceiveDisabled"},
}


class Queues:
    """Gives a scenario a fresh queue of a kind."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def __call__(self, kind: str = "plain") -> str:
        return self.broker.create_queue(f"{kind}-{uuid.uuid4().hex}", **KINDS[kind]).path


Scenario = Callable[[Bus, Queues], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}
SCENARIO_TIMEOUT_S = 240


def scenario(run: Scenario) -> Scenario:
    SCENARIOS[run.__name__] = run
    return run


@pytest.fixture(scope="module", params=COLOURS)
def outcomes(request: pytest.FixtureRequest) -> dict[str, BaseException | None]:
    """Scenario -> what it failed with. All run side by side, because the SDK waits a second to open and close."""

    async def one(run: Scenario, broker: Broker) -> None:
        bus = Bus(request.param, broker.connection_string("contoso"))
        async with asyncio.timeout(SCENARIO_TIMEOUT_S), opened(bus.client):
            await run(bus, Queues(broker))

    async def all_of_them() -> dict[str, BaseException | None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(100))
        with Broker(namespaces=["contoso"]) as broker:
            ended = await asyncio.gather(*(one(run, broker) for run in SCENARIOS.values()), return_exceptions=True)
        return dict(zip(SCENARIOS, ended, strict=True))

    return asyncio.run(all_of_them())


@scenario
async def a_message_comes_back_as_it_was_sent(bus: Bus, fresh: Queues) -> None:
    queue = fresh()
    identity = uuid.uuid4()
    when = datetime(2024, 1, 31, 12, 34, 56, tzinfo=UTC)
    properties = {
        "text": "é",
        "bytes": b"plain",
        "whole": 7,
        "negative": -7,
        "yes": True,
        "fraction": 1.5,
        "id": identity,
        "when": when,
        "nothing": None,
    }
    sent = ServiceBusMessage(
        b"body",
        message_id=identity,
        application_properties=properties,
        subject="subject",
        correlation_id="correlation",
        content_type="text/plain",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply-session",
        partition_key="partition",
        time_to_live=timedelta(hours=1),
    )
    await bus.send(queue, sent)
    async with bus.receiver(queue) as receiver:
        [got] = await bus.receive(receiver, 1)
        await call(receiver.complete_message, got)
    assert b"".join(got.body) == b"body"
    assert got.message_id == identity
    for name in ("subject", "correlation_id", "content_type", "to", "reply_to", "reply_to_session_id", "partition_key"):
        assert getattr(got, name) == getattr(sent, name), name
    assert got.time_to_live == timedelta(hours=1)
    assert got.expires_at_utc == got.enqueued_time_utc + timedelta(hours=1)
    assert got.sequence_number == 1
    assert got.delivery_count == 0
    assert got.state == ServiceBusMessageState.ACTIVE
    # The client hands out text as bytes and times as milliseconds.
    expected = {key.encode(): value for key, value in properties.items()}
    expected |= {b"text": "é".encode(), b"bytes": b"plain"}
    expected[b"when"] = int(when.timestamp() * 1000)
    assert got.application_properties == expected
    assert await bus.left(queue) == 0


@scenario
async def batches_and_lists(bus: Bus, fresh: Queues) -> None:
    queue = fresh()
    async with opened(bus.client.get_queue_sender(queue)) as sender:
        batch = await call(sender.create_message_batch)
        for number in range(100):
            batch.add_message(ServiceBusMessage(str(number)))
        await call(sender.send_messages, batch)
        await call(sender.send_messages, [ServiceBusMessage(str(number)) for number in range(100, 150)])
    async with bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        got = await bus.receive(receiver, 150)
    assert [str(message) for message in got] == [str(number) for number in range(150)]


@scenario
async def large_and_too_large(bus: Bus, fresh: Queues) -> None:
    queue = fresh()
    body = bytes(range(256)) * 800
    await bus.send(queue, ServiceBusMessage(body))
    async with bus.receiver(queue) as receiver:
        [got] = await bus.receive(receiver, 1)
        await call(receiver.complete_message, got)
    assert b"".join(got.body) == body
    with pytest.raises(MessageSizeExceededError):
        await bus.send(queue, ServiceBusMessage(b"x" * 300_000))
    assert await bus.left(queue) == 0


@scenario
async def settled_in_every_way(bus: Bus, fresh: Queues) -> None:
    queue = fresh()
    ways = ["complete", "abandon", "defer", "dead-letter"]
    await bus.send(queue, [ServiceBusMessage(way) for way in ways])
    async with bus.receiver(queue) as receiver:
        got = {str(message): message for message in await bus.receive(receiver, 4)}
        await call(receiver.complete_message, got["complete"])
        await call(receiver.defer_message, got["defer"])
        await call(receiver.dead_letter_message, got["dead-letter"], reason="bad", error_description="very bad")
        await call(receiver.abandon_message, got["abandon"])
        [again] = await bus.receive(receiver, 1)
        assert (str(again), again.delivery_count) == ("abandon", 1)
        await call(receiver.complete_message, again)
        number = got["defer"].sequence_number
        [deferred] = await call(receiver.receive_deferred_messages, [number])
        assert (str(deferred), deferred.state) == ("defer", ServiceBusMessageState.DEFERRED)
        await call(receiver.complete_message, deferred)
        with pytest.raises(MessageNotFoundError):
            await call(receiver.receive_deferred_messages, [number])
    async with bus.receiver(queue, **DEAD) as receiver:
        [dead] = await bus.receive(receiver, 1)
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("bad", "very bad")
        assert dead.sequence_number == got["dead-letter"].sequence_number
        await call(receiver.complete_message, dead)
    assert await bus.left(queue) == 0
    assert await bus.left(queue, **DEAD) == 0


@scenario
async def settlement_over_another_receiver(bus: Bus, fresh: Queues) -> None:
    queue = fresh()
    await bus.send(queue, ServiceBusMessage("a"))
    async with bus.receiver(queue) as one, bus.receiver(queue) as two:
        [got] = await bus.receive(one, 1)
        await call(two.complete_message, got)
    assert await bus.left(queue) == 0


@scenario
async def sessions_by_id(bus: Bus, fresh: Queues) -> None:
    queue = fresh("session")
    sessions = ["a", "b", "a", ""]
    await bus.send(queue, [ServiceBusMessage(session, session_id=session) for session in sessions])
    async with bus.receiver(queue, session_id="a") as receiver:
        assert receiver.session.session_id == "a"
        with pytest.raises(SessionCannotBeLockedError):
            async with bus.receiver(queue, session_id="a"):
                pass
        before = receiver.session.locked_until_utc
        assert await call(receiver.session.get_state) is None
        await call(receiver.session.set_state, b"step 1")
        assert await call(receiver.session.get_state) == b"step 1"
        await asyncio.sleep(0.05)
        assert await call(receiver.session.renew_lock) > before
        assert [str(message) for message in await call(receiver.peek_messages, 10)] == ["a", "a"]
        for message in await bus.receive(receiver, 2):
            assert message.session_id == "a"
            await call(receiver.complete_message, message)
    async with bus.receiver(queue, session_id="") as receiver:
        [got] = await bus.receive(receiver, 1)
        assert got.session_id == ""
        await call(receiver.complete_message, got)


@scenario
async def the_next_session_and_none(bus: Bus, fresh: Queues) -> None:
    queue = fresh("session")
    await bus.send(queue, ServiceBusMessage("x", session_id="x"))
    async with bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        assert receiver.session.session_id == "x"
        started = time.monotonic()
        with pytest.raises(OperationTimeoutError):
            async with bus.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1):
                pass
        assert time.monotonic() - started >= 0.9


@scenario
async def sessions_are_listed(bus: Bus, fresh: Queues) -> None:
    queue = fresh("session")
    await bus.send(queue, [ServiceBusMessage("x", session_id=session) for session in ("x", "y")])
    pages = bus.client.list_queue_sessions(queue)
    found = (
        [session async for session in pages] if hasattr(pages, "__anext__") else await asyncio.to_thread(list, pages)
    )
    assert sorted(found) == ["x", "y"]


@scenario
async def sessions_used_wrongly(bus: Bus, fresh: Queues) -> None:
    with pytest.raises(ServiceBusError, match="SessionId was not set"):
        await bus.send(fresh("session"), ServiceBusMessage("no session"))
    with pytest.raises(ServiceBusError, match="non-sessionful message receiver"):
        async with bus.receiver(fresh("session")):
            pass
    with pytest.raises(ServiceBusError, match="sessionful message receiver cannot be created"):
        async with bus.receiver(fresh(), session_id="a"):
            pass


@scenario
async def schedule_and_cancel(bus: Bus, fresh: Queues) -> None:
    queue = fresh()
    # The client needs a second or two to open its links.
    due = datetime.now(UTC) + timedelta(seconds=5)
    async with opened(bus.client.get_queue_sender(queue)) as sender:
        messages = [ServiceBusMessage("kept"), ServiceBusMessage("cancelled")]
        kept, cancelled = await call(sender.schedule_messages, messages, due)
        await call(sender.cancel_scheduled_messages, [cancelled])
        with pytest.raises(MessageNotFoundError):
            await call(sender.cancel_scheduled_messages, [cancelled])
    async with bus.receiver(queue) as receiver:
        [peeked] = await call(receiver.peek_messages, 10)
        assert (peeked.sequence_number, peeked.state) == (kept, ServiceBusMessageState.SCHEDULED)
        [got] = await bus.receive(receiver, 1, patience_s=10)
        assert (str(got), got.state) == ("kept", ServiceBusMessageState.SCHEDULED)
        # It is appended to the queue when it is due, with a number of its own.
        assert got.sequence_number > cancelled
        assert got.enqueued_time_utc >= due.replace(microsecond=due.microsecond // 1000 * 1000)
        await call(receiver.complete_message, got)


@scenario
async def peek(bus: Bus, fresh: Queues) -> None:
    queue = fresh()
    await bus.send(queue, [ServiceBusMessage(str(number)) for number in range(5)])
    async with bus.receiver(queue) as receiver:
        assert [str(message) for message in await call(receiver.peek_messages, 3)] == ["0", "1", "2"]
        assert [str(message) for message in await call(receiver.peek_messages, 3)] == ["3", "4"]
        assert [str(message) for message in await call(receiver.peek_messages, 2, sequence_number=2)] == ["1", "2"]
        assert await call(receiver.peek_messages, 1, sequence_number=6) == []
        assert len(await bus.receive(receiver, 5)) == 5


@scenario
async def receive_and_delete(bus: Bus, fresh: Queues) -> None:
    queue = fresh()
    await bus.send(queue, [ServiceBusMessage(str(number)) for number in range(3)])
    async with bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert [str(message) for message in await bus.receive(receiver, 3)] == ["0", "1", "2"]
    assert await bus.left(queue) == 0


@scenario
async def prefetch_and_iteration(bus: Bus, fresh: Queues) -> None:
    queue = fresh()
    await bus.send(queue, [ServiceBusMessage(str(number)) for number in range(120)])
    got = []
    async with bus.receiver(queue, prefetch_count=50, max_wait_time=1) as receiver:
        async for message in each(receiver):
            got.append(str(message))
            await call(receiver.complete_message, message)
    assert got == [str(number) for number in range(120)]
    assert await bus.left(queue) == 0


@scenario
async def max_wait_time(bus: Bus, fresh: Queues) -> None:
    async with bus.receiver(fresh()) as receiver:
        started = time.monotonic()
        assert await call(receiver.receive_messages, max_wait_time=0.5) == []
        assert time.monotonic() - started >= 0.4


@scenario
async def duplicates_are_dropped(bus: Bus, fresh: Queues) -> None:
    queue = fresh("unique")
    for body in ("first", "second"):
        await bus.send(queue, ServiceBusMessage(body, message_id="same"))
    async with bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert [str(message) for message in await bus.receive(receiver, 2, patience_s=1)] == ["first"]


@scenario
async def unknown_and_disabled_entities(bus: Bus, fresh: Queues) -> None:
    # The client calls every refused token an authentication error; the reason is inside.
    with pytest.raises(ServiceBusAuthenticationError) as refused:
        await bus.send("no-such-queue", ServiceBusMessage("a"))
    assert refused.value.inner_exception.status_code == 404
    assert b"The messaging entity 'sb://localhost/no-such-queue' could not be found" in (
        refused.value.inner_exception.status_description
    )
    with pytest.raises(ServiceBusAuthenticationError):
        async with bus.receiver("no-such-queue"):
            pass
    with pytest.raises(MessagingEntityDisabledError):
        await bus.send(fresh("nosend"), ServiceBusMessage("a"))
    with pytest.raises(MessagingEntityDisabledError):
        async with bus.receiver(fresh("noreceive")):
            pass


@scenario
async def message_lock_lost(bus: Bus, fresh: Queues) -> None:
    queue = fresh("short")
    await bus.send(queue, ServiceBusMessage("a"))
    async with bus.receiver(queue) as receiver:
        [got] = await bus.receive(receiver, 1)
        await asyncio.sleep(5.5)
        with pytest.raises(MessageLockLostError):
            await call(receiver.complete_message, got)
        [again] = await bus.receive(receiver, 1)
        assert again.delivery_count == 1
        await call(receiver.complete_message, again)


@scenario
async def message_lock_renewed(bus: Bus, fresh: Queues) -> None:
    queue = fresh("short")
    await bus.send(queue, ServiceBusMessage("a"))
    async with bus.receiver(queue) as receiver:
        [got] = await bus.receive(receiver, 1)
        before = got.locked_until_utc
        await asyncio.sleep(3)
        assert await call(receiver.renew_message_lock, got) >= before + timedelta(seconds=2.5)
        await asyncio.sleep(3)
        await call(receiver.complete_message, got)


@scenario
async def auto_lock_renewed(bus: Bus, fresh: Queues) -> None:
    queue = fresh("short")
    await bus.send(queue, ServiceBusMessage("a"))
    async with opened(bus.package.AutoLockRenewer()) as renewer, bus.receiver(queue) as receiver:
        [got] = await bus.receive(receiver, 1)
        renewer.register(receiver, got, max_lock_renewal_duration=30)
        await asyncio.sleep(6.5)
        await call(receiver.complete_message, got)
    assert await bus.left(queue) == 0


@scenario
async def session_lock_lost(bus: Bus, fresh: Queues) -> None:
    queue = fresh("shortsession")
    await bus.send(queue, ServiceBusMessage("a", session_id="a"))
    async with bus.receiver(queue, session_id="a") as receiver:
        [got] = await bus.receive(receiver, 1)
        await asyncio.sleep(5.5)
        with pytest.raises(SessionLockLostError):
            await call(receiver.complete_message, got)
    async with bus.receiver(queue, session_id="a") as receiver:
        [again] = await bus.receive(receiver, 1)
        assert again.delivery_count == 1
        await call(receiver.complete_message, again)


@scenario
async def expired(bus: Bus, fresh: Queues) -> None:
    queue = fresh("expiring")
    await bus.send(queue, ServiceBusMessage("a", time_to_live=timedelta(seconds=1)))
    async with bus.receiver(queue, **DEAD) as receiver:
        [dead] = await bus.receive(receiver, 1)
        assert dead.dead_letter_reason == "TTLExpiredException"
        await call(receiver.complete_message, dead)
    assert await bus.left(queue) == 0


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(outcomes: dict[str, BaseException | None], name: str) -> None:
    error = outcomes[name]
    assert error is None, "".join(traceback.format_exception(error))
