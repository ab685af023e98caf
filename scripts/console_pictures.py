"""Take the pictures of the console for the documentation: `python -m scripts.console_pictures`.

Needs Chromium and the extra `dev`. A broker with a few orders and dead letters is looked at, wide and light, wide and
dark, and on a phone.
"""

from __future__ import annotations

import json
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from tests.browser import Browser, chromium, opened

from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"


def order(number: int) -> ServiceBusMessage:
    body = {"order": 4711 + number, "customer": {"name": "Ann Smith", "id": 9007199254740993 + number}, "lines": [3, 1]}
    return ServiceBusMessage(
        json.dumps(body),
        message_id=f"order-{4711 + number}",
        subject="order placed",
        content_type="application/json",
        application_properties={"amount": 25 * number, "express": number % 2 == 0, "region": "eu"},
    )


def prepared() -> Broker:
    queues = ["orders", "payments", "invoices/eu", QueueSettings(path="baskets", requires_session=True)]
    broker = Broker(["contoso", "fabrikam"], queues=queues, sync=False, ledger=True)
    broker.start()
    broker.create_topic("events", "contoso")
    broker.create_subscription("events", "audit", "contoso")
    broker.create_subscription("events", "large", "contoso", filter="amount > 100")
    with ServiceBusClient.from_connection_string(broker.connection_string("contoso")) as client:
        for path in ("orders", "events"):
            with client.get_topic_sender(path) as sender:
                sender.send_messages([order(number) for number in range(12)])
        with client.get_queue_receiver("orders", max_wait_time=10) as receiver:
            for message in receiver.receive_messages(max_message_count=3, max_wait_time=10):
                receiver.dead_letter_message(message, "NoSuchCustomer", "The customer is not known to this shop.")
    return broker


def take(browser: Browser, broker: Broker) -> None:
    base = f"http://localhost:{broker.endpoint('contoso').port}/console"
    browser.resize(1200, 720)
    browser.prefer("light")
    browser.open(f"{base}#/n/contoso")
    browser.one("tbody a", "large")
    browser.picture(PICTURES / "console-entities.png")
    browser.prefer("dark")
    browser.open(f"{base}#/n/contoso/e/orders")
    browser.click("[data-row]")
    browser.one("dialog pre")
    browser.picture(PICTURES / "console-message.png")
    browser.prefer("light")
    browser.resize(375, 760, mobile=True)
    browser.open("about:blank")
    browser.open(f"{base}#/n/contoso/e/orders/dead")
    browser.one("tbody", "NoSuchCustomer")
    browser.picture(PICTURES / "console-phone.png")


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    broker = prepared()
    try:
        with chromium() as driver, opened(driver) as browser:
            take(browser, broker)
    finally:
        broker.close()
