"""Failover and fail-back end to end: real brokers, real sockets, sync and async clients."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from tests.paired.pairs import Pair, call, opened
from twinbus.client import BusClient
from twinbus.client.envelope import PATH, SCHEDULED_TIME, SESSION_ID, TIME_TO_LIVE, unwrap
from twinbus.client.message import ReceivedMessage
from twinbus.paired import EntityState, MessageInBacklogError, PairFaultedError, non_transient_error

AT_ONCE: dict[str, Any] = {"failover_interval": 0}


def bodies(found: dict[str, list[ReceivedMessage]]) -> list[bytes]:
    return sorted(message.body for messages in found.values() for message in messages)


# --- healthy ---------------------------------------------------------------------------------------------------------


async def test_healthy_everything_goes_to_the_primary_as_with_the_sdk(pair: Pair) -> None:
    async with pair.sender() as sender:
        await call(sender.send_messages, ServiceBusMessage("message"))
        await call(sender.send_messages, [ServiceBusMessage("list"), {"body": "mapping"}])
        await call(sender.send_messages, AmqpAnnotatedMessage(data_body=b"annotated"))
        batch = await call(sender.create_message_batch)
        batch.add_message(ServiceBusMessage("batch"))
        await call(sender.send_messages, batch)
        await call(sender.send_messages, [])
        await call(sender.send_messages, await call(sender.create_message_batch))
        soon = datetime.now(UTC) + timedelta(hours=1)
        (number,) = await call(sender.schedule_messages, ServiceBusMessage("scheduled"), soon)
        assert number > 0
        await call(sender.cancel_scheduled_messages, number)
        assert sender.entity_name == "orders"
        assert sender.paired_client.entity_states == {"orders": EntityState.HEALTHY}
    found = await pair.in_primary(5)
    assert sorted(message.body for message in found) == [b"annotated", b"batch", b"list", b"mapping", b"message"]
    assert all(message.message_id for message in found)
    assert pair.events == []


async def test_receivers_are_the_primarys(pair: Pair) -> None:
    async with pair.client() as client, opened(client.get_queue_sender("orders")) as sender:
        await call(sender.send_messages, ServiceBusMessage("hello"))
        async with opened(client.get_queue_receiver("orders", max_wait_time=5)) as receiver:
            (message,) = await call(receiver.receive_messages, 1)
            await call(receiver.complete_message, message)
        assert str(message) == "hello"


async def test_topics(pair: Pair) -> None:
    news = f"news-{pair.package.__name__}"
    pair.primary.create_topic(news)
    pair.primary.create_subscription(news, "all")
    async with pair.client(**AT_ONCE) as client, opened(client.get_topic_sender(news)) as sender:
        await call(sender.send_messages, ServiceBusMessage("hello"))
        async with opened(client.get_subscription_receiver(news, "all", max_wait_time=5)) as receiver:
            assert len(await call(receiver.receive_messages, 1)) == 1
        with pair.primary.fault("down"):
            await call(sender.send_messages, ServiceBusMessage("diverted"))
    (message,) = [each for found in (await pair.in_backlog(1)).values() for each in found]
    assert message.application_properties[PATH] == news


# --- failing over and back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["down", "silent"])
async def test_failover_and_fail_back_in_time(pair: Pair, mode: str) -> None:
    """A warm and a cold sender; the interval is 1 s, an attempt 2 s, a ping every second."""
    async with pair.sender() as sender:
        cold = sender.paired_client.get_queue_sender("orders")
        await call(sender.send_messages, ServiceBusMessage("before"))
        with pair.primary.fault(mode):
            await asyncio.gather(
                call(sender.send_messages, ServiceBusMessage("held")),
                call(cold.send_messages, ServiceBusMessage("cold")),
            )
            (over,) = pair.told("failed-over")
            assert over.cause
            # After the failover the primary is not tried.
            await call(sender.send_messages, ServiceBusMessage("at once"))
            await asyncio.sleep(1.2 if mode == "down" else 0)
            assert sender.paired_client.entity_states == {"orders": EntityState.FAILED_OVER}, (
                "a failing ping changes nothing"
            )
        await pair.until("failed-back")
        await call(sender.send_messages, ServiceBusMessage("after"))
        await call(cold.send_messages, ServiceBusMessage("after, too"))
    assert bodies(await pair.in_backlog(3)) == [b"at once", b"cold", b"held"]
    found = await pair.in_primary(3)
    assert sorted(message.body for message in found) == [b"after", b"after, too", b"before"], "and no ping"


async def test_a_primary_that_is_down_from_the_start(pair: Pair) -> None:
    with pair.primary.fault("down"):
        async with pair.sender(**AT_ONCE) as sender:
            await call(sender.send_messages, ServiceBusMessage("x"))
    assert await pair.in_backlog(1)


async def test_a_held_send_goes_through_when_the_primary_returns(pair: Pair) -> None:
    async with pair.sender(failover_interval=20) as sender:
        with pair.primary.fault("refusing", "orders"):
            sending = asyncio.create_task(call(sender.send_messages, ServiceBusMessage("held")))
            await asyncio.sleep(0.5)
            assert not sending.done()
            assert sender.paired_client.entity_states == {"orders": EntityState.SUSPECT}
        await sending
        assert sender.paired_client.entity_states == {"orders": EntityState.HEALTHY}
    await pair.in_primary(1)
    assert pair.events == []


@pytest.mark.parametrize("kind", ["message", "list", "batch"])
async def test_a_held_message_arrives_as_it_was_handed_over(pair: Pair, kind: str) -> None:
    own: dict[str | bytes, Any] = {"number": 1}
    message = ServiceBusMessage(b"as it was", message_id="first", subject="before", application_properties=own)
    async with pair.sender(failover_interval=2) as sender:
        given: Any = message if kind == "message" else [message]
        if kind == "batch":
            given = await call(sender.create_message_batch)
            given.add_message(message)
        with pair.primary.fault("refusing", "orders"):
            sending = asyncio.ensure_future(call(sender.send_messages, given))
            while sender.paired_client.entity_states != {"orders": EntityState.SUSPECT}:
                await asyncio.sleep(0.01)
            message.message_id, message.subject = "second", "after"
            own["number"] = 2
            (message.application_properties or {})["number"] = 2
            if kind == "list":
                given.append(ServiceBusMessage(b"late"))
            elif kind == "batch":
                given.add_message(ServiceBusMessage(b"late"))
            await sending
    found = await pair.in_backlog(1)
    ((stored,),) = found.values()
    restored = ReceivedMessage(unwrap(stored.payload).payloads[0], None, b"")
    assert (restored.message_id, restored.subject, restored.body) == ("first", "before", b"as it was")
    assert restored.application_properties == {"number": 1}


async def test_a_caller_with_less_time_than_the_interval_sees_the_error(pair: Pair) -> None:
    async with pair.sender(failover_interval=20) as sender:
        with pair.primary.fault("refusing", "orders"):
            with pytest.raises(ServiceBusError):
                await call(sender.send_messages, ServiceBusMessage("x"), timeout=0.5)
            assert pair.told("failed-over") == [], "before the interval was over"


async def test_raising_until_the_timer_fires_is_an_option(pair: Pair) -> None:
    async with pair.sender(failover_interval=0.5, hold_sends=False) as sender:
        with pair.primary.fault("refusing", "orders"):
            with pytest.raises(ServiceBusServerBusyError):
                await call(sender.send_messages, ServiceBusMessage("refused"))
            await pair.until("failed-over", 2)
            await call(sender.send_messages, ServiceBusMessage("diverted"))
    assert bodies(await pair.in_backlog(1)) == [b"diverted"]


async def test_interval_zero_diverts_the_failing_message_itself(pair: Pair) -> None:
    async with pair.sender(**AT_ONCE) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("x"), timeout=5)
    assert bodies(await pair.in_backlog(1)) == [b"x"]


async def test_state_is_the_entitys_and_shared_by_its_senders(pair: Pair) -> None:
    pair.primary.create_queue("other")
    async with pair.sender(**AT_ONCE) as sender:
        client = sender.paired_client
        async with (
            opened(client.get_queue_sender("ORDERS")) as second,
            opened(client.get_queue_sender("other")) as other,
        ):
            with pair.primary.fault("refusing", "orders"):
                await call(sender.send_messages, ServiceBusMessage("first"))
                assert len(pair.told("failed-over")) == 1
                await call(second.send_messages, ServiceBusMessage("second"))
                await call(other.send_messages, ServiceBusMessage("other"))
            assert client.entity_states == {"orders": EntityState.FAILED_OVER, "other": EntityState.HEALTHY}
            assert await pair.until("failed-back") < 1 + 1
            await call(second.send_messages, ServiceBusMessage("back"))
    assert bodies(await pair.in_backlog(2)) == [b"first", b"second"]
    await pair.in_primary(1)
    await pair.in_primary(1, "other")


# Not for the sync client: the SDK's sync senders support one thread.
@pytest.mark.parametrize("pair", ["aio"], indirect=True)
@pytest.mark.parametrize("mode", ["down", "lossy"])
async def test_many_sends_at_once_on_one_sender(pair: Pair, mode: str) -> None:
    """A failing send takes the link from the others, which is not their callers' fault."""
    async with pair.sender(failover_interval=0.3) as sender:
        await sender.send_messages(ServiceBusMessage("before"))
        with pair.primary.fault(mode), pair.secondary.fault("down", "contoso/x-servicebus-transfer/0"):
            await asyncio.gather(*(sender.send_messages(ServiceBusMessage(str(n))) for n in range(30)))
    async with BusClient.from_connection_string(pair.secondary.connection_string()) as client:
        found = set()
        for name in sender.paired_client.backlog_queues:
            receiver = await client.receiver(name, delete=True)
            while batch := await receiver.receive_batch(100, wait_s=0.05):
                found |= {message.body for message in batch}
    assert found == {str(n).encode() for n in range(30)}


async def test_a_success_anywhere_stops_the_timer(pair: Pair) -> None:
    async with pair.sender(failover_interval=10) as sender:
        client = sender.paired_client
        async with opened(client.get_queue_sender("orders")) as second:
            with pair.primary.fault("refusing", "orders"):
                held = asyncio.create_task(call(sender.send_messages, ServiceBusMessage("held")))
                await asyncio.sleep(0.3)
                assert client.entity_states == {"orders": EntityState.SUSPECT}
            await call(second.send_messages, ServiceBusMessage("good"))
            assert client.entity_states == {"orders": EntityState.HEALTHY}
            await held
    await pair.in_primary(2)


async def test_an_answer_that_was_lost_repeats_the_same_message_id(pair: Pair) -> None:
    async with pair.sender(failover_interval=0.2) as sender:
        with pair.primary.fault("lossy", "orders"):
            await call(sender.send_messages, AmqpAnnotatedMessage(data_body=b"x"))
    (diverted,) = [each for found in (await pair.in_backlog(1)).values() for each in found]
    async with BusClient.from_connection_string(pair.primary.connection_string()) as client:
        stored = await (await client.receiver("orders", delete=True)).receive_batch(10, wait_s=5)
    assert {message.message_id for message in stored} == {diverted.message_id}


# --- what is never diverted ------------------------------------------------------------------------------------------


async def test_the_callers_own_errors_are_raised(pair: Pair) -> None:
    async with pair.client(**AT_ONCE) as client:
        missing = client.get_queue_sender("missing")

        async def send_until_refused() -> None:
            while True:
                # On a busy machine half a second may be too short to get the answer.
                with suppress(OperationTimeoutError):
                    await call(missing.send_messages, ServiceBusMessage("x"), timeout=0.5)

        with pytest.raises(MessagingEntityNotFoundError):
            await send_until_refused()
        async with opened(client.get_queue_sender("orders")) as sender:
            with pytest.raises(MessageSizeExceededError):
                await call(sender.send_messages, ServiceBusMessage(b"x" * 300_000))
            with pytest.raises(ValueError, match="x-ms-path"):
                await call(sender.send_messages, ServiceBusMessage("x", application_properties={PATH: "mine"}))
            with pytest.raises(TypeError):
                await call(sender.send_messages, 7)
            with pytest.raises(ValueError, match="greater than 0"):
                await call(sender.send_messages, ServiceBusMessage("x"), timeout=0)
            with pytest.raises(ServiceBusError):
                await call(sender.send_messages, ServiceBusMessage("x", application_properties={"big": 2**40}))
            await call(sender.send_messages, ServiceBusMessage("good"))
        assert set(client.entity_states.values()) == {EntityState.HEALTHY}
    await pair.in_backlog(0)
    assert pair.events == []


async def test_another_policy_takes_its_place(pair: Pair) -> None:
    async with pair.client(classify=non_transient_error, **AT_ONCE) as client:
        sender = client.get_queue_sender("missing")
        await call(sender.send_messages, ServiceBusMessage("x"))
    (event,) = pair.told("failed-over")
    assert (event.entity, event.cause) == ("missing", "amqp:not-found")
    await pair.in_backlog(1)


# --- what is diverted, and how ---------------------------------------------------------------------------------------


async def test_what_must_not_act_in_the_backlog_is_moved_aside(pair: Pair) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    message = ServiceBusMessage(
        "x", message_id="m1", session_id="s1", time_to_live=timedelta(seconds=1), scheduled_enqueue_time_utc=later
    )
    async with pair.sender(**AT_ONCE) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, message)
    await asyncio.sleep(1.2)  # time in the backlog does not count against the time to live
    (inside,) = [each for found in (await pair.in_backlog(1)).values() for each in found]
    own = inside.application_properties
    assert (own[PATH], own[SESSION_ID], own[TIME_TO_LIVE]) == ("orders", "s1", 1_000)
    assert own[SCHEDULED_TIME] == later.timestamp() * 1000
    assert (inside.message_id, inside.session_id, inside.scheduled_ms, inside.amqp.ttl) == ("m1", None, None, None)
    path, (payload,) = unwrap(inside.payload)
    restored = ReceivedMessage(payload, None, b"")
    assert (path, restored.session_id, restored.amqp.ttl) == ("orders", "s1", 1_000)
    assert restored.scheduled_ms == later.timestamp() * 1000


async def test_a_batch_and_a_list_move_as_a_whole(pair: Pair) -> None:
    async with pair.sender(**AT_ONCE) as sender:
        batch = await call(sender.create_message_batch)
        for number in range(5):
            batch.add_message(ServiceBusMessage(f"batch {number}"))
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, batch)
            await call(sender.send_messages, [ServiceBusMessage("list 0"), AmqpAnnotatedMessage(data_body=b"list 1")])
            # A batch can be created even while the primary is down.
            made = await call(sender.create_message_batch)
            made.add_message(ServiceBusMessage("made"))
            await call(sender.send_messages, made)
            await call(sender.send_messages, [])
    found = await pair.in_backlog(8)
    assert len(found) == 1, "one sender, one queue"
    assert [event.count for event in pair.told("diverted")] == [5, 2, 1]
    assert all(message.application_properties[PATH] == "orders" for (each,) in [found.values()] for message in each)


async def test_what_does_not_fit_in_the_backlog_is_compressed_or_refused(pair: Pair) -> None:
    async with pair.sender(**AT_ONCE) as sender:
        with pair.primary.fault("refusing", "orders"):
            large = ServiceBusMessage(b"x" * 262_100, message_id="m")
            await call(sender.send_messages, large)
            noise = Random(1).randbytes(262_100)
            with pytest.raises(MessageSizeExceededError, match=r"\d+ more than the \d+ that a backlog queue takes"):
                await call(sender.send_messages, ServiceBusMessage(noise[:262_075]))
            # The primary would refuse it, however well it can be compressed.
            with pytest.raises(MessageSizeExceededError, match=r"exceed the limit of 'orders': 262144 bytes"):
                await call(sender.send_messages, ServiceBusMessage(b"x" * 262_200))
            with pytest.raises(MessageSizeExceededError, match=r"2 message\(s\) of \d+ bytes exceed the limit"):
                await call(sender.send_messages, [ServiceBusMessage(b"x" * 200_000) for _ in range(2)])
            later = datetime.now(UTC) + timedelta(hours=1)
            for number in await call(sender.schedule_messages, [ServiceBusMessage(b"x" * 200_000)] * 2, later):
                assert number < 0
    inside, *_ = [each for found in (await pair.in_backlog(2)).values() for each in found]
    assert len(inside.payload) < 2_000
    restored = ReceivedMessage(unwrap(inside.payload).payloads[0], None, b"")
    assert (restored.message_id, restored.body) == ("m", b"x" * 262_100)


async def test_scheduling_goes_on_and_cannot_be_cancelled(pair: Pair) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    async with pair.sender(**AT_ONCE) as sender:
        with pair.primary.fault("down"):
            numbers = await call(
                sender.schedule_messages,
                [ServiceBusMessage("a"), AmqpAnnotatedMessage(data_body=b"b", properties=AmqpMessageProperties())],
                later,
            )
        assert len(set(numbers)) == 2
        assert max(numbers) < 0
        with pytest.raises(MessageInBacklogError, match="sits in the backlog"):
            await call(sender.cancel_scheduled_messages, numbers[0])
    found = await pair.in_backlog(2)
    assert bodies(found) == [b"a", b"b"]
    for message in next(iter(found.values())):
        assert message.application_properties[SCHEDULED_TIME] == later.timestamp() * 1000


class Chosen(Random):
    """Draws the backlog queue that a test names, if it is available."""

    ending = "/0"

    def choice(self, names: Any) -> Any:
        return next((name for name in names if name.endswith(self.ending)), names[0])


async def test_a_backlog_queue_that_fails_is_out_for_all_senders(pair: Pair) -> None:
    rng = Chosen()
    async with pair.client(backlog_pause=0.3, backlog_queue_count=2, rng=rng, **AT_ONCE) as client:
        await call(client.wait_until_paired)
        senders = [client.get_queue_sender("orders") for _ in range(4)]
        with pair.primary.fault("refusing", "orders"):
            with pair.secondary.fault("refusing", "contoso/x-servicebus-transfer/0"):
                for number, sender in enumerate(senders * 2):
                    await call(sender.send_messages, ServiceBusMessage(str(number)))
                    # Its pause may be over by now, but its fault is not.
                    rng.ending = "/1"
                assert [event.queue for event in pair.told("backlog-queue-out")] == ["contoso/x-servicebus-transfer/0"]
            await asyncio.sleep(0.3)
            rng.ending = "/0"
            for sender in [client.get_queue_sender("orders") for _ in range(8)]:
                await call(sender.send_messages, ServiceBusMessage("in again"))
            assert [event.queue for event in pair.told("backlog-queue-in")] == ["contoso/x-servicebus-transfer/0"]
    found = await pair.in_backlog(16, names=2)
    assert len(found) == 2


async def test_when_all_backlog_queues_are_out_sends_wait_in_their_time(pair: Pair) -> None:
    async with pair.sender(backlog_queue_count=1, **AT_ONCE) as sender:
        with pair.primary.fault("refusing", "orders"):
            with pair.secondary.fault("refusing"):
                with pytest.raises(ServiceBusError):
                    await call(sender.send_messages, ServiceBusMessage("lost"), timeout=1)
                sending = asyncio.create_task(call(sender.send_messages, ServiceBusMessage("late"), timeout=10))
                await asyncio.sleep(0.5)
            await sending
    assert bodies(await pair.in_backlog(1, names=1)) == [b"late"]


async def test_a_stale_link_to_the_backlog_is_opened_again(pair: Pair) -> None:
    """The service detaches idle links: that is no failure of the queue."""
    async with pair.sender(backlog_queue_count=1, **AT_ONCE) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("1"))
            pair.secondary.call(lambda server: server.hosts["fabrikam"].cut_connections())
            await asyncio.sleep(0.2)
            await call(sender.send_messages, ServiceBusMessage("2"))
        assert pair.told("backlog-queue-out") == []
    assert bodies(await pair.in_backlog(2, names=1)) == [b"1", b"2"]


async def test_a_send_to_a_backlog_that_is_away_ends_with_the_callers_time(pair: Pair) -> None:
    async with pair.sender(backlog_queue_count=2, failover_interval=0, ping_primary_interval=60) as sender:
        await call(sender.paired_client.wait_until_paired)
        with pair.primary.fault("refusing", "orders"), pair.secondary.fault("refusing"):
            for timeout in (0.5, 1.5):
                started = time.monotonic()
                with pytest.raises(ServiceBusError):
                    await call(sender.send_messages, ServiceBusMessage("x"), timeout=timeout)
                assert time.monotonic() - started > timeout * 0.9
        assert len(pair.told("backlog-queue-out")) == 2


@pytest.mark.parametrize(("namespace", "address"), [("a.example.net", ""), ("a.example.net:8443", ":8443")])
def test_the_address_of_administration(namespace: str, address: str) -> None:
    from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

    from twinbus.paired._async.namespaces import AsyncPairedNamespace
    from twinbus.paired._sync.namespaces import PairedNamespace

    expiry = f"SharedAccessSignature sr=x&sig=y&se={int(time.time()) + 3600}&skn=n"
    for credential in (AzureNamedKeyCredential("n", "k"), AzureSasCredential(expiry)):
        for kind in (PairedNamespace, AsyncPairedNamespace):
            admin: Any = kind.of_credential(namespace, credential).admin()
            assert admin._endpoint == f"https://a.example.net{address}"


# --- order, closing, faults ------------------------------------------------------------------------------------------


async def test_a_session_stays_in_order_across_a_failover(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for colour in ("_sync", "_async"):
        monkeypatch.setattr(f"twinbus.paired.{colour}.pair.SESSION_CHECK_S_MIN", 0.1)
    async with pair.sender(session_order=True, **AT_ONCE) as sender:
        client = sender.paired_client
        second = client.get_queue_sender("orders")
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("1", session_id="s"))
            await call(second.send_messages, ServiceBusMessage("2", session_id="s"))
        await pair.until("failed-back")
        await call(sender.send_messages, ServiceBusMessage("3", session_id="s"))
        await call(sender.send_messages, ServiceBusMessage("free", session_id="t"))
        found = await pair.in_backlog(3)
        assert [[message.body for message in each] for each in found.values()] == [[b"1", b"2", b"3"]]
        await asyncio.sleep(0.1)
        await call(second.send_messages, ServiceBusMessage("4", session_id="s"))
    assert [message.body for message in await pair.in_primary(2)] == [b"free", b"4"]


async def test_a_batch_of_two_sessions_keeps_the_order_of_both(pair: Pair) -> None:
    async with pair.sender(session_order=True, **AT_ONCE) as sender:
        with pair.primary.fault("refusing", "orders"):
            for session in "abcdef":
                await call(sender.send_messages, ServiceBusMessage(f"{session} 1", session_id=session))
            await call(sender.send_messages, [ServiceBusMessage(f"{each} 2", session_id=each) for each in "abcdef"])
    found = await pair.in_backlog(12)
    for session in "abcdef":
        wanted = [f"{session} 1".encode(), f"{session} 2".encode()]
        places = [[message.body for message in each if message.body in wanted] for each in found.values()]
        assert [place for place in places if place] == [wanted]


async def test_a_fault_during_a_divert_raises_its_reason(pair: Pair) -> None:
    async with pair.sender(backlog_queue_count=1, **AT_ONCE) as sender:
        client = sender.paired_client
        await call(client.wait_until_paired)
        with pair.primary.fault("refusing", "orders"), pair.secondary.fault("silent"):
            sending = asyncio.create_task(call(sender.send_messages, ServiceBusMessage("x"), timeout=30))
            await pair.until("failed-over")
            await asyncio.sleep(0.3)
            await call(client.fault, "the key was withdrawn")
            with pytest.raises(PairFaultedError, match="the key was withdrawn"):
                await sending


async def close_behind(sender: Any, side: str) -> None:
    """Close an SDK client of the pair. The SDK fails if the pair closes one of its backlog senders at that moment."""
    try:
        await call(getattr(sender.paired_client._pair, side).close)
    except RuntimeError:  # the set of its senders "changed size during iteration"
        await close_behind(sender, side)


@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_an_sdk_client_closed_behind_the_pair_is_noticed(pair: Pair, side: str) -> None:
    async with pair.sender(failover_interval=0.5, retry_total=1) as sender:
        await call(sender.send_messages, ServiceBusMessage("0"))
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("1"))
            await close_behind(sender, side)
            await call(sender.send_messages, ServiceBusMessage("2"))
        await pair.until("failed-back")
        await close_behind(sender, side)
        await call(sender.send_messages, ServiceBusMessage("3"))
    await pair.in_primary(2)
    assert await pair.in_backlog(2)


async def test_a_secondary_closed_alone_takes_no_diverted_message(pair: Pair) -> None:
    async with pair.sender(**AT_ONCE) as sender:
        await call(sender.paired_client.wait_until_paired)
        await call(sender.paired_client.close_namespace, "secondary")
        with pair.primary.fault("refusing", "orders"), pytest.raises(PairFaultedError, match="of the pair was closed"):
            await call(sender.send_messages, ServiceBusMessage("x"), timeout=10)
        await pair.until("failed-back")
        await call(sender.send_messages, ServiceBusMessage("home"))
    await pair.in_primary(1)


async def test_a_closed_client_hands_out_nothing(pair: Pair) -> None:
    client = pair.make()
    await call(client.close)
    for make in (
        lambda: client.get_queue_sender("orders"),
        lambda: client.get_topic_sender("news"),
        lambda: client.get_queue_receiver("orders"),
        lambda: client.get_subscription_receiver("news", "all"),
        lambda: client.list_queue_sessions("orders"),
        lambda: client.list_subscription_sessions("news", "all"),
    ):
        with pytest.raises(ValueError, match="was closed"):
            make()
    with pytest.raises(ValueError, match="was closed"):
        async with opened(client):
            pass


async def test_closing_closes_both(pair: Pair) -> None:
    before = pair.connections()
    client = pair.make(**AT_ONCE)
    sender = client.get_queue_sender("orders")
    with pair.primary.fault("down"):
        await call(sender.send_messages, ServiceBusMessage("x"))
    await call(client.close)
    with pytest.raises(ValueError, match="already been shutdown"):
        await call(sender.send_messages, ServiceBusMessage("x"))
    with pytest.raises(ValueError, match="already been shutdown"):
        await call(sender.schedule_messages, ServiceBusMessage("x"), datetime.now(UTC))
    for _ in range(6_000):
        if pair.connections() <= before:
            return
        await asyncio.sleep(0.02)
    pytest.fail("a connection is still open")


async def test_a_fault_is_told_to_every_sender_and_receiver(pair: Pair) -> None:
    client = pair.make()
    sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
    await call(sender.send_messages, ServiceBusMessage("x"))
    await call(client.fault, "the secondary was closed")
    with pytest.raises(PairFaultedError, match="the secondary was closed"):
        await call(sender.send_messages, ServiceBusMessage("x"))
    with pytest.raises(PairFaultedError, match="the secondary was closed"):
        await call(receiver.receive_messages)


async def test_a_secondary_that_is_itself_paired_is_refused(pair: Pair) -> None:
    client = pair.make()
    strings = pair.secondary.connection_string(), pair.primary.connection_string()
    kind = type(client)
    with pytest.raises(ValueError, match="itself paired"):
        kind.from_connection_strings(*strings)
    await call(client.close)
    await call(kind.from_connection_strings(*strings).close)
    with pytest.raises(ValueError, match="is the primary itself"):
        kind.from_connection_strings(strings[0], strings[0])
    with pytest.raises(ValueError, match="failover_interval"):
        kind.from_connection_strings(*strings, failover_interval=-1)


async def test_namespaces_and_credentials(pair: Pair) -> None:
    from azure.core.credentials import AzureNamedKeyCredential

    kind = pair.package.PairedServiceBusClient
    credential = AzureNamedKeyCredential("name", "key")
    client = kind("contoso.servicebus.windows.net", credential, "fabrikam.servicebus.windows.net", credential)
    assert client.fully_qualified_namespace == "contoso.servicebus.windows.net"
    assert isinstance(client.get_queue_sender("q"), pair.package.PairedServiceBusSender)
    with pytest.raises(ValueError, match="itself paired"):
        kind("other.servicebus.windows.net", credential, "CONTOSO.servicebus.windows.net", credential)
    await call(client.close)


def test_the_sdks_sender_has_nothing_that_ours_lacks() -> None:
    from twinbus.paired import PairedServiceBusSender, aio

    wanted = {name for name in dir(ServiceBusSender) if not name.startswith("_")}
    for ours in (PairedServiceBusSender, aio.PairedServiceBusSender):
        assert wanted <= set(dir(ours))
