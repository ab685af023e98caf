"""Durations in ISO 8601 form, like `PT1M30S` or `P14D`, and in short form, like `90s`, `1h30m` or `14d`.

Rules:
- Results are whole milliseconds; finer fractions are truncated.
- The service's "never", P10675199DT2H48M5.4775807S, and any duration from 10,675,199 days on, is UNLIMITED_MS.
- A year has 365 days and a month 30, as in the service's own XML durations.
"""

from __future__ import annotations

import re
from decimal import Decimal

from twinbus.errors import ConfigError
from twinbus.limits import UNLIMITED_MS

_UNLIMITED_TEXT = "P10675199DT2H48M5.4775807S"
_UNLIMITED_FROM_MS = 10_675_199 * 86_400_000
_TEXT_CHARS_MAX = 60
_NUMBER = r"(\d+(?:\.\d+)?)"
_ISO = re.compile(
    rf"P(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?P<time>T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?",
    re.IGNORECASE | re.ASCII,
)
_ISO_GROUPS_MS = {
    1: 365 * 86_400_000,
    2: 30 * 86_400_000,
    3: 7 * 86_400_000,
    4: 86_400_000,
    6: 3_600_000,
    7: 60_000,
    8: 1_000,
}
_SHORT = re.compile(rf"(?:{_NUMBER}\s*(?:ms|[wdhms])\s*)+", re.ASCII)
_SHORT_PART = re.compile(rf"{_NUMBER}\s*(ms|[wdhms])", re.ASCII)
_SHORT_MS = {"w": 7 * 86_400_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def parse_ms(text: str) -> int:
    """Parse a duration into milliseconds; ConfigError shows both notations."""
    plain = text.strip()
    if plain.lower() in ("never", "unlimited"):
        return UNLIMITED_MS
    total = iso_ms(plain) if plain[:1] in ("P", "p") else _short(plain.lower())
    if total is None:
        raise ConfigError(f"{text[:_TEXT_CHARS_MAX]!r} is not a duration: write PT30S, PT5M, P14D, or 30s, 5m, 14d.")
    return UNLIMITED_MS if total >= _UNLIMITED_FROM_MS else int(total)


def iso_ms(text: str) -> Decimal | None:
    """Parse an ISO 8601 duration into exact milliseconds; return None for other text."""
    match = _ISO.fullmatch(text) if len(text) <= _TEXT_CHARS_MAX else None
    if match is None or (match["time"] or "").upper() == "T":
        return None
    parts = [Decimal(match[group]) * ms for group, ms in _ISO_GROUPS_MS.items() if match[group] is not None]
    return sum(parts, Decimal(0)) if parts else None


def _short(text: str) -> Decimal | None:
    if len(text) > _TEXT_CHARS_MAX or not _SHORT.fullmatch(text):
        return None
    return sum((Decimal(number) * _SHORT_MS[unit] for number, unit in _SHORT_PART.findall(text)), Decimal(0))


def format_ms(ms: int) -> str:
    """Format as the shortest ISO 8601 text, like the service."""
    return _UNLIMITED_TEXT if ms >= _UNLIMITED_FROM_MS else format_us(ms * 1_000)


def format_us(us: int) -> str:
    """Format microseconds of any magnitude in the same way."""
    days, rest = divmod(us, 86_400_000_000)
    hours, rest = divmod(rest, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds, rest = divmod(rest, 1_000_000)
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if rest:
        time += f"{seconds}.{rest:06d}".rstrip("0") + "S"
    elif seconds or not (days or time):
        time += f"{seconds}S"
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")


def short_ms(ms: int) -> str:
    """Format in short form: `1m`, `1h30m`, `never`."""
    if ms >= _UNLIMITED_FROM_MS:
        return "never"
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, ms = divmod(ms, _SHORT_MS[unit])
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"
