"""Sessions: each customer's messages in order, to one receiver at a time, with a state that outlives the receiver.

TWINBUS_CONNECTION_STRING=... python examples/sessions.py    (the queue `baskets` requires sessions)
"""

import os

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage

with ServiceBusClient.from_connection_string(os.environ["TWINBUS_CONNECTION_STRING"]) as client:
    with client.get_queue_sender("baskets") as sender:
        for customer in ("ann", "bob"):
            sender.send_messages([ServiceBusMessage(f"item {number}", session_id=customer) for number in (1, 2)])
    for _ in range(2):
        with client.get_queue_receiver("baskets", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
            messages = receiver.receive_messages(max_message_count=2)
            print(receiver.session.session_id, [str(message) for message in messages])
            for message in messages:
                receiver.complete_message(message)
            receiver.session.set_state(b"packed")
