"""The sections of a message: their codes and names, and how to write them. `reader` reads them."""

from __future__ import annotations

import struct
from typing import Final

from twinbus.amqp.states import composite_of

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

# Symbolic descriptors, which AMQP allows in place of the codes.
NAMES: Final[dict[str, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}

# Field indexes in the properties section.
MESSAGE_ID: Final = 0
CONTENT_TYPE: Final = 6
ABSOLUTE_EXPIRY: Final = 8
CREATION: Final = 9
GROUP_ID: Final = 10
HEADER_FIELDS: Final = 5
PROPERTY_FIELDS: Final = 13

NULL: Final = b"\x40"

_pack_u32: Final = struct.Struct(">I").pack
_pack_time: Final = struct.Struct(">Bq").pack


def timestamp(ms: int) -> bytes:
    """Encode a timestamp; the caller has checked its range."""
    return _pack_time(0x83, ms)


def data_section(binary: bytes) -> bytes:
    if len(binary) <= 255:
        return b"\x00\x53\x75\xa0" + bytes((len(binary),)) + binary
    return b"\x00\x53\x75\xb0" + _pack_u32(len(binary)) + binary


def list_section(code: int, items: list[bytes]) -> bytes:
    """Encode a list section. Trailing nulls are left out; an empty list gives no section."""
    last = len(items)
    while last and items[last - 1] == NULL:
        last -= 1
    return composite_of(code, last, b"".join(items[:last])) if last else b""


def map_section(code: int, items: list[bytes]) -> bytes:
    """Encode a map section of alternating encoded keys and values; an empty map gives no section."""
    if not items:
        return b""
    body = b"".join(items)
    count = len(items)
    if len(body) < 255 and count < 256:
        return bytes((0, 0x53, code, 0xC1, len(body) + 1, count)) + body
    return bytes((0, 0x53, code, 0xD1)) + _pack_u32(len(body) + 4) + _pack_u32(count) + body
