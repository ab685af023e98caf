"""Whole months: what is charged together."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from twinbus.limits import TIME_MS_MAX


class Months:
    """The months from one moment to another, both included."""

    def __init__(self, first_ms: int, last_ms: int) -> None:
        low, high = _moment(first_ms), _moment(last_ms)
        # Their names, as in `2026-10`.
        self._low, self._high = f"{low:%Y-%m}", f"{high:%Y-%m}"
        self.first_ms = _start_ms(low.year, low.month)
        self.last_ms = TIME_MS_MAX if self._high == "9999-12" else _start_ms(high.year, high.month + 1) - 1

    def of(self, folders: Mapping[str, str]) -> dict[str, str]:
        """Of folders by month those of these months."""
        return {month: folder for month, folder in folders.items() if self._low <= month <= self._high}

    def others(self, folders: Mapping[str, str]) -> dict[str, str]:
        """Of folders by month those of other months."""
        return {month: folder for month, folder in folders.items() if not self._low <= month <= self._high}


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC)


def _start_ms(year: int, month: int) -> int:
    """The first moment of a month; the thirteenth is January."""
    return int(datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC).timestamp()) * 1000


EVER: Final = Months(0, TIME_MS_MAX)
