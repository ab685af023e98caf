"""The console in a real browser: what a person does with it, by mouse and by keyboard, wide and narrow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.keys import Keys

from tests.broker.peer import Peer, text
from tests.browser import Browser
from twinbus.auth.policies import Policy, Right
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.entities.settings import QueueSettings
from twinbus.ledger.words import BACKLOG_MARK
from twinbus.testing import Broker

# A browser takes its time on a busy machine.
pytestmark = pytest.mark.timeout(150)

KEY = "bm90LWEtcmVhbC1rZXktb2Ytb3Vycw=="
HOSTILE = "<script>window.owned = 1</script><img src=x onerror='window.owned=2'>"


def address(broker: Broker, hash: str = "", namespace: str = "contoso") -> str:
    return f"http://localhost:{broker.endpoint(namespace).port}/console{hash}"


@pytest.fixture
def broker() -> Iterator[Broker]:
    queues = ["orders", QueueSettings(path="baskets", requires_session=True)]
    with Broker(["contoso", "fabrikam"], queues=queues, sync=False, ledger=True, allow_faults=True) as broker:
        yield broker


def sent(broker: Broker, path: str, *bodies: str, **properties: Any) -> None:
    with Peer(broker, "contoso") as peer:
        link = peer.sender(path)
        for body in bodies:
            message = text(body)
            message.application_properties = properties or None
            peer.send(link, message)


def bury(broker: Broker, path: str, count: int, reason: str, description: str) -> None:
    """Dead-letter by a real receiver, the official SDK's."""
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("contoso")) as client,
        client.get_queue_receiver(path, max_wait_time=10) as receiver,
    ):
        left = count
        while left:
            for message in receiver.receive_messages(max_message_count=left, max_wait_time=10):
                receiver.dead_letter_message(message, reason=reason, error_description=description)
                left -= 1


def number(browser: Browser, title: str) -> str:
    """A number of the strip below an entity's name, read at once: the strip is drawn anew while one looks."""
    found = browser.script(
        "return [...document.querySelectorAll('.strip > div')].map((each) =>"
        " [each.querySelector('dt').textContent, each.querySelector('dd').textContent.trim()])"
    )
    return str(dict(found).get(title, ""))


def cells(browser: Browser, entity: str) -> list[str]:
    for row in browser.all("tbody tr"):
        parts = [each.text for each in row.find_elements("css selector", "th, td")]
        if parts and parts[0].split("\n")[0].split(" ")[0] == entity:
            return parts
    return []


def test_a_person_at_work(browser: Browser) -> None:
    """Open, log in, create, send, look, dead-letter, resubmit, purge, delete."""
    root = Policy("RootManageSharedAccessKey", frozenset({Right.MANAGE}), KEY)
    with Broker([NamespaceConfig("contoso", policies=[root])], dev=False, sync=False) as broker:
        browser.open(address(broker))
        browser.fill("Key", "wrong")
        browser.click("button", "Log in")
        browser.sees("The policy or the key is wrong", "[role=alert]")
        browser.until(lambda: "401" in " ".join(browser.log()), "the browser notes the refusal")
        browser.fill("Key", KEY)
        browser.click("button", "Log in")
        browser.click(".card a", "contoso")
        browser.sees("There are no entities yet.")
        assert KEY not in browser.driver.page_source

        browser.click("button", "New entity")
        browser.fill("Name", "a b")
        browser.click("dialog button", "Create")
        browser.sees("must start with a letter or digit", "dialog [role=alert]")
        browser.until(lambda: "400" in " ".join(browser.log()))
        browser.fill("Name", "orders")
        browser.click("dialog button", "Create")
        browser.gone("dialog")
        browser.until(lambda: cells(browser, "orders")[1] == "0", "the new queue in the list, by the stream")

        connect = broker.connection_string()
        with (
            ServiceBusClient.from_connection_string(connect) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages([ServiceBusMessage(f"order {each}") for each in range(3)])
        browser.until(lambda: cells(browser, "orders")[1] == "3", "numbers change by themselves")

        browser.click("tbody a", "orders")
        browser.sees("order 2", "tbody")
        browser.click("button", "Send")
        browser.fill("Body", '{"customer": {"id": 12345678901234567890}, "name": "Änn"}')
        browser.fill("Message id", "by-hand")
        browser.fill("Subject", "test")
        browser.click("button", "Add a property")
        browser.fill("Property name", "amount")
        browser.fill("Property value", "12")
        browser.click("dialog button[type=submit]", "Send")
        browser.sees("Sent 1 message to 'orders'.", ".note")
        browser.until(lambda: number(browser, "Active") == "4")
        browser.click("button", "Read again")
        browser.until(lambda: any("by-hand" in row.text for row in browser.all("tbody tr")))

        row = next(each for each in browser.all("tbody tr") if "by-hand" in each.text)
        row.find_element("css selector", "[data-row]").click()
        browser.sees('"id": 12345678901234567890', "dialog pre")
        browser.sees("Änn", "dialog pre")
        shown = browser.one("dialog").text
        assert "amount long\n12" in shown
        assert "subject string\ntest" in shown
        assert "message_id string\nby-hand" in shown
        browser.click("dialog button", "Hex")
        browser.sees("000000  7b 22 63 75", "dialog pre")
        browser.click("dialog button", "Text")
        browser.sees('{"customer": {"id": 12345678901234567890}', "dialog pre")
        browser.press(Keys.ESCAPE)
        browser.gone("dialog")

        bury(broker, "orders", 3, "NoSuchCustomer", "Customer 7 is not known.")
        browser.until(lambda: number(browser, "Dead letters") == "3")
        browser.click(".tabs a", "Dead letters")
        browser.sees("NoSuchCustomer", "tbody")
        browser.sees("Customer 7 is not known.", "tbody")
        browser.click("tbody input[type=checkbox]")
        browser.click("button", "Resubmit 1 selected")
        browser.click("dialog button", "Resubmit")
        browser.sees("Resubmitted 1 message.", ".note")
        browser.until(lambda: (number(browser, "Active"), number(browser, "Dead letters")) == ("2", "2"))
        browser.click("button", "Resubmit all")
        browser.sees("all 2 dead letters of 'orders'", "dialog")
        browser.click("dialog button", "Resubmit")
        browser.until(lambda: (number(browser, "Active"), number(browser, "Dead letters")) == ("4", "0"))
        browser.sees("No dead letters.")

        browser.click(".tabs a", "Messages")
        browser.click("button", "Purge")
        browser.sees("4 messages of 'orders' will be deleted", "dialog")
        assert browser.one("dialog").aria_role == "alertdialog"
        assert browser.driver.switch_to.active_element.text == "Cancel", "the safe answer has the focus"
        browser.press(Keys.ENTER)
        browser.gone("dialog")
        assert number(browser, "Active") == "4", "asked, and not done"
        browser.click("button", "Purge")
        browser.click("dialog button.danger")
        browser.sees("Purged 4 messages.", ".note")
        browser.until(lambda: number(browser, "Active") == "0")

        browser.click("button", "Delete")
        browser.click("dialog button.danger")
        browser.sees("There are no entities yet.")
        browser.click("button", "Log out")
        browser.one("h1", "Log in")
        browser.driver.back()
        browser.one("h1", "Log in")
        browser.forgive()
        assert [entry for entry in browser.log() if "401" not in entry] == [], "only that it may not look any more"


def test_hostile_messages_and_names_are_only_text(broker: Broker, browser: Browser) -> None:
    broker.create_queue("a/..constructor", "contoso")
    with Peer(broker, "contoso") as peer:
        message = text(HOSTILE, message_id=HOSTILE, subject=HOSTILE, group_id=HOSTILE[:100])
        message.application_properties = {HOSTILE: HOSTILE, "__proto__": "p", "javascript:alert(1)": "x"}
        peer.send(peer.sender("a/..constructor"), message)
        peer.send(peer.sender("orders"), text(HOSTILE))
    bury(broker, "orders", 1, HOSTILE, HOSTILE)
    broker.create_topic("t", "contoso")
    broker.create_subscription("t", "s", "contoso", filter=f"x = '{HOSTILE.replace(chr(39), chr(34))}'")
    browser.open(address(broker, "#/n/contoso"))
    browser.click("tbody a", "a/..constructor")
    browser.sees(HOSTILE, "tbody")
    browser.click("[data-row]")
    browser.sees(HOSTILE, "dialog pre")
    assert f"{HOSTILE} string\n{HOSTILE}" in browser.one("dialog").text
    browser.open(address(broker, "#/n/contoso/e/orders/dead"))
    browser.sees(HOSTILE, "tbody")
    browser.open(address(broker, "#/n/contoso/e/t%2FSubscriptions%2Fs/about"))
    browser.sees("<script>", "tbody")
    for odd in ("#/n/" + HOSTILE, "#/n/contoso/e/" + HOSTILE, "#/n/contoso/e/%E0%A4%A", "#/n/contoso/e/orders/nothing"):
        browser.open(address(broker))
        browser.one("h1", "Namespaces")
        browser.script("location.hash = arguments[0]", odd)
        browser.until(lambda: "Namespaces" not in [each.text for each in browser.all("h1")], odd)
    assert browser.script("return window.owned") is None
    assert browser.all("main img, main script") == []
    # The browser itself notes what was not found; nothing else may be in its log.
    browser.forgive()
    assert [entry for entry in browser.log() if not any(code in entry for code in ("404", "400"))] == []


def test_the_page_keeps_to_its_policy(broker: Broker, browser: Browser) -> None:
    """The browser enforces what the headers ask for: no HTML and no script made of strings, nothing from elsewhere."""
    browser.open(address(broker))
    browser.one("h1", "Namespaces")
    browser.forgive()
    tried = browser.script(
        """
        const found = [];
        const script = document.createElement("script");
        try { script.textContent = "window.owned = 1"; } catch { found.push("script text"); }
        document.body.append(script);
        try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); } catch { found.push("html"); }
        return found.concat([String(window.owned), String(document.querySelectorAll("b").length)]);
        """
    )
    assert tried == ["script text", "html", "undefined", "0"]
    answer = browser.driver.execute_async_script(
        "const done = arguments[0]; fetch('http://127.0.0.2:9/').then(() => done('sent'), (error) => done(error.name));"
    )
    assert answer == "TypeError"
    assert "Content Security Policy" in " ".join(browser.log())


def test_what_changes_meanwhile_does_not_disturb(broker: Broker, browser: Browser) -> None:
    """Focus, selection and the list stay; the page says that there is something new."""
    sent(broker, "orders", "a", "b")
    bury(broker, "orders", 2, "Bad", "")
    browser.open(address(broker, "#/n/contoso/e/orders/dead"))
    browser.until(lambda: len(browser.all("tbody tr")) == 2)
    browser.all("tbody input")[1].click()
    sent(broker, "orders", "c")
    bury(broker, "orders", 1, "Bad", "")
    browser.sees("There is something new.")
    assert browser.driver.switch_to.active_element.accessible_name == "Select message 2"
    assert [each.is_selected() for each in browser.all("tbody input")] == [False, True]
    browser.click("button", "Resubmit 1 selected")
    browser.click("dialog button", "Resubmit")
    browser.until(lambda: number(browser, "Dead letters") == "2")
    browser.until(lambda: len(browser.all("tbody tr")) == 2)

    browser.open(address(broker, "#/n/contoso"))
    browser.one("tbody a", "orders")
    browser.script("[...document.querySelectorAll('tbody a')].find((each) => each.textContent === 'orders').focus()")
    sent(broker, "orders", "d")
    browser.until(lambda: cells(browser, "orders")[1] == "2")
    assert browser.driver.switch_to.active_element.text == "orders"


def test_all_by_keyboard(broker: Broker, browser: Browser) -> None:
    browser.open(address(broker))
    browser.one(".card a", "contoso")
    browser.press(Keys.TAB)
    skip = browser.driver.switch_to.active_element
    assert (skip.text, skip.is_displayed()) == ("Skip to content", True)
    browser.press(Keys.ENTER)
    assert browser.driver.switch_to.active_element.get_attribute("id") == "main"
    focused = browser.tab_to("contoso")
    outline = focused.value_of_css_property("outline-style")
    assert outline == "solid", "the focus is seen"
    browser.press(Keys.ENTER)
    browser.one("tbody a", "orders")

    browser.press("?")
    browser.sees("Keyboard shortcuts", "dialog h2")
    for _ in range(5):
        browser.press(Keys.TAB)
        inside = browser.script(
            "return document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
        assert inside, "the focus stays in the dialog"
    browser.press(Keys.ESCAPE)
    browser.gone("dialog")

    browser.press("n")
    browser.one("dialog")
    assert browser.driver.switch_to.active_element.accessible_name == "Name"
    browser.press("by-keyboard", Keys.ENTER)
    browser.gone("dialog")
    browser.one("tbody a", "by-keyboard")
    browser.press("/")
    assert browser.driver.switch_to.active_element.accessible_name == "Filter by name"
    browser.press("keyb")
    browser.until(lambda: len(browser.all("tbody tr")) == 1, "filtered")
    browser.tab_to("by-keyboard")
    browser.press(Keys.ENTER)

    browser.one("h1", "by-keyboard")
    browser.one("button", "Send")
    for body in ('"one"', '"two"'):
        browser.press("s")
        browser.one("dialog")
        browser.press(body)
        browser.tab_to("Send")
        browser.press(Keys.ENTER)
        browser.gone("dialog")
    browser.until(lambda: number(browser, "Active") == "2")
    browser.press("r")
    browser.until(lambda: len(browser.all("tbody tr")) == 2)
    browser.script("document.activeElement.blur()")
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert browser.driver.switch_to.active_element.accessible_name == "Message 2"
    browser.press(Keys.ENTER)
    browser.sees("two", "dialog pre")
    browser.press(Keys.ESCAPE)
    browser.gone("dialog")
    assert browser.driver.switch_to.active_element.accessible_name == "Message 2", "the focus comes back"
    browser.press("u")
    browser.one("h1", "contoso")
    browser.press("u")
    browser.one("h1", "Namespaces")


def test_light_and_dark(broker: Broker, browser: Browser) -> None:
    def ground() -> int:
        """How light the page is, 0 to 255."""
        found = browser.script("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        return int(sum(found[:3]) / 3)

    browser.prefer("light")
    browser.open(address(broker))
    browser.one("h1", "Namespaces")
    assert ground() > 200
    browser.prefer("dark")
    browser.until(lambda: ground() < 60, "the system's wish")
    browser.click("#theme", "Light")
    assert ground() > 200, "the switch is stronger"
    browser.open("about:blank")
    browser.open(address(broker))
    browser.one("h1", "Namespaces")
    assert ground() > 200, "and is remembered"
    browser.press("t")
    assert ground() < 60


@pytest.mark.parametrize("width", [375, 320])
def test_a_phone_shows_everything_without_scrolling_sideways(broker: Broker, browser: Browser, width: int) -> None:
    broker.create_queue("x" * 260, "contoso")
    for index in range(2):
        broker.create_queue(f"fabrikam{BACKLOG_MARK}{index}", "contoso")
    sent(broker, f"fabrikam{BACKLOG_MARK}0", "a", **{"x-ms-path": "y" * 200})
    sent(broker, "orders", "z" * 5_000, json.dumps({"word": "w" * 300}))
    bury(broker, "orders", 1, "R" * 200, "D" * 400)
    browser.resize(width, 800, mobile=True)
    views = {
        "": "Namespaces",
        "#/n/contoso": "contoso",
        "#/n/contoso/e/orders": "orders",
        "#/n/contoso/e/orders/dead": "orders",
        "#/n/contoso/e/orders/about": "orders",
        "#/n/contoso/e/" + "x" * 260: "xxxx",
        "#/n/contoso/backlog": "Backlog",
        "#/n/contoso/ledger": "Ledger",
    }

    def fits() -> bool:
        return bool(browser.script("return document.documentElement.scrollWidth <= innerWidth"))

    for hash, title in views.items():
        browser.open(address(broker, hash))
        browser.one("h1", title)
        browser.until(lambda: browser.all("tbody tr, .card, .empty, .pairs"), hash)
        assert fits(), hash
    browser.open(address(broker, "#/n/contoso/e/orders"))
    browser.click("[data-row]")
    browser.one("dialog pre")
    assert fits()
    box = browser.one("dialog").rect
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    browser.press(Keys.ESCAPE)
    browser.gone("dialog")
    browser.press("s")
    browser.one("dialog textarea")
    assert fits()


def test_backlog_failover_and_ledger(broker: Broker, browser: Browser) -> None:
    for index in range(2):
        broker.create_queue(f"fabrikam{BACKLOG_MARK}{index}", "contoso")
    browser.open(address(broker, "#/n/contoso/backlog"))
    browser.sees("0 messages diverted and not home yet")
    sent(broker, f"fabrikam{BACKLOG_MARK}1", "a", "b", **{"x-ms-path": "payments"})
    browser.sees("2 messages diverted and not home yet")
    browser.sees("payments 2", "tbody")
    browser.click("tbody a", "1")
    browser.click("button", "Purge")
    browser.sees("They are diverted messages that have not come home", "dialog")
    browser.press(Keys.ESCAPE)
    browser.gone("dialog")
    browser.driver.back()
    browser.sees("None. Events of paired clients", "main")
    with broker.fault("refusing", "orders", "contoso"):
        browser.sees("'orders' is refusing", "main")
    browser.click(".tabs a", "Ledger")
    browser.one("h1", "Ledger")
    browser.until(lambda: number(browser, "Operations") == "4", "two sends, and two peeks of the list above")
    browser.sees("send", "tbody")
    assert browser.one(".chart svg")


def test_topics_subscriptions_and_rules(broker: Broker, browser: Browser) -> None:
    browser.open(address(broker, "#/n/contoso"))
    browser.one("tbody a", "orders")
    browser.press("n")
    browser.click("dialog select option[value=topic]")
    browser.fill("Name", "events")
    browser.click("dialog button", "Create")
    browser.click("tbody a", "events")
    browser.click("button", "New subscription")
    browser.fill("Name", "large")
    browser.fill("Filter", "amount > 100")
    browser.click("dialog button", "Create")
    browser.until(lambda: number(browser, "Subscriptions") == "1")
    sent(broker, "events", "a", amount=5)
    sent(broker, "events", "b", amount=500)
    browser.open(address(broker, "#/n/contoso/e/events%2FSubscriptions%2Flarge"))
    browser.until(lambda: number(browser, "Active") == "1")
    browser.click(".tabs a", "Settings")
    browser.sees("amount > 100", "tbody")
    browser.click("button", "New rule")
    browser.fill("Name", "red")
    browser.fill("Takes", "colour = 'red'")
    browser.click("dialog button", "Create")
    browser.sees("colour = 'red'", "tbody")
    browser.click("[aria-label='Delete rule red']")
    browser.click("dialog button.danger")
    assert browser.until(lambda: "red" not in browser.one("tbody").text)


def test_a_stream_comes_back_after_a_restart(broker: Broker, browser: Browser) -> None:
    browser.open(address(broker, "#/n/contoso/e/orders"))
    browser.until(lambda: browser.one("#live").text == "live")
    broker.stop()
    browser.until(lambda: browser.one("#live").text != "live", "it says that it is not live")
    broker.start()
    browser.until(lambda: browser.one("#live").text == "live", "by itself")
    sent(broker, "orders", "a")
    assert browser.until(lambda: number(browser, "Active") == "1")
    browser.forgive()


def test_a_key_for_each_namespace(browser: Browser) -> None:
    with Broker(["contoso", "fabrikam"], queues=["orders"], dev=False, sync=False) as broker:
        browser.open(address(broker, "#/n/contoso"))
        browser.fill("Connection string", broker.connection_string("contoso"))
        browser.click("button", "Log in")
        browser.one("tbody a", "orders")
        browser.press("u")
        browser.sees("Not logged in.", ".card")
        browser.click(".card a", "fabrikam")
        browser.one("h1", "Log in")
        assert browser.one("select").get_property("value") == "fabrikam"
        browser.fill("Connection string", broker.connection_string("fabrikam"))
        browser.click("button", "Log in")
        browser.one("h1", "fabrikam")
        browser.one("tbody a", "orders")
        browser.open(address(broker, "#/n/contoso"))
        browser.one("tbody a", "orders")
        browser.forgive()
        assert [entry for entry in browser.log() if "401" not in entry] == []


def test_everything_has_a_name(broker: Broker, browser: Browser) -> None:
    """What can be used can be told by a screen reader, and every page has its parts."""
    sent(broker, "orders", "a", "b")
    bury(broker, "orders", 1, "Bad", "")
    for hash in ("", "#/n/contoso", "#/n/contoso/e/orders", "#/n/contoso/e/orders/dead", "#/n/contoso/ledger"):
        browser.open(address(broker, hash))
        browser.until(lambda: browser.all("tbody tr, .card"), hash)
        assert nameless(browser, "body") == []
        assert len(browser.all("h1")) == 1
        assert [each.aria_role for each in browser.all("header, main")] == ["banner", "main"]
    for hash, key in (("#/n/contoso/e/orders", "s"), ("#/n/contoso", "n"), ("", "?")):
        browser.open(address(broker, hash))
        browser.until(lambda: browser.all("tbody tr, .card"), hash)
        browser.press(key)
        assert browser.one("dialog").accessible_name
        assert nameless(browser, "dialog") == []


def nameless(browser: Browser, within: str) -> list[str | None]:
    kinds = ("a", "button", "input", "select", "textarea", "table", "[role=img]")
    while True:
        found = browser.all(", ".join(f"{within} {kind}" for kind in kinds))
        try:
            return [
                each.get_attribute("outerHTML") for each in found if each.is_displayed() and not each.accessible_name
            ]
        except StaleElementReferenceException:
            # The page has drawn this part again meanwhile.
            continue
