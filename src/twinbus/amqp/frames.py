"""Frames and performatives: encode and decode everything except messages.

Three rules. Every performative is written under the descriptor `00 53 xx` with all its fields, including trailing nulls
and defaults, because older clients index the fields blindly. A frame is one `bytes` object. Decoding is strict about
types and lenient about missing trailing fields.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from twinbus.amqp.codec import decode, encode, encode_into, skip
from twinbus.amqp.states import AmqpError, composite, composite_of, decode_error, encode_error
from twinbus.amqp.types import Array, Described, Symbol, UByte, UInt, ULong, UShort
from twinbus.errors import DecodeError, InvalidFieldError

OPEN: Final = 0x10
BEGIN: Final = 0x11
ATTACH: Final = 0x12
FLOW: Final = 0x13
TRANSFER: Final = 0x14
DISPOSITION: Final = 0x15
DETACH: Final = 0x16
END: Final = 0x17
CLOSE: Final = 0x18
SASL_MECHANISMS: Final = 0x40
SASL_INIT: Final = 0x41
SASL_CHALLENGE: Final = 0x42
SASL_RESPONSE: Final = 0x43
SASL_OUTCOME: Final = 0x44

HEADER_AMQP: Final = b"AMQP\x00\x01\x00\x00"
HEADER_SASL: Final = b"AMQP\x03\x01\x00\x00"
HEADER_TLS: Final = b"AMQP\x02\x01\x00\x00"
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"

FRAME_AMQP: Final = 0
FRAME_SASL: Final = 1

_NAMES: Final[dict[str, int]] = {
    "amqp:open:list": OPEN,
    "amqp:begin:list": BEGIN,
    "amqp:attach:list": ATTACH,
    "amqp:flow:list": FLOW,
    "amqp:transfer:list": TRANSFER,
    "amqp:disposition:list": DISPOSITION,
    "amqp:detach:list": DETACH,
    "amqp:end:list": END,
    "amqp:close:list": CLOSE,
    "amqp:sasl-mechanisms:list": SASL_MECHANISMS,
    "amqp:sasl-init:list": SASL_INIT,
    "amqp:sasl-challenge:list": SASL_CHALLENGE,
    "amqp:sasl-response:list": SASL_RESPONSE,
    "amqp:sasl-outcome:list": SASL_OUTCOME,
}

_HEAD: Final = struct.Struct(">IBBH")
_U32_U32: Final = struct.Struct(">II")
_U32: Final = struct.Struct(">I")


# --- writing --------------------------------------------------------------------------------------------------------


def frame(channel: int, body: bytes, kind: int = FRAME_AMQP) -> bytes:
    return _HEAD.pack(len(body) + 8, 2, kind, channel) + body


def open_frame(
    container_id: str,
    hostname: str | None,
    frame_bytes_max: int,
    channel_max: int,
    idle_timeout_ms: int,
    properties: dict[Any, Any] | None,
    capabilities: Sequence[Symbol] = (),
) -> bytes:
    fields = [
        container_id,
        hostname,
        UInt(frame_bytes_max),
        UShort(channel_max),
        UInt(idle_timeout_ms) if idle_timeout_ms else None,
        None,
        None,
        Array(capabilities, 0xB3) if capabilities else None,
        None,
        symbol_keys(properties),
    ]
    return frame(0, composite(OPEN, fields))


def begin_frame(
    channel: int,
    remote_channel: int | None,
    next_outgoing_id: int,
    incoming_window: int,
    outgoing_window: int,
    handle_max: int,
) -> bytes:
    fields = [
        None if remote_channel is None else UShort(remote_channel),
        UInt(next_outgoing_id),
        UInt(incoming_window),
        UInt(outgoing_window),
        UInt(handle_max),
        None,
        None,
        None,
    ]
    return frame(channel, composite(BEGIN, fields))


def attach_frame(
    channel: int,
    name: str,
    handle: int,
    receiver: bool,
    snd_settle_mode: int,
    rcv_settle_mode: int,
    source: bytes,
    target: bytes,
    max_message_size: int,
    properties: dict[Any, Any] | None,
) -> bytes:
    body = bytearray()
    encode_into(body, name)
    encode_into(body, UInt(handle))
    encode_into(body, receiver)
    encode_into(body, UByte(snd_settle_mode))
    encode_into(body, UByte(rcv_settle_mode))
    body += source
    body += target
    # unsettled and incomplete-unsettled: links are never resumed.
    body += b"\x40\x42"
    body += b"\x40" if receiver else b"\x43"
    encode_into(body, ULong(max_message_size))
    body += b"\x40\x40"
    encode_into(body, symbol_keys(properties))
    return frame(channel, composite_of(ATTACH, 14, bytes(body)))


def detach_frame(channel: int, handle: int, closed: bool, error: AmqpError | None) -> bytes:
    body = encode(UInt(handle)) + (b"\x41" if closed else b"\x42") + encode_error(error)
    return frame(channel, composite_of(DETACH, 3, body))


def end_frame(channel: int, error: AmqpError | None) -> bytes:
    return frame(channel, composite_of(END, 1, encode_error(error)))


def close_frame(error: AmqpError | None) -> bytes:
    return frame(0, composite_of(CLOSE, 1, encode_error(error)))


def disposition_frame(channel: int, receiver: bool, first: int, last: int, settled: bool, state: bytes) -> bytes:
    body = b"".join(
        (
            b"\x41\x70" if receiver else b"\x42\x70",
            _U32.pack(first),
            b"\x70",
            _U32.pack(last),
            b"\x41" if settled else b"\x42",
            state or b"\x40",
            b"\x42",
        )
    )
    return frame(channel, composite_of(DISPOSITION, 6, body))


_FLOW_SESSION: Final = struct.Struct(">BIBIBIBI")
_FLOW_LINK: Final = struct.Struct(">BIBIBIBBBB")


def flow_frame(
    channel: int, next_incoming_id: int, incoming_window: int, next_outgoing_id: int, outgoing_window: int, link: bytes
) -> bytes:
    """`link` is the result of `flow_link`, or FLOW_NO_LINK."""
    session = _FLOW_SESSION.pack(
        0x70, next_incoming_id, 0x70, incoming_window, 0x70, next_outgoing_id, 0x70, outgoing_window
    )
    return frame(channel, composite_of(FLOW, 11, session + link))


def flow_link(handle: int, delivery_count: int, credit: int, drain: bool) -> bytes:
    """Encode a flow's link fields: handle, delivery-count, link-credit, available, drain, echo, properties."""
    return _FLOW_LINK.pack(0x70, handle, 0x70, delivery_count, 0x70, credit, 0x43, 0x41 if drain else 0x42, 0x42, 0x40)


FLOW_NO_LINK: Final = b"\x40\x40\x40\x40\x42\x42\x40"


def sasl_mechanisms_frame(mechanisms: list[str]) -> bytes:
    array = Array([Symbol(name) for name in mechanisms], 0xB3)
    return frame(0, composite(SASL_MECHANISMS, [array]), FRAME_SASL)


def sasl_init_frame(mechanism: str, response: bytes | None, hostname: str | None) -> bytes:
    return frame(0, composite(SASL_INIT, [Symbol(mechanism), response, hostname]), FRAME_SASL)


def sasl_outcome_frame(code: int) -> bytes:
    return frame(0, composite(SASL_OUTCOME, [UByte(code), None]), FRAME_SASL)


def symbol_keys(properties: dict[Any, Any] | None) -> dict[Any, Any] | None:
    """Turn plain string keys into symbols, as open, begin and attach require for their properties."""
    if properties is None:
        return None
    return {Symbol(key) if type(key) is str else key: value for key, value in properties.items()}


# --- reading --------------------------------------------------------------------------------------------------------


def descriptor(buf: bytes, offset: int, end: int) -> tuple[int, int]:
    """Return the code of the performative at `offset`, in any form of descriptor, and the offset of its list."""
    if end - offset < 4 or buf[offset] != 0x00:
        raise DecodeError("a frame does not hold a performative")
    if buf[offset + 1] == 0x53:
        return buf[offset + 2], offset + 3
    # Every valid descriptor is far shorter than this, so the rest of the buffer need not be copied.
    value, size = decode(buf[offset + 1 : min(end, offset + 65)])
    if isinstance(value, ULong):
        return int(value), offset + 1 + size
    if isinstance(value, Symbol):
        return _NAMES.get(str(value), -1), offset + 1 + size
    raise DecodeError("a performative has a descriptor of the wrong type")


def list_bounds(buf: bytes, offset: int, end: int) -> tuple[int, int, int]:
    """Return the field count, the first field's offset and the end of the list at `offset`, checked against `end`."""
    if offset >= end:
        raise DecodeError("a frame is cut off")
    code = buf[offset]
    if code == 0xC0 and offset + 3 <= end:
        stop = offset + 2 + buf[offset + 1]
        count = buf[offset + 2]
        start = offset + 3
    elif code == 0x45:
        stop = offset + 1
        count = 0
        start = stop
    elif code == 0xD0 and offset + 9 <= end:
        size, items = _U32_U32.unpack_from(buf, offset + 1)
        stop = offset + 5 + int(size)
        count = int(items)
        start = offset + 9
    else:
        raise DecodeError("a performative is not a list")
    if stop > end or stop < start:
        raise DecodeError("a performative is longer than its frame")
    if count > 32:
        raise DecodeError("a performative has too many fields")
    return count, start, stop


def fields_of(buf: bytes, offset: int, end: int) -> tuple[list[Any], int]:
    """Decode all fields of the list at `offset`; also return the offset after it."""
    count, start, stop = list_bounds(buf, offset, end)
    body = buf[start:stop]
    result: list[Any] = []
    position = 0
    for _ in range(count):
        value, position = decode(body, position)
        result.append(value)
    if position != len(body):
        raise DecodeError("a performative does not end where its size says")
    return result, stop


_FLOW_FIELDS: Final = 11


def numbers_of(buf: bytes, offset: int, end: int) -> list[int]:
    """Return a flow's fields as numbers, padded to eleven: -1 for null or absent, 0 and 1 for booleans."""
    count, at, stop = list_bounds(buf, offset, end)
    result: list[int] = []
    for _ in range(count):
        if at >= stop:
            raise DecodeError("a performative has fewer fields than it says")
        code = buf[at]
        if code == 0x70:
            result.append(_U32.unpack_from(buf, at + 1)[0])
            at += 5
        elif code == 0x40:
            result.append(-1)
            at += 1
        elif code == 0x43 or code == 0x42:
            result.append(0)
            at += 1
        elif code == 0x52:
            result.append(buf[at + 1])
            at += 2
        elif code == 0x41:
            result.append(1)
            at += 1
        elif code == 0x56:
            result.append(1 if buf[at + 1] else 0)
            at += 2
        elif len(result) == _FLOW_FIELDS - 1:
            # The properties map is not used.
            at = skip(buf, at)
            result.append(-1)
        else:
            raise InvalidFieldError("a field of a flow is neither a number nor a boolean")
    if at != stop:
        raise DecodeError("a performative does not end where its size says")
    result.extend([-1] * (_FLOW_FIELDS - count))
    return result


def raw_fields_of(buf: bytes, offset: int, end: int) -> tuple[list[bytes], int]:
    """Return all fields of the list at `offset`, still encoded, and the offset after it."""
    count, start, stop = list_bounds(buf, offset, end)
    body = buf[start:stop]
    result: list[bytes] = []
    position = 0
    for _ in range(count):
        behind = skip(body, position)
        result.append(body[position:behind])
        position = behind
    if position != len(body):
        raise DecodeError("a performative does not end where its size says")
    return result, stop


def uint_field(fields: list[Any], index: int, name: str, default: int) -> int:
    """Return an unsigned field of any width, as encoders differ; `default` if it is absent or null."""
    value = fields[index] if index < len(fields) else None
    if value is None:
        return default
    if isinstance(value, (UInt, UShort, UByte, ULong)):
        return int(value)
    raise InvalidFieldError(f"{name} is not an unsigned integer")


def needed_uint_field(fields: list[Any], index: int, name: str) -> int:
    value = uint_field(fields, index, name, -1)
    if value < 0:
        raise InvalidFieldError(f"{name} is missing")
    if value > 0xFFFFFFFF:
        raise InvalidFieldError(f"{name} is out of range")
    return value


def small_field(fields: list[Any], index: int, name: str, default: int, largest: int) -> int:
    value = uint_field(fields, index, name, default)
    if value > largest:
        raise InvalidFieldError(f"{name} is larger than {largest}")
    return value


def bool_field(fields: list[Any], index: int, name: str, default: bool) -> bool:
    value = fields[index] if index < len(fields) else None
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    raise InvalidFieldError(f"{name} is not a boolean")


def text_field(fields: list[Any], index: int, name: str) -> str | None:
    value = fields[index] if index < len(fields) else None
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)
    raise InvalidFieldError(f"{name} is not text")


def map_field(fields: list[Any], index: int, name: str) -> dict[Any, Any] | None:
    value = fields[index] if index < len(fields) else None
    if value is None or isinstance(value, dict):
        return value
    raise InvalidFieldError(f"{name} is not a map")


def error_field(fields: list[Any], index: int) -> AmqpError | None:
    value = fields[index] if index < len(fields) else None
    if value is None or isinstance(value, Described):
        return decode_error(value)
    raise InvalidFieldError("an error is not a described list")
