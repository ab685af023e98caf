"""The broker for other people's tests, used as they would: with the official SDK."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.auth.policies import DEVELOPMENT_KEY
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.entities.settings import QueueSettings
from twinbus.errors import ConfigError, EntityExistsError, EntityNotFoundError
from twinbus.testing import Broker


def send(connection_string: str, queue: str, text: str) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage(text))


def receive(connection_string: str, queue: str) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        messages = receiver.receive_messages(10, max_wait_time=2)
        for message in messages:
            receiver.complete_message(message)
        return [str(message) for message in messages]


def test_a_message_goes_through() -> None:
    with Broker(namespaces=["contoso"], queues=["orders"]) as broker:
        send(broker.connection_string("contoso"), "orders", "hello")
        assert receive(broker.connection_string(), "orders") == ["hello"]


def test_namespaces_are_worlds_of_their_own() -> None:
    queues = {"contoso": ["orders"], "Fabrikam": [QueueSettings(path="invoices", lock_duration_ms=5_000)]}
    with Broker(["contoso", "fabrikam"], queues) as broker:
        assert broker.endpoint("contoso").port != broker.endpoint("fabrikam").port
        broker.create_queue("orders", "fabrikam")
        send(broker.connection_string("FABRIKAM"), "orders", "theirs")
        assert receive(broker.connection_string("contoso"), "orders") == []
        assert receive(broker.connection_string("fabrikam"), "orders") == ["theirs"]
        with pytest.raises(ValueError, match="Choose a namespace: contoso, fabrikam"):
            broker.connection_string()
        with pytest.raises(ValueError, match="no namespace 'nobody'"):
            broker.connection_string("nobody")


def test_a_restart_keeps_messages_ports_and_queues() -> None:
    with Broker(queues=["orders"]) as broker:
        broker.create_queue("later", requires_session=True)
        before = broker.connection_string()
        send(before, "orders", "kept")
        broker.restart()
        assert broker.connection_string() == before
        assert receive(before, "orders") == ["kept"]
        with pytest.raises(EntityExistsError):
            broker.create_queue("later")


def test_entities_come_and_go() -> None:
    with Broker() as broker:
        made = broker.create_queue("orders", max_delivery_count=3)
        assert made == QueueSettings(path="orders", max_delivery_count=3)
        broker.delete_queue("ORDERS")
        with pytest.raises(EntityNotFoundError):
            broker.delete_queue("orders")
        with pytest.raises(TypeError, match="not both"):
            broker.create_queue(made, requires_session=True)


def test_a_given_folder_is_kept_and_a_temporary_one_removed(tmp_path: Path) -> None:
    with Broker(queues=["orders"], data=tmp_path / "data") as broker:
        send(broker.connection_string(), "orders", "kept")
    with Broker(data=tmp_path / "data") as again:
        assert receive(again.connection_string(), "orders") == ["kept"]
    with Broker() as broker:
        folder = broker.data
        assert folder.is_dir()
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="no data folder"):
        broker.data  # noqa: B018


def test_keys_are_the_well_known_ones_only_in_development() -> None:
    with Broker() as broker:
        assert DEVELOPMENT_KEY in broker.connection_string()
    with Broker(dev=False, queues=["orders"]) as broker:
        assert DEVELOPMENT_KEY not in broker.connection_string()
        send(broker.connection_string(), "orders", "with a key of its own")
        assert receive(broker.connection_string(), "orders") == ["with a key of its own"]


def test_a_failed_start_says_why_and_leaves_nothing_running() -> None:
    with Broker() as broker:
        taken = broker.endpoint().port
        second = Broker([NamespaceConfig("contoso", taken)])
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{taken}"):
            second.start()
        second.close()
    with pytest.raises(ConfigError, match="must be a list of queues"):
        Broker(queues="orders")
    with pytest.raises(ValueError, match="no namespace 'other'"):
        Broker(queues={"other": ["orders"]})


def test_it_is_used_in_order() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match="has not been started"):
        broker.connection_string()
    with pytest.raises(RuntimeError, match="is not running"):
        broker.create_queue("orders")
    broker.stop()
    broker.start()
    with pytest.raises(RuntimeError, match="is running already"):
        broker.start()
    broker.close()
    broker.close()


def test_the_collector_is_left_as_it_was() -> None:
    before = gc.get_threshold()
    with Broker():
        pass
    assert gc.get_threshold() == before


def test_the_fixture_gives_a_running_broker(twinbus_broker: Broker) -> None:
    twinbus_broker.create_queue("orders")
    send(twinbus_broker.connection_string(), "orders", "hello")
    assert receive(twinbus_broker.connection_string(), "orders") == ["hello"]


@pytest.mark.twinbus(namespaces=["contoso", "fabrikam"], queues=["orders"], dev=False)
def test_the_marker_says_how_it_starts(twinbus_broker: Broker) -> None:
    assert set(twinbus_broker.endpoints) == {"contoso", "fabrikam"}
    with pytest.raises(EntityExistsError):
        twinbus_broker.create_queue("orders", "fabrikam")


def test_brokers_can_last_for_the_session(twinbus_brokers: Callable[..., Broker]) -> None:
    broker = twinbus_brokers(queues=["orders"])
    send(broker.connection_string(), "orders", "hello")
    assert receive(broker.connection_string(), "orders") == ["hello"]


def test_the_plugin_costs_nothing_until_it_is_used() -> None:
    code = (
        "import sys, twinbus.testing_plugin;"
        "print([m for m in sys.modules if m.startswith('twinbus.') or m in ('asyncio', 'lmdb')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(eval(done.stdout)) - {"asyncio"}
    assert loaded == {"twinbus.testing_plugin"}
