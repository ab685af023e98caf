"""Read encoded messages: locate their sections and decode what is needed of them.

Rules:
- A message stays encoded. Its sections may come in any order, because the Python SDK writes delivery annotations last;
  but each may occur only once, and the body must be contiguous.
- Only the parts a caller asks for are decoded, so only those can raise DecodeError, and they raise nothing else.
- The layouts that services write are parsed by hand; all others go through the general decoder with the same result.
- Ids that are not strings become strings. A time is in milliseconds since the epoch, or None if it is not a number.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from struct import Struct, error
from typing import Any, Final, NamedTuple

from twinbus.amqp.codec import decode, skip
from twinbus.amqp.sections import (
    ABSOLUTE_EXPIRY,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    GROUP_ID,
    HEADER,
    HEADER_FIELDS,
    MESSAGE_ANNOTATIONS,
    MESSAGE_ID,
    NAMES,
    PROPERTIES,
    SEQUENCE,
    VALUE,
)
from twinbus.amqp.typed_json import to_json
from twinbus.amqp.types import Symbol, ULong
from twinbus.errors import DecodeError

SCHEDULED: Final = Symbol("x-opt-scheduled-enqueue-time")
PARTITION_KEY: Final = Symbol("x-opt-partition-key")
SEQUENCE_NUMBER: Final = Symbol("x-opt-sequence-number")
ENQUEUED_TIME: Final = Symbol("x-opt-enqueued-time")
STATE: Final = Symbol("x-opt-message-state")

# Values of the state annotation.
ACTIVE: Final = 0
DEFERRED: Final = 1

_MAPS: Final = frozenset((DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER))

Span = tuple[int, int]
Spans = tuple[Span | None, Span | None, Span | None, Span | None, Span | None, Span | None, Span | None]

_U32: Final = Struct(">I").unpack_from
_I64: Final = Struct(">q").unpack_from
_new: Final = tuple.__new__


# --- locating sections ------------------------------------------------------------------------------------------------


class Sections(NamedTuple):
    """Start and end of each section in a payload, including its descriptor; None for an absent section."""

    header: Span | None
    delivery_annotations: Span | None
    message_annotations: Span | None
    properties: Span | None
    application_properties: Span | None
    # From the first body section to the last.
    body: Span | None
    footer: Span | None


def locate(payload: bytes) -> Sections:
    """Locate all sections of an encoded message."""
    return Sections(*spans(payload))


def spans(payload: bytes, offset: int = 0) -> Spans:
    """Locate the sections from `offset` on, in the order of `Sections`, as a plain tuple for speed. Checks sizes
    only."""
    header = delivery = annotations = properties = own = body = footer = None
    size = len(payload)
    try:
        while offset < size:
            start = offset
            if payload[offset] or payload[offset + 1] != 0x53:
                code, offset = section_kind(payload, offset)
                offset = skip(payload, offset)
            else:
                code = payload[offset + 2]
                # Measure the usual values by hand and leave the others to `skip`.
                kind = payload[offset + 3] >> 4
                if kind == 0xC or kind == 0xA:
                    offset += 5 + payload[offset + 4]
                elif kind == 0xD or kind == 0xB:
                    offset += 8 + _U32(payload, offset + 4)[0]
                else:
                    offset = skip(payload, offset + 3)
            if code == PROPERTIES and properties is None:
                properties = (start, offset)
            elif code == DATA and body is None:
                body = (start, offset)
            elif code == APPLICATION_PROPERTIES and own is None:
                own = (start, offset)
            elif code == MESSAGE_ANNOTATIONS and annotations is None:
                annotations = (start, offset)
            elif code == HEADER and header is None:
                header = (start, offset)
            elif code == DELIVERY_ANNOTATIONS and delivery is None:
                delivery = (start, offset)
            elif code == FOOTER and footer is None:
                footer = (start, offset)
            elif DATA <= code <= VALUE:
                if body is not None and (
                    code == VALUE or body[1] != start or code != section_kind(payload, body[0])[0]
                ):
                    raise DecodeError("a message has more than one body")
                body = (start if body is None else body[0], offset)
            elif HEADER <= code <= FOOTER:
                raise DecodeError("a message has the same section twice")
            else:
                raise DecodeError(f"0x{code:02x} is not a message section")
    except (IndexError, error) as failure:
        raise DecodeError("a message section is cut off") from failure
    if offset > size:
        raise DecodeError("a message section is cut off")
    return header, delivery, annotations, properties, own, body, footer


def section_kind(payload: bytes, start: int) -> tuple[int, int]:
    """Return the code of the section at `start`, in any form of descriptor, and the offset of its value."""
    if payload[start]:
        raise DecodeError("a message section has no descriptor")
    if payload[start + 1] == 0x53:
        return payload[start + 2], start + 3
    descriptor, offset = decode(payload, start + 1)
    if isinstance(descriptor, ULong):
        return int(descriptor), offset
    if isinstance(descriptor, Symbol):
        return NAMES.get(str(descriptor), 0), offset
    raise DecodeError("a message section has a descriptor of the wrong type")


# --- any section ------------------------------------------------------------------------------------------------------


def decode_section(payload: bytes, span: Span) -> Any:
    """Decode a section's value: a list for header and properties, a map for annotations, and so on."""
    start = span[0]
    # Skip the usual descriptor by hand, as every message has several.
    value, end = decode(payload, start + 3 if payload[start + 1] == 0x53 else section_kind(payload, start)[1])
    if end != span[1]:
        raise DecodeError("a message section does not end where its size says")
    return value


def listed(payload: bytes, span: Span, count: int) -> list[Any]:
    """Decode a list section of `count` fields; missing ones are None."""
    value = decode_section(payload, span)
    if not isinstance(value, list) or len(value) > count:
        raise DecodeError("a message section is not the list it should be")
    return value + [None] * (count - len(value))


def mapped(payload: bytes, span: Span | None) -> dict[Any, Any] | None:
    """Decode a map section."""
    value = None if span is None else decode_section(payload, span)
    if value is not None and not isinstance(value, dict):
        raise DecodeError("a message section is not the map it should be")
    return value


def items(payload: bytes, span: Span | None, *, readable: bool = False) -> list[bytes]:
    """Return the items of a list or map section, still encoded, so that one can be replaced while the others keep their
    bytes. For a map, keys and values alternate. With `readable`, stop at the first broken item instead of raising."""
    found: list[bytes] = []
    if span is None:
        return found
    start, stop = span
    try:
        code, offset = section_kind(payload, start)
        constructor = payload[offset] - 1 if code in _MAPS else payload[offset]
        count = 0
        if constructor == 0xC0:
            count = payload[offset + 2]
            offset += 3
        elif constructor == 0xD0:
            count = _U32(payload, offset + 5)[0]
            offset += 9
        elif payload[offset] == 0x40 or payload[offset] == 0x45:
            offset += 1
        else:
            raise DecodeError("it is not the list or the map it should be")
        for _ in range(count):
            code = payload[offset]
            if code == 0x40:
                end = offset + 1
            elif code == 0xA1:
                end = offset + 2 + payload[offset + 1]
            else:
                end = skip(payload, offset)
            if end > stop:
                raise DecodeError("an item is cut off")
            found.append(payload[offset:end])
            offset = end
        if offset != stop:
            raise DecodeError("bytes follow its items")
    except (DecodeError, IndexError, error) as failure:
        if not readable:
            raise DecodeError("a message section does not hold what its size says") from failure
    return found


# --- properties -------------------------------------------------------------------------------------------------------

# How to read each field of the properties, up to the last one of interest: 0 skips it.
_TEXT: Final = 1
_NUMBER: Final = 2
# Message id, content type, session id.
IDENTITY: Final = bytes((1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1))
# Destination.
TO: Final = bytes((0, 0, 1))
# Expiry and creation times.
TIMES: Final = bytes((0, 0, 0, 0, 0, 0, 0, 0, 2, 2))
# Ids, addresses, subject, content type, expiry, session id.
_SHOWN: Final = bytes((1, 0, 1, 1, 1, 1, 1, 0, 2, 0, 1))


def read_properties(payload: bytes, span: Span, wanted: bytes) -> list[Any]:
    """Read the fields that `wanted` selects, each in its place, as a string or a number; the others are None."""
    found: list[Any] = [None] * len(wanted)
    start, stop = span
    try:
        offset = start + 3 if payload[start + 1] == 0x53 else section_kind(payload, start)[1]
        constructor = payload[offset]
        if constructor == 0xC0:
            count = payload[offset + 2]
            offset += 3
        elif constructor == 0xD0:
            count = _U32(payload, offset + 5)[0]
            offset += 9
        elif constructor == 0x45:
            return found
        else:
            raise DecodeError("the properties of a message are not a list")
        for index in range(count if count < len(wanted) else len(wanted)):
            code = payload[offset]
            if code == 0x40:
                offset += 1
            elif code == 0xA1:
                end = offset + 2 + payload[offset + 1]
                if wanted[index] == _TEXT:
                    found[index] = payload[offset + 2 : end].decode()
                offset = end
            elif code == 0xA3:
                end = offset + 2 + payload[offset + 1]
                if wanted[index] == _TEXT:
                    found[index] = payload[offset + 2 : end].decode("ascii", "replace")
                offset = end
            elif wanted[index]:
                value, offset = decode(payload, offset)
                found[index] = whole(value) if wanted[index] == _NUMBER else plain_text(value)
            else:
                offset = skip(payload, offset)
    except (IndexError, error, UnicodeDecodeError) as failure:
        raise DecodeError("a property of a message is cut off, or its text is not UTF-8") from failure
    if offset > stop:
        raise DecodeError("the properties of a message do not end where their size says")
    return found


def plain_text(value: Any) -> str:
    """Return an id as a string. The Python SDK resends a received string as binary and means the same id."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    return str(value)


def whole(value: Any) -> int | None:
    """Return a number, or None: a sender may write anything here, and that must not make the message unreadable."""
    return int(value) if isinstance(value, int) else None


# --- the body ---------------------------------------------------------------------------------------------------------


def data_sections(payload: bytes, span: Span) -> list[bytes]:
    """Return the content of consecutive data sections; in a batch, each is a complete encoded message."""
    found: list[bytes] = []
    offset, end = span
    while offset < end:
        code, offset = section_kind(payload, offset)
        if code != DATA:
            raise DecodeError("a body section is not data")
        constructor = payload[offset]
        if constructor == 0xA0:
            start = offset + 2
            stop = start + payload[offset + 1]
        elif constructor == 0xB0:
            start = offset + 5
            stop = start + _U32(payload, offset + 1)[0]
        else:
            raise DecodeError("a data section does not hold binary")
        found.append(payload[start:stop])
        offset = stop
    return found


def sequence_sections(payload: bytes, span: Span) -> list[list[Any]]:
    """Decode consecutive sequence sections."""
    found: list[list[Any]] = []
    offset, end = span
    while offset < end:
        code, offset = section_kind(payload, offset)
        value, offset = decode(payload, offset)
        if code != SEQUENCE or not isinstance(value, list):
            raise DecodeError("a sequence section does not hold a list")
        found.append(value)
    return found


def body_bytes(payload: bytes, span: Span | None) -> bytes:
    """Return the body: data and text unchanged, other values in `typed_json` form."""
    if span is None:
        return b""
    start, end = span
    # A single data section in one of its two usual forms.
    if payload[start + 1] == 0x53 and payload[start + 2] == DATA:
        if payload[start + 3] == 0xB0 and start + 8 + _U32(payload, start + 4)[0] == end:
            return payload[start + 8 : end]
        if payload[start + 3] == 0xA0 and start + 5 + payload[start + 4] == end:
            return payload[start + 5 : end]
    code, _ = section_kind(payload, start)
    if code == DATA:
        return b"".join(data_sections(payload, span))
    if code == SEQUENCE:
        # Several sections form one sequence.
        return to_json([item for each in sequence_sections(payload, span) for item in each]).encode()
    value = decode_section(payload, span)
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and not isinstance(value, Symbol):
        return value.encode()
    return to_json(value).encode()


# --- whole messages, for bulk readers ---------------------------------------------------------------------------------

# The broker's annotations in their usual form: a map32 that starts with sequence number and enqueued time.
_OPEN: Final = b"\x00\x53\x72\xd1"
_NUMBER_KEY: Final = b"\xa3\x15x-opt-sequence-number\x81"
_TIME_KEY: Final = b"\xa3\x13x-opt-enqueued-time\x83"
_NUMBER_AT: Final = len(_OPEN) + 8
_TIME_AT: Final = _NUMBER_AT + len(_NUMBER_KEY) + 8
_COMMON_BYTES: Final = _TIME_AT + len(_TIME_KEY) + 8
# The usual prefix: header without a time to live, empty delivery annotations, number and time at fixed offsets.
_USUAL_HEADER: Final = b"\x00\x53\x70\xc0\x0a\x05\x40\x40\x40\x40\x70"
_USUAL_NUMBER: Final = b"\x00\x53\x71\xc1\x01\x00" + _OPEN + b"\x00\x00\x00\x42\x00\x00\x00\x04" + _NUMBER_KEY
_USUAL_BYTES: Final = 95
_usual: Final = Struct(">I42xq22xq").unpack_from
# The service's annotations start within this many bytes.
_HEAD_BYTES: Final = 1_024
_NOTHING: Final[list[Any]] = [None] * len(_SHOWN)
_NO_PROPERTIES: Final = (None,) * 7


class Fields(NamedTuple):
    """The fields of one message. `properties` are its application properties, decoded."""

    sequence_number: int
    enqueued_ms: int | None
    state: int
    delivery_count: int
    message_id: str | None
    to: str | None
    subject: str | None
    reply_to: str | None
    correlation_id: str | None
    content_type: str | None
    session_id: str | None
    expires_ms: int | None
    partition_key: str | None
    scheduled_ms: int | None
    properties: dict[str, Any] | None
    body: bytes | None


def read_fields(payload: bytes, with_properties: bool = True, with_body: bool = True, as_json: bool = False) -> Fields:
    """Read a message's fields. With `as_json`, property values are in `typed_json` form."""
    ttl_ms: int | None = None
    if payload.startswith(_USUAL_HEADER) and payload[15:57] == _USUAL_NUMBER and payload[65:87] == _TIME_KEY:
        # The prefix that the service writes before nearly every message, unpacked at once.
        try:
            count, number, enqueued_ms = _usual(payload, 11)
        except error as failure:
            raise DecodeError("a message section is cut off") from failure
        state, key, scheduled_ms = ACTIVE, None, None
        _, _, _, fixed, own, body, _ = spans(payload, _USUAL_BYTES)
    else:
        header, _, annotations, fixed, own, body, _ = spans(payload)
        number, enqueued_ms, state, key, scheduled_ms = _annotations(payload, annotations)
        ttl_ms, count = _header(payload, header)
    shown = _NOTHING if fixed is None else read_properties(payload, fixed, _SHOWN)
    expires_ms = shown[ABSOLUTE_EXPIRY]
    if expires_ms is None and ttl_ms is not None and enqueued_ms is not None:
        expires_ms = enqueued_ms + ttl_ms
    properties: dict[str, Any] | None = None
    if with_properties and own is not None:
        properties = _json_map(payload, own) if as_json else mapped(payload, own) or {}
    # Bypass the NamedTuple constructor, which takes as long as decoding a section.
    return _new(
        Fields,
        (
            number,
            enqueued_ms,
            state,
            count,
            shown[MESSAGE_ID],
            shown[2],
            shown[3],
            shown[4],
            shown[5],
            shown[6],
            shown[GROUP_ID],
            expires_ms,
            key,
            scheduled_ms,
            properties,
            body_bytes(payload, body) if with_body else None,
        ),
    )


def read_head(payload: bytes) -> Fields:
    """Read only what the service wrote: number, times, state and counts. Works whatever the sender wrote."""
    header, _, annotations, _, _, _, _ = spans(payload)
    number, enqueued_ms, state, key, scheduled_ms = _annotations(payload, annotations)
    ttl_ms, count = _header(payload, header)
    expires_ms = None if ttl_ms is None or enqueued_ms is None else enqueued_ms + ttl_ms
    return _new(Fields, (number, enqueued_ms, state, count, *_NO_PROPERTIES, expires_ms, key, scheduled_ms, None, None))


def read_enqueued_ms(payload: bytes) -> int | None:
    """Find a message's enqueued time. Used for statistics only, so it searches the annotations instead of decoding
    them."""
    at = payload.find(_TIME_KEY, 0, _HEAD_BYTES)
    end = at + len(_TIME_KEY) + 8
    return None if at < 0 or end > len(payload) else int.from_bytes(payload[end - 8 : end], "big")


def _annotations(payload: bytes, span: Span | None) -> tuple[int, int | None, int, str | None, int | None]:
    """Return sequence number, enqueued time, state, partition key and scheduled time."""
    if span is None:
        return 0, None, ACTIVE, None, None
    start, end = span
    if (
        end - start == _COMMON_BYTES
        and payload.startswith(_NUMBER_KEY, start + _NUMBER_AT)
        and payload.startswith(_TIME_KEY, start + _TIME_AT)
    ):
        return _I64(payload, start + _TIME_AT - 8)[0], _I64(payload, end - 8)[0], ACTIVE, None, None
    found = mapped(payload, span) or {}
    key = found.get(PARTITION_KEY)
    return (
        whole(found.get(SEQUENCE_NUMBER)) or 0,
        whole(found.get(ENQUEUED_TIME)),
        whole(found.get(STATE)) or ACTIVE,
        None if key is None else plain_text(key),
        whole(found.get(SCHEDULED)),
    )


def _header(payload: bytes, span: Span | None) -> tuple[int | None, int]:
    """Return time to live and delivery count."""
    if span is None:
        return None, 0
    start, end = span
    # The usual header: one byte each for durable, priority, ttl (null) and first-acquirer, four for delivery-count.
    if end - start == 15 and payload[start + 8] == 0x40 and payload[start + 10] == 0x70 and payload[start + 3] == 0xC0:
        return None, _U32(payload, start + 11)[0]
    fields = listed(payload, span, HEADER_FIELDS)
    return whole(fields[2]), whole(fields[4]) or 0


def _json_map(payload: bytes, span: Span) -> dict[str, Any]:
    """Return the application properties as JSON; strings and common numbers are parsed by hand."""
    start, end = span
    if payload[start + 1] != 0x53 or payload[start + 3] != 0xC1:
        return {str(name): to_json(value) for name, value in (mapped(payload, span) or {}).items()}
    count = payload[start + 5]
    offset = start + 6
    found: dict[str, Any] = {}
    try:
        for _ in range(count >> 1):
            if payload[offset] == 0xA1:
                stop = offset + 2 + payload[offset + 1]
                name = payload[offset + 2 : stop].decode()
                offset = stop
            else:
                given, offset = decode(payload, offset)
                name = str(given)
            code = payload[offset]
            if code == 0xA1:
                stop = offset + 2 + payload[offset + 1]
                found[name] = encode_basestring(payload[offset + 2 : stop].decode())
                offset = stop
            elif code == 0x81:
                found[name] = str(_I64(payload, offset + 1)[0])
                offset += 9
            elif code == 0x55:
                value = payload[offset + 1]
                found[name] = str(value if value < 128 else value - 256)
                offset += 2
            else:
                given, offset = decode(payload, offset)
                found[name] = to_json(given)
    except (IndexError, error, UnicodeDecodeError) as failure:
        raise DecodeError("a property of a message is cut off, or its text is not UTF-8") from failure
    if offset != end:
        raise DecodeError("the application's properties do not end where their size says")
    return found
