from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.durations import format_ms, parse_ms, short_ms
from twinbus.errors import ConfigError
from twinbus.limits import UNLIMITED_MS


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1M", 60_000),
        ("PT30S", 30_000),
        ("P14D", 14 * 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt1h", 3_600_000),
        ("P2W", 14 * 86_400_000),
        ("P1Y", 365 * 86_400_000),
        ("P1M", 30 * 86_400_000),
        ("PT0S", 0),
        ("PT0.0019S", 1),
        ("30s", 30_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1.5m", 90_000),
        ("500ms", 500),
        ("14d", 14 * 86_400_000),
        ("2W", 14 * 86_400_000),
        ("never", UNLIMITED_MS),
        ("P10675199DT2H48M5.4775807S", UNLIMITED_MS),
        ("P10675199D", UNLIMITED_MS),
        ("P99999999D", UNLIMITED_MS),
    ],
)
def test_both_ways_to_write_a_duration(text: str, ms: int) -> None:
    assert parse_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "30",
        "30 seconds",
        "PT30",
        "PT-1S",
        "-5s",
        "1x",
        "5 m s",
        "P1S",
        "٣s",
        "s" * 100,
        "1" * 70 + "s",
    ],
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a duration: write PT30S"):
        parse_ms(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "PT0S"),
        (60_000, "PT1M"),
        (86_400_000, "P1D"),
        (90_061_500, "P1DT1H1M1.5S"),
        (500, "PT0.5S"),
        (UNLIMITED_MS, "P10675199DT2H48M5.4775807S"),
    ],
)
def test_written_as_the_service_does(ms: int, text: str) -> None:
    assert format_ms(ms) == text


@given(st.integers(0, 10_675_199 * 86_400_000 - 1))
def test_what_is_written_reads_back(ms: int) -> None:
    assert parse_ms(format_ms(ms)) == ms


def test_the_short_form_is_read_back() -> None:
    assert [short_ms(ms) for ms in (0, 500, 60_000, 5_400_000, UNLIMITED_MS)] == ["0s", "500ms", "1m", "1h30m", "never"]


@given(st.integers(0, UNLIMITED_MS))
def test_any_short_form_is_read_back(ms: int) -> None:
    assert parse_ms(short_ms(ms)) == min(parse_ms(format_ms(ms)), UNLIMITED_MS)
