"""Decode AMQP values.

Two rules. Sizes and counts are checked against the buffer, and depth and counts against `limits`, before anything is
built, so garbage costs no more than its own length. Invalid bytes raise DecodeError and nothing else.
"""

from __future__ import annotations

import struct
from typing import Any, Final
from uuid import UUID

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
from twinbus.errors import DecodeError
from twinbus.limits import COMPOUND_ITEMS_MAX, NESTING_DEPTH_MAX, ZERO_WIDTH_ITEMS_MAX

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U32_U32: Final = struct.Struct(">II")
_U64: Final = struct.Struct(">Q")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_F32: Final = struct.Struct(">f")
_F64: Final = struct.Struct(">d")

# Bytes after the constructor, for each fixed-width type.
WIDTHS: Final[dict[int, int]] = {
    0x40: 0, 0x41: 0, 0x42: 0, 0x43: 0, 0x44: 0, 0x45: 0,
    0x50: 1, 0x51: 1, 0x52: 1, 0x53: 1, 0x54: 1, 0x55: 1, 0x56: 1,
    0x60: 2, 0x61: 2,
    0x70: 4, 0x71: 4, 0x72: 4, 0x73: 4, 0x74: 4,
    0x80: 8, 0x81: 8, 0x82: 8, 0x83: 8, 0x84: 8,
    0x94: 16, 0x98: 16,
}  # fmt: skip


def decode(buf: bytes, offset: int = 0) -> tuple[Any, int]:
    """Return the value at `offset` and the offset after it."""
    try:
        return _decode(buf, offset, 0)
    except (IndexError, struct.error) as error:
        raise DecodeError("a value is cut off") from error
    except UnicodeDecodeError as error:
        raise DecodeError("text is not valid UTF-8") from error


def decode_all(buf: bytes) -> Any:
    """Decode a buffer that holds exactly one value."""
    value, end = decode(buf)
    if end != len(buf):
        raise DecodeError("bytes follow the value")
    return value


def _decode(buf: bytes, offset: int, depth: int) -> tuple[Any, int]:
    code = buf[offset]
    # The types most messages consist of come first: null, short strings, short symbols.
    if code == 0x40:
        return None, offset + 1
    if code == 0xA1 or code == 0xA3:
        start = offset + 2
        end = start + buf[offset + 1]
        if end > len(buf):
            raise DecodeError("a value is longer than its container")
        raw = buf[start:end]
        if code == 0xA1:
            return str(raw, "utf-8"), end
        if not raw.isascii():
            raise DecodeError("a symbol is not ASCII")
        return Symbol(str(raw, "ascii")), end
    if code == 0x00:
        if depth >= NESTING_DEPTH_MAX:
            raise DecodeError(f"values are nested deeper than {NESTING_DEPTH_MAX}")
        descriptor, offset = _decode(buf, offset + 1, depth + 1)
        value, offset = _decode(buf, offset, depth + 1)
        return Described(descriptor, value), offset
    return _decode_as(code, buf, offset + 1, depth)


def _decode_as(code: int, buf: bytes, offset: int, depth: int) -> tuple[Any, int]:
    """Decode data at `offset` whose constructor, `code`, is already known."""
    high = code >> 4
    if high == 0x4:
        return _decode_empty(code, depth), offset
    if high == 0xA or high == 0xB:
        return _decode_variable(code, buf, offset)
    if high >= 0xC:
        return _decode_compound(code, buf, offset, depth)
    return _decode_fixed(code, buf, offset)


def _decode_empty(code: int, depth: int) -> Any:
    if code == 0x40:
        return None
    if code == 0x41:
        return True
    if code == 0x42:
        return False
    if code == 0x43:
        return UInt(0)
    if code == 0x44:
        return ULong(0)
    if code == 0x45:
        if depth >= NESTING_DEPTH_MAX:
            raise DecodeError(f"values are nested deeper than {NESTING_DEPTH_MAX}")
        return []
    raise DecodeError(f"0x{code:02x} is not an AMQP type")


def _decode_fixed(code: int, buf: bytes, offset: int) -> tuple[Any, int]:
    width = WIDTHS.get(code, -1)
    if width < 0:
        raise DecodeError(f"0x{code:02x} is not an AMQP type")
    end = offset + width
    if end > len(buf):
        raise DecodeError("a value is cut off")
    if width == 1:
        return _decode_byte(code, buf[offset]), end
    if width == 4:
        return _decode_word(code, buf, offset), end
    if width == 8:
        return _decode_long(code, buf, offset), end
    if code == 0x98:
        return UUID(bytes=buf[offset:end]), end
    if code == 0x60:
        return UShort(_U16.unpack_from(buf, offset)[0]), end
    if code == 0x61:
        return Short(_I16.unpack_from(buf, offset)[0]), end
    return Decimal128(buf[offset:end]), end


def _decode_byte(code: int, byte: int) -> Any:
    if code == 0x53:
        return ULong(byte)
    if code == 0x52:
        return UInt(byte)
    if code == 0x56:
        if byte > 1:
            raise DecodeError("a boolean is neither true nor false")
        return byte == 1
    if code == 0x50:
        return UByte(byte)
    signed = byte - 256 if byte > 127 else byte
    if code == 0x55:
        return signed
    if code == 0x54:
        return Int(signed)
    return Byte(signed)


def _decode_word(code: int, buf: bytes, offset: int) -> Any:
    if code == 0x70:
        return UInt(_U32.unpack_from(buf, offset)[0])
    if code == 0x71:
        return Int(_I32.unpack_from(buf, offset)[0])
    if code == 0x72:
        return Float32(_F32.unpack_from(buf, offset)[0])
    if code == 0x73:
        point: int = _U32.unpack_from(buf, offset)[0]
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise DecodeError("a char is not a Unicode character")
        return Char(chr(point))
    return Decimal32(buf[offset : offset + 4])


def _decode_long(code: int, buf: bytes, offset: int) -> Any:
    if code == 0x81:
        return _I64.unpack_from(buf, offset)[0]
    if code == 0x83:
        return Timestamp(_I64.unpack_from(buf, offset)[0])
    if code == 0x80:
        return ULong(_U64.unpack_from(buf, offset)[0])
    if code == 0x82:
        return _F64.unpack_from(buf, offset)[0]
    return Decimal64(buf[offset : offset + 8])


def _decode_variable(code: int, buf: bytes, offset: int) -> tuple[Any, int]:
    if code < 0xB0:
        start = offset + 1
        end = start + buf[offset]
    else:
        start = offset + 4
        end = start + int(_U32.unpack_from(buf, offset)[0])
    if end > len(buf):
        raise DecodeError("a value is longer than its container")
    kind = code & 0x0F
    if kind == 0x1:
        return str(buf[start:end], "utf-8"), end
    if kind == 0x3:
        raw = buf[start:end]
        if not raw.isascii():
            raise DecodeError("a symbol is not ASCII")
        return Symbol(str(raw, "ascii")), end
    if kind == 0x0:
        return buf[start:end], end
    raise DecodeError(f"0x{code:02x} is not an AMQP type")


def _decode_compound(code: int, buf: bytes, offset: int, depth: int) -> tuple[Any, int]:
    if depth >= NESTING_DEPTH_MAX:
        raise DecodeError(f"values are nested deeper than {NESTING_DEPTH_MAX}")
    if code == 0xC0 or code == 0xC1 or code == 0xE0:
        end = offset + 1 + buf[offset]
        count = buf[offset + 1]
        start = offset + 2
    elif code == 0xD0 or code == 0xD1 or code == 0xF0:
        size, items = _U32_U32.unpack_from(buf, offset)
        end = offset + 4 + int(size)
        count = int(items)
        start = offset + 8
    else:
        raise DecodeError(f"0x{code:02x} is not an AMQP type")
    if end > len(buf) or end < start:
        raise DecodeError("a value is longer than its container")
    if count > COMPOUND_ITEMS_MAX:
        raise DecodeError(f"a value holds more than {COMPOUND_ITEMS_MAX} items")
    if code >= 0xE0:
        array = _decode_array(buf, start, end, count, depth)
        return array, end
    if count > end - start:
        raise DecodeError("a value claims more items than it has bytes")
    kind = code & 0x0F
    if kind == 0x0:
        items_list: list[Any] = []
        for _ in range(count):
            if buf[start] == 0x40:
                start += 1
                items_list.append(None)
                continue
            item, start = _decode(buf, start, depth + 1)
            items_list.append(item)
        if start != end:
            raise DecodeError("a list does not end where its size says")
        return items_list, end
    return _decode_map(buf, start, end, count, depth), end


def _decode_map(buf: bytes, start: int, end: int, count: int, depth: int) -> dict[Any, Any]:
    if count & 1:
        raise DecodeError("a map has a key without a value")
    result: dict[Any, Any] = {}
    for _ in range(count >> 1):
        key, start = _decode(buf, start, depth + 1)
        value, start = _decode(buf, start, depth + 1)
        try:
            result[key] = value
        except TypeError as error:
            raise DecodeError("a map key is a list, a map or an array") from error
    if start != end:
        raise DecodeError("a map does not end where its size says")
    return result


def _decode_array(buf: bytes, start: int, end: int, count: int, depth: int) -> Array:
    if start == end:
        # Some encoders leave the constructor out of an empty array.
        if count:
            raise DecodeError("an array has items but no type")
        return Array((), 0x40)
    code = buf[start]
    start += 1
    descriptor: Any = None
    if code == 0x00:
        descriptor, start = _decode(buf, start, depth + 1)
        code = buf[start]
        start += 1
        if code == 0x00:
            raise DecodeError("an array describes its descriptor")
    width = WIDTHS.get(code, -1)
    if width == 0:
        if count > ZERO_WIDTH_ITEMS_MAX:
            raise DecodeError(f"an array holds more than {ZERO_WIDTH_ITEMS_MAX} items without bytes")
    elif count > end - start:
        raise DecodeError("an array claims more items than it has bytes")
    result = Array((), code, descriptor)
    for _ in range(count):
        item, start = _decode_as(code, buf, start, depth + 1)
        result.append(item)
    if start != end:
        raise DecodeError("an array does not end where its size says")
    return result


# --- skipping -------------------------------------------------------------------------------------------------------


def skip(buf: bytes, offset: int) -> int:
    """Return the offset after the value at `offset`, judged by its size alone; its content is not validated."""
    try:
        end = _skip(buf, offset, 0)
    except (IndexError, struct.error) as error:
        raise DecodeError("a value is cut off") from error
    if end > len(buf):
        raise DecodeError("a value is longer than its container")
    return end


def _skip(buf: bytes, offset: int, depth: int) -> int:
    code = buf[offset]
    offset += 1
    if code == 0x00:
        if depth >= NESTING_DEPTH_MAX:
            raise DecodeError(f"values are nested deeper than {NESTING_DEPTH_MAX}")
        return _skip(buf, _skip(buf, offset, depth + 1), depth + 1)
    high = code >> 4
    if high == 0xA or high == 0xC or high == 0xE:
        return offset + 1 + buf[offset]
    if high == 0xB or high == 0xD or high == 0xF:
        return offset + 4 + int(_U32.unpack_from(buf, offset)[0])
    width = WIDTHS.get(code, -1)
    if width < 0:
        raise DecodeError(f"0x{code:02x} is not an AMQP type")
    return offset + width


# --- counting -------------------------------------------------------------------------------------------------------


def count_values(buf: bytes, offset: int, most: int) -> int:
    """Count the values that decoding the one at `offset` would create, itself included, but not far beyond `most`.
    Bytes that cannot be decoded end the count."""
    count = 0
    try:
        end = skip(buf, offset)
        # A value's parts follow its constructor, so that one pass over all constructors meets everything.
        while offset < end and count <= most:
            code = buf[offset]
            high = code >> 4
            offset += 1
            count += 1
            if code == 0x00:
                continue
            if high == 0xC:
                offset += 2
            elif high == 0xD:
                offset += 8
            elif high == 0xE or high == 0xF:
                start, offset = offset, _skip(buf, offset - 1, 0)
                # Items have no constructors. Those that hold others are at most as many as their bytes.
                count += offset - start
            elif high == 0xA:
                offset += 1 + buf[offset]
            elif high == 0xB:
                offset += 4 + int(_U32.unpack_from(buf, offset)[0])
            else:
                offset += WIDTHS[code]
    except (IndexError, KeyError, struct.error, DecodeError):
        pass
    return count
