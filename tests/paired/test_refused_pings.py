"""Pings that the primary refuses are reported; after a few of them the entity fails back, so callers get the error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusAuthenticationError

from tests.paired.pairs import Pair, call
from twinbus.auth.connection_string import ConnectionString
from twinbus.paired import EntityState, non_transient_error
from twinbus.testing import Broker


async def test_an_entity_deleted_while_failed_over_fails_back(pair: Pair) -> None:
    async with pair.sender(failover_interval=0, ping_refusals=2) as sender:
        await call(sender.paired_client.wait_until_paired)
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("diverted"))
        pair.primary.delete_queue("orders")
        await pair.until("failed-back", 20)
        assert [event.cause for event in pair.told("ping-refused")] == ["amqp:not-found"] * 2
        assert [event.cause for event in pair.told("failed-back")] == ["amqp:not-found"]
        with pytest.raises(MessagingEntityNotFoundError):
            await call(sender.send_messages, ServiceBusMessage("refused"))
        assert sender.paired_client.entity_states == {"orders": EntityState.HEALTHY}
    await pair.in_backlog(1)


async def test_a_key_withdrawn_while_failed_over_fails_back(pair: Pair) -> None:
    with Broker(["strict"], ["orders"], dev=False, sync=False, allow_faults=True) as strict:
        text = strict.connection_string()
        options: dict[str, Any] = {"primary": text, "failover_interval": 0, "ping_refusals": 2}
        async with pair.sender(**options) as sender:
            await call(sender.paired_client.wait_until_paired)
            with strict.fault("refusing", "orders"):
                await call(sender.send_messages, ServiceBusMessage("diverted"))
            name = ConnectionString.parse(text).key_name or ""
            strict.call(lambda server: server.hosts["strict"].keyring.rotate("", name, "primary", 0))
            await pair.until("failed-back", 20)
            (cause,) = {event.cause for event in pair.told("failed-back")}
            assert [event.cause for event in pair.told("ping-refused")] == [cause] * 2
            with pytest.raises(ServiceBusAuthenticationError):
                await call(sender.send_messages, ServiceBusMessage("refused"))
            assert sender.paired_client.entity_states == {"orders": EntityState.HEALTHY}
    await pair.in_backlog(1)


async def test_refusals_may_be_ignored(pair: Pair) -> None:
    async with pair.sender(failover_interval=0, ping_refusals=0) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("diverted"))
        pair.primary.delete_queue("orders")
        await pair.until_count("ping-refused", 4, 20)
        assert pair.told("failed-back") == []
        await call(sender.send_messages, ServiceBusMessage("diverted, too"))
    await pair.in_backlog(2)


async def test_a_policy_that_calls_it_unavailable_waits(pair: Pair) -> None:
    async with pair.client(failover_interval=0, ping_refusals=1, classify=non_transient_error) as client:
        await call(client.get_queue_sender("late").send_messages, ServiceBusMessage("diverted"))
        await asyncio.sleep(1.5)
        pair.primary.create_queue("late")
        await pair.until("failed-back", 20)
        assert pair.told("ping-refused") == []
        assert [event.cause for event in pair.told("failed-back")] == [None]
    await pair.in_backlog(1)


async def test_only_refusals_in_a_row_count(pair: Pair) -> None:
    async with pair.sender(failover_interval=0, ping_refusals=2) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("diverted"))
        pair.primary.delete_queue("orders")
        await pair.until("ping-refused", 20)
        with pair.primary.fault("down"):
            # Longer than a ping's interval, so at least one of them fails for another reason.
            await asyncio.sleep(2.2)
        pair.primary.create_queue("orders")
        await pair.until("failed-back", 20)
        assert [event.cause for event in pair.told("failed-back")] == [None]
    await pair.in_backlog(1)
