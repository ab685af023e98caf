from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.auth.policies import ALL_RIGHTS, Policy, Right
from twinbus.broker.configuration.config import BrokerConfig, KeylessPolicy, NamespaceConfig, is_loopback
from twinbus.broker.configuration.file import blank_comments, load_config, parse_json
from twinbus.entities.settings import QueueSettings
from twinbus.errors import ConfigError
from twinbus.limits import CONFIG_FILE_BYTES_MAX, NAMESPACES_MAX, UNLIMITED_MS
from twinbus.testing import Broker

# The shape of the official emulator's file, with comments that people add.
EMULATOR = """
// my queues
{
  "UserConfig": {
    "Namespaces": [ {
      "Name": "sbemulatorns", /* cannot be changed
                                 in the emulator */
      "Queues": [ {
        "Name": "queue.1",
        "Properties": {
          "DeadLetteringOnMessageExpiration": false,
          "DefaultMessageTimeToLive": "PT1H",
          "DuplicateDetectionHistoryTimeWindow": "PT20S",
          "ForwardDeadLetteredMessagesTo": "",
          "ForwardTo": "",
          "LockDuration": "PT1M",
          "MaxDeliveryCount": 3,
          "RequiresDuplicateDetection": false,
          "RequiresSession": false
        }
      }, ],
      "Topics": [ {
        "Name": "topic.1",
        "Properties": {
          "DefaultMessageTimeToLive": "PT1H",
          "DuplicateDetectionHistoryTimeWindow": "PT20S",
          "RequiresDuplicateDetection": false
        },
        "Subscriptions": [ {
          "Name": "subscription.1",
          "Properties": {
            "DeadLetteringOnMessageExpiration": false,
            "DefaultMessageTimeToLive": "PT1H",
            "LockDuration": "PT1M",
            "MaxDeliveryCount": 3,
            "ForwardDeadLetteredMessagesTo": "",
            "ForwardTo": "",
            "RequiresSession": false
          },
          "Rules": [ {
            "Name": "app-prop-filter-1",
            "Properties": {
              "FilterType": "Correlation",
              "CorrelationFilter": {
                "ContentType": "application/text", // a URL in a text stays: "http://x"
                "CorrelationId": "id1",
                "Label": "subject1",
                "MessageId": "msgid1",
                "ReplyTo": "someQueue",
                "ReplyToSessionId": "sessionId",
                "SessionId": "session1",
                "To": "http://xyz/*not a comment*/",
                "Properties": { "priority": 5, "region": "eu" }
              }
            }
          }, {
            "Name": "sql-filter-1",
            "Properties": {
              "FilterType": "Sql",
              "SqlFilter": { "SqlExpression": "sys.MessageId = '123456' AND userProp1 = 'value1'" },
              "Action": { "SqlExpression": "SET sys.To = 'Entity'" }
            }
          } ]
        } ]
      } ]
    } ],
    "Logging": { "Type": "File" },
  }
}
"""

TOML = """
host = "127.0.0.1"
data = "data"

[namespaces.contoso]
port = 5672

[namespaces.contoso.policies.reader]
rights = ["Listen"]

[namespaces.contoso.queues.orders]
lock_duration = "30s"
default_ttl = "P14D"
max_delivery_count = 5
requires_session = true

[namespaces.contoso.queues.orders.policies.sender]
rights = ["Send"]
primary_key = "first"
secondary_key = "second"

[namespaces.contoso.queues."a/b"]

[namespaces.contoso.topics.events]
default_ttl = "1h"

[namespaces.contoso.topics.events.subscriptions.all]
lock_duration = "PT10S"
dead_letter_on_filter_error = false

[namespaces.contoso.topics.events.subscriptions.all.rules.eu]
correlation = { subject = "order", properties = { region = "eu" } }

[namespaces.contoso.topics.events.subscriptions.all.rules.big]
sql = "amount > 100"
action = "SET big = true"

[namespaces.fabrikam]
"""


def write(folder: Path, text: str, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_emulators_file_is_taken_as_it_is(tmp_path: Path) -> None:
    (namespace,) = load_config(write(tmp_path, EMULATOR)).namespaces
    assert namespace.name == "sbemulatorns"
    assert namespace.queues == [
        QueueSettings(
            path="queue.1",
            lock_duration_ms=60_000,
            default_ttl_ms=3_600_000,
            duplicate_window_ms=20_000,
            max_delivery_count=3,
        )
    ]


def test_its_topics(tmp_path: Path) -> None:
    namespaces = load_config(write(tmp_path, EMULATOR)).namespaces
    (topic,) = namespaces[0].topics
    assert (topic.path, topic.settings.default_ttl_ms, topic.settings.duplicate_window_ms) == (
        "topic.1",
        3_600_000,
        20_000,
    )
    (subscription,) = topic.subscriptions
    assert (subscription.name, subscription.settings.max_delivery_count) == ("subscription.1", 3)
    correlation, sql = subscription.rules
    assert correlation.kind == "correlation"
    assert correlation.correlation["to"] == "http://xyz/*not a comment*/"
    assert correlation.correlation["subject"] == "subject1"
    assert correlation.correlation_properties == {"priority": 5, "region": "eu"}
    assert (sql.kind, sql.action) == ("sql", "SET sys.To = 'Entity'")
    assert sql.sql == "sys.MessageId = '123456' AND userProp1 = 'value1'"


def test_keys_of_the_emulators_file_may_have_any_case_and_all_may_be_left_out(tmp_path: Path) -> None:
    queue = '{"name": "q", "properties": {"lockduration": "PT5S"}}'
    text = '{"userconfig": {"NAMESPACES": [{"name": "ns", "queues": [' + queue + "]}]}}"
    (namespace,) = load_config(write(tmp_path, "\ufeff" + text)).namespaces
    assert namespace.queues == [
        QueueSettings(
            path="q",
            lock_duration_ms=5_000,
            default_ttl_ms=3_600_000,
            duplicate_window_ms=20_000,
            max_delivery_count=3,
        )
    ]
    (namespace,) = load_config(
        write(tmp_path, '{"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": null}]}}')
    ).namespaces
    assert namespace.queues == []


def limits_file(ttl: str, window: str, lock: str, deliveries: int, flag: bool) -> str:
    """Every key of the emulator's schema, at one end of its range."""
    own = {"DefaultMessageTimeToLive": ttl, "LockDuration": lock, "MaxDeliveryCount": deliveries}
    own |= {"DeadLetteringOnMessageExpiration": flag, "RequiresSession": flag}
    own |= {"ForwardTo": "" if flag else "target", "ForwardDeadLetteredMessagesTo": "target"}
    duplicates = {"DuplicateDetectionHistoryTimeWindow": window, "RequiresDuplicateDetection": flag}
    texts = ("ContentType", "CorrelationId", "Label", "MessageId", "ReplyTo", "ReplyToSessionId", "SessionId", "To")
    correlation = {**{name: name.lower() for name in texts}, "Properties": {"text": "x", "number": 5, "flag": flag}}
    action = {"SqlExpression": "SET x = 1"}
    rules = [
        {
            "Name": "c",
            "Properties": {"FilterType": "Correlation", "CorrelationFilter": correlation, "Action": action},
        },
        {
            "Name": "s",
            "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = 1"}, "Action": action},
        },
    ]
    subscriptions = [{"Name": f"s{n}", "Properties": own, "Rules": rules} for n in range(50 if flag else 1)]
    topic = {
        "Name": "t",
        "Properties": {"DefaultMessageTimeToLive": ttl, **duplicates},
        "Subscriptions": subscriptions,
    }
    queues = [{"Name": f"q{n}", "Properties": {**own, **duplicates}} for n in range(48 if flag else 1)]
    namespace = {"Name": "sbemulatorns", "Queues": [{"Name": "target"}, *queues], "Topics": [topic]}
    document = {
        "$schema": "https://example.net/Config-schema.json",
        "UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File,Console"}},
    }
    return json.dumps(document)


def queue_named(namespace: NamespaceConfig, path: str) -> QueueSettings:
    return next(queue for queue in namespace.queues if queue.path == path)


@pytest.mark.parametrize(
    ("limits", "ms"),
    [
        (("PT5M", "PT5S", "PT5S", 1, False), (300_000, 5_000, 5_000)),
        (("PT1H", "PT5M", "PT5M", 10, True), (3_600_000, 300_000, 300_000)),
    ],
    ids=["lowest", "highest"],
)
def test_every_key_of_the_emulators_schema_at_its_limits(
    tmp_path: Path, limits: tuple[str, str, str, int, bool], ms: tuple[int, int, int]
) -> None:
    (namespace,) = load_config(write(tmp_path, limits_file(*limits))).namespaces
    *_, deliveries, flag = limits
    queue, subscription = namespace.queues[-1], namespace.topics[0].subscriptions[-1]
    for settings in (queue, subscription.settings):
        assert (settings.default_ttl_ms, settings.lock_duration_ms) == (ms[0], ms[2])
        assert (settings.max_delivery_count, settings.requires_session) == (deliveries, flag)
        assert settings.dead_letter_on_expiry == flag
        assert (settings.forward_to, settings.forward_dead_letters_to) == (None if flag else "target", "target")
    for sent_to in (queue, namespace.topics[0].settings):
        assert (sent_to.duplicate_window_ms, sent_to.requires_duplicate_detection) == (ms[1], flag)
    correlation, sql = subscription.rules
    assert len(correlation.correlation) == 8
    assert correlation.correlation_properties == {"text": "x", "number": 5, "flag": flag}
    assert (sql.sql, sql.action, correlation.action) == ("a = 1", "SET x = 1", "SET x = 1")
    # A broker accepts what the file contains.
    anywhere = replace(namespace, port=0, admin_port=None)
    with Broker(namespaces=[anywhere]) as broker:
        made = broker.call(lambda server: server.hosts["sbemulatorns"].entities.entity("q0").settings)
        assert made == queue_named(namespace, "q0")


def test_what_the_emulators_file_leaves_out_is_as_the_emulator_has_it(tmp_path: Path) -> None:
    topic = {"Name": "t", "Subscriptions": [{"Name": "s"}]}
    document = {"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [{"Name": "q"}], "Topics": [topic]}]}}
    (namespace,) = load_config(write(tmp_path, json.dumps(document))).namespaces
    (queue,), (topic_made,) = namespace.queues, namespace.topics
    for settings in (queue, topic_made.subscriptions[0].settings):
        assert (settings.max_delivery_count, settings.default_ttl_ms) == (3, 3_600_000)
        assert settings.lock_duration_ms == 60_000
    assert (topic_made.settings.default_ttl_ms, topic_made.settings.duplicate_window_ms) == (3_600_000, 20_000)
    assert queue.duplicate_window_ms == 20_000


def test_other_properties_of_the_service_are_understood(tmp_path: Path) -> None:
    properties = {
        "MaxSizeInMegabytes": 2048,
        "MaxMessageSizeInKilobytes": 1024,
        "Status": "SendDisabled",
        "AutoDeleteOnIdle": "PT10M",
        "DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
        "EnablePartitioning": True,
        "UserMetadata": "mine",
    }
    document = {"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [{"Name": "q", "Properties": properties}]}]}}
    (queue,) = load_config(write(tmp_path, json.dumps(document))).namespaces[0].queues
    assert (queue.max_megabytes, queue.max_message_bytes, queue.status) == (2048, 1024 * 1024, "SendDisabled")
    assert (queue.auto_delete_on_idle_ms, queue.default_ttl_ms) == (600_000, UNLIMITED_MS)
    assert (queue.enable_partitioning, queue.user_metadata) == (True, "mine")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            '"LockDuration": "PT1M",\n          "Max',
            '"LockDuraton": "PT1M",\n          "Max',
            r"config.json: UserConfig.Namespaces\[0\].Queues\[0\].Properties has the unknown key 'LockDuraton'. "
            "Did you mean 'LockDuration'",
        ),
        ('"Queues"', '"Ques"', "unknown key 'Ques'. Did you mean 'Queues'"),
        ('"UserConfig"', '"Zzz"', "unknown key 'Zzz'. Known keys: .*UserConfig"),
        ('"Logging": { "Type"', '"Logging": { "Kind"', r"UserConfig.Logging has the unknown key 'Kind'"),
        ('"Name": "queue.1",', "", r"Queues\[0\] has no 'Name'"),
        (
            '"MaxDeliveryCount": 3,\n          "Req',
            '"MaxDeliveryCount": "3",\n "Req',
            "must be a whole number, not '3'",
        ),
        (
            '"MaxDeliveryCount": 3,\n          "Req',
            '"MaxDeliveryCount": true,\n "Req',
            "must be a whole number, not True",
        ),
        (
            '"MaxDeliveryCount": 3,\n          "Req',
            '"MaxDeliveryCount": 0,\n "Req',
            "max_delivery_count 0 is out of range",
        ),
        ('"RequiresSession": false\n        }', '"RequiresSession": 0 }', "must be true or false, not 0"),
        (
            '"PT1H",\n          "DuplicateDetectionHistoryTimeWindow": "PT20S",\n          "Forw',
            '60, "Forw',
            "must be a duration",
        ),
        (
            '"PT1H",\n          "DuplicateDetectionHistoryTimeWindow": "PT20S",\n          "Forw',
            '"1", "Forw',
            "'1' is not a duration",
        ),
        ('"sbemulatorns"', '"bad_name"', "The namespace name 'bad_name' must have"),
        ('"queue.1"', '"a//b"', "entity path 'a//b'"),
        ('"topic.1"', '"Queue.1"', "has the entity 'queue.1' twice, the second time as 'Queue.1'"),
        ('"Type": "File" }', '"Type": "File", "Type": "x" }', "has the key 'Type' twice"),
        ('"FilterType": "Correlation"', '"FilterType": "Fancy"', 'FilterType must be "Sql" or "Correlation"'),
        ('"sql-filter-1"', '"app-PROP-filter-1"', "has the rule 'app-prop-filter-1' twice"),
        ('"subscription.1"', '"a/b"', "no '/'"),
        ('"subscription.1"', '"' + "s" * 51 + '"', "1 to 50 characters"),
        ('"Type": "File" }', '"Type": "File" ', "is not JSON: .* at line 7"),
        ("// my queues", "/* my queues", "is not JSON"),
        ('"priority": 5', '"priority": []', "Properties.priority must be a text, a number"),
        ('"SqlExpression": "sys', '"SqlText": "sys', "Did you mean 'SqlExpression'"),
    ],
)
def test_a_wrong_emulator_file_says_what_and_where(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in EMULATOR
    with pytest.raises(ConfigError, match=problem):
        load_config(write(tmp_path, EMULATOR.replace(old, new, 1)))


def test_a_rule_without_a_filter_is_refused_and_what_is_there_counts(tmp_path: Path) -> None:
    def rules(properties: object) -> str:
        subscription = {"Name": "s", "Rules": [{"Name": "r", "Properties": properties}]}
        topic = {"Name": "t", "Subscriptions": [subscription]}
        return json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", "Topics": [topic]}]}})

    with pytest.raises(ConfigError, match="neither 'SqlFilter' nor 'CorrelationFilter'"):
        load_config(write(tmp_path, rules({"FilterType": "Sql"})))
    loaded = load_config(write(tmp_path, rules({"FilterType": "Sql", "CorrelationFilter": {"To": "x"}})))
    assert loaded.namespaces[0].topics[0].subscriptions[0].rules[0].correlation == {"to": "x"}


def test_our_own_file(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, TOML, "twinbus.toml"))
    assert (loaded.host, loaded.data, loaded.dev) == ("127.0.0.1", tmp_path / "data", None)
    contoso, fabrikam = loaded.namespaces
    assert (contoso.port, fabrikam.port, fabrikam.queues) == (5672, 0, [])
    assert contoso.queues == [
        QueueSettings(
            path="orders",
            lock_duration_ms=30_000,
            default_ttl_ms=14 * 86_400_000,
            max_delivery_count=5,
            requires_session=True,
        ),
        QueueSettings(path="a/b"),
    ]
    assert contoso.policies == [Policy("sender", frozenset({Right.SEND}), "first", "second", "orders")]
    assert contoso.keyless == [KeylessPolicy("reader", frozenset({Right.LISTEN}))]
    (topic,) = contoso.topics
    assert topic.settings.default_ttl_ms == 3_600_000
    (subscription,) = topic.subscriptions
    assert subscription.settings.lock_duration_ms == 10_000
    assert not subscription.settings.dead_letter_on_filter_error
    eu, big = subscription.rules
    assert (eu.correlation, eu.correlation_properties) == ({"subject": "order"}, {"region": "eu"})
    assert (big.sql, big.action) == ("amount > 100", "SET big = true")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            'lock_duration = "30s"',
            'lock_durations = "30s"',
            "twinbus.toml: namespaces.contoso.queues.orders has the unknown key 'lock_durations'. "
            "Did you mean 'lock_duration'",
        ),
        ('host = "127', 'hots = "127', "twinbus.toml: has the unknown key 'hots'. Did you mean 'host'"),
        ('lock_duration = "30s"', "lock_duration = 30", 'lock_duration must be a duration .*"30s".*, not 30'),
        ('lock_duration = "30s"', 'lock_duration = "1s"', "lock_duration_ms 1000 is out of range: 5000 to 300000"),
        ("port = 5672", "port = 70000", "port 70000 .* is not between 0 and 65535"),
        ("port = 5672", 'port = "5672"', "contoso.port must be a whole number"),
        ('["Listen"]', '["Read"]', "policies.reader: The right 'Read' is not known"),
        ('["Listen"]', "[]", "must name Send, Listen or Manage"),
        ('["Listen"]', "[1]", "must hold texts, not a whole number"),
        ('["Listen"]', '"Listen"', "must be a list"),
        ('primary_key = "first"', "", "secondary_key is set and primary_key is not"),
        ('sql = "amount > 100"', "", "must have 'sql' or 'correlation'"),
        ("[namespaces.fabrikam]", "[namespaces.", "is not TOML"),
        ("[namespaces.fabrikam]", "[namespaces]\nfabrikam = 1", "namespaces"),
    ],
)
def test_a_wrong_file_of_ours_says_what_and_where(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in TOML
    with pytest.raises(ConfigError, match=problem):
        load_config(write(tmp_path, TOML.replace(old, new, 1), "twinbus.toml"))


def test_an_unreadable_file_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json cannot be read: No such file"):
        load_config(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b'"\xff"')
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_config(tmp_path / "bytes.json")
    with pytest.raises(ConfigError, match="nested too deep"):
        load_config(write(tmp_path, "[" * 100_000))
    with pytest.raises(ConfigError, match="nested too deep"):
        load_config(write(tmp_path, "x = " + "[" * 5_000, "deep.toml"))
    for name, text in (("number.toml", "x = " + "9" * 5_000), ("number.json", "9" * 5_000)):
        with pytest.raises(ConfigError, match="has a number that is too long"):
            load_config(write(tmp_path, text, name))
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(CONFIG_FILE_BYTES_MAX + 1)
    with pytest.raises(ConfigError, match="is larger than"):
        load_config(tmp_path / "large.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(["//", "/*", "*/", ",]", '\\"']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(json_values, st.booleans())
def test_comments_never_change_the_values(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1)
    assert blank_comments(text) == text
    commented = f"/* [1, */ {text} // end, ]"
    assert parse_json(commented, "x") == value
    assert len(blank_comments(commented)) == len(commented)
    assert parse_json(f"[{text} , /* last */ ]", "x") == [value]


def test_the_emulators_file_has_the_emulators_ports(tmp_path: Path) -> None:
    (namespace,) = load_config(write(tmp_path, EMULATOR)).namespaces
    assert (namespace.port, namespace.admin_port, namespace.optional_ports) == (5672, 5300, {5672, 5300})
    several = '{"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "b"}]}}'
    assert [each.port for each in load_config(write(tmp_path, several)).namespaces] == [0, 0]


def test_wide_listening_needs_to_be_asked_for() -> None:
    namespaces = [NamespaceConfig("contoso")]
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        BrokerConfig(namespaces, host=host, dev=True).check()
    with pytest.raises(ConfigError, match="--allow-plaintext"):
        BrokerConfig(namespaces, host="0.0.0.0").check()
    BrokerConfig(namespaces, host="0.0.0.0", allow_plaintext=True).check()
    with pytest.raises(ConfigError, match="Development mode"):
        BrokerConfig(namespaces, host="0.0.0.0", dev=True, allow_plaintext=True).check()
    assert not is_loopback("contoso.example")
    assert not is_loopback("")


def test_with_tls_other_machines_may_come_and_plaintext_may_not() -> None:
    namespaces = [NamespaceConfig("contoso")]
    for options in ({"tls_certificate": Path("c.pem")}, {"tls_names": ["bus.example"]}):
        config = BrokerConfig(namespaces, host="0.0.0.0", **options)  # type: ignore[arg-type]
        config.check()
        assert not config.plain_anywhere
    assert BrokerConfig(namespaces, host="0.0.0.0", allow_plaintext=True).plain_anywhere
    assert BrokerConfig(namespaces).plain_anywhere
    with pytest.raises(ConfigError, match="give --tls-certificate"):
        BrokerConfig(namespaces, tls_key=Path("k.pem")).check()


@pytest.mark.parametrize("name", ["", "a b", "ü.example", "*.*", "-a", "a/b", ":", "x" * 254])
def test_names_no_certificate_can_be_for_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="No certificate can be made"):
        BrokerConfig([NamespaceConfig("contoso")], tls_names=[name]).check()


def test_tls_and_classic_ports_in_toml(tmp_path: Path) -> None:
    file = tmp_path / "twinbus.toml"
    file.write_text(
        'tls_certificate = "c.pem"\ntls_key = "/k.pem"\ntls_names = ["bus.example", "*.example", "::1"]\n'
        "[namespaces.contoso]\nport = 6000\namqp_port = 5672\namqps_port = 5671\nadmin_port = 5300\n"
    )
    found = load_config(file)
    assert (found.tls_certificate, found.tls_key) == (tmp_path / "c.pem", Path("/k.pem"))
    assert found.tls_names == ["bus.example", "*.example", "::1"]
    (namespace,) = found.namespaces
    assert namespace.ports == [6000, 5672, 5671, 5300]
    BrokerConfig(found.namespaces, tls_names=found.tls_names).check()
    file.write_text("[namespaces.contoso]\nadmin_port = 65536\n")
    with pytest.raises(ConfigError, match="The port 65536 of namespace 'contoso'"):
        load_config(file)


def test_the_whole_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="There is no namespace"):
        BrokerConfig([]).check()
    with pytest.raises(ConfigError, match="has the namespace 'a' twice"):
        BrokerConfig([NamespaceConfig("a"), NamespaceConfig("a")]).check()
    with pytest.raises(ConfigError, match="both want port 6000"):
        BrokerConfig([NamespaceConfig("a", 6000), NamespaceConfig("b", 6000)]).check()
    with pytest.raises(ConfigError, match="both want port 5672"):
        BrokerConfig([NamespaceConfig("a", amqp_port=5672), NamespaceConfig("b", 5672)]).check()
    with pytest.raises(ConfigError, match="'a' has the port 5672 twice"):
        BrokerConfig([NamespaceConfig("a", 5672, amqp_port=5672)]).check()
    with pytest.raises(ConfigError, match="There are 101 namespaces"):
        BrokerConfig([NamespaceConfig(f"n{n}") for n in range(NAMESPACES_MAX + 1)]).check()
    BrokerConfig([NamespaceConfig("a"), NamespaceConfig("b")]).check()


@pytest.mark.parametrize("name", ["", "1a", "a-", "a_b", "ü", "a" * 51, "a.b", "a/b", ".."])
def test_a_bad_namespace_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="The namespace name"):
        NamespaceConfig(name)


def test_policies_of_a_namespace_are_checked_together() -> None:
    with pytest.raises(ConfigError, match="Namespace 'ns': The policy 'P' exists already"):
        NamespaceConfig("ns", policies=[Policy("p", ALL_RIGHTS, "k")], keyless=[KeylessPolicy("P", ALL_RIGHTS)])
    with pytest.raises(ConfigError, match="no policy with Manage"):
        NamespaceConfig("ns").root  # noqa: B018


def test_the_sku_is_one_of_the_services_tiers() -> None:
    assert NamespaceConfig("contoso").sku == "Standard"
    with pytest.raises(ConfigError, match="Standard, Premium"):
        NamespaceConfig("contoso", sku="Deluxe")
