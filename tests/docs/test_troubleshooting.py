"""The troubleshooting page quotes what the official SDK really says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
# What a reader searches the page for, by mistake.
QUOTES = {
    "wrong key": ("ServiceBusAuthenticationError", "amqp:client-error"),
    "no such queue": ("ServiceBusAuthenticationError", "amqp:client-error"),
    "no session": ("an entity that requires sessions",),
    "too large a queue": ("amqp:resource-limit-exceeded",),
}


def send(text: str, queue: str, body: bytes = b"x", count: int = 1) -> None:
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for _ in range(count):
            sender.send_messages(ServiceBusMessage(body), timeout=30)


def receive(text: str, queue: str) -> None:
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        receiver.receive_messages(max_wait_time=1)


MISTAKES: dict[str, Callable[[str], None]] = {
    "wrong key": lambda text: send(re.sub("SharedAccessKey=[^;]*", "SharedAccessKey=d3Jvbmc=", text), "orders"),
    "no such queue": lambda text: send(text, "odrers"),
    "no session": lambda text: receive(text, "sessions"),
    "too large a queue": lambda text: send(text, "small", b"x" * 200_000, 6),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_page_has_the_words_of_the_error(mistake: str) -> None:
    queues = [
        QueueSettings(path="orders"),
        QueueSettings(path="sessions", requires_session=True),
        QueueSettings(path="small", max_megabytes=1),
    ]
    with Broker(queues=queues, dev=False, sync=False) as broker, pytest.raises(ServiceBusError) as raised:
        MISTAKES[mistake](broker.connection_string())
    said = f"{type(raised.value).__name__}: {raised.value}"
    for quote in QUOTES[mistake]:
        assert quote in said
        assert quote in PAGE


def test_the_reason_is_in_the_inner_exception() -> None:
    with Broker(queues=["orders"], dev=False, sync=False) as broker:
        for mistake, reason in (("wrong key", "InvalidSignature"), ("no such queue", "could not be found")):
            with pytest.raises(ServiceBusError) as raised:
                MISTAKES[mistake](broker.connection_string())
            assert reason in str(raised.value.inner_exception)
            assert reason in PAGE
