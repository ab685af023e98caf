"""Messages in a real browser: looked for, chosen, edited, received by hand; entities found, ordered and changed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from selenium.webdriver.common.keys import Keys

from tests.browser import Browser
from tests.console.test_console import HOSTILE, address, bury, cells, number, sent
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

# A browser takes its time on a busy machine.
pytestmark = pytest.mark.timeout(240)

# Right-to-left override, zero-width space, and an isolate.
BIDI = "invoice\u202egnp.exe \u200b\u2066x"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One for the whole file: each test has entities of its own."""
    queues = [
        "find",
        "choose",
        "edit",
        "hand",
        "dead",
        "busy",
        QueueSettings(path="baskets", requires_session=True),
        *(f"many-{each:03}" for each in range(200)),
    ]
    with Broker(["contoso"], queues=queues, sync=False) as broker:
        broker.create_topic("zz-topic", "contoso")
        broker.create_subscription("zz-topic", "all", "contoso")
        yield broker


def ids(browser: Browser) -> list[str]:
    return [each.text.split(" ")[0] for each in browser.all("tbody td[data-title='Message id']")]


def test_messages_are_found_by_text_session_and_number(broker: Broker, browser: Browser) -> None:
    sent(broker, "find", '{"city": "Ulm"}', region="eu")
    sent(broker, "find", "second", "third", region="us")
    browser.open(address(broker, "#/n/contoso/e/find"))
    browser.until(lambda: len(browser.all("tbody tr")) == 3)
    for field, text, found in (("body", "ulm", 1), ("property", "region=us", 2), ("id", "nothing", 0), ("", "us", 2)):
        browser.fill("Search messages", text)
        browser.click(f".finder select option[value='{field}']")
        browser.click(".finder button", "Find")
        browser.sees(f"Looked at 3 messages, found {found}.")
        assert len(browser.all("tbody tr")) == found
    browser.click(".finder button", "Clear")
    browser.until(lambda: len(browser.all("tbody tr")) == 3)
    last = browser.all("[data-row]")[2].text
    browser.fill("From sequence number", last)
    browser.press(Keys.ENTER)
    browser.until(lambda: [each.text for each in browser.all("[data-row]")] == [last], "jumped to the number")

    with (
        ServiceBusClient.from_connection_string(broker.connection_string("contoso")) as client,
        client.get_queue_sender("baskets") as sender,
    ):
        for session in ("ann", "bob", "ann"):
            sender.send_messages(ServiceBusMessage(session, session_id=session))
    browser.open(address(broker, "#/n/contoso/e/baskets"))
    browser.until(lambda: len(browser.all("tbody tr")) == 3)
    browser.until(
        lambda: (
            browser.script("return [...document.querySelectorAll('#session-ids option')].map((o) => o.value)")
            == ["ann", "bob"]
        )
    )
    browser.fill("Session id", "ann")
    browser.press(Keys.ENTER)
    browser.until(lambda: len(browser.all("tbody tr")) == 2)


def test_chosen_messages_are_dead_lettered_resubmitted_and_deleted(broker: Broker, browser: Browser) -> None:
    sent(broker, "choose", *"abcd")
    browser.open(address(broker, "#/n/contoso/e/choose"))
    browser.until(lambda: len(browser.all("tbody tr")) == 4)
    for at in (1, 2):
        browser.all("tbody input[type=checkbox]")[at].click()
    browser.click("button", "Dead-letter 2 selected")
    browser.fill("Reason", "Wrong " + BIDI)
    browser.fill("Description", "By hand. " * 30)
    browser.click("dialog button[type=submit]")
    browser.sees("Dead-lettered 2 messages.", ".note")
    browser.until(lambda: [each.text for each in browser.all("tbody .preview")] == ["a", "d"])
    browser.click(".tabs a", "Dead letters")
    browser.sees("U+202E", "tbody .mark")
    line = browser.one(".one-line")
    assert line.size["height"] < 40, "reason and description stand in one line"
    browser.click("tbody input[type=checkbox]")
    browser.click("button", "Delete 1 selected")
    browser.sees("1 dead letter of 'choose' will be deleted", "dialog")
    browser.click("dialog button.danger")
    browser.sees("Deleted 1 message.", ".note")
    browser.until(lambda: [each.text for each in browser.all("tbody .preview")] == ["c"])
    browser.click("tbody input[type=checkbox]")
    browser.click("button", "Resubmit 1 selected")
    browser.click("dialog button", "Resubmit")
    browser.until(lambda: (number(browser, "Active"), number(browser, "Dead letters")) == ("3", "0"))
    browser.click(".tabs a", "Messages")
    browser.until(lambda: [each.text for each in browser.all("tbody .preview")] == ["a", "d", "c"])
    browser.script(
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); return '#'; }"
    )
    browser.click("button", "Download page")
    saved = browser.until(lambda: browser.script("return window.saved"))
    assert [each["body"] for each in json.loads(saved)] == ["a", "d", "c"]
    browser.click("[aria-label='Select all on this page']")
    browser.click("button", "Delete 3 selected")
    browser.click("dialog button.danger")
    browser.until(lambda: number(browser, "Active") == "0")


def test_a_message_is_looked_at_copied_edited_and_resent(broker: Broker, browser: Browser) -> None:
    sent(broker, "edit", "one", '{"a": 1}', "three", kind="order", amount=5)
    browser.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    browser.open(address(broker, "#/n/contoso/e/edit"))
    browser.until(lambda: len(browser.all("tbody tr")) == 3)
    shown = browser.one("tbody time").text
    assert len(shown) > 19, "date, time"
    assert "UTC" in shown, "and zone"
    browser.click("[data-row]")
    browser.sees("one", "dialog pre")
    assert browser.one("dialog button", "Previous").get_attribute("aria-disabled") == "true"
    browser.click("dialog button", "Next")
    browser.sees('"a": 1', "dialog pre")
    browser.press(Keys.ARROW_RIGHT)
    browser.sees("three", "dialog pre")
    browser.sees("3 of 3 on this page", "dialog")
    browser.press(Keys.ARROW_LEFT)
    browser.sees('"a": 1', "dialog pre")
    browser.click("dialog button", "Copy body")
    browser.sees("Copied the body.", ".note")
    pasted = browser.driver.execute_async_script(
        "const done = arguments[0]; navigator.clipboard.readText().then(done, (error) => done(String(error)));"
    )
    assert pasted == '{"a": 1}'
    browser.click("dialog button", "Copy as JSON")
    browser.sees("Copied the message as JSON.", ".note")

    browser.click("dialog button", "Edit and resend")
    browser.fill("Content type", "application/json")
    browser.fill("Body", '{"a": 2')
    browser.sees("The body is not valid JSON", "dialog .wrong")
    browser.click("dialog button[type=submit]", "Resend")
    browser.one("dialog button[type=submit]", "Send anyway")
    browser.sees("Correct it, change the content type, or send it anyway.", "dialog [role=alert]")
    browser.fill("Body", '{"a": 2}')
    amount = next(each for each in browser.all("[aria-label='Property value']") if each.get_property("value") == "5")
    amount.clear()
    amount.send_keys("6")
    browser.click("dialog button[type=submit]")
    browser.sees("again to 'edit'.", ".note")
    browser.gone("dialog")
    browser.until(lambda: [each.text for each in browser.all("tbody .preview")] == ["one", "three", '{"a": 2}'])
    assert number(browser, "Active") == "3", "the original is gone, and nothing else"
    browser.all("[data-row]")[2].click()
    browser.sees('"a": 2', "dialog pre")
    shown = browser.one("dialog").text
    assert "amount long\n6" in shown
    assert "kind string\norder" in shown


def test_messages_are_received_and_settled_by_hand(broker: Broker, browser: Browser) -> None:
    sent(broker, "hand", *"abcd")
    browser.open(address(broker, "#/n/contoso/e/hand/receive"))
    browser.sees("You hold no message of this entity.")
    browser.fill("How many", "4")
    browser.click("button.primary", "Receive")
    browser.until(lambda: len(browser.all("tbody tr")) == 4)
    assert browser.one("[data-until]").text.endswith(" s")
    with ServiceBusClient.from_connection_string(broker.connection_string("contoso")) as client:
        receiver = client.get_queue_receiver("hand")
        assert receiver.receive_messages(max_wait_time=1) == [], "they are locked"
        receiver.close()
    browser.click("[data-row]")
    browser.sees("a", "dialog pre")
    browser.press(Keys.ESCAPE)
    browser.gone("dialog")
    for left, how in ((3, "Complete"), (2, "Abandon"), (1, "Defer")):
        browser.click(".settle button", how)
        browser.until(lambda left=left: len(browser.all("tbody tr")) == left, how)  # type: ignore[misc]
    browser.click(".settle button", "Renew")
    browser.click(".settle button", "Dead-letter")
    browser.fill("Reason", "ByHand")
    browser.click("dialog button[type=submit]")
    browser.sees("You hold no message of this entity.")
    browser.until(lambda: [number(browser, each) for each in ("Active", "Deferred", "Dead letters")] == ["1", "1", "1"])
    browser.click(".tabs a", "Messages")
    rows = browser.until(lambda: [each for each in browser.all("tbody tr") if "deferred" in each.text])
    deferred = rows[0].find_element("css selector", "[data-row]").text
    browser.click(".tabs a", "Receive")
    browser.fill("Number of a deferred message", deferred)
    browser.click("button.primary", "Receive")
    browser.until(lambda: len(browser.all("tbody tr")) == 1)
    browser.click("button.primary", "Receive")
    browser.until(lambda: len(browser.all("tbody tr")) == 2)
    browser.click(".settle button", "Complete all")
    browser.until(lambda: (number(browser, "Active"), number(browser, "Deferred")) == ("0", "0"))


def test_entities_are_found_ordered_and_changed(broker: Broker, browser: Browser) -> None:
    sent(broker, "dead", "x", "y")
    bury(broker, "dead", 2, "Bad", "")
    browser.open(address(broker, "#/n/contoso"))
    browser.one("tbody a", "zz-topic")
    assert len(browser.all("tbody tr")) > 200, "queues and topics are on one page"
    browser.click("#only-dead")
    # Other tests of this file may have left one.
    browser.until(lambda: {"dead"} <= {each.text for each in browser.all("tbody a")} <= {"choose", "dead", "hand"})
    browser.sees(" found")
    browser.click("#only-dead")
    browser.click("select option[value=topic]")
    browser.until(lambda: [each.text for each in browser.all("tbody a")] == ["zz-topic"])
    browser.click("select option[value='']")
    browser.click("thead button", "Dead letters")
    browser.until(lambda: browser.all("tbody a")[0].text in ("choose", "dead"), "the most dead letters first")
    assert browser.one("thead [aria-sort]").text.startswith("Dead letters")

    browser.click("button", "Connection string")
    text = browser.one("dialog textarea").get_property("value")
    with ServiceBusClient.from_connection_string(str(text)) as client, client.get_queue_sender("busy") as sender:
        browser.press(Keys.ESCAPE)
        browser.click(".tabs a", "Connections")
        sender.send_messages([ServiceBusMessage("x") for _ in range(20)])
        browser.sees("1 connection over AMQP.")
        browser.sees("sends to busy", "tbody")
        browser.click(".tabs a", "Entities")
        browser.fill("Filter by name", "busy")
        browser.until(lambda: "in" in cells(browser, "busy")[-1], "a rate in the list")
        browser.click("tbody a", "busy")
        browser.one(".rate .spark")
        browser.open(address(broker, "#/n/contoso/connections"))
        browser.click("button", "Close")
        browser.click("dialog button.danger")
        browser.sees("Closed the connection of", ".note")
        browser.sees("Nobody is connected.")
        sender.send_messages(ServiceBusMessage("after"))

    browser.open(address(broker, "#/n/contoso/e/busy/about"))
    browser.click("button", "Edit settings")
    browser.click("dialog select option[value=SendDisabled]")
    browser.fill("lock duration", "forever")
    browser.click("dialog button[type=submit]")
    browser.sees("is a duration", "dialog [role=alert]")
    browser.fill("lock duration", "30 s")
    browser.click("dialog button[type=submit]")
    browser.gone("dialog")
    browser.one(".tag.warn", "SendDisabled")
    browser.sees("30 s", ".pairs")
    browser.open(address(broker, "#/n/contoso/e/zz-topic"))
    assert browser.one(".tabs a[aria-current]").text == "Subscriptions"
    browser.click("tbody a", "all")
    browser.one("h1", "zz-topic/Subscriptions/all")


def test_hidden_characters_are_seen_and_invalid_json_is_told(broker: Broker, browser: Browser) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("contoso")) as client,
        client.get_queue_sender("many-000") as sender,
    ):
        sender.send_messages(
            ServiceBusMessage(BIDI, message_id=BIDI, subject=BIDI, application_properties={BIDI: BIDI})
        )
    browser.open(address(broker, "#/n/contoso/e/many-000"))
    browser.one("tbody .mark", "U+202E")
    browser.click("[data-row]")
    browser.sees("U+200B", "dialog pre .mark")
    shown = browser.one("dialog").text
    assert not any(each in shown for each in "\u202e\u2066")
    assert shown.count("U+202E") >= 5, "body, id, subject, a property's name and its value"
    browser.press(Keys.ESCAPE)
    browser.gone("dialog")
    browser.press("s")
    browser.fill("Body", "{")
    browser.sees("The body is not valid JSON", "dialog .wrong")
    browser.click("dialog button[type=submit]", "Send")
    browser.click("dialog button[type=submit]", "Send anyway")
    browser.sees("Sent 1 message to 'many-000'.", ".note")


def test_hostile_messages_are_only_text_where_they_are_edited_and_received(broker: Broker, browser: Browser) -> None:
    sent(broker, "many-001", HOSTILE, **{HOSTILE: HOSTILE})
    browser.open(address(broker, "#/n/contoso/e/many-001"))
    browser.fill("Search messages", HOSTILE)
    browser.press(Keys.ENTER)
    browser.sees("found 1.")
    browser.click("[data-row]")
    browser.click("dialog button", "Edit and resend")
    assert browser.fill("Message id", HOSTILE[:100]).get_property("value") == HOSTILE[:100]
    browser.click("dialog button[type=submit]", "Resend")
    browser.gone("dialog")
    browser.click(".tabs a", "Receive")
    browser.click("button.primary", "Receive")
    browser.sees(HOSTILE[:100], "tbody")
    browser.click("[data-row]")
    browser.sees(HOSTILE, "dialog pre")
    browser.press(Keys.ESCAPE)
    browser.gone("dialog")
    browser.click(".settle button", "Dead-letter")
    browser.fill("Reason", HOSTILE)
    browser.click("dialog button[type=submit]")
    browser.sees("You hold no message of this entity.")
    browser.click(".tabs a", "Dead letters")
    browser.sees(HOSTILE, "tbody")
    assert browser.script("return window.owned") is None
    assert browser.all("main img, main script, dialog img") == []
