"""Encode AMQP values.

Two rules. A value is written in the smallest encoding of its own type, so a decoded value encodes to the same type
again. A value that AMQP cannot represent raises EncodeError and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from twinbus.amqp.decoding import WIDTHS
from twinbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from twinbus.errors import EncodeError
from twinbus.limits import COMPOUND_ITEMS_MAX, NESTING_DEPTH_MAX

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U32_U32: Final = struct.Struct(">II")
_U64: Final = struct.Struct(">Q")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_F32: Final = struct.Struct(">f")
_F64: Final = struct.Struct(">d")


def encode(value: Any) -> bytes:
    buf = bytearray()
    encode_into(buf, value)
    return bytes(buf)


def encode_into(buf: bytearray, value: Any) -> None:
    """Append `value` in its smallest encoding."""
    try:
        _encode(buf, value, 0)
    except (struct.error, OverflowError) as error:
        raise EncodeError(f"{type(value).__name__} is out of its type's range") from error
    except UnicodeEncodeError as error:
        raise EncodeError("text cannot be written as UTF-8 or, for a symbol, as ASCII") from error


def _encode(buf: bytearray, value: Any, depth: int) -> None:
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        encoder = _encoder_of_subclass(value)
    encoder(buf, value, depth)


def _encoder_of_subclass(value: Any) -> Callable[[bytearray, Any, int], None]:
    """Find the encoder for a subclass of a known type: enums, str subclasses of other packages and so on."""
    for known in type(value).__mro__:
        encoder = _ENCODERS.get(known)
        if encoder is not None:
            return encoder
    raise EncodeError(f"{type(value).__name__} has no AMQP type")


def _encode_null(buf: bytearray, value: Any, depth: int) -> None:
    buf.append(0x40)


def _encode_bool(buf: bytearray, value: Any, depth: int) -> None:
    buf.append(0x41 if value else 0x42)


def _encode_long(buf: bytearray, value: Any, depth: int) -> None:
    if -128 <= value <= 127:
        buf.append(0x55)
        buf.append(value & 0xFF)
    else:
        buf.append(0x81)
        buf += _I64.pack(value)


def _encode_int(buf: bytearray, value: Any, depth: int) -> None:
    if -128 <= value <= 127:
        buf.append(0x54)
        buf.append(value & 0xFF)
    else:
        buf.append(0x71)
        buf += _I32.pack(value)


def _encode_short(buf: bytearray, value: Any, depth: int) -> None:
    buf.append(0x61)
    buf += _I16.pack(value)


def _encode_byte(buf: bytearray, value: Any, depth: int) -> None:
    buf.append(0x51)
    buf += struct.pack("b", value)


def _encode_ulong(buf: bytearray, value: Any, depth: int) -> None:
    if value == 0:
        buf.append(0x44)
    elif 0 < value <= 255:
        buf.append(0x53)
        buf.append(value)
    else:
        buf.append(0x80)
        buf += _U64.pack(value)


def _encode_uint(buf: bytearray, value: Any, depth: int) -> None:
    if value == 0:
        buf.append(0x43)
    elif 0 < value <= 255:
        buf.append(0x52)
        buf.append(value)
    else:
        buf.append(0x70)
        buf += _U32.pack(value)


def _encode_ushort(buf: bytearray, value: Any, depth: int) -> None:
    buf.append(0x60)
    buf += _U16.pack(value)


def _encode_ubyte(buf: bytearray, value: Any, depth: int) -> None:
    buf.append(0x50)
    buf += struct.pack("B", value)


def _encode_timestamp(buf: bytearray, value: Any, depth: int) -> None:
    buf.append(0x83)
    buf += _I64.pack(value)


def _encode_float32(buf: bytearray, value: Any, depth: int) -> None:
    buf.append(0x72)
    buf += _F32.pack(value)


def _encode_double(buf: bytearray, value: Any, depth: int) -> None:
    buf.append(0x82)
    buf += _F64.pack(value)


def _encode_uuid(buf: bytearray, value: Any, depth: int) -> None:
    buf.append(0x98)
    buf += value.bytes


def _encode_char(buf: bytearray, value: Any, depth: int) -> None:
    if len(value) != 1:
        raise EncodeError("a char is not one character")
    buf.append(0x73)
    buf += _U32.pack(ord(value))


def _encode_decimal32(buf: bytearray, value: Any, depth: int) -> None:
    _append_fixed(buf, 0x74, 4, value)


def _encode_decimal64(buf: bytearray, value: Any, depth: int) -> None:
    _append_fixed(buf, 0x84, 8, value)


def _encode_decimal128(buf: bytearray, value: Any, depth: int) -> None:
    _append_fixed(buf, 0x94, 16, value)


def _append_fixed(buf: bytearray, code: int, width: int, raw: bytes) -> None:
    if len(raw) != width:
        raise EncodeError(f"a decimal is {len(raw)} bytes long where {width} are needed")
    buf.append(code)
    buf += raw


def _append_variable(buf: bytearray, kind: int, raw: bytes) -> None:
    size = len(raw)
    if size <= 255:
        buf.append(0xA0 | kind)
        buf.append(size)
    else:
        buf.append(0xB0 | kind)
        buf += _U32.pack(size)
    buf += raw


def _encode_binary(buf: bytearray, value: Any, depth: int) -> None:
    _append_variable(buf, 0x0, bytes(value))


def _encode_string(buf: bytearray, value: Any, depth: int) -> None:
    _append_variable(buf, 0x1, value.encode("utf-8"))


def _encode_symbol(buf: bytearray, value: Any, depth: int) -> None:
    _append_variable(buf, 0x3, value.encode("ascii"))


def _encode_described(buf: bytearray, value: Any, depth: int) -> None:
    _check_depth(depth)
    buf.append(0x00)
    _encode(buf, value.descriptor, depth + 1)
    _encode(buf, value.value, depth + 1)


def _encode_list(buf: bytearray, value: Any, depth: int) -> None:
    _check_depth(depth)
    if not value:
        buf.append(0x45)
        return
    body = bytearray()
    for item in value:
        _encode(body, item, depth + 1)
    _append_compound(buf, 0xC0, len(value), body)


def _encode_map(buf: bytearray, value: Any, depth: int) -> None:
    _check_depth(depth)
    body = bytearray()
    for key, item in value.items():
        _encode(body, key, depth + 1)
        _encode(body, item, depth + 1)
    _append_compound(buf, 0xC1, 2 * len(value), body)


def _append_compound(buf: bytearray, code: int, count: int, body: bytearray) -> None:
    if count > COMPOUND_ITEMS_MAX:
        raise EncodeError(f"a value holds more than {COMPOUND_ITEMS_MAX} items")
    size = len(body)
    if size <= 254 and count <= 255:
        buf.append(code)
        buf.append(size + 1)
        buf.append(count)
    else:
        buf.append(code | 0x10)
        buf += _U32_U32.pack(size + 4, count)
    buf += body


def _encode_array(buf: bytearray, value: Any, depth: int) -> None:
    _check_depth(depth)
    body = bytearray()
    if value.descriptor is not None:
        body.append(0x00)
        _encode(body, value.descriptor, depth + 1)
    body.append(value.code)
    for item in value:
        _encode_item(body, value.code, item, depth + 1)
    _append_compound(buf, 0xE0, len(value), body)


def _encode_item(buf: bytearray, code: int, item: Any, depth: int) -> None:
    """Append one array item: its data without the constructor, which the array states once."""
    width = WIDTHS.get(code, -1)
    if width < 0:
        _encode_wide_item(buf, code, item, depth)
        return
    if width == 0:
        return
    packer = _PACKERS.get(code)
    if packer is not None:
        buf += packer.pack(item)
    elif code == 0x98:
        buf += item.bytes
    elif code == 0x73:
        buf += _U32.pack(ord(item))
    elif len(item) == width:
        buf += item
    else:
        raise EncodeError(f"an array item is {len(item)} bytes long where {width} are needed")


def _encode_wide_item(buf: bytearray, code: int, item: Any, depth: int) -> None:
    scratch = bytearray()
    _encode(scratch, item, depth)
    if scratch[0] == code:
        buf += scratch[1:]
        return
    if scratch[0] == 0x45 and code in (0xC0, 0xD0):
        buf += b"\x01\x00" if code == 0xC0 else b"\x00\x00\x00\x04\x00\x00\x00\x00"
        return
    small = scratch[0]
    if small not in _WIDE_FORMS or _WIDE_FORMS[small] != code:
        raise EncodeError(f"{type(item).__name__} does not fit an array of 0x{code:02x}")
    if small < 0xB0:
        buf += _U32.pack(scratch[1])
        buf += scratch[2:]
    else:
        buf += _U32_U32.pack(scratch[1] + 3, scratch[2])
        buf += scratch[3:]


# The constructor with a four-byte size for each constructor with a one-byte size.
_WIDE_FORMS: Final[dict[int, int]] = {
    0xA0: 0xB0, 0xA1: 0xB1, 0xA3: 0xB3, 0xC0: 0xD0, 0xC1: 0xD1, 0xE0: 0xF0,
}  # fmt: skip

_PACKERS: Final[dict[int, struct.Struct]] = {
    0x50: struct.Struct("B"), 0x51: struct.Struct("b"), 0x52: struct.Struct("B"), 0x53: struct.Struct("B"),
    0x54: struct.Struct("b"), 0x55: struct.Struct("b"), 0x56: struct.Struct("?"),
    0x60: _U16, 0x61: _I16, 0x70: _U32, 0x71: _I32, 0x72: _F32,
    0x80: _U64, 0x81: _I64, 0x82: _F64, 0x83: _I64,
}  # fmt: skip


def _check_depth(depth: int) -> None:
    if depth >= NESTING_DEPTH_MAX:
        raise EncodeError(f"values are nested deeper than {NESTING_DEPTH_MAX}")


_ENCODERS: Final[dict[type, Callable[[bytearray, Any, int], None]]] = {
    type(None): _encode_null,
    bool: _encode_bool,
    int: _encode_long,
    Int: _encode_int,
    Short: _encode_short,
    Byte: _encode_byte,
    ULong: _encode_ulong,
    UInt: _encode_uint,
    UShort: _encode_ushort,
    UByte: _encode_ubyte,
    Timestamp: _encode_timestamp,
    float: _encode_double,
    Float32: _encode_float32,
    UUID: _encode_uuid,
    str: _encode_string,
    Symbol: _encode_symbol,
    Char: _encode_char,
    bytes: _encode_binary,
    bytearray: _encode_binary,
    memoryview: _encode_binary,
    Decimal32: _encode_decimal32,
    Decimal64: _encode_decimal64,
    Decimal128: _encode_decimal128,
    list: _encode_list,
    tuple: _encode_list,
    Array: _encode_array,
    dict: _encode_map,
    Described: _encode_described,
}
