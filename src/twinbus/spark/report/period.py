"""The period of a report, divided into as many pieces as a chart can show.

- Times are UTC, in whole seconds since 1970. A piece starts at a multiple of its width, so that two reports agree.
- A period has at most REPORT_POINTS_MAX pieces, however long it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

from twinbus.errors import ConfigError
from twinbus.limits import REPORT_POINTS_MAX

MINUTE_S: Final = 60
DAY_S: Final = 86_400
# Shorter periods are shown with seconds if those are not all zero; below the second bound, always.
_SECONDS_BELOW_S: Final = 3_600
_SECONDS_ALWAYS_BELOW_S: Final = 600
# Widths below a minute: only the ledger's files have seconds, the tables have minutes.
_FINE_WIDTHS_S: Final = (1, 2, 5, 10, 15)
FINE_S_MAX: Final = _FINE_WIDTHS_S[-1] * REPORT_POINTS_MAX
# Round widths; beyond the last they double.
_WIDTHS_S: Final = (60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, DAY_S, 2 * DAY_S, 7 * DAY_S)


@dataclass(frozen=True, slots=True)
class Period:
    """From `start_s` up to, but not including, `end_s`, in pieces of `width_s`."""

    start_s: int
    end_s: int
    width_s: int

    @classmethod
    def between(cls, start_s: int, end_s: int) -> Period:
        """The period with the narrowest possible pieces, widened to whole minutes."""
        start_s = start_s // MINUTE_S * MINUTE_S
        end_s = max(-(-end_s // MINUTE_S) * MINUTE_S, start_s + MINUTE_S)
        widths = list(_WIDTHS_S)
        while (end_s - 1) // widths[-1] - start_s // widths[-1] >= REPORT_POINTS_MAX:
            widths.append(widths[-1] * 2)
        width_s = next(w for w in widths if (end_s - 1) // w - start_s // w < REPORT_POINTS_MAX)
        return cls(start_s, end_s, width_s)

    @classmethod
    def fine(cls, start_s: int, end_s: int) -> Period | None:
        """The same to the second, if it is short enough for pieces below a minute; otherwise None."""
        widths = (w for w in _FINE_WIDTHS_S if (end_s - 1) // w - start_s // w < REPORT_POINTS_MAX)
        width_s = next(widths, None)
        return None if width_s is None else cls(start_s, max(end_s, start_s + width_s), width_s)

    @property
    def pieces(self) -> tuple[int, ...]:
        """The starts of all pieces."""
        first = self.start_s // self.width_s * self.width_s
        return tuple(range(first, self.end_s, self.width_s))

    @property
    def length_s(self) -> int:
        return self.end_s - self.start_s

    @property
    def unit(self) -> str:
        """The unit of rates."""
        return "second" if self.width_s < MINUTE_S else "minute"

    @property
    def unit_s(self) -> int:
        return 1 if self.width_s < MINUTE_S else MINUTE_S

    def clipped(self, start_s: float, end_s: float | None) -> tuple[float, float]:
        """The part of an interval within the period; an open interval ends with the period."""
        return max(start_s, self.start_s), min(self.end_s if end_s is None else end_s, self.end_s)


def instant(text: str) -> int:
    """Parse a time with a zone or in UTC: `2026-11-15`, `2026-11-15T10:30`; raises ConfigError."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(
            f"{text[:60]!r} is not a time: write 2026-11-15, 2026-11-15T10:30 or 2026-11-15T10:30Z."
        ) from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def day(at_s: float) -> date:
    return moment(at_s).date()


def clock_text(at_s: float, *, seconds: bool = False) -> str:
    """`15 Nov 2026 10:04`, or `15 Nov 2026 10:04:30`, in UTC."""
    at = moment(at_s)
    return f"{at.day} {at:%b %Y} {at:{'%H:%M:%S' if seconds else '%H:%M'}}"


def range_text(start_s: float, end_s: float) -> str:
    """Two times, the date once if it is the same: `15 Nov 2026 10:04 to 11:16`; with seconds if they matter."""
    odd = bool(start_s % MINUTE_S or end_s % MINUTE_S)
    seconds = end_s - start_s < (_SECONDS_BELOW_S if odd else _SECONDS_ALWAYS_BELOW_S)
    end = f"{moment(end_s):{'%H:%M:%S' if seconds else '%H:%M'}}"
    same = day(start_s) == day(end_s)
    return f"{clock_text(start_s, seconds=seconds)} to {end if same else clock_text(end_s, seconds=seconds)}"
