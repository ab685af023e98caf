"""Where the parts of a message are, without decoding them.

Three rules. A message stays the bytes it came as; this file only says which bytes are which section. Sections may come
in any order, because the Python SDK writes delivery annotations last, but each at most once and the body in one piece.
Only sizes are checked here: what is inside a section is checked when it is decoded.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from twinbus.amqp.codec import decode, skip
from twinbus.amqp.types import Symbol, ULong
from twinbus.errors import DecodeError

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_NAMES: Final[dict[str, int]] = {
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

_U32: Final = struct.Struct(">I")

Span = tuple[int, int]


class Sections:
    """Start and end of each section in a payload, the descriptor included; None for a section that is not there."""

    __slots__ = (
        "application_properties",
        "body",
        "delivery_annotations",
        "footer",
        "header",
        "message_annotations",
        "properties",
    )

    def __init__(self) -> None:
        # Durability, priority, ttl, delivery count.
        self.header: Span | None = None
        # Annotations for this hop.
        self.delivery_annotations: Span | None = None
        # Annotations for the whole way; the broker's own are here.
        self.message_annotations: Span | None = None
        # Message id, subject and the other fixed properties.
        self.properties: Span | None = None
        # The application's own properties.
        self.application_properties: Span | None = None
        # From the first body section to the last.
        self.body: Span | None = None
        # What the sender put behind the body.
        self.footer: Span | None = None


def locate(payload: bytes) -> Sections:
    """Find all sections of an encoded message."""
    sections = Sections()
    size = len(payload)
    offset = 0
    body_kind = 0
    try:
        while offset < size:
            start = offset
            if payload[offset] != 0x00:
                raise DecodeError("a message section has no descriptor")
            if payload[offset + 1] == 0x53:
                code = payload[offset + 2]
                offset += 3
            else:
                code, offset = _section_code(payload, offset)
            # The sizes of what a section usually holds, by hand; everything else by `skip`.
            constructor = payload[offset]
            kind = constructor >> 4
            if kind == 0xC or kind == 0xA:
                offset += 2 + payload[offset + 1]
            elif kind == 0xD or kind == 0xB:
                offset += 5 + int(_U32.unpack_from(payload, offset + 1)[0])
            elif constructor == 0x45:
                offset += 1
            else:
                offset = skip(payload, offset)
            if offset > size:
                raise DecodeError("a message section is cut off")
            if DATA <= code <= VALUE:
                if sections.body is None:
                    sections.body = (start, offset)
                    body_kind = code
                elif sections.body[1] == start and code == body_kind and code != VALUE:
                    sections.body = (sections.body[0], offset)
                else:
                    raise DecodeError("a message has more than one body")
            else:
                _place(sections, code, (start, offset))
    except (IndexError, struct.error) as error:
        raise DecodeError("a message section is cut off") from error
    return sections


def _place(sections: Sections, code: int, span: Span) -> None:
    taken: Span | None
    if code == PROPERTIES:
        taken, sections.properties = sections.properties, span
    elif code == APPLICATION_PROPERTIES:
        taken, sections.application_properties = sections.application_properties, span
    elif code == MESSAGE_ANNOTATIONS:
        taken, sections.message_annotations = sections.message_annotations, span
    elif code == HEADER:
        taken, sections.header = sections.header, span
    elif code == DELIVERY_ANNOTATIONS:
        taken, sections.delivery_annotations = sections.delivery_annotations, span
    elif code == FOOTER:
        taken, sections.footer = sections.footer, span
    else:
        raise DecodeError(f"0x{code:02x} is not a message section")
    if taken is not None:
        raise DecodeError("a message has the same section twice")


def _section_code(payload: bytes, offset: int) -> tuple[int, int]:
    """The code of a section whose descriptor is written in a longer form."""
    descriptor, offset = decode(payload, offset + 1)
    if isinstance(descriptor, ULong):
        return int(descriptor), offset
    if isinstance(descriptor, Symbol):
        return _NAMES.get(str(descriptor), -1), offset
    raise DecodeError("a message section has a descriptor of the wrong type")


def section_kind(payload: bytes, span: Span) -> tuple[int, int]:
    """The code of the section at `span` and where its value starts."""
    start = span[0]
    if payload[start + 1] == 0x53:
        return payload[start + 2], start + 3
    return _section_code(payload, start)


def value_offset(payload: bytes, start: int) -> int:
    """Where the value of the section at `start` begins, in whatever form its descriptor is written."""
    return start + 3 if payload[start + 1] == 0x53 else _section_code(payload, start)[1]


def decode_section(payload: bytes, span: Span) -> Any:
    """The value under the descriptor: a list for header and properties, a map for annotations, and so on."""
    _, offset = section_kind(payload, span)
    value, end = decode(payload, offset)
    if end != span[1]:
        raise DecodeError("a message section does not end where its size says")
    return value


def data_sections(payload: bytes, span: Span) -> list[bytes]:
    """The binaries of consecutive data sections; for a batch each is a whole encoded message."""
    result: list[bytes] = []
    offset, end = span
    while offset < end:
        code, offset = section_kind(payload, (offset, end))
        if code != DATA:
            raise DecodeError("a body section is not data")
        constructor = payload[offset]
        if constructor == 0xA0:
            start = offset + 2
            stop = start + payload[offset + 1]
        elif constructor == 0xB0:
            start = offset + 5
            stop = start + int(_U32.unpack_from(payload, offset + 1)[0])
        else:
            raise DecodeError("a data section does not hold binary")
        result.append(payload[start:stop])
        offset = stop
    return result


def data_section(binary: bytes) -> bytes:
    """The encoded data section that holds `binary`."""
    if len(binary) <= 255:
        return b"\x00\x53\x75\xa0" + bytes((len(binary),)) + binary
    return b"\x00\x53\x75\xb0" + _U32.pack(len(binary)) + binary
