from __future__ import annotations

import pytest

from twinbus.auth.scope import covers, normalised, path_of


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        ("sb://contoso:5672/Orders", "orders"),
        ("sb://contoso/orders/", "orders"),
        ("sb://contoso", ""),
        ("sb://contoso:5672/", ""),
        ("https://contoso.servicebus.windows.net/a%2fb?api-version=2021-05", "a/b"),
        ("https://contoso:5300", ""),
        ("amqps://h:1//Orders//$management", "orders/$management"),
        ("h:5672", ""),
        ("localhost/orders", "orders"),
        ("contoso.servicebus.windows.net/orders", "orders"),
        ("orders", "orders"),
        ("orders/sub", "orders/sub"),
        ("", ""),
    ],
)
def test_only_the_path_counts(resource: str, path: str) -> None:
    assert path_of(resource) == path


def test_a_scope_covers_on_segment_boundaries() -> None:
    assert covers("", "anything")
    assert covers("", "")
    assert covers("orders", "orders")
    assert covers("orders", "orders/$deadletterqueue")
    assert not covers("orders", "orders2")
    assert not covers("orders", "")
    assert not covers("orders/sub", "orders")


def test_normalised_paths_have_single_slashes() -> None:
    assert normalised("/A//b/") == "a/b"
