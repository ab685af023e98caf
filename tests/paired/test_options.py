"""Options and names of a pair, refused before anything is connected."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from twinbus.paired import PairedServiceBusClient, aio
from twinbus.paired.options import NamespaceAddress, PairingOptions, backlog_names, check_name, check_pair


def test_defaults() -> None:
    options = PairingOptions()
    assert (options.backlog_queue_count, options.failover_interval, options.ping_primary_interval) == (10, 60, 60)
    assert (options.enable_syphon, options.hold_sends, options.session_order) == (False, True, False)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("backlog_queue_count", 0, "backlog_queue_count is 0: .*1 or more"),
        ("backlog_queue_count", -1, "-1"),
        ("backlog_queue_count", 1.5, "1.5"),
        ("backlog_queue_count", True, "True"),
        ("failover_interval", -0.001, "-0.001: .*from 0 to 3600 seconds"),
        ("failover_interval", 3600.5, "3600.5"),
        ("failover_interval", timedelta(minutes=61), "3660.*from 0 to 3600"),
        ("failover_interval", float("nan"), "nan"),
        ("failover_interval", "60", "'60'"),
        ("ping_primary_interval", 0.999, "0.999: .*from 1 to 1800 seconds"),
        ("ping_primary_interval", 1801, "1801"),
        ("ping_primary_interval", None, "None"),
        ("max_in_flight", 0, "max_in_flight is 0: .*from 1 to 1000"),
        ("max_in_flight", 1001, "1001"),
        ("max_in_flight", True, "True"),
        ("max_in_flight", 2.5, "2.5"),
        ("ping_refusals", -1, "ping_refusals is -1: .*from 0 .never. to 1000000"),
        ("ping_refusals", 1_000_001, "1000001"),
        ("ping_refusals", True, "True"),
        ("ping_refusals", 1.5, "1.5"),
        ("create_backlog_queues", 1, "create_backlog_queues is 1"),
        ("try_timeout", 1.9, "try_timeout is 1.9: .*2 to 600"),
        ("enable_syphon", "yes", "'yes'"),
        ("primary_name", "", "''"),
        ("primary_name", "a/b", "'a/b'"),
        ("primary_name", "-a", "'-a'"),
        ("primary_name", "a" * 201, "1 to 200"),
    ],
)
def test_what_is_out_of_range_is_named(name: str, value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        PairingOptions(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backlog_queue_count", 1),
        ("backlog_queue_count", 1000),
        ("ping_refusals", 0),
        ("ping_refusals", 1_000_000),
        ("max_in_flight", 1),
        ("max_in_flight", 1000),
        ("failover_interval", 0),
        ("failover_interval", timedelta(minutes=60)),
        ("ping_primary_interval", 1),
        ("ping_primary_interval", timedelta(minutes=30)),
        ("try_timeout", 2),
        ("try_timeout", timedelta(minutes=10)),
        ("backlog_pause", 0),
        ("backlog_pause", timedelta(minutes=60)),
    ],
)
def test_the_ends_of_a_range_belong_to_it(name: str, value: Any) -> None:
    options = PairingOptions(**{name: value})
    assert getattr(options, name) == (value.total_seconds() if isinstance(value, timedelta) else value)


def test_a_send_outlasts_the_interval_unless_it_says_otherwise() -> None:
    assert PairingOptions(failover_interval=0).send_timeout == 60
    assert PairingOptions(failover_interval=30).send_timeout == 60
    assert PairingOptions(failover_interval=300).send_timeout == 600


@pytest.mark.parametrize(
    ("text", "label", "plain"),
    [
        ("contoso.servicebus.windows.net", "contoso", "contoso.servicebus.windows.net"),
        ("sb://Contoso.servicebus.windows.net/", "contoso", "contoso.servicebus.windows.net"),
        ("localhost", None, "localhost"),
        ("localhost:5672", None, "localhost-5672"),
        ("sb://127.0.0.1:5672/", None, "127.0.0.1-5672"),
        ("[::1]:5672", None, "1-5672"),
        ("broker:5671", None, "broker-5671"),
    ],
)
def test_the_primarys_name(text: str, label: str | None, plain: str) -> None:
    address = NamespaceAddress.parse(text)
    assert (address.label, address.plain_name) == (label, plain)
    assert check_name(plain) == plain


def test_the_responsive_preset() -> None:
    options = PairingOptions.responsive()
    assert (options.failover_interval, options.ping_primary_interval) == (5, 5)
    assert (options.try_timeout, options.backlog_pause, options.send_timeout) == (3, 10, 60)


def test_backlog_queues_are_numbered_from_zero() -> None:
    assert backlog_names("contoso", 2) == ["contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1"]


@pytest.mark.parametrize(
    ("primary", "secondary"),
    [
        ("a.example.net", "A.example.net."),
        ("localhost:5672", "127.0.0.1:5672"),
        ("sb://a.example.net/", "a.example.net"),
        ("a.example.net", "a.example.net:5671"),
        ("a.example.net:443", "sb://a.example.net:5671/"),
        ("https://a.example.net", "amqps://a.example.net:5671"),
    ],
)
def test_the_same_namespace_twice_is_no_pair(primary: str, secondary: str) -> None:
    with pytest.raises(ValueError, match="is the primary itself"):
        check_pair(NamespaceAddress.parse(primary), NamespaceAddress.parse(secondary))


def test_another_port_is_another_namespace() -> None:
    assert NamespaceAddress.parse("localhost:5672") != NamespaceAddress.parse("localhost:5673")
    check_pair(NamespaceAddress.parse("localhost:5672"), NamespaceAddress.parse("localhost:5673"))


def test_an_emulator_without_a_port_has_the_usual_one() -> None:
    text = "Endpoint=sb://{};SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
    with pytest.raises(ValueError, match="is the primary itself"):
        PairedServiceBusClient.from_connection_strings(text.format("localhost"), text.format("127.0.0.1:5672"))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("failover_intervall", "failover_interval"),
        ("ping_interval", "ping_primary_interval"),
        ("retry_totel", "retry_"),
    ],
)
def test_an_unknown_option_names_the_nearest(name: str, nearest: str) -> None:
    text = "Endpoint=sb://{}.example.net;SharedAccessKeyName=n;SharedAccessKey=k"
    for kind in (PairedServiceBusClient, aio.PairedServiceBusClient):
        with pytest.raises(TypeError, match=f"'{name}'.*Did you mean '{nearest}"):
            kind.from_connection_strings(text.format("a"), text.format("b"), **{name: 1})  # type: ignore[arg-type]


def test_a_secondary_that_is_itself_paired_is_refused() -> None:
    a, b, c = (NamespaceAddress.parse(f"{name}.example.net") for name in "abc")
    check_pair(a, b, [a, c])
    with pytest.raises(ValueError, match=r"'b\.example\.net' is itself paired"):
        check_pair(a, b, [b])


@pytest.mark.parametrize(("name", "value"), [("backlog_pause", 3_601), ("backlog_pause", -1), ("try_timeout", 1)])
def test_what_lies_outside_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        PairingOptions(**{name: value})  # type: ignore[arg-type]
