"""Formats AMQP values for people: a type and a bounded text."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from typing import Any

from twinbus.amqp.types import Array, Described, Timestamp
from twinbus.broker.messages.message_view import rule_value
from twinbus.limits import CONSOLE_PROPERTIES_MAX, CONSOLE_TEXT_CHARS_MAX, TIME_MS_MAX

# A property's name, type and value as text.
Line = tuple[str, str, str]

_NAMES = {
    "str": "string",
    "bytes": "binary",
    "NoneType": "null",
    "float": "double",
    "int": "long",
    "dict": "map",
    "datetime": "date and time",
    "timedelta": "time span",
}


def lines(pairs: Iterable[tuple[Any, Any]]) -> list[Line]:
    """Names and values as lines, up to a limit."""
    found: list[Line] = []
    for name, value in pairs:
        if len(found) == CONSOLE_PROPERTIES_MAX:
            found.append(("…", "", f"There are more than {CONSOLE_PROPERTIES_MAX}."))
            break
        found.append((cut(str(name)), type_of(value), text(value)))
    return found


def type_of(value: Any) -> str:
    if isinstance(value, Described):
        value = rule_value(value)
    name = type(value).__name__
    return _NAMES.get(name, name.lower())


def text(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Described):
        plain = rule_value(value)
        return cut(str(plain)) if not isinstance(plain, Described) else text(plain.value)
    if isinstance(value, Timestamp):
        return time_text(int(value))
    if isinstance(value, bytes | bytearray):
        return cut(bytes(value[:CONSOLE_TEXT_CHARS_MAX]).hex(" "))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | dict | Array):
        return cut(json.dumps(plain_of(value), ensure_ascii=False))
    return "null" if value is None else cut(str(value))


def plain_of(value: Any) -> Any:
    """A value in JSON types."""
    if isinstance(value, Timestamp):
        return time_text(int(value))
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex(" ")
    if isinstance(value, list | tuple):
        return [plain_of(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain_of(item) for key, item in value.items()}
    if isinstance(value, Described):
        inner = rule_value(value)
        return plain_of(inner.value) if isinstance(inner, Described) else str(inner)
    return str(value)


def time_text(ms: int) -> str:
    """A time as text; the number itself if it is out of range."""
    if not 0 <= ms <= TIME_MS_MAX:
        return str(ms)
    moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d} UTC"


def id_text(value: Any) -> str | None:
    """An id as text; None if there is none."""
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            return cut(value.decode())
        except UnicodeDecodeError:
            return cut(value.hex())
    return cut(str(value))


def cut(whole: str, chars_max: int = CONSOLE_TEXT_CHARS_MAX) -> str:
    return whole if len(whole) <= chars_max else whole[: chars_max - 1] + "…"
