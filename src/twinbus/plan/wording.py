"""Format figures for reading: times, sizes, money, shares."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

_NEVER_S: Final = 100 * 365 * 86_400
_CENT: Final = Decimal("0.01")
_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB", "PB", "EB")


def span(seconds: float) -> str:
    """Format a time: `340 ms`, `42 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if not math.isfinite(seconds) or seconds >= _NEVER_S:
        return "never"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min" + (f" {whole % 60:02d} s" if whole % 60 else "")
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h" + (f" {minutes % 60:02d} min" if minutes % 60 else "")
    hours = round(seconds / 3_600)
    return f"{hours // 24:,} d" + (f" {hours % 24} h" if hours % 24 else "")


def size(count: float) -> str:
    """Format bytes: `812 bytes`, `1.5 KB`, `4.9 GB`; a KB has 1,024."""
    value, unit = float(count), 0
    while value >= 1_024 and unit < len(_UNITS) - 1:
        value /= 1_024
        unit += 1
    return f"{value:,.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"


def amount(value: Decimal) -> str:
    """Format money without its currency: two decimals, or two significant digits for less than a cent."""
    if value and abs(value) < _CENT:
        # The position of the second significant digit.
        place = Decimal(1).scaleb(value.adjusted() - 1)
        return f"{value.quantize(place, ROUND_HALF_UP):f}"
    return f"{value.quantize(_CENT, ROUND_HALF_UP):,f}"


def money(value: Decimal, currency: str) -> str:
    return f"{amount(value)} {currency}"


def number(value: float) -> str:
    """Format a count, with decimals only if it is small and not whole."""
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.2f}"


def share(value: float) -> str:
    """Format a fraction as a percentage."""
    return f"{value * 100:.1f} %"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun: `1 message`, `2,000 messages`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
