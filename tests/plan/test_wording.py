"""Figures formatted for reading."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from twinbus.plan.wording import amount, number, plural, share, size, span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.34, "340 ms"),
        (1, "1 s"),
        (9.9, "9.9 s"),
        (9.97, "10 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3_599.7, "1 h"),
        (7_500, "2 h 05 min"),
        (86_399, "1 d"),
        (3 * 86_400 + 4 * 3_600, "3 d 4 h"),
        (math.inf, "never"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 bytes"), (1_023, "1,023 bytes"), (1_536, "1.5 KB"), (5 * 1024**3, "5.0 GB"), (2**80, "1,048,576 EB")],
)
def test_sizes(value: float, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "0.00"),
        ("1234.005", "1,234.01"),
        ("0.01", "0.01"),
        ("0.0018560", "0.0019"),
        ("0.000000800", "0.00000080"),
        ("-0.5", "-0.50"),
    ],
)
def test_amounts(value: str, text: str) -> None:
    assert amount(Decimal(value)) == text


def test_counts_and_shares() -> None:
    assert [number(each) for each in (0, 0.002, 0.34, 9.94, 40.0, 1_234.5)] == [
        "0",
        "0.00",
        "0.34",
        "9.9",
        "40",
        "1,234",
    ]
    assert share(0.158) == "15.8 %"
    assert (plural(1, "message"), plural(2_000, "message"), plural(0, "entity", "entities")) == (
        "1 message",
        "2,000 messages",
        "0 entities",
    )
