"""A topic with two subscriptions, one of them filtered by SQL, created with the official administration client.

TWINBUS_CONNECTION_STRING=... TWINBUS_CA=... python examples/topics.py    (`twinbus trust` says where the CA is)
"""

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter

connection_string = os.environ["TWINBUS_CONNECTION_STRING"]
with ServiceBusAdministrationClient.from_connection_string(
    connection_string, connection_verify=os.environ["TWINBUS_CA"]
) as admin:
    admin.create_topic("events")
    admin.create_subscription("events", "everything")
    admin.create_subscription("events", "large")
    admin.delete_rule("events", "large", "$Default")
    admin.create_rule("events", "large", "over-100", filter=SqlRuleFilter("amount > 100"))

with ServiceBusClient.from_connection_string(connection_string) as client:
    with client.get_topic_sender("events") as sender:
        for amount in (50, 150, 250):
            sender.send_messages(ServiceBusMessage(f"payment of {amount}", application_properties={"amount": amount}))
    for name, expected in (("everything", 3), ("large", 2)):
        with client.get_subscription_receiver("events", name, max_wait_time=5) as receiver:
            messages = receiver.receive_messages(max_message_count=expected)
            print(name, [str(message) for message in messages])
            for message in messages:
                receiver.complete_message(message)
