"""What a ping is, and how often one goes out: observed where the SDK sends it, with a real primary behind."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import azure.servicebus as sdk
import azure.servicebus.aio as sdk_aio
import pytest
from azure.servicebus import ServiceBusMessage

from tests.paired.pairs import Pair, call
from twinbus.limits import PING_BYTES
from twinbus.paired import EntityState
from twinbus.paired.receiving import PING_CONTENT_TYPE
from twinbus.paired.sdk_internals import encoded

PINGS = list[tuple[float, ServiceBusMessage]]


@pytest.fixture
def pings(monkeypatch: pytest.MonkeyPatch) -> PINGS:
    """Every ping that is sent, with its time."""
    found: PINGS = []

    def note(message: Any) -> None:
        if isinstance(message, ServiceBusMessage) and message.content_type == PING_CONTENT_TYPE:
            found.append((time.monotonic(), message))

    send, send_aio = sdk.ServiceBusSender.send_messages, sdk_aio.ServiceBusSender.send_messages

    def noted(self: Any, message: Any, **options: Any) -> None:
        note(message)
        send(self, message, **options)

    async def noted_aio(self: Any, message: Any, **options: Any) -> None:
        note(message)
        await send_aio(self, message, **options)

    monkeypatch.setattr(sdk.ServiceBusSender, "send_messages", noted)
    monkeypatch.setattr(sdk_aio.ServiceBusSender, "send_messages", noted_aio)
    return found


async def test_pings_are_empty_and_short_lived_and_keep_their_pace(pair: Pair, pings: PINGS) -> None:
    async with pair.sender(failover_interval=0) as sender:
        before = time.monotonic()
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("x"))
            while len(pings) < 3:
                await asyncio.sleep(0.02)
            assert sender.paired_client.entity_states == {"orders": EntityState.FAILED_OVER}
        await pair.until("failed-back")
        count = len(pings)
        await asyncio.sleep(1.2)
        assert len(pings) == count, "they stop with the fail-back"
    for number, (moment, _) in enumerate(pings, 1):
        assert moment - before > number - 0.05, "one a second, from the failover on"
    messages = [message for _, message in pings]
    assert {b"".join(message.body) for message in messages} == {b""}
    assert {message.time_to_live for message in messages} == {timedelta(seconds=1)}
    assert len({message.session_id for message in messages}) == len(messages), "the entity may need one"
    assert len({message.message_id for message in messages}) == len(messages)
    await pair.in_backlog(1)


async def test_an_entity_with_sessions_can_be_pinged(pair: Pair) -> None:
    pair.primary.delete_queue("orders")
    pair.primary.create_queue("orders", requires_session=True)
    async with pair.sender(failover_interval=0) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("x", session_id="s"))
        await pair.until("failed-back")
        assert pair.told("ping-refused") == []
    await pair.in_backlog(1)


async def test_a_ping_has_the_bytes_that_plans_count(pair: Pair, pings: PINGS) -> None:
    async with pair.sender(failover_interval=0) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("x"))
        await pair.until("failed-back")
    (payload,) = encoded(pings[-1][1])
    assert PING_BYTES - 30 < len(payload) <= PING_BYTES + 30
    await pair.in_backlog(1)


@pytest.mark.parametrize("where", ["for both", "for the primary"])
async def test_a_ping_is_retried_as_a_send_is(pair: Pair, pings: PINGS, where: str) -> None:
    retry = {"retry_total": 2, "retry_backoff_factor": 0.01}
    options: dict[str, Any] = retry if where == "for both" else {"primary_options": retry}
    async with pair.sender(failover_interval=0, try_timeout=30, **options) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("x"))
            while len({message.message_id for _, message in pings}) < 2:
                await asyncio.sleep(0.02)
        await pair.until("failed-back")
    tries = Counter(message.message_id for _, message in pings)
    assert tries[pings[0][1].message_id] == 3, "the same ping, twice again"
    await pair.in_backlog(1)
