"""Converts a value before SET stores it in a property.

A system property accepts only its own type. A user property keeps its type if the value converts: text to a number, a
boolean or an identifier, a whole number to a double. A value that does not convert is stored as it is.
"""

from __future__ import annotations

import datetime
import re
import uuid
from typing import Any, Final

from twinbus.errors import FilterEvaluationError
from twinbus.limits import (
    APPLICATION_PROPERTY_BYTES_MAX,
    MESSAGE_ID_CHARS_MAX,
    PARTITION_KEY_CHARS_MAX,
    SESSION_ID_CHARS_MAX,
)

from . import names
from .values import (
    BOOLEAN,
    IDENTIFIER,
    INTEGER_MAX,
    INTEGER_MIN,
    KIND_NAMES,
    NUMBER,
    TEXT,
    kind_of,
    milliseconds,
    plain,
    text_of,
)

_CHARS_MAX: Final = {
    "MessageId": MESSAGE_ID_CHARS_MAX,
    "PartitionKey": PARTITION_KEY_CHARS_MAX,
    "ReplyToSessionId": SESSION_ID_CHARS_MAX,
    "SessionId": SESSION_ID_CHARS_MAX,
    "ViaPartitionKey": PARTITION_KEY_CHARS_MAX,
}
_BOOLEANS: Final = {"true": True, "false": False}
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
# The .NET time span format: [d.]hh:mm[:ss[.fraction]]
_SPAN: Final = re.compile(
    r"(?:(?P<days>[0-9]{1,8})\.)?(?P<hours>[0-9]{1,2}):(?P<minutes>[0-9]{1,2})"
    r"(?::(?P<seconds>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{1,7}))?)?"
)


def for_user(value: Any, existing: Any) -> Any:
    """Convert for a user property that holds `existing`; None means it was missing or null."""
    if value is None or existing is None:
        return value
    kind = kind_of(existing)
    if kind == NUMBER and isinstance(existing, float):
        return _float(value)
    if kind_of(value) != TEXT:
        return value
    text = value.strip()
    if kind == NUMBER and _WHOLE.fullmatch(text):
        number = int(text)
        return number if INTEGER_MIN <= number <= INTEGER_MAX else value
    if kind == BOOLEAN:
        return _BOOLEANS.get(text.lower(), value)
    if kind == IDENTIFIER:
        try:
            return uuid.UUID(text)
        except ValueError:
            return value
    return value


def for_system(name: str, value: Any) -> Any:
    """Convert for a system property: text, a boolean, or milliseconds; raises FilterEvaluationError on a wrong type."""
    if value is None:
        return None
    holds = names.SYSTEM_PROPERTIES[name]
    if holds == names.TEXT:
        return _text(name, value)
    converted = _CONVERSIONS[holds](value)
    if converted is None:
        raise FilterEvaluationError(f"sys.{name} cannot be set to {KIND_NAMES[kind_of(value)]} that is no {holds}.")
    return converted


def _text(name: str, value: Any) -> str:
    text = text_of(value)
    longest = _CHARS_MAX.get(name, APPLICATION_PROPERTY_BYTES_MAX)
    if len(text) > longest:
        raise FilterEvaluationError(f"sys.{name} was set to {len(text)} characters; it may have {longest}.")
    return text


def _float(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _flag(value: Any) -> bool | None:
    if isinstance(value, str):
        return _BOOLEANS.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _time(value: Any) -> int | None:
    if isinstance(value, str):
        try:
            return int(milliseconds(datetime.datetime.fromisoformat(value.strip())))
        except ValueError:
            return None
    return _span_or_number(value)


def _span(value: Any) -> int | None:
    if not isinstance(value, str):
        return _span_or_number(value)
    found = _SPAN.fullmatch(value.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(found[part] or 0) for part in ("days", "hours", "minutes", "seconds"))
    fraction = int((found["fraction"] or "").ljust(7, "0"))
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction // 10_000


def _span_or_number(value: Any) -> int | None:
    kind, number = plain(value)
    if kind != NUMBER or not INTEGER_MIN <= number <= INTEGER_MAX:
        return None
    return int(number)


_CONVERSIONS: Final = {names.FLAG: _flag, names.TIME: _time, names.SPAN: _span}
