"""Receiving and settling."""

from __future__ import annotations

import asyncio

import pytest

from twinbus.amqp import STATE_ACCEPTED, AmqpError, AmqpEvent, Attached, Credit, Disposed, Transfer, state_rejected
from twinbus.client import BusClient, Message, Receiver
from twinbus.errors import (
    ArgumentError,
    ConnectionForcedError,
    LinkDetachedError,
    MessageLockLostError,
    ServiceError,
)
from twinbus.limits import PREFETCH_MAX
from twinbus.testing import Broker

from .script import Conversation, Script


async def filled(client: BusClient, queue: str, count: int) -> None:
    sender = await client.sender(queue)
    assert await sender.send_many(Message(str(n), message_id=str(n)).encode() for n in range(count)) == [None] * count
    await sender.close()


async def all_of(receiver: Receiver, count: int) -> list[int]:
    got: list[int] = []
    while len(got) < count:
        taken = await receiver.receive_batch(count, 5)
        assert taken
        got += [int(message.body) for message in taken]
    return got


async def test_receive_batch_takes_what_is_there(client: BusClient, queue: str) -> None:
    await filled(client, queue, 4)
    receiver = await client.receiver(queue)
    taken = await receiver.receive_batch(10, 5)
    assert [message.body for message in taken] == [b"0", b"1", b"2", b"3"]
    assert await receiver.complete_many(taken) == [None] * 4
    assert await receiver.receive_batch(1, 0.05) == []
    assert await receiver.receive(0.05) is None


async def test_nothing_comes_when_nobody_waits(client: BusClient, queue: str) -> None:
    receiver = await client.receiver(queue)
    assert await receiver.receive_batch(10, 0.05) == []
    await filled(client, queue, 3)
    other = await client.receiver(queue)
    assert len(await other.receive_batch(10, 5)) == 3


async def test_waiting_receivers_get_what_comes(client: BusClient, queue: str) -> None:
    receiver = await client.receiver(queue)
    waiting = asyncio.create_task(receiver.receive_batch(10, 5))
    await asyncio.sleep(0.05)
    await filled(client, queue, 1)
    assert len(await waiting) == 1


@pytest.mark.parametrize("prefetch", [0, 1, 7, 100])
async def test_every_message_is_received_once_and_in_order(client: BusClient, queue: str, prefetch: int) -> None:
    await filled(client, queue, 60)
    receiver = await client.receiver(queue, prefetch=prefetch, delete=True)
    assert await all_of(receiver, 60) == list(range(60))


async def test_the_iterator_goes_on_until_it_is_closed(client: BusClient, queue: str) -> None:
    await filled(client, queue, 30)
    receiver = await client.receiver(queue, prefetch=10)
    seen: list[bytes] = []
    async for message in receiver:
        seen.append(message.body)
        await receiver.complete(message)
        if len(seen) == 30:
            await receiver.close()
    assert seen == [str(n).encode() for n in range(30)]


async def test_prefetch_never_holds_more_than_it_says() -> None:
    granted: list[int] = []

    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Credit):
            granted.append(event.link.credit)
            while event.link.sendable():
                event.link.send(Message(b"x").encode(), tag=b"t" * 16, settled=False)
        return False

    async with Script(on_event) as server, server.client() as client:
        receiver = await client.receiver("q", prefetch=10)
        for _ in range(20):
            await asyncio.sleep(0.005)
            assert len(receiver._buffer) <= 10
            taken = await receiver.receive_batch(3, 5)
            assert len(taken) <= 3
        assert max(granted) <= 10


async def test_complete_removes(client: BusClient, broker: Broker, queue: str) -> None:
    await filled(client, queue, 10)
    receiver = await client.receiver(queue, prefetch=20)
    taken = []
    while len(taken) < 10:
        taken += await receiver.receive_batch(10, 5)
    assert await receiver.complete_many(taken) == [None] * 10
    management = await client.management(queue)
    assert await management.peek(10) == []


async def test_neighbours_are_completed_in_one_frame() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Credit) and event.link.credit:
            for _number in range(event.link.sendable()):
                event.link.send(Message(b"x").encode(), tag=b"t" * 16, settled=False)
        return False

    async with Script(on_event) as server, server.client() as client:
        receiver = await client.receiver("q", prefetch=50)
        taken = []
        while len(taken) < 50:
            taken += await receiver.receive_batch(50, 5)
        outcomes = await receiver.complete_many(taken[:50])
        assert outcomes == [None] * 50
        (disposed,) = [event for event in server.events if isinstance(event, Disposed)]
        assert len(disposed.deliveries) == 50
        assert not disposed.settled


async def test_abandon_counts_and_merges_properties(client: BusClient, queue: str) -> None:
    await filled(client, queue, 1)
    receiver = await client.receiver(queue)
    message = await receiver.receive(5)
    assert message is not None
    assert message.delivery_count == 0
    await receiver.abandon(message, {"tried": "yes"})
    again = await receiver.receive(5)
    assert again is not None
    assert again.delivery_count == 1
    assert again.application_properties == {"tried": "yes"}


async def test_release_does_not_count(client: BusClient, queue: str) -> None:
    await filled(client, queue, 2)
    receiver = await client.receiver(queue)
    receiver.release(await receiver.receive_batch(2, 5))
    again = await receiver.receive_batch(2, 5)
    assert [message.delivery_count for message in again] == [0, 0]


async def test_defer_then_fetch_by_number(client: BusClient, queue: str) -> None:
    await filled(client, queue, 2)
    receiver = await client.receiver(queue)
    first, second = await receiver.receive_batch(2, 5)
    await receiver.defer(first)
    await receiver.defer(second, {"later": True})
    assert await receiver.receive_batch(2, 0.05) == []
    fetched = await receiver.receive_deferred([second.sequence_number, first.sequence_number])
    assert sorted(message.body for message in fetched) == [b"0", b"1"]
    assert all(message.lock_token for message in fetched)
    assert await receiver.complete_many(fetched) == [None, None]
    with pytest.raises(ServiceError):
        await receiver.receive_deferred([first.sequence_number])


async def test_dead_letter_moves_with_its_reason(client: BusClient, queue: str) -> None:
    await filled(client, queue, 1)
    receiver = await client.receiver(queue)
    message = await receiver.receive(5)
    assert message is not None
    await receiver.dead_letter(message, "broken", "cannot be read", {"extra": 1})
    dead = await client.receiver(queue, dead_letters=True)
    moved = await dead.receive(5)
    assert moved is not None
    assert moved.body == b"0"
    assert moved.sequence_number == message.sequence_number
    assert moved.application_properties == {
        "DeadLetterReason": "broken",
        "DeadLetterErrorDescription": "cannot be read",
        "extra": 1,
    }


async def test_renew_lock(client: BusClient, queue: str) -> None:
    await filled(client, queue, 1)
    receiver = await client.receiver(queue)
    message = await receiver.receive(5)
    assert message is not None
    before = message.locked_until_ms
    await asyncio.sleep(0.02)
    after = await receiver.renew_lock(message)
    assert before is not None
    assert message.locked_until_ms == after > before


async def test_a_lost_lock_is_the_outcome(client: BusClient, queue: str) -> None:
    await filled(client, queue, 2)
    receiver = await client.receiver(queue)
    first, second = await receiver.receive_batch(2, 5)
    assert first.lock_token is not None
    # Settled from another connection, so the lock is gone when the link settles.
    management = await client.management(queue)
    await management.update_disposition([first.lock_token], "completed")
    lost, done = await receiver.complete_many([first, second])
    assert type(lost) is MessageLockLostError
    assert done is None
    with pytest.raises(ServiceError):
        await receiver.complete(second)


async def test_a_closed_receiver_settles_by_request(client: BusClient, queue: str) -> None:
    await filled(client, queue, 2)
    receiver = await client.receiver(queue)
    first, second = await receiver.receive_batch(2, 5)
    await receiver.close()
    await receiver.complete(first)
    await receiver.dead_letter(second, "late")
    management = await client.management(queue)
    assert await management.peek(5) == []


async def test_what_is_buffered_is_released_on_close(client: BusClient, queue: str) -> None:
    await filled(client, queue, 20)
    receiver = await client.receiver(queue, prefetch=20)
    assert await receiver.receive(5) is not None
    await receiver.close()
    other = await client.receiver(queue, prefetch=20)
    got = []
    while len(got) < 19:
        got += await other.receive_batch(20, 5)
    assert {message.delivery_count for message in got} == {0}
    with pytest.raises(LinkDetachedError):
        await receiver.receive_batch(1, 1)


async def test_receive_and_delete_has_nothing_to_settle(client: BusClient, queue: str) -> None:
    await filled(client, queue, 1)
    receiver = await client.receiver(queue, delete=True)
    message = await receiver.receive(5)
    assert message is not None
    with pytest.raises(ArgumentError):
        await receiver.complete(message)


async def test_a_message_settled_twice_fails_the_first_wait() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Credit) and event.link.credit:
            event.link.send(Message(b"x").encode(), tag=b"t" * 16, settled=False)
        return isinstance(event, Disposed)

    async with Script(on_event) as server, server.client() as client:
        receiver = await client.receiver("q", prefetch=1)
        (message,) = await receiver.receive_batch(1, 5)
        first = receiver.settle_nowait([message], STATE_ACCEPTED)
        second = receiver.settle_nowait([message], STATE_ACCEPTED)
        (outcome,) = await first
        assert type(outcome) is ArgumentError
        assert not second.done()
        server.conversations[0].hang_up()
        (outcome,) = await second
        assert type(outcome) is ConnectionForcedError


async def test_a_failed_settlement_has_the_service_error() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Credit) and event.link.credit:
            event.link.send(Message(b"x").encode(), tag=b"t" * 16, settled=False)
        if isinstance(event, Disposed):
            for delivery_id, _, _ in event.deliveries:
                error = AmqpError("com.microsoft:message-lock-lost", "gone")
                event.session.answer(delivery_id, state_rejected(error))
            return True
        return False

    async with Script(on_event) as server, server.client() as client:
        receiver = await client.receiver("q", prefetch=1)
        (message,) = await receiver.receive_batch(1, 5)
        with pytest.raises(MessageLockLostError, match="gone"):
            await receiver.complete(message)


async def test_without_echo_a_settlement_is_done_when_it_is_said() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Credit) and event.link.credit:
            event.link.send(Message(b"x").encode(), tag=b"t", settled=False)
        return False

    async with Script(on_event) as server, server.client() as client:
        receiver = await client.receiver("q", prefetch=1, echo=False)
        (message,) = await receiver.receive_batch(1, 5)
        assert message.lock_token is None
        await receiver.complete(message)
        while not any(isinstance(event, Disposed) for event in server.events):
            await asyncio.sleep(0.001)
        assert next(event for event in server.events if isinstance(event, Disposed)).settled
        assert server.links()[0].rcv_settle_mode == 0


async def test_a_lost_connection_ends_the_wait() -> None:
    async with Script() as server, server.client() as client:
        receiver = await client.receiver("q")
        waiting = asyncio.create_task(receiver.receive_batch(1, 60))
        await asyncio.sleep(0.02)
        server.conversations[0].hang_up()
        with pytest.raises(ConnectionForcedError):
            await waiting
        with pytest.raises(ConnectionForcedError):
            async for _ in receiver:
                pass


async def test_what_was_received_before_the_loss_is_handed_out_first() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Credit) and event.link.credit:
            for number in range(3):
                event.link.send(Message(str(number)).encode(), tag=b"t" * 16, settled=False)
            event.link.detach(AmqpError("amqp:link:detach-forced", "moved"))
        return False

    async with Script(on_event) as server, server.client() as client:
        receiver = await client.receiver("q", prefetch=10)
        await asyncio.sleep(0.05)
        assert len(await receiver.receive_batch(10, 5)) == 3
        with pytest.raises(LinkDetachedError, match="moved"):
            await receiver.receive_batch(10, 5)


async def test_a_peer_that_ignores_credit_is_left() -> None:
    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Attached):
            event.link.accept()
            event.link.session.remote_window = 1_000_000
            for _ in range(2 * PREFETCH_MAX + 10):
                event.link.send(b"\x00\x53\x75\xa0\x00", tag=b"t", settled=True)
            return True
        return False

    async with Script(on_event) as server, server.client() as client:
        receiver = await client.receiver("q")
        for _ in range(12_000):
            if not receiver._link.attached:
                break
            await asyncio.sleep(0.01)
        assert not receiver._link.attached
        assert len(receiver._buffer) <= 2 * PREFETCH_MAX + 1


async def test_a_peer_that_cannot_drain_does_not_hang_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.client.receiver.CLIENT_CLOSE_TIMEOUT_MS", 50)

    def on_event(_: Conversation, event: AmqpEvent) -> bool:
        return isinstance(event, Credit)

    async with Script(on_event) as server, server.client() as client:
        receiver = await client.receiver("q")
        assert await receiver.receive_batch(1, 0.01) == []
        assert not any(isinstance(event, Transfer) for event in server.events)


@pytest.mark.parametrize("prefetch", [-1, PREFETCH_MAX + 1])
async def test_prefetch_is_bounded(prefetch: int) -> None:
    async with Script() as server, server.client() as client:
        with pytest.raises(ValueError, match="prefetch"):
            await client.receiver("q", prefetch=prefetch)
        receiver = await client.receiver("q", prefetch=PREFETCH_MAX)
        with pytest.raises(ValueError, match="at least one"):
            await receiver.receive_batch(0)


async def test_settling_what_was_buffered_when_the_connection_was_lost_fails_at_once() -> None:
    with Broker(["n"], ["q"], sync=False, allow_faults=True) as broker:
        async with BusClient.from_connection_string(broker.connection_string()) as client:
            await filled(client, "q", 5)
            receiver = await client.receiver("q", prefetch=5)
            (first,) = await receiver.receive_batch(1, 5)
            with broker.fault("down"):
                async with asyncio.timeout(120):
                    while receiver.error is None:
                        await asyncio.sleep(0.01)
                    outcomes = await receiver.complete_many([first])
            assert [type(error) for error in outcomes] == [ConnectionForcedError]
