"""Runs the cases named on the command line and prints one line of JSON for each."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
    TransportType,
)
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter

CONNECTION = os.environ["COMPAT_TLS"]
CA = os.environ["COMPAT_CA"]
ENDPOINT = f"sb://localhost:{os.environ['COMPAT_PORT']}"
WAIT_S = 10


def client(connection: str = CONNECTION, transport: TransportType = TransportType.Amqp) -> ServiceBusClient:
    # The client takes a port of its own choice from the string: the endpoint says which one is meant.
    return ServiceBusClient.from_connection_string(
        connection,
        custom_endpoint_address=ENDPOINT,
        connection_verify=CA,
        transport_type=transport,
        retry_total=1,
        retry_backoff_factor=0.2,
    )


def administrator() -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(CONNECTION, connection_verify=CA)


def one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    found = receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_S)
    assert found, "no message came"
    return found[0]


def put(bus: ServiceBusClient, queue: str, message: Any) -> None:
    with bus.get_queue_sender(queue) as sender:
        sender.send_messages(message)


def send() -> None:
    lives = timedelta(days=1)
    message = ServiceBusMessage("hello", message_id="m1", time_to_live=lives, application_properties={"n": 5})
    with client() as bus:
        put(bus, "send", message)
        with bus.get_queue_receiver("send") as receiver:
            got = one(receiver)
            assert (str(got), got.message_id, got.time_to_live) == ("hello", "m1", lives), got
            assert got.application_properties == {b"n": 5}
            receiver.complete_message(got)


def batch() -> None:
    with client() as bus:
        with bus.get_queue_sender("batch") as sender:
            together = sender.create_message_batch()
            for number in range(100):
                together.add_message(ServiceBusMessage(f"b{number}"))
            sender.send_messages(together)
        found: set[str] = set()
        with bus.get_queue_receiver("batch") as receiver:
            while len(found) < 100:
                for message in receiver.receive_messages(100 - len(found), WAIT_S):
                    found.add(str(message))
                    receiver.complete_message(message)


def settle() -> None:
    with client() as bus, bus.get_queue_receiver("settle") as receiver:
        put(bus, "settle", ServiceBusMessage("abandoned"))
        receiver.abandon_message(one(receiver))
        again = one(receiver)
        assert again.delivery_count == 1
        receiver.complete_message(again)
        put(bus, "settle", ServiceBusMessage("deferred"))
        aside = one(receiver)
        receiver.defer_message(aside)
        assert aside.sequence_number is not None
        (deferred,) = receiver.receive_deferred_messages(aside.sequence_number)
        receiver.complete_message(deferred)
        put(bus, "settle", ServiceBusMessage("dead"))
        receiver.dead_letter_message(one(receiver), reason="why")
        with bus.get_queue_receiver("settle", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            letter = one(dead)
            assert letter.dead_letter_reason == "why"
            dead.complete_message(letter)


def receive_and_delete() -> None:
    with client() as bus:
        put(bus, "delete", ServiceBusMessage("gone"))
        with bus.get_queue_receiver("delete", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
            assert str(one(receiver)) == "gone"
        with bus.get_queue_receiver("delete") as receiver:
            assert receiver.peek_messages() == []


def peek() -> None:
    with client() as bus:
        put(bus, "peek", [ServiceBusMessage("a"), ServiceBusMessage("b")])
        with bus.get_queue_receiver("peek") as receiver:
            assert [str(message) for message in receiver.peek_messages(10)] == ["a", "b"]


def renew() -> None:
    with client() as bus:
        put(bus, "renew", ServiceBusMessage("kept"))
        with bus.get_queue_receiver("renew") as receiver:
            message = one(receiver)
            time.sleep(3)
            receiver.renew_message_lock(message)
            time.sleep(3)
            receiver.complete_message(message)


def sessions() -> None:
    with client() as bus:
        put(bus, "sessions", [ServiceBusMessage(body, session_id="s1") for body in ("one", "two")])
        with bus.get_queue_receiver("sessions", session_id="s1") as receiver:
            for body in ("one", "two"):
                message = one(receiver)
                assert str(message) == body
                receiver.complete_message(message)
            receiver.session.set_state("state")
            receiver.session.renew_lock()
        with bus.get_queue_receiver("sessions", session_id="s1") as receiver:
            assert receiver.session.get_state() == b"state"


def schedule() -> None:
    now = datetime.now(UTC)
    with client() as bus:
        with bus.get_queue_sender("schedule") as sender:
            sender.schedule_messages(ServiceBusMessage("soon"), now + timedelta(seconds=2))
            never = sender.schedule_messages(ServiceBusMessage("never"), now + timedelta(hours=1))
            sender.cancel_scheduled_messages(never)
        with bus.get_queue_receiver("schedule") as receiver:
            message = one(receiver)
            assert str(message) == "soon"
            receiver.complete_message(message)


def topics() -> None:
    with administrator() as admin:
        admin.create_topic("python-topic")
        admin.create_subscription("python-topic", "red")
        admin.delete_rule("python-topic", "red", "$Default")
        rule = {"filter": SqlRuleFilter("color = 'red'"), "action": SqlRuleAction("SET shade = 'dark'")}
        admin.create_rule("python-topic", "red", "rule", **rule)
    with client() as bus:
        with bus.get_topic_sender("python-topic") as sender:
            for color in ("blue", "red"):
                sender.send_messages(ServiceBusMessage(color, application_properties={"color": color}))
        with bus.get_subscription_receiver("python-topic", "red") as receiver:
            message = one(receiver)
            assert str(message) == "red"
            assert (message.application_properties or {})[b"shade"] == b"dark"
            receiver.complete_message(message)


def administration() -> None:
    with administrator() as admin:
        made = admin.create_queue("python-made", lock_duration=timedelta(seconds=30), max_delivery_count=3)
        made.max_delivery_count = 4
        admin.update_queue(made)
        assert admin.get_queue("python-made").max_delivery_count == 4
        assert admin.get_queue_runtime_properties("python-made").total_message_count == 0
        assert "python-made" in [queue.name for queue in admin.list_queues()]
        admin.delete_queue("python-made")


def websocket() -> None:
    with client(transport=TransportType.AmqpOverWebsocket) as bus:
        put(bus, "websocket", ServiceBusMessage("through"))
        with bus.get_queue_receiver("websocket") as receiver:
            receiver.complete_message(one(receiver))


def large() -> None:
    body = bytes(5 * 1024 * 1024 - 1) + b"\7"
    with client() as bus:
        put(bus, "large", ServiceBusMessage(body))
        with bus.get_queue_receiver("large") as receiver:
            message = one(receiver)
            assert b"".join(message.body) == body
            receiver.complete_message(message)


def wrong_key() -> None:
    # Over TLS to a custom endpoint the client calls it a trouble of the connection.
    wrong = re.sub("SharedAccessKey=[^;]+", "SharedAccessKey=wrong", os.environ["COMPAT_PLAIN"])
    try:
        with ServiceBusClient.from_connection_string(wrong, retry_total=0) as bus:
            put(bus, "send", ServiceBusMessage("x"))
    except ServiceBusAuthenticationError:
        return
    raise AssertionError("not refused")


def missing_entity() -> None:
    try:
        with client() as bus:
            put(bus, "none", ServiceBusMessage("x"))
    except ServiceBusConnectionError as error:
        # What the client makes of every refused token behind a custom endpoint; the reason is inside.
        if error.inner_exception.status_code != 404:
            raise
        return
    raise AssertionError("not refused")


def kill() -> None:
    """Sends and receives while somebody kills the broker; ends when every message has come."""
    count = int(os.environ["COMPAT_COUNT"])

    def sending() -> None:
        number = 0
        while number < count:
            try:
                with client() as bus, bus.get_queue_sender("kill") as sender:
                    while number < count:
                        sender.send_messages(ServiceBusMessage(f"k{number}"), timeout=10)
                        number += 1
            except (ServiceBusError, OSError):
                time.sleep(0.2)

    threading.Thread(target=sending, daemon=True).start()
    found: set[str] = set()
    while len(found) < count:
        try:
            with client() as bus, bus.get_queue_receiver("kill") as receiver:
                while len(found) < count:
                    for message in receiver.receive_messages(20, 2):
                        # Noted first: the broker may die between the completion and its answer.
                        found.add(str(message))
                        print(json.dumps({"received": len(found)}), flush=True)
                        receiver.complete_message(message)
        except (ServiceBusError, OSError):
            time.sleep(0.2)


CASES: dict[str, Callable[[], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        *(send, batch, settle, receive_and_delete, peek, renew, sessions, schedule, topics, administration, websocket),
        *(large, wrong_key, missing_entity, kill),
    )
}

if __name__ == "__main__":
    failed = False
    for name in sys.argv[1:]:
        line: dict[str, Any] = {"case": name, "ok": True}
        try:
            CASES[name]()
        except Exception as error:
            failed = True
            line |= {"ok": False, "detail": repr(error)}
        print(json.dumps(line), flush=True)
    sys.exit(failed)
