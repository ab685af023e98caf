"""Twinbus in your own tests: a real broker for each test in milliseconds, and injected outages.

.venv/bin/python -m pytest examples/test_orders.py
"""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError


def test_an_order_arrives(twinbus_broker):
    twinbus_broker.create_queue("orders", max_delivery_count=3)
    with ServiceBusClient.from_connection_string(twinbus_broker.connection_string()) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("one"))
        with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
            assert [str(message) for message in receiver.receive_messages()] == ["one"]
    with twinbus_broker.administration_client() as client:
        assert client.get_queue("orders").max_delivery_count == 3


@pytest.mark.twinbus(queues=["orders"], allow_faults=True)
def test_an_outage_is_noticed(twinbus_broker):
    with ServiceBusClient.from_connection_string(twinbus_broker.connection_string(), retry_total=0) as client:
        with (
            twinbus_broker.fault("refusing", "orders"),
            client.get_queue_sender("orders") as sender,
            pytest.raises(ServiceBusError),
        ):
            sender.send_messages(ServiceBusMessage("lost?"), timeout=5)
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("through"))
