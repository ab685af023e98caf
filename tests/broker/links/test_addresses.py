"""All ways in which clients write the same entity."""

from __future__ import annotations

import pytest

from twinbus.broker.links.addresses import LinkAddress, parse, path_of


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("q", "q"),
        ("/q", "q"),
        ("q/", "q"),
        ("amqps://localhost:5672/q", "q"),
        ("sb://ns.servicebus.windows.net/a/b/c", "a/b/c"),
        ("sb://host", ""),
        ("/a%2Fb", "a/b"),
        ("amqps://h/q/$DeadLetterQueue", "q/$DeadLetterQueue"),
        ("t/Subscriptions/s", "t/Subscriptions/s"),
    ],
)
def test_path(address: str, path: str) -> None:
    assert path_of(address) == path


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("$cbs", LinkAddress("", False, True)),
        ("amqps://h/$cbs", LinkAddress("", False, True)),
        ("$management", LinkAddress("", True, False)),
        ("q/$management", LinkAddress("q", True, False)),
        ("amqps://h:1/Q/$DeadLetterQueue/$Management", LinkAddress("Q/$DeadLetterQueue", True, False)),
        ("q", LinkAddress("q", False, False)),
        ("my$management", LinkAddress("my$management", False, False)),
    ],
)
def test_nodes(address: str, expected: LinkAddress) -> None:
    assert parse(address) == expected
