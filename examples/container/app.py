"""Sends an order to the broker in the other container, and receives it."""

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage

with ServiceBusClient.from_connection_string(os.environ["TWINBUS_CONNECTION_STRING"]) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("one coffee"))
    with client.get_queue_receiver("orders", max_wait_time=10) as receiver:
        for message in receiver.receive_messages():
            receiver.complete_message(message)
            print("received:", message)
