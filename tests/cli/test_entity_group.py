"""`twinbus queue update|status`, `topic`, `subscription`, `rule`: against a real broker, and through the SDK as on
Azure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Command
from twinbus.auth.connection_string import ConnectionString
from twinbus.cli import azure_directory
from twinbus.cli.target import TargetNamespace
from twinbus.entities.settings import SETTINGS_OF
from twinbus.errors import ArgumentError, EntityExistsError, EntityNotFoundError, UnsupportedError
from twinbus.testing import Broker

Done = Callable[..., str]

# Fields of a description that are not settings.
NUMBERS = {
    "created_ms",
    "updated_ms",
    "accessed_ms",
    "size_bytes",
    "active_messages",
    "scheduled_messages",
    "deferred_messages",
    "dead_letter_messages",
    "transfer_dead_letter_messages",
    "subscriptions",
}


def entities(broker: Broker) -> Any:
    return broker.call(lambda server: server.hosts["contoso"].entities)


# --- queues -----------------------------------------------------------------------------------------------------------


def test_an_update_changes_what_is_given_and_nothing_else(bus: Broker, done: Done) -> None:
    bus.create_queue("deep", lock_duration_ms=30_000, user_metadata="mine", forward_dead_letters_to="others")
    assert done("queue", "update", "deep", "--max-delivery-count", "3", "--default-ttl", "P1D") == (
        "Updated queue deep.\n"
    )
    before = entities(bus).queue("deep").settings
    assert (before.max_delivery_count, before.default_ttl_ms) == (3, 86_400_000)
    assert (before.lock_duration_ms, before.user_metadata, before.forward_dead_letters_to) == (30_000, "mine", "others")
    done("queue", "update", "deep", "--forward-dead-letters-to", "", "--user-metadata", "")
    after = entities(bus).queue("deep").settings
    assert after == dataclasses.replace(before, forward_dead_letters_to=None, user_metadata=None)


def test_the_status_is_shown_and_set(bus: Broker, done: Done, json_of: Any, twinbus: Command) -> None:
    assert done("queue", "status", "orders") == "Active\n"
    assert done("queue", "status", "orders", "senddisabled") == "SendDisabled\n"
    assert json_of("queue", "status", "orders") == {"status": "SendDisabled"}
    code, _, err = twinbus("send", "orders", "x")
    assert code == 1
    assert "`twinbus queue status NAME Active`" in err
    code, _, err = twinbus("queue", "status", "orders", "off")
    assert (code, err) == (
        2,
        "twinbus: status 'off' is not one of Active, Disabled, SendDisabled, ReceiveDisabled.\n",
    )


# --- topics and subscriptions -----------------------------------------------------------------------------------------


def test_the_life_of_a_topic(bus: Broker, done: Done, json_of: Any, twinbus: Command) -> None:
    assert done("topic", "create", "news") == "Created topic news.\n"
    assert done("subscription", "create", "news", "all") == "Created subscription all of news.\n"
    assert [each["path"] for each in json_of("topic", "list")] == ["news"]
    assert done("topic", "list").splitlines()[1].split() == ["news", "1", "0", "0", "Active"]
    done("topic", "update", "news", "--default-ttl", "7d")
    assert json_of("topic", "show", "news")["default_ttl_ms"] == 7 * 86_400_000
    assert "P7D" in done("topic", "show", "news")
    assert done("topic", "status", "news", "Disabled") == "Disabled\n"
    assert done("topic", "delete", "news", "--yes") == "Deleted topic news.\n"
    code, _, err = twinbus("topic", "show", "news")
    assert code == 1
    assert "could not be found" in err


def test_the_life_of_a_subscription(bus: Broker, done: Done, json_of: Any, twinbus: Command) -> None:
    bus.create_topic("news")
    done("subscription", "create", "news", "all")
    done("send", "news", "hello")
    assert done("subscription", "list", "news").splitlines()[1].split()[:2] == ["all", "1"]
    done("subscription", "update", "news", "all", "--max-delivery-count", "3")
    assert json_of("subscription", "show", "news", "all")["max_delivery_count"] == 3
    assert json_of("subscription", "show", "news", "all")["active_messages"] == 1
    assert done("subscription", "status", "news", "all", "ReceiveDisabled") == "ReceiveDisabled\n"
    assert json_of("subscription", "delete", "news", "all", "--yes") == {"deleted": "all"}
    assert json_of("subscription", "list", "news") == []
    code, _, err = twinbus("subscription", "show", "nws", "all")
    assert code == 1
    assert "Did you mean 'news'?" in err


# --- rules ------------------------------------------------------------------------------------------------------------


def test_the_life_of_a_rule(bus: Broker, done: Done, json_of: Any, twinbus: Command) -> None:
    bus.create_topic("news")
    bus.create_subscription("news", "eu")
    place = ("news", "eu")
    assert done("rule", "list", *place).splitlines()[1].split() == ["$Default", "everything", "-"]
    assert done("rule", "create", *place, "big", "--sql", "amount > 100", "--action", "SET size = 'big'", "--only") == (
        "Created rule big of news/eu.\n"
    )
    listed = json_of("rule", "list", *place)
    assert [each["name"] for each in listed] == ["big"]
    assert listed[0]["filter"] == {"type": "sql", "expression": "amount > 100"}
    assert listed[0]["action"] == "SET size = 'big'"
    options = ["--correlation", "subject=order", "--correlation", "content-type=text/plain"]
    made = json_of("rule", "create", *place, "vip", *options, "--property", "vip:=true", "--property", "region=eu")
    assert made["filter"] == {
        "type": "correlation",
        "label": "order",
        "content_type": "text/plain",
        "properties": {"vip": True, "region": "eu"},
    }
    shown = done("rule", "show", *place, "vip")
    assert "label = 'order', content-type = 'text/plain', vip = True, region = 'eu'" in shown
    done("send", "news", "small", "-p", "amount:=5")
    done("send", "news", "large", "-p", "amount:=500")
    options = ["--subject", "order", "--content-type", "text/plain"]
    done("send", "news", "vip", *options, "-p", "vip:=true", "-p", "region=eu")
    assert json_of("subscription", "show", *place)["active_messages"] == 2
    assert done("rule", "delete", *place, "vip") == "Deleted rule vip.\n"
    code, _, err = twinbus("rule", "show", *place, "vip")
    assert (code, err) == (1, "twinbus: news/eu has no rule 'vip'; it has big.\n")


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--sql", "a = 1", "--correlation", "to=x"], 2, "A rule has one filter"),
        (["--correlation", "colour=red"], 2, "or --property for your own"),
        (["--correlation", "to"], 2, "write name=text"),
        (["--property", "n:=text"], 2, "after := must be a number"),
        (["--sql", "a = ="], 1, "twinbus: "),
    ],
)
def test_a_rule_that_is_none(bus: Broker, twinbus: Command, options: list[str], code: int, problem: str) -> None:
    bus.create_topic("news")
    bus.create_subscription("news", "eu")
    found, _, err = twinbus("rule", "create", "news", "eu", "one", *options)
    assert (found, err.count("\n")) == (code, 1)
    assert problem in err


# --- Azure ------------------------------------------------------------------------------------------------------------


class ByAtom:
    """Sends requests as to Azure, but to our own administration API over HTTPS."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(self, operation: str, **body: Any) -> dict[str, Any]:
        parsed = ConnectionString.parse(self._broker.connection_string())
        return azure_directory.answer(parsed, self._broker.ca_file, operation, body)


@pytest.fixture
def azure(bus: Broker) -> ByAtom:
    return ByAtom(bus)


def test_azure_is_known_by_its_name() -> None:
    def azure(host: str) -> bool:
        text = f"Endpoint=sb://{host}/;SharedAccessKeyName=a;SharedAccessKey=b"
        return TargetNamespace(ConnectionString.parse(text)).azure

    assert azure("contoso.servicebus.windows.net")
    assert azure("Contoso.ServiceBus.chinacloudapi.cn")
    assert not azure("localhost")
    assert not azure("servicebus.windows.net.example.org")


def test_queues_by_the_sdk_are_as_by_our_own_requests(bus: Broker, azure: ByAtom, json_of: Any) -> None:
    made = azure("create-queue", path="deep", lock_duration_ms=30_000, max_delivery_count=3, requires_session=True)
    assert made["queue"]["lock_duration_ms"] == 30_000
    ours = json_of("queue", "show", "deep")
    theirs = azure("get-queue", name="deep")["queue"]
    assert set(ours) - set(theirs) == {setting.name for setting in SETTINGS_OF["queue"] if not setting.sdk}
    differing = {name for name in theirs if ours[name] != theirs[name]}
    assert differing <= {"accessed_ms", "created_ms", "updated_ms", "deferred_messages"}
    settings = {name: value for name, value in theirs.items() if name not in NUMBERS and value is not None}
    azure("update-queue", **settings | {"default_ttl_ms": 60_000, "status": "SendDisabled"})
    changed = entities(bus).queue("deep").settings
    assert (changed.default_ttl_ms, changed.status, changed.lock_duration_ms) == (60_000, "SendDisabled", 30_000)
    assert sorted(each["path"] for each in azure("list-queues")["queues"]) == ["deep", "orders", "others"]
    azure("delete-queue", name="deep")
    with pytest.raises(EntityNotFoundError):
        azure("get-queue", name="deep")


def test_an_update_by_the_sdk_takes_settings_away(bus: Broker, azure: ByAtom) -> None:
    azure("create-queue", path="deep", forward_to="orders", user_metadata="mine")
    found = azure("get-queue", name="deep")["queue"]
    kept = {name: value for name, value in found.items() if name not in NUMBERS and value is not None}
    for name in ("forward_to", "user_metadata"):
        del kept[name]
    azure("update-queue", **kept)
    after = entities(bus).queue("deep").settings
    assert (after.forward_to, after.user_metadata) == (None, None)


def test_topics_and_rules_by_the_sdk(bus: Broker, azure: ByAtom, json_of: Any) -> None:
    azure("create-topic", path="news", default_ttl_ms=3_600_000)
    azure("create-subscription", topic="news", name="eu", max_delivery_count=3)
    ours, theirs = json_of("subscription", "show", "news", "eu"), azure("get-subscription", topic="news", name="eu")
    assert set(theirs["subscription"]) == set(ours)
    assert [each["name"] for each in azure("list-subscriptions", topic="news")["subscriptions"]] == ["eu"]
    assert azure("get-topic", name="news")["topic"]["subscriptions"] == 1
    assert set(json_of("topic", "show", "news")) - set(azure("get-topic", name="news")["topic"]) == {
        "filter_before_publishing"
    }
    place = {"topic": "news", "subscription": "eu"}
    sql = {"sql-filter": {"expression": "amount > 100"}, "sql-rule-action": {"expression": "SET size = 'big'"}}
    azure("create-rule", **place, name="big", **{"rule-description": sql})
    own = {"correlation-filter": {"label": "order", "properties": {"region": "eu"}}}
    azure("create-rule", **place, name="own", **{"rule-description": own})
    found = [each["rule-description"] for each in azure("list-rules", **place)["rules"]]
    ours = json_of("rule", "list", "news", "eu")
    assert sorted(found, key=lambda rule: rule["name"].lower()) == [
        {**rule, "created_ms": next(each["created_ms"] for each in found if each["name"] == rule["name"])}
        for rule in ours
    ]
    azure("delete-rule", **place, name="big")
    azure("delete-subscription", topic="news", name="eu")
    azure("delete-topic", name="news")
    assert json_of("topic", "list") == []


def test_refusals_by_the_sdk_are_ours(azure: ByAtom) -> None:
    with pytest.raises(EntityExistsError):
        azure("create-queue", path="orders")
    with pytest.raises(ArgumentError):
        azure("create-queue", path="x", lock_duration_ms=1)
    with pytest.raises(UnsupportedError, match="Twinbus"):
        azure("list-policies")


def test_policies_of_azure_are_refused_before_anybody_is_asked(twinbus: Command) -> None:
    text = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=c2VjcmV0"
    code, out, err = twinbus("policy", "list", "-c", text)
    assert (code, out) == (1, "")
    assert "it needs a Twinbus namespace." in err
    assert json.dumps("c2VjcmV0") not in err
