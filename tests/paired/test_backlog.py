"""The backlog queues are found or created when namespaces are paired."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.paired.pairs import Pair, call
from twinbus.paired import PairingError
from twinbus.paired.options import backlog_names

# Nobody listens there.
NOBODY = "Endpoint=sb://localhost:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"


@pytest.fixture
def admin(pair: Pair) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        pair.secondary.connection_string(), connection_verify=str(pair.bundle)
    ) as client:
        yield client


async def test_they_are_made_with_exactly_these_settings(pair: Pair, admin: ServiceBusAdministrationClient) -> None:
    async with pair.client(backlog_queue_count=2) as client:
        await call(client.wait_until_paired)
        assert client.backlog_queues == backlog_names("contoso", 2)
    assert sorted(queue.name for queue in admin.list_queues()) == backlog_names("contoso", 2)
    queue = admin.get_queue("contoso/x-servicebus-transfer/0")
    assert queue.max_size_in_megabytes == 5120
    assert queue.max_delivery_count == 2**31 - 1
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.dead_lettering_on_message_expiration
    assert queue.enable_batched_operations
    for longest in (queue.default_message_time_to_live, queue.auto_delete_on_idle):
        assert longest is not None
        assert longest > timedelta(days=10_675_198)
    assert not queue.requires_session
    assert not queue.requires_duplicate_detection


async def test_existing_ones_are_used_as_they_are_and_others_left_alone(
    pair: Pair, admin: ServiceBusAdministrationClient
) -> None:
    admin.create_queue("contoso/x-servicebus-transfer/1", max_delivery_count=7)
    admin.create_queue("contoso/x-servicebus-transfer/7")
    async with pair.client(backlog_queue_count=2) as client:
        await call(client.wait_until_paired)
        assert client.backlog_queues == backlog_names("contoso", 2)
    assert admin.get_queue("contoso/x-servicebus-transfer/1").max_delivery_count == 7
    admin.get_queue("contoso/x-servicebus-transfer/7")


async def test_without_a_name_the_primary_is_asked_for_its_own(pair: Pair) -> None:
    async with pair.client(primary_name=None, backlog_queue_count=1) as client:
        await call(client.wait_until_paired)
        assert client.backlog_queues == ["contoso/x-servicebus-transfer/0"]


async def test_a_primary_that_does_not_answer_is_named_by_its_place(pair: Pair) -> None:
    async with pair.client(primary=NOBODY, primary_name=None, backlog_queue_count=1) as client:
        await call(client.wait_until_paired)
        assert client.backlog_queues == ["localhost-1/x-servicebus-transfer/0"]


async def test_if_some_cannot_be_made_the_pair_goes_on_and_says_so(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_settings(monkeypatch, only="/1")
    with caplog.at_level(logging.WARNING, "twinbus.paired"):
        async with pair.client() as client:
            await call(client.wait_until_paired)
            assert client.backlog_queues == ["contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/2"]
            assert list(client.missing_backlog_queues) == ["contoso/x-servicebus-transfer/1"]
    assert "1 of 3 backlog queues could not be found or created in the secondary 'fabrikam'" in caplog.text


async def test_with_none_there_is_no_pair(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_settings(monkeypatch, only="")
    client = pair.make()
    with pytest.raises(PairingError, match="No backlog queue could be found or created in the secondary"):
        await call(client.wait_until_paired)
    await call(client.close)


async def test_a_secondary_that_cannot_be_reached_is_asked_once(pair: Pair) -> None:
    client = pair.make(secondary=NOBODY, backlog_queue_count=50, admin_options={"retry_total": 0})
    with pytest.raises(PairingError):
        await call(client.wait_until_paired)
    assert client.backlog_queues == []
    await call(client.close)


async def test_a_topic_with_the_name_of_a_backlog_queue_is_skipped(
    pair: Pair, admin: ServiceBusAdministrationClient, caplog: pytest.LogCaptureFixture
) -> None:
    admin.create_topic("contoso/x-servicebus-transfer/1")
    try:
        with caplog.at_level(logging.WARNING, "twinbus.paired"):
            async with pair.client() as client:
                await call(client.wait_until_paired)
                assert client.backlog_queues == ["contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/2"]
        assert "'contoso/x-servicebus-transfer/1'" in caplog.text
    finally:
        admin.delete_topic("contoso/x-servicebus-transfer/1")


async def test_backlog_queues_that_are_deleted_are_created_again(
    pair: Pair, admin: ServiceBusAdministrationClient
) -> None:
    async with pair.sender(backlog_queue_count=2, failover_interval=0) as sender:
        await call(sender.paired_client.wait_until_paired)
        for name in backlog_names("contoso", 2):
            admin.delete_queue(name)
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("diverted"), timeout=20)
        assert {event.cause for event in pair.told("backlog-queue-out")} == {"amqp:not-found"}
    assert sorted(queue.name for queue in admin.list_queues()) == backlog_names("contoso", 2)
    await pair.in_backlog(1, names=2)


async def test_without_the_right_to_manage_the_queues_are_taken_for_granted(
    pair: Pair, admin: ServiceBusAdministrationClient
) -> None:
    options: dict[str, Any] = {"backlog_queue_count": 2, "create_backlog_queues": False, "failover_interval": 0}
    async with pair.sender(**options) as sender:
        assert sender.paired_client.options.create_backlog_queues is False
        with pair.primary.fault("refusing", "orders"):
            with pytest.raises(MessagingEntityNotFoundError):
                await call(sender.send_messages, ServiceBusMessage("x"), timeout=3)
            assert list(admin.list_queues()) == []
            for name in backlog_names("contoso", 2):
                admin.create_queue(name)
            await call(sender.send_messages, ServiceBusMessage("diverted"), timeout=20)
    await pair.in_backlog(1, names=2)


async def test_a_send_ends_with_what_the_queues_answered(pair: Pair) -> None:
    # The first try is answered, the last one is not: "not found" says more than "no answer".
    options: dict[str, Any] = {"backlog_queue_count": 1, "create_backlog_queues": False, "failover_interval": 0}
    async with pair.sender(**options) as sender:
        with pair.primary.fault("refusing", "orders"):
            sending = asyncio.ensure_future(call(sender.send_messages, ServiceBusMessage("x"), timeout=8))
            await pair.until("backlog-queue-out")
            with pair.secondary.fault("silent"), pytest.raises(MessagingEntityNotFoundError):
                await sending


async def test_queues_that_exist_are_not_asked_to_be_created(
    pair: Pair, admin: ServiceBusAdministrationClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in backlog_names("contoso", 3):
        admin.create_queue(name)
    refuse_settings(monkeypatch, only="")
    async with pair.client() as client:
        await call(client.wait_until_paired)
        assert client.missing_backlog_queues == {}


def refuse_settings(monkeypatch: pytest.MonkeyPatch, only: str) -> None:
    """Make the service refuse queues with this suffix."""
    from azure.core.exceptions import HttpResponseError
    from azure.servicebus.aio import management as aio_management
    from azure.servicebus.aio.management import _management_client_async
    from azure.servicebus.management import _management_client

    assert aio_management.ServiceBusAdministrationClient is _management_client_async.ServiceBusAdministrationClient

    for module in (_management_client, _management_client_async):
        kind: Any = module.ServiceBusAdministrationClient
        original = kind.create_queue

        def create(self: Any, name: str, *, original: Any = original, **settings: Any) -> Any:
            if name.endswith(only):
                raise HttpResponseError("no room")
            return original(self, name, **settings)

        monkeypatch.setattr(kind, "create_queue", create)
