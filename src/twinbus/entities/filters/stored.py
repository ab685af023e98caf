"""Values stored with a rule (parameters, correlation properties): which are allowed, and their JSON form.

JSON types are written directly; others as `{"type": ..., "value": ...}` with the value as text. Every value reads back
equal and of the same type. A bare whole number is an int if it fits, otherwise a long.
"""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from twinbus.errors import ArgumentError
from twinbus.limits import APPLICATION_PROPERTY_BYTES_MAX, RULE_VALUES_MAX

from .numbers import NAMES, TYPES, Single, sized
from .values import BINARY, BOOLEAN, DECIMAL, IDENTIFIER, NUMBER, OTHER, SPAN, TEXT, TIME, kind_of

_MICROSECOND: Final = datetime.timedelta(microseconds=1)

_WRITERS: Final[dict[int, tuple[str, Callable[[Any], str]]]] = {
    NUMBER: ("double", repr),
    DECIMAL: ("decimal", str),
    IDENTIFIER: ("guid", str),
    BINARY: ("binary", bytes.hex),
    TIME: ("datetime", lambda value: str(value.isoformat())),
    SPAN: ("microseconds", lambda value: str(value // _MICROSECOND)),
}
_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "double": float,
    "decimal": Decimal,
    "guid": uuid.UUID,
    "binary": bytes.fromhex,
    "datetime": datetime.datetime.fromisoformat,
    "microseconds": lambda text: datetime.timedelta(microseconds=int(text)),
    **TYPES,
}


def check_values(values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Check the values against the limits of a rule; `what` names them in errors."""
    if len(values) > RULE_VALUES_MAX:
        raise ArgumentError(f"There are {len(values)} of {what}; a rule may have {RULE_VALUES_MAX}.")
    for name, value in values.items():
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"The name {name!r} of {what} is not a text.")
        if kind_of(value) == OTHER:
            raise ArgumentError(
                f"The {what} {name!r} is {type(value).__name__}; it must be a string, a number, a boolean, "
                "a time, a time span, an identifier or a binary."
            )
        if isinstance(value, str | bytes) and len(value) > APPLICATION_PROPERTY_BYTES_MAX:
            raise ArgumentError(
                f"The {what} {name!r} has a value of {len(value)}; it may have {APPLICATION_PROPERTY_BYTES_MAX}."
            )
    return dict(values)


def identity(values: Mapping[str, Any]) -> frozenset[tuple[str, int, Any]]:
    """A key for comparing sets of values. It includes the kind, because 1 and TRUE are equal in Python."""
    return frozenset((name, kind_of(value), value) for name, value in values.items())


def write_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _write(value) for name, value in values.items()}


def read_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _read(value) for name, value in fields.items()}


def _write(value: Any) -> Any:
    kind = kind_of(value)
    if kind == TEXT:
        return str(value)
    if kind == BOOLEAN:
        return value
    if isinstance(value, int):
        # Subclasses that only others know are longs.
        name = NAMES.get(type(value), "long")
        return int(value) if type(sized(value)) is TYPES[name] else {"type": name, "value": str(int(value))}
    if type(value) is Single:
        return {"type": "float", "value": repr(float(value))}
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    name, writer = _WRITERS[kind]
    return {"type": name, "value": writer(float(value) if kind == NUMBER else value)}


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return _READERS[value["type"]](value["value"])
    return sized(value) if type(value) is int else value


def bare(value: Any) -> Any:
    """The number in a value's JSON form, without its type; any other form unchanged."""
    if isinstance(value, dict) and value["type"] in TYPES:
        number: int | float = _READERS[value["type"]](value["value"])
        return float(number) if isinstance(number, float) else int(number)
    return value
