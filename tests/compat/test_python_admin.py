"""The unmodified Python administration clients, sync and aio, over HTTPS on the namespace's one port."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)

from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.sas import sign
from twinbus.testing import Broker

KEY = "cGxhbnRlZC1jb21wYXQtc2VjcmV0LXBsYW50ZWQtc2U="


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(dev=False, sync=False) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        broker.connection_string(), connection_verify=str(broker.ca_file)
    ) as client:
        for queue in list(client.list_queues()):
            client.delete_queue(queue.name)
        yield client


def with_key(broker: Broker, name: str, key: str, path: str = "") -> str:
    """A connection string of another policy."""
    netloc = ConnectionString.parse(broker.connection_string()).netloc
    entity = f";EntityPath={path}" if path else ""
    return (
        f"Endpoint=sb://{netloc}/;SharedAccessKeyName={name};SharedAccessKey={key};UseDevelopmentEmulator=true{entity}"
    )


def test_a_queues_whole_life(client: ServiceBusAdministrationClient) -> None:
    made = client.create_queue("orders/new", lock_duration=timedelta(seconds=30), user_metadata="<mine & yours>")
    assert made.name == "orders/new"
    queue = client.get_queue("orders/new")
    assert (queue.lock_duration, queue.user_metadata) == (timedelta(seconds=30), "<mine & yours>")
    queue.max_delivery_count = 3
    queue.status = "ReceiveDisabled"
    client.update_queue(queue)
    client.update_queue(queue, lock_duration="PT40S")
    again = client.get_queue("orders/new")
    assert (again.max_delivery_count, again.status, again.lock_duration) == (
        3,
        "ReceiveDisabled",
        timedelta(seconds=40),
    )
    # What the SDK read it sends back whole: nothing else has moved.
    assert again.default_message_time_to_live == made.default_message_time_to_live
    with pytest.raises(ResourceExistsError):
        client.create_queue("ORDERS/NEW")
    client.delete_queue("orders/new")
    with pytest.raises(ResourceNotFoundError):
        client.get_queue("orders/new")
    with pytest.raises(ResourceNotFoundError):
        client.delete_queue("orders/new")
    with pytest.raises(ResourceNotFoundError):
        client.update_queue(again)
    with pytest.raises(HttpResponseError, match="LockDuration"):
        client.create_queue("q", lock_duration=timedelta(hours=1))


@pytest.mark.parametrize("version", list(ApiVersion))
def test_every_version(broker: Broker, version: ApiVersion) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        broker.connection_string(), api_version=version, connection_verify=str(broker.ca_file)
    ) as client:
        name = f"version-{version.value}"
        client.create_queue(name)
        client.update_queue(client.get_queue(name))
        assert client.get_queue_runtime_properties(name).total_message_count == 0
        assert client.get_namespace_properties().messaging_sku == "Standard"
        client.delete_queue(name)


def test_a_version_nobody_knows(broker: Broker) -> None:
    with (
        ServiceBusAdministrationClient.from_connection_string(
            broker.connection_string(), api_version="1999-01", connection_verify=str(broker.ca_file)
        ) as client,
        pytest.raises(HttpResponseError, match="1999-01"),
    ):
        client.get_queue("q")


def test_pages(client: ServiceBusAdministrationClient) -> None:
    for number in range(23):
        client.create_queue(f"q{number:02d}")
    names = [queue.name for queue in client.list_queues(max_page_size=10)]
    assert names == [f"q{number:02d}" for number in range(23)]
    assert len(list(client.list_queues_runtime_properties())) == 23


def test_one_connection_string_for_data_and_administration(
    broker: Broker, client: ServiceBusAdministrationClient
) -> None:
    client.create_queue("q")
    with (
        ServiceBusClient.from_connection_string(broker.connection_string()) as data,
        data.get_queue_sender("q") as sender,
        data.get_queue_receiver("q", max_wait_time=5) as receiver,
    ):
        sender.send_messages([ServiceBusMessage(f"{number}") for number in range(3)])
        first, second = receiver.receive_messages(1)[0], receiver.receive_messages(1)[0]
        receiver.dead_letter_message(first, reason="because")
        receiver.defer_message(second)
        runtime = client.get_queue_runtime_properties("q")
        assert runtime.total_message_count == 3
        assert runtime.dead_letter_message_count == 1
        assert runtime.active_message_count == 2
        assert runtime.size_in_bytes > 0


def test_rules_of_a_queue_are_keys_for_it(broker: Broker, client: ServiceBusAdministrationClient) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="sender",
        primary_key=KEY,
        secondary_key=KEY[::-1],
    )
    client.create_queue("q", authorization_rules=[rule])
    assert client.get_queue("q").authorization_rules[0].primary_key == KEY
    for key in (KEY, KEY[::-1]):
        with (
            ServiceBusClient.from_connection_string(with_key(broker, "sender", key, "q")) as data,
            data.get_queue_sender("q") as sender,
        ):
            sender.send_messages(ServiceBusMessage("hello"))
    broker.restart()
    assert client.get_queue_runtime_properties("q").active_message_count == 2
    assert client.get_queue("q").authorization_rules[0].rights == ["Send"]
    queue = client.get_queue("q")
    queue.authorization_rules = []
    client.update_queue(queue)
    assert not client.get_queue("q").authorization_rules


def test_wrong_keys(broker: Broker) -> None:
    for name in ("RootManageSharedAccessKey", "nobody"):
        with (
            ServiceBusAdministrationClient.from_connection_string(
                with_key(broker, name, KEY), connection_verify=str(broker.ca_file)
            ) as client,
            pytest.raises(ClientAuthenticationError),
        ):
            client.get_namespace_properties()


def test_a_connection_string_with_a_signature(broker: Broker) -> None:
    """The SDK sends it as `Bearer SharedAccessSignature ...`."""
    root = ConnectionString.parse(broker.connection_string())
    assert root.key_name is not None
    assert root.key is not None
    token = sign(f"https://{root.netloc}", root.key_name, root.key, int(time.time()) + 600)
    with ServiceBusAdministrationClient.from_connection_string(
        f"Endpoint=sb://{root.netloc}/;SharedAccessSignature={token}", connection_verify=str(broker.ca_file)
    ) as client:
        assert client.get_namespace_properties().name == "contoso"


def test_forwarding(client: ServiceBusAdministrationClient) -> None:
    client.create_queue("target")
    client.create_queue("q", forward_to="target", forward_dead_lettered_messages_to="target")
    queue = client.get_queue("q")
    assert queue.forward_to.endswith("/target")
    assert queue.forward_dead_lettered_messages_to.startswith("sb://localhost:")
    queue.forward_to = None
    client.update_queue(queue)
    assert client.get_queue("q").forward_to is None
    with pytest.raises(HttpResponseError, match="neither a queue nor a topic"):
        client.create_queue("r", forward_to="nowhere")


def test_topics_subscriptions_and_rules(client: ServiceBusAdministrationClient) -> None:
    client.create_topic("news/today", default_message_time_to_live=timedelta(days=1))
    client.create_subscription("news/today", "all", lock_duration=timedelta(seconds=20))
    client.create_subscription("news/today", "some", requires_session=True)
    topic = client.get_topic("news/today")
    topic.user_metadata = "mine"
    client.update_topic(topic)
    assert client.get_topic("news/today").user_metadata == "mine"
    subscription = client.get_subscription("news/today", "all")
    subscription.max_delivery_count = 2
    client.update_subscription("news/today", subscription)
    assert client.get_subscription("news/today", "all").max_delivery_count == 2
    assert [each.name for each in client.list_subscriptions("news/today", max_page_size=1)] == ["all", "some"]
    every_type = {
        "text": "é",
        "whole": 2**40,
        "fraction": 0.5,
        "yes": True,
        "when": datetime(2020, 7, 5, 11, 12, 13),  # noqa: DTZ001
        "span": timedelta(days=1, seconds=1),
    }
    correlation = CorrelationRuleFilter(label="<red>", properties=every_type)
    sql = SqlRuleFilter("colour = @c", parameters={"@c": "red"})
    client.create_rule("news/today", "all", "r1", filter=correlation, action=SqlRuleAction("SET seen = 1"))
    client.create_rule("news/today", "all", "r2", filter=sql)
    client.create_rule("news/today", "all", "r3", filter=FalseRuleFilter())
    found = client.get_rule("news/today", "all", "r1")
    assert (found.filter.label, found.filter.properties) == ("<red>", every_type)
    assert found.action.sql_expression == "SET seen = 1"
    found.filter = sql
    found.action = None
    client.update_rule("news/today", "all", found)
    found = client.get_rule("news/today", "all", "r1")
    assert (found.filter.sql_expression, found.filter.parameters, found.action) == ("colour = @c", {"@c": "red"}, None)
    client.delete_rule("news/today", "all", "$Default")
    assert [rule.name for rule in client.list_rules("news/today", "all")] == ["r1", "r2", "r3"]
    runtime = client.get_topic_runtime_properties("news/today")
    assert (runtime.subscription_count, runtime.sql_filter_count, runtime.correlation_filter_count) == (2, 4, 0)
    assert client.get_subscription_runtime_properties("news/today", "all").total_message_count == 0
    with pytest.raises(HttpResponseError, match="SQL filter"):
        client.create_rule("news/today", "all", "r4", filter=SqlRuleFilter("colour ="))
    with pytest.raises(ResourceExistsError):
        client.create_rule("news/today", "all", "R1", filter=sql)
    for missing in (
        lambda: client.get_rule("news/today", "all", "none"),
        lambda: client.create_rule("news/today", "none", "r", filter=sql),
        lambda: client.create_subscription("none", "s"),
        lambda: client.get_topic("none"),
    ):
        with pytest.raises(ResourceNotFoundError):
            missing()
    client.delete_subscription("news/today", "some")
    client.delete_topic("news/today")
    assert list(client.list_topics()) == []


async def test_the_aio_client_and_topics(broker: Broker) -> None:
    async with AsyncAdministrationClient.from_connection_string(
        broker.connection_string(), connection_verify=str(broker.ca_file)
    ) as client:
        await client.create_topic("aio-topic")
        await client.create_subscription("aio-topic", "s")
        await client.create_rule("aio-topic", "s", "r", filter=SqlRuleFilter("a = @p", parameters={"@p": 1}))
        rule = await client.get_rule("aio-topic", "s", "r")
        assert rule.filter.parameters == {"@p": 1}
        rule.action = SqlRuleAction("REMOVE a")
        await client.update_rule("aio-topic", "s", rule)
        assert (await client.get_rule("aio-topic", "s", "r")).action.sql_expression == "REMOVE a"
        assert [each.name async for each in client.list_rules("aio-topic", "s")] == ["$Default", "r"]
        assert [each.name async for each in client.list_subscriptions("aio-topic")] == ["s"]
        await client.delete_topic("aio-topic")
        with pytest.raises(ResourceNotFoundError):
            await client.get_subscription("aio-topic", "s")


async def test_the_aio_client(broker: Broker) -> None:
    async with AsyncAdministrationClient.from_connection_string(
        broker.connection_string(), connection_verify=str(broker.ca_file)
    ) as client:
        for number in range(12):
            await client.create_queue(f"aio{number:02d}", max_delivery_count=7)
        names = [queue.name async for queue in client.list_queues(max_page_size=5) if queue.name.startswith("aio")]
        assert names == [f"aio{number:02d}" for number in range(12)]
        queue = await client.get_queue("aio00")
        queue.default_message_time_to_live = timedelta(days=1)
        await client.update_queue(queue)
        assert (await client.get_queue("aio00")).default_message_time_to_live == timedelta(days=1)
        assert (await client.get_queue_runtime_properties("aio00")).active_message_count == 0
        with pytest.raises(ResourceExistsError):
            await client.create_queue("aio00")
        for name in names:
            await client.delete_queue(name)
        with pytest.raises(ResourceNotFoundError):
            await client.get_queue("aio00")
