"""Typed values of a rule: SQL parameters, properties of a correlation filter.

- The attribute is literally `i:type`, with a four-character prefix declared on the element, because one client cuts the
  type out of the text by position.
- A time without a zone is returned without one.
"""

from __future__ import annotations

import datetime
import math
import re
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from twinbus.broker.http.admin.xml_in import child_of, flag_in, type_of
from twinbus.broker.http.admin.xml_out import SCHEMA, SERVICE, element, escaped, flag
from twinbus.durations import format_us, iso_ms
from twinbus.entities.filters.numbers import Int8, Int16, Int32, Single, UInt8, UInt16, UInt32, UInt64, sized
from twinbus.errors import ArgumentError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_PAIR = "KeyValueOfstringanyType"
# .NET's namespace for GUIDs; plain XML Schema has none.
_SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"
# XML Schema's names of the numbers.
_NUMBERS: dict[type, str] = {
    int: "long",
    Int8: "byte",
    Int16: "short",
    Int32: "int",
    UInt8: "unsignedByte",
    UInt16: "unsignedShort",
    UInt32: "unsignedInt",
    UInt64: "unsignedLong",
    Single: "float",
}
_RANGES: dict[type, tuple[int, int]] = {
    Int8: (-(2**7), 2**7 - 1),
    Int16: (-(2**15), 2**15 - 1),
    Int32: (-(2**31), 2**31 - 1),
    UInt8: (0, 2**8 - 1),
    UInt16: (0, 2**16 - 1),
    UInt32: (0, 2**32 - 1),
    UInt64: (0, 2**64 - 1),
}
# As many digits as 64 bits need.
_WHOLE = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_MICROSECOND = datetime.timedelta(microseconds=1)
_SHOWN_CHARS = 60


def values_out(name: str, values: Mapping[str, Any]) -> str:
    """Write values under `name`: Parameters or Properties."""
    pairs = "".join(f"<{_PAIR}>{element('Key', key)}{_value_out(value)}</{_PAIR}>" for key, value in values.items())
    return f"<{name}>{pairs}</{name}>"


def _value_out(value: Any) -> str:
    kind, text, namespace = _written(value)
    return f'<Value i:type="d6p1:{kind}" xmlns:d6p1="{namespace}">{escaped(text)}</Value>'


def _written(value: Any) -> tuple[str, str, str]:
    if isinstance(value, bool):
        return "boolean", flag(value), SCHEMA
    if isinstance(value, int):
        return _NUMBERS.get(type(value), "long"), str(int(value)), SCHEMA
    if isinstance(value, float):
        return _NUMBERS.get(type(value), "double"), _double_text(value), SCHEMA
    if isinstance(value, Decimal):
        return "decimal", format(value, "f"), SCHEMA
    if isinstance(value, datetime.datetime):
        return "dateTime", value.isoformat().removesuffix("+00:00") + ("Z" if _is_utc(value) else ""), SCHEMA
    if isinstance(value, datetime.timedelta):
        return "duration", duration_text(value), SCHEMA
    if isinstance(value, uuid.UUID):
        return "guid", str(value), _SERIALIZATION
    if isinstance(value, bytes):
        return "base64Binary", b64encode(value).decode(), SCHEMA
    return "string", str(value), SCHEMA


def _is_utc(value: datetime.datetime) -> bool:
    return value.tzinfo is not None and value.utcoffset() == datetime.timedelta(0)


def _double_text(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"


def duration_text(span: datetime.timedelta) -> str:
    """An ISO 8601 duration, exact to the microsecond."""
    return ("-" if span < datetime.timedelta(0) else "") + format_us(abs(span) // _MICROSECOND)


# --- reading --------------------------------------------------------------------------------------------------------
def values_in(parent: Element, name: str) -> dict[str, Any]:
    """Read the values under `name`; empty if it is absent."""
    holder = child_of(parent, name)
    if holder is None:
        return {}
    values: dict[str, Any] = {}
    for pair in holder.findall(f"{{{SERVICE}}}{_PAIR}"):
        key, value = child_of(pair, "Key"), child_of(pair, "Value")
        if key is None or not key.text or value is None:
            raise ArgumentError(f"{name} has an entry without a Key or without a Value.")
        if key.text in values:
            raise ArgumentError(f"{name} has {key.text[:_SHOWN_CHARS]!r} twice.")
        values[key.text] = _value_in(key.text, value)
    return values


def _value_in(key: str, value: Element) -> Any:
    kind, text = type_of(value) or "string", value.text or ""
    if kind in ("string", "char", "anyURI"):
        return text
    reader = _READERS.get(kind)
    if reader is None:
        raise ArgumentError(f"The value of {key[:_SHOWN_CHARS]!r} is a {kind[:_SHOWN_CHARS]!r}, which is not known.")
    try:
        return reader(text.strip())
    except (ValueError, InvalidOperation, OverflowError):
        raise ArgumentError(
            f"The value of {key[:_SHOWN_CHARS]!r} is {text[:_SHOWN_CHARS]!r}, which is no {kind}."
        ) from None


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _whole_of(kind: type[int]) -> Callable[[str], int]:
    """Read a number of that type, or a long if it does not fit: clients have been lax about it."""
    low, high = _RANGES.get(kind, (0, -1))
    return lambda text: kind(number) if low <= (number := _whole(text)) <= high else number


def _double(text: str) -> float:
    return float({"INF": "inf", "-INF": "-inf", "NaN": "nan"}.get(text, text))


def _span(text: str) -> datetime.timedelta:
    ms = iso_ms(text.removeprefix("-"))
    if ms is None:
        raise ValueError(text)
    span = int(ms * 1_000) * _MICROSECOND
    return -span if text.startswith("-") else span


_READERS: dict[str, Callable[[str], Any]] = {
    **{name: _whole_of(kind) for kind, name in _NUMBERS.items() if issubclass(kind, int)},
    "integer": lambda text: sized(_whole(text)),
    "boolean": lambda text: flag_in("A value", text),
    "double": _double,
    "float": lambda text: Single(_double(text)),
    "decimal": Decimal,
    "dateTime": datetime.datetime.fromisoformat,
    "duration": _span,
    "guid": uuid.UUID,
    "base64Binary": lambda text: b64decode(text, validate=True),
}
