"""A report's period: a bounded number of pieces for any length, and the format of times."""

from __future__ import annotations

import pytest

from twinbus.errors import ConfigError
from twinbus.limits import REPORT_POINTS_MAX
from twinbus.spark.report.period import Period, clock_text, instant, range_text

NOON_S = instant("2026-11-15T12:00Z")


@pytest.mark.parametrize(
    ("length_s", "width_s"),
    [
        (1, 60),
        (3_600, 60),
        (240 * 60, 60),
        (241 * 60, 120),
        (86_400, 600),
        (7 * 86_400, 3_600),
        (365 * 86_400, 2 * 86_400),
        (10 * 365 * 86_400, 28 * 86_400),
        (10**10, 784 * 86_400 // 14 * 14),
    ],
)
def test_pieces_are_bounded_and_cover_the_period(length_s: int, width_s: int) -> None:
    start_s = NOON_S
    period = Period.between(start_s, start_s + length_s)
    assert len(period.pieces) <= REPORT_POINTS_MAX
    assert period.pieces[0] <= start_s
    assert period.pieces[-1] + period.width_s >= start_s + length_s
    assert all(piece % period.width_s == 0 for piece in period.pieces)
    if length_s < 10**9:
        assert period.width_s == width_s


def test_a_start_within_a_minute_is_widened() -> None:
    period = Period.between(NOON_S + 59, NOON_S + 61)
    assert (period.start_s, period.end_s) == (NOON_S, NOON_S + 120)


def test_clipping() -> None:
    period = Period.between(NOON_S, NOON_S + 600)
    assert period.clipped(NOON_S - 50, None) == (NOON_S, NOON_S + 600)
    assert period.clipped(NOON_S + 5, NOON_S + 10_000) == (NOON_S + 5, NOON_S + 600)


def test_times_that_people_write() -> None:
    assert instant("2026-11-15T12:00") == instant("2026-11-15T13:00+01:00") == NOON_S
    assert instant("2026-11-15") == NOON_S - 12 * 3_600
    for text in ("yesterday", "", "15.11.2026"):
        with pytest.raises(ConfigError, match="is not a time: write 2026-11-15"):
            instant(text)


def test_times_that_people_read() -> None:
    assert clock_text(NOON_S) == "15 Nov 2026 12:00"
    assert range_text(NOON_S, NOON_S + 720) == "15 Nov 2026 12:00 to 12:12"
    assert range_text(NOON_S + 1, NOON_S + 720) == "15 Nov 2026 12:00:01 to 12:12:00"
    assert range_text(NOON_S, NOON_S + 120) == "15 Nov 2026 12:00:00 to 12:02:00"
    assert range_text(NOON_S, NOON_S + 86_400) == "15 Nov 2026 12:00 to 16 Nov 2026 12:00"
