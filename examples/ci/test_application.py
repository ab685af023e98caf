"""A test of an application that knows nothing of Twinbus: it uses the connection string that its CI sets."""

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage


def test_an_order_goes_through():
    with ServiceBusClient.from_connection_string(os.environ["SERVICEBUS_CONNECTION_STRING"]) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("one"))
        with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
            messages = receiver.receive_messages()
            assert [str(message) for message in messages] == ["one"]
            receiver.complete_message(messages[0])
