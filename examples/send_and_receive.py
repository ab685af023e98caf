"""The official SDK against Twinbus, unchanged: send, receive, complete.

twinbus serve --dev --namespace contoso:5672       # prints the connection string
twinbus queue create orders
TWINBUS_CONNECTION_STRING=... python examples/send_and_receive.py
"""

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage

with ServiceBusClient.from_connection_string(os.environ["TWINBUS_CONNECTION_STRING"]) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(f"order {number}", subject="new") for number in range(5)])
        print("sent 5 orders")
    with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
        for _ in range(5):
            for message in receiver.receive_messages(max_message_count=1):
                print(f"{message.sequence_number}: {message}")
                receiver.complete_message(message)
