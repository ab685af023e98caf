"""Values on the command line and in JSON: `name=text`, `name:=json`, and AMQP types that JSON lacks.

Rules:
- `name=value` sets a string; `name:=value` a JSON number, true or false.
- A value without a JSON form is an object with one key that names its type, such as {"$uuid": "..."}; it is read back
  as the same value.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from twinbus.errors import ConfigError


def pairs(option: str, texts: Iterable[str]) -> dict[str, Any]:
    """Parse the values of a repeated option `name=value`."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip(":"):
            raise ConfigError(
                f"{option} {text!r}: write name=text for a string, name:=5 for a number or name:=true for a boolean."
            )
        if name.endswith(":"):
            found[name[:-1]] = _scalar(option, name[:-1], value)
        else:
            found[name] = value
    return found


def _scalar(option: str, name: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, bool | int | float):
        raise ConfigError(f"{option} {name}:={text}: the value after := must be a number, true or false.")
    return value


def to_json(value: Any) -> Any:
    """Convert an AMQP value to JSON, or to an object that names its type."""
    from twinbus.amqp import Described, Timestamp

    if isinstance(value, Timestamp):
        return {"$timestamp_ms": int(value)}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, UUID):
        return {"$uuid": str(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$base64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, Described):
        return {"$described": [to_json(value.descriptor), to_json(value.value)]}
    if isinstance(value, dict):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, Iterable):
        return [to_json(each) for each in value]
    return {"$text": str(value)}


def from_json(value: Any) -> Any:
    """Convert back what `to_json` wrote; other objects and lists are unchanged."""
    from twinbus.amqp import Timestamp

    if isinstance(value, dict) and len(value) == 1:
        ((kind, inner),) = value.items()
        try:
            if kind == "$timestamp_ms":
                return Timestamp(int(inner))
            if kind == "$float":
                return float(inner)
            if kind == "$uuid":
                return UUID(inner)
            if kind == "$base64":
                return base64.b64decode(inner, validate=True)
            if kind == "$text":
                return str(inner)
        except (ValueError, TypeError, AttributeError):
            raise ConfigError(f"The value of {kind} is invalid.") from None
    if isinstance(value, dict):
        return {key: from_json(each) for key, each in value.items()}
    return [from_json(each) for each in value] if isinstance(value, list) else value
