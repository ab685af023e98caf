"""Whole months: what is in them, to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime

from twinbus.limits import TIME_MS_MAX
from twinbus.spark.ledger.months import EVER, Months


def _ms(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc]


def test_a_moment_is_its_whole_month() -> None:
    months = Months(_ms(2024, 2, 29, 23), _ms(2024, 2, 1))
    assert (months.first_ms, months.last_ms) == (_ms(2024, 2, 1), _ms(2024, 3, 1) - 1)


def test_folders_are_of_them_or_of_others() -> None:
    months = Months(_ms(2026, 11, 15), _ms(2027, 1, 1))
    folders = {name: f"days/{name}" for name in ("2026-10", "2026-11", "2026-12", "2027-01", "2027-02")}
    assert list(months.of(folders)) == ["2026-11", "2026-12", "2027-01"]
    assert list(months.others(folders)) == ["2026-10", "2027-02"]
    assert months.of(folders) | months.others(folders) == folders


def test_the_last_month_has_no_month_after_it() -> None:
    assert Months(0, TIME_MS_MAX).last_ms == TIME_MS_MAX
    assert EVER.of({"1970-01": "a", "9999-12": "b"}) == {"1970-01": "a", "9999-12": "b"}
