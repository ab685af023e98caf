"""Take the pictures of the console for the documentation: `python -m scripts.console_pictures [VIEW...]`.

Needs Chromium and the extra `dev`. A broker with a few orders, dead letters and a client at work is looked at. Each
action is taken wide and on a phone into `docs/pictures/console`, and those that the pages show into `docs/pictures`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from PIL import Image
from selenium.webdriver.common.keys import Keys
from tests.auth.jwt_issuer import Issuer
from tests.browser import Browser, chromium, opened

from twinbus.broker.configuration.config import JwtConfig, NamespaceConfig, SignInConfig
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
    queues = ["orders", "payments", "invoices/eu", "notes", QueueSettings(path="baskets", requires_session=True)]
    broker = Broker(["contoso", "fabrikam"], queues=queues, sync=False, ledger=True)
    broker.start()
    broker.create_topic("events", "contoso")
    broker.create_subscription("events", "audit", "contoso")
    broker.create_subscription("events", "large", "contoso", filter="amount > 100")
    with ServiceBusClient.from_connection_string(broker.connection_string("contoso")) as client:
        for path in ("orders", "events"):
            with client.get_topic_sender(path) as sender:
                sender.send_messages([order(number) for number in range(12)])
        with client.get_queue_sender("baskets") as sender:
            for number in range(9):
                sender.send_messages(
                    ServiceBusMessage(f"basket {number}", session_id=("ann", "bob", "eve")[number % 3])
                )
        with client.get_queue_sender("notes") as sender:
            hidden = ServiceBusMessage(
                "pay \u202e0001\u202c euros\u200b", message_id="note-\u202etxt.exe", subject="hidden"
            )
            sender.send_messages([hidden, ServiceBusMessage("nothing hidden here", message_id="note-2")])
        with client.get_queue_receiver("orders", max_wait_time=10) as receiver:
            for message in receiver.receive_messages(max_message_count=3, max_wait_time=10):
                receiver.dead_letter_message(message, "NoSuchCustomer", "The customer is not known to this shop.")
    return broker


def guarded(folder: Path) -> Broker:
    """A broker that asks for a key or an account."""
    (folder / "jwks.json").write_text(Issuer().jwks())
    tenant = "https://login.microsoftonline.com/tenant"
    sign_in = SignInConfig(
        client_id="console",
        authorization_endpoint=f"{tenant}/oauth2/v2.0/authorize",
        token_endpoint=f"{tenant}/oauth2/v2.0/token",
    )
    jwt = JwtConfig(issuer=f"{tenant}/v2.0", jwks=folder / "jwks.json", sign_in=sign_in)
    return Broker([NamespaceConfig("contoso", jwt=jwt)], dev=False, sync=False)


class Camera:
    """The browser, and how each view is reached."""

    def __init__(self, browser: Browser, broker: Broker, locked: Broker) -> None:
        self.browser = browser
        self.base = f"http://localhost:{broker.endpoint('contoso').port}/console"
        self.door = f"http://localhost:{locked.endpoint('contoso').port}/console"

    def open(self, hash: str, text: str, selector: str = "tbody") -> None:
        self.browser.open("about:blank")
        self.browser.open(f"{self.base}#/n/contoso{hash}")
        self.browser.one(selector, text)

    def entities(self) -> None:
        self.open("", "large")

    def messages(self) -> None:
        self.open("/e/orders", "order-4715")
        for box in self.browser.all("tbody input[type=checkbox]")[:2]:
            box.click()

    def search(self) -> None:
        self.open("/e/orders", "order-4715")
        self.browser.fill("Search messages", "amount=2")
        self.browser.click(".finder select option[value=property]")
        self.browser.click(".finder button", "Find")
        self.browser.sees("Looked at")

    def message(self) -> None:
        self.open("/e/orders", "order-4715")
        self.browser.click("[data-row]")
        self.browser.one("dialog pre")

    def edit(self) -> None:
        self.message()
        self.browser.click("dialog button", "Edit and resend")
        self.browser.fill("Body", '{"order": 4714,')
        self.browser.sees("not valid JSON")

    def dead(self) -> None:
        self.open("/e/orders/dead", "NoSuchCustomer")

    def jump(self) -> None:
        self.open("/e/orders", "order-4715")
        self.browser.fill("From sequence number", "8")
        self.browser.press(Keys.ENTER)
        self.browser.until(lambda: "order-4715" not in self.browser.one("tbody").text)

    def session(self) -> None:
        self.open("/e/baskets", "bob")
        self.browser.fill("Session id", "bob")
        self.browser.press(Keys.ENTER)
        self.browser.until(lambda: "ann" not in self.browser.one("tbody").text)

    def dead_letter(self) -> None:
        self.messages()
        self.browser.click("button", "Dead-letter 2 selected")
        self.browser.fill("Reason", "WrongRegion")
        self.browser.fill("Description", "These orders belong to the shop in the US.")

    def delete(self) -> None:
        self.messages()
        self.browser.click("button", "Delete 2 selected")
        self.browser.one("dialog button.danger")

    def resubmit(self) -> None:
        self.dead()
        for box in self.browser.all("tbody input[type=checkbox]")[:2]:
            box.click()
        self.browser.click("button", "Resubmit 2 selected")
        self.browser.one("dialog")

    def hidden(self) -> None:
        self.open("/e/notes", "note-")
        self.browser.click("[data-row]")
        self.browser.one("dialog pre .mark")

    def filter(self) -> None:
        self.entities()
        self.browser.click("#only-dead")
        self.browser.sees(" found")
        # On a phone the rows are cards without titles to sort by.
        if any(each.is_displayed() for each in self.browser.all("thead button")):
            self.browser.click("thead button", "Dead letters")

    def rates(self) -> None:
        self.open("/e/invoices%2Feu", "", ".rate .spark")

    def close(self) -> None:
        self.connections()
        self.browser.click("button", "Close")
        self.browser.one("dialog button.danger")

    def receive(self) -> None:
        self.open("/e/payments/receive", "Receive", "button.primary")
        self.browser.press("s")
        self.browser.fill("Body", '{"paid": true}')
        self.browser.click("dialog button[type=submit]")
        self.browser.gone("dialog")
        self.browser.click("button.primary", "Receive")
        self.browser.one(".settle")
        self.browser.script("document.querySelectorAll('.note').forEach((each) => each.remove())")

    def topic(self) -> None:
        self.open("/e/events", "audit")

    def settings(self) -> None:
        self.open("/e/orders/about", "", ".pairs")
        self.browser.click("button", "Edit settings")
        self.browser.one("dialog")

    def connections(self) -> None:
        self.open("/connections", "sends to")

    def connect(self) -> None:
        self.entities()
        self.browser.click("button", "Connection string")
        self.browser.one("dialog textarea")

    def login(self) -> None:
        self.browser.open("about:blank")
        self.browser.open(self.door)
        self.browser.one("a.button")


# Each action, at the sizes of a desk and of a phone.
VIEWS = (
    *("entities", "filter", "rates", "messages", "search", "jump", "session", "message", "edit", "hidden", "delete"),
    *("dead", "dead_letter", "resubmit", "receive", "topic", "settings", "connections", "close", "connect"),
    "login",
)
SIZES = ((1400, 900), (390, 844))
# What the pages show: view, width, height, colours.
SHOWN = {
    "console-entities": ("entities", 1400, 700, "light"),
    "console-messages": ("messages", 1400, 700, "light"),
    "console-message": ("message", 1400, 800, "dark"),
    "console-edit": ("edit", 1400, 900, "light"),
    "console-receive": ("receive", 1400, 480, "dark"),
    "console-connections": ("connections", 1400, 480, "light"),
    "console-topic": ("topic", 1400, 480, "dark"),
    "console-phone": ("dead", 390, 780, "light"),
}


def take(camera: Camera, view: str, width: int, height: int, colours: str, file: Path) -> None:
    browser = camera.browser
    browser.resize(width, height, mobile=width < 500)
    browser.prefer(colours)
    getattr(camera, view)()
    browser.picture(file)
    # A page has few colours: a third of the bytes.
    Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


def main(views: list[str]) -> None:
    broker = prepared()
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            guarded(Path(folder)) as locked,
            ServiceBusClient.from_connection_string(broker.connection_string("contoso")) as client,
            client.get_queue_sender("invoices/eu") as sender,
            chromium() as driver,
            opened(driver) as browser,
        ):
            for _ in range(4):
                sender.send_messages([order(number) for number in range(8)])
                time.sleep(1)
            camera = Camera(browser, broker, locked)
            (PICTURES / "console").mkdir(exist_ok=True)
            for at, view in enumerate(VIEWS):
                if views and view not in views:
                    continue
                for width, height in SIZES:
                    file = PICTURES / "console" / f"{view.replace('_', '-')}-{width}.png"
                    take(camera, view, width, height, "dark" if at % 5 == 4 else "light", file)
            for name, (view, width, height, colours) in SHOWN.items():
                if views and view not in views:
                    continue
                take(camera, view, width, height, colours, PICTURES / f"{name}.png")
    finally:
        broker.close()


if __name__ == "__main__":
    main(sys.argv[1:])
