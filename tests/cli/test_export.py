"""Export and import: either file restores a running namespace's entities."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from twinbus.auth.policies import ROOT_KEY_NAME, Policy, Right
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.configuration.file import load_config
from twinbus.broker.host import NamespaceHost
from twinbus.cli.main import run
from twinbus.entities.filters import CorrelationFilter, FalseFilter, SqlAction, SqlFilter, TrueFilter
from twinbus.entities.rule import Rule
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.limits import EXPORT_PAGE_ITEMS
from twinbus.testing import Broker

Command = Callable[..., tuple[int, str, str]]
SECRET = "c2VjcmV0LW9mLXRoZS1leHBvcnQ="

FULL = QueueSettings(
    path="Billing/Invoices",
    lock_duration_ms=30_000,
    max_megabytes=2_048,
    requires_duplicate_detection=True,
    requires_session=True,
    default_ttl_ms=14 * 86_400_000,
    dead_letter_on_expiry=True,
    duplicate_window_ms=20_000,
    max_delivery_count=3,
    enable_batched_operations=False,
    status="SendDisabled",
    auto_delete_on_idle_ms=3_600_000,
    enable_partitioning=True,
    enable_express=True,
    forward_dead_letters_to="orders",
    user_metadata='a "note"\nwith \\ and ü',
    max_message_bytes=512 * 1024,
)
TOPIC = TopicSettings(
    path="events",
    default_ttl_ms=60_000,
    requires_duplicate_detection=True,
    duplicate_window_ms=30_000,
    max_megabytes=5_120,
    user_metadata="a topic",
    support_ordering=False,
    max_message_bytes=2_048 * 1024,
)
SUBSCRIPTION = SubscriptionSettings(
    topic="events",
    name="EU.only",
    lock_duration_ms=10_000,
    requires_session=True,
    default_ttl_ms=5_000,
    dead_letter_on_expiry=True,
    dead_letter_on_filter_error=False,
    max_delivery_count=7,
    status="ReceiveDisabled",
    auto_delete_on_idle_ms=7_200_000,
    forward_to="orders",
    user_metadata="a subscription",
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    policies = [Policy("shop", frozenset({Right.SEND}), SECRET, scope="Billing/Invoices")]
    queues = [QueueSettings(path="orders"), FULL]
    with Broker([NamespaceConfig("contoso", queues=queues, policies=policies, sku="Premium")], dev=False) as broker:

        def fill(host: NamespaceHost) -> None:
            host.create_topic(TOPIC)
            host.create_subscription(SUBSCRIPTION, Rule("sql", SqlFilter("amount > 10 AND x = 'a'"), None, 1))
            host.create_subscription(SubscriptionSettings(topic="events", name="all"))
            add = [
                Rule("act", TrueFilter(), SqlAction("SET big = TRUE"), 1),
                Rule("no", FalseFilter(), None, 1),
                Rule(
                    "c",
                    CorrelationFilter(label="l", to="t", properties={"n": 5, "s": "x", "f": 1.5, "b": True}),
                    None,
                    1,
                ),
            ]
            for rule in add:
                host.add_rule("events", "all", rule)

        broker.call(lambda server: fill(server.hosts["contoso"]))
        yield broker


@pytest.fixture
def command(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Command:
    def asked(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            run(["export", "-c", broker.connection_string(), *arguments])
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return asked


def state(broker: Broker) -> Any:
    """Return all settings of all entities."""

    def read(host: NamespaceHost) -> Any:
        topics = {
            topic.path: (
                topic.settings,
                {
                    each.name: (each.settings, {rule.name: (rule.filter, rule.action) for rule in each.rules})
                    for each in topic.subscriptions
                },
            )
            for topic in host.entities.topics()
        }
        return {queue.path: queue.settings for queue in host.entities.queues()}, topics

    return broker.call(lambda server: read(server.hosts["contoso"]))


@pytest.mark.parametrize("name", ["config.json", "twinbus.toml"])
def test_what_is_exported_comes_back(command: Command, broker: Broker, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    code, out, err = command("--output", str(path))
    assert (code, out) == (0, "")
    text = path.read_text()
    assert SECRET not in text
    assert SECRET not in err
    with Broker(load_config(path).namespaces, dev=False, data=tmp_path / "data") as again:
        assert state(again) == state(broker)
        # Exporting again gives the same file.
        second = tmp_path / f"second-{name}"
        with pytest.raises(SystemExit):
            run(["export", "-c", again.connection_string(), "--output", str(second)])
        if name.endswith("toml"):
            assert second.read_text() == text
            policy = again.call(lambda server: server.hosts["contoso"].keyring.find("billing/invoices", "shop"))
            assert policy.rights == {Right.SEND}
            assert policy.primary_key != SECRET


def test_the_emulators_file_tells_what_it_cannot_say(command: Command) -> None:
    code, out, err = command("--format", "emulator")
    assert code == 0
    assert json.loads(out)["UserConfig"]["Namespaces"][0]["Name"] == "contoso"
    assert all(line.startswith("twinbus: warning: ") for line in err.splitlines())
    assert "The sku 'Premium' has no place" in err
    assert "Policies of Billing/Invoices have no place in config.json: shop." in err
    assert "Billing/Invoices: MaxSizeInMegabytes is for Twinbus" in err
    assert "orders" not in err.replace("Billing", "")


def test_toml_says_it_all(command: Command) -> None:
    code, out, err = command()
    assert (code, err) == (0, "")
    assert '[namespaces.contoso.queues."Billing/Invoices".policies.shop]' in out
    assert "[namespaces.contoso.queues.orders]\n\n" in out
    assert ROOT_KEY_NAME not in out


def test_what_neither_file_can_say(command: Command, broker: Broker) -> None:
    def odd(host: NamespaceHost) -> None:
        host.create_subscription(SubscriptionSettings(topic="events", name="odd"))
        host.remove_rule("events", "odd", "$Default")
        host.add_rule("events", "all", Rule("p", SqlFilter("a = @p", {"@p": 1}), None, 1))
        host.add_rule("events", "all", Rule("g", CorrelationFilter(properties={"id": uuid.UUID(int=1)}), None, 1))

    broker.call(lambda server: odd(server.hosts["contoso"]))
    for format in ("toml", "emulator"):
        _, _, err = command("--format", format)
        assert "events/odd: it has no rule" in err
        assert "events/all/p: the parameters of its SQL" in err
        assert "events/all/g: the value of property 'id'" in err


def test_keys_only_when_asked_for(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    assert command("--show-keys", "-o", str(path))[0] == 0
    assert SECRET in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    namespace = load_config(path).namespaces[0]
    assert {policy.name for policy in namespace.policies} == {"shop", ROOT_KEY_NAME}
    code, _, err = command("--show-keys", "--format", "emulator")
    assert code == 2
    assert "cannot hold keys" in err


def test_many_entities_come_in_pages(broker: Broker, command: Command) -> None:
    def make(host: NamespaceHost) -> None:
        for number in range(EXPORT_PAGE_ITEMS + 10):
            host.create_queue(QueueSettings(path=f"many-{number:04}"))

    broker.call(lambda server: make(server.hosts["contoso"]))
    out = command()[1]
    assert out.count("[namespaces.contoso.queues.many-") == EXPORT_PAGE_ITEMS + 10


def test_a_place_that_cannot_be_written(command: Command, tmp_path: Path) -> None:
    code, _, err = command("--output", str(tmp_path / "no" / "file.toml"))
    assert code == 2
    assert "cannot be written" in err
