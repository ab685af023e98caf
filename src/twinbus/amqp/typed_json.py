"""Represent AMQP values as JSON without losing their types.

| AMQP | JSON |
|---|---|
| null, boolean, long, double, string | `null`, `true`, `42`, `1.5`, `"text"` |
| byte, short, int, ubyte, ushort, uint, ulong | `{"int": 42}` and so on |
| float | `{"float": 1.5}` |
| timestamp | `{"timestamp": 1700000000000}` (milliseconds since 1970) |
| uuid, symbol, binary | `{"uuid": "..."}`, `{"symbol": "text"}`, `{"binary": "base64"}` |
| everything else | `{"amqp": "base64 of its encoding"}` |

Rules:
- Values and types survive the round trip, including NaN and infinities.
- Text that is not valid JSON is a string: `hello` means `"hello"`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from json.encoder import encode_basestring
from typing import Any, Final
from uuid import UUID

from twinbus.amqp.codec import decode, encode
from twinbus.amqp.types import Byte, Float32, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from twinbus.errors import EncodeError, TwinbusError

_NUMBERS: Final[dict[type, str]] = {
    Byte: "byte",
    Short: "short",
    Int: "int",
    UByte: "ubyte",
    UShort: "ushort",
    UInt: "uint",
    ULong: "ulong",
    Timestamp: "timestamp",
}
_BITS: Final = {"byte": 8, "short": 16, "int": 32, "long": 64, "timestamp": 64}
_BITS_UNSIGNED: Final = {"ubyte": 8, "ushort": 16, "uint": 32, "ulong": 64}
_KINDS: Final[dict[str, Any]] = {name: kind for kind, name in _NUMBERS.items()} | {"long": int}
_FINE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(value: Any) -> str:
    """Return the JSON text of a value."""
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is int:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if kind is float:
        return repr(value) if math.isfinite(value) else _typed("double", _unfine(value))
    name = _NUMBERS.get(kind)
    if name is not None:
        return f'{{"{name}": {int(value)}}}'
    if kind is Float32:
        return _typed("float", float(value) if math.isfinite(value) else _unfine(value))
    if kind is Symbol:
        return _typed("symbol", str(value))
    if kind is UUID:
        return _typed("uuid", str(value))
    if kind is bytes:
        return _typed("binary", base64.b64encode(value).decode())
    return _typed("amqp", base64.b64encode(encode(value)).decode())


def from_json(text: str) -> Any:
    """Return the value of a JSON text; raise EncodeError if it names a type but holds no value of that type."""
    first = text[:1]
    # Parse the common values by hand: a string with nothing to unescape, a short number.
    if first == '"' and text[-1] == '"' and len(text) > 1:
        inner = text[1:-1]
        if inner.isprintable() and '"' not in inner and "\\" not in inner:
            return inner
    if first in _DIGITS and len(text) < 19 and text.isdecimal() and text.isascii():
        return int(text)
    if first == '"' or first == "{" or first in "-0123456789" or text in ("true", "false", "null"):
        try:
            value = _PARSER.decode(text)
        except ValueError:
            return text
        if isinstance(value, dict):
            return _of_type(text, value)
        if type(value) is int and not -(2**63) <= value < 2**63:
            return text
        return value
    return text


def _of_type(text: str, value: dict[str, Any]) -> Any:
    """Return the value of an object with one member; any other object is a plain string."""
    if len(value) != 1:
        return text
    ((name, inner),) = value.items()
    try:
        if name in _KINDS:
            return _KINDS[name](_whole(name, inner))
        if name == "float":
            return Float32(_number(inner))
        if name == "double":
            return float(_number(inner))
        if name == "symbol":
            return Symbol(_string(inner))
        if name == "uuid":
            return UUID(_string(inner))
        if name == "binary":
            return base64.b64decode(_string(inner), validate=True)
        if name == "amqp":
            raw = base64.b64decode(_string(inner), validate=True)
            found, end = decode(raw, 0)
            if end != len(raw):
                raise ValueError("more bytes than one value")
            return found
    except (ValueError, TypeError, binascii.Error, TwinbusError) as error:
        raise EncodeError(f"A property of the form {{{name!r}: ...}} has no value of that type: {error}.") from None
    return text


def _whole(name: str, inner: Any) -> int:
    if type(inner) is not int:
        raise TypeError("it is not a whole number")
    bits = _BITS.get(name)
    low, high = (-(1 << bits - 1), 1 << bits - 1) if bits is not None else (0, 1 << _BITS_UNSIGNED[name])
    if not low <= inner < high:
        raise ValueError(f"{inner} is out of its range")
    return inner


def _number(inner: Any) -> float:
    if isinstance(inner, str):
        return _FINE[inner] if inner in _FINE else float("x")
    if isinstance(inner, bool) or not isinstance(inner, int | float):
        raise TypeError("it is not a number")
    return float(inner)


def _string(inner: Any) -> str:
    if not isinstance(inner, str):
        raise TypeError("it is not a string")
    return inner


def _typed(name: str, inner: Any) -> str:
    return json.dumps({name: inner}, ensure_ascii=False)


def _unfine(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _refuse(name: str) -> Any:
    raise ValueError(name)


_PARSER: Final = json.JSONDecoder(parse_constant=_refuse)
# JSON numbers do not start with a zero; zero itself goes through the parser.
_DIGITS: Final = frozenset("123456789")
