"""What a received message says of itself, read in one pass for those who read many: no object for each section.

Rules:
- Only what is asked for is decoded; the body is one slice of the payload.
- The layouts that services write are read by hand; everything else goes through the general decoder, to the same end.
- Ids that are not text become text; a time is milliseconds since the epoch, and one that is no number is none.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from struct import Struct, error
from typing import Any, Final, NamedTuple

from twinbus.amqp import Symbol, decode_section, locate
from twinbus.amqp.codec import decode
from twinbus.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Span,
    data_sections,
    section_kind,
)
from twinbus.client.message import ENQUEUED_TIME, PARTITION_KEY, SCHEDULED, SEQUENCE_NUMBER, STATE
from twinbus.client.typed_json import to_json
from twinbus.errors import DecodeError

ACTIVE: Final = 0
DEFERRED: Final = 1
SCHEDULED_STATE: Final = 2

_PROPERTY_FIELDS: Final = 13
_NOTHING: Final[list[Any]] = [None] * _PROPERTY_FIELDS
# The fields of the properties that are shown as text: ids, addresses, subject, content type, session id.
_TEXTS: Final = (0, 2, 3, 4, 5, 6, 10)

# The broker's own annotations as they mostly come: a large map that begins with number and time.
_OPEN: Final = b"\x00\x53\x72\xd1"
_NUMBER: Final = b"\xa3\x15x-opt-sequence-number\x81"
_TIME: Final = b"\xa3\x13x-opt-enqueued-time\x83"
_NUMBER_AT: Final = len(_OPEN) + 8
_TIME_AT: Final = _NUMBER_AT + len(_NUMBER) + 8
_COMMON_BYTES: Final = _TIME_AT + len(_TIME) + 8
_I64: Final = Struct(">q").unpack_from
# Header without a time to live, no delivery annotations, number and time: each has its place.
_USUAL_HEADER: Final = b"\x00\x53\x70\xc0\x0a\x05\x40\x40\x40\x40\x70"
_USUAL_NUMBER: Final = b"\x00\x53\x71\xc1\x01\x00" + _OPEN + b"\x00\x00\x00\x42\x00\x00\x00\x04" + _NUMBER
_USUAL_BYTES: Final = 95
_usual: Final = Struct(">I42xq22xq").unpack_from
_U32: Final = Struct(">I").unpack_from


_new: Final = tuple.__new__


class Fields(NamedTuple):
    """One message, in the order of the names below; `properties` are the application's own, decoded."""

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
    """The fields of an encoded message; DecodeError if it does not read.

    `as_json`: the values of the properties as `typed_json` writes them.
    """
    try:
        if payload.startswith(_USUAL_HEADER) and payload[15:57] == _USUAL_NUMBER and payload[65:87] == _TIME:
            # What the service writes in front of nearly every message, in one go.
            count, number, enqueued_ms = _usual(payload, 11)
            state, ttl_ms, key, scheduled_ms = ACTIVE, None, None, None
            _, _, fixed, own, body = _spans(payload, _USUAL_BYTES)
        else:
            header, annotations, fixed, own, body = _spans(payload)
            number, enqueued_ms, state, key, scheduled_ms = _annotations(payload, annotations)
            ttl_ms, count = _header(payload, header)
        listed = _NOTHING if fixed is None else _list(payload, fixed)
        expires_ms = listed[8]
        if expires_ms is None and ttl_ms is not None and enqueued_ms is not None:
            expires_ms = enqueued_ms + ttl_ms
        properties: dict[str, Any] | None = None
        if with_properties and own is not None:
            properties = _json_map(payload, own) if as_json else _map(payload, own)
        # The tuple's own constructor: the named one takes as long as a section.
        return _new(
            Fields,
            (
                number,
                enqueued_ms,
                state,
                count,
                listed[0],
                listed[2],
                listed[3],
                listed[4],
                listed[5],
                listed[6],
                listed[10],
                expires_ms,
                key,
                scheduled_ms,
                properties,
                _body(payload, body) if with_body else None,
            ),
        )
    except (UnicodeDecodeError, IndexError, error) as failure:
        raise DecodeError(f"a field of a message does not read: {failure}") from failure


def _spans(payload: bytes, offset: int = 0) -> tuple[Span | None, Span | None, Span | None, Span | None, Span | None]:
    """Header, message annotations, properties, application properties, body: where they are, from `offset` on."""
    header = annotations = fixed = own = body = None
    size = len(payload)
    while offset < size:
        start = offset
        constructor = payload[offset + 3] >> 4
        if payload[offset] or payload[offset + 1] != 0x53:
            break
        if constructor == 0xC or constructor == 0xA:
            offset += 5 + payload[offset + 4]
        elif constructor == 0xD or constructor == 0xB:
            offset += 8 + _U32(payload, offset + 4)[0]
        else:
            break
        code = payload[start + 2]
        if code == DATA and body is None:
            body = (start, offset)
        elif code == PROPERTIES and fixed is None:
            fixed = (start, offset)
        elif code == MESSAGE_ANNOTATIONS and annotations is None:
            annotations = (start, offset)
        elif code == APPLICATION_PROPERTIES and own is None:
            own = (start, offset)
        elif code == HEADER and header is None:
            header = (start, offset)
        elif code != DELIVERY_ANNOTATIONS:
            break
    else:
        if offset == size:
            return header, annotations, fixed, own, body
    found = locate(payload)
    return found.header, found.message_annotations, found.properties, found.application_properties, found.body


def read_head(payload: bytes) -> Fields:
    """Only what the service itself wrote: number, times, state, counts. It reads whatever the sender has written."""
    try:
        header, annotations, _, _, _ = _spans(payload)
        number, enqueued_ms, state, key, scheduled_ms = _annotations(payload, annotations)
        ttl_ms, count = _header(payload, header)
    except (UnicodeDecodeError, IndexError, error) as failure:
        raise DecodeError(f"the head of a message does not read: {failure}") from failure
    expires_ms = None if ttl_ms is None or enqueued_ms is None else enqueued_ms + ttl_ms
    return Fields(
        number,
        enqueued_ms,
        state,
        count,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        expires_ms,
        key,
        scheduled_ms,
        None,
        None,
    )


def _annotations(payload: bytes, span: Span | None) -> tuple[int, int | None, int, str | None, int | None]:
    """Sequence number, enqueued time, state, partition key, scheduled time."""
    if span is None:
        return 0, None, ACTIVE, None, None
    start, end = span
    if (
        end - start == _COMMON_BYTES
        and payload.startswith(_NUMBER, start + _NUMBER_AT)
        and payload.startswith(_TIME, start + _TIME_AT)
    ):
        return (
            _I64(payload, start + _TIME_AT - 8)[0],
            _I64(payload, end - 8)[0],
            ACTIVE,
            None,
            None,
        )
    found = decode_section(payload, span)
    if not isinstance(found, dict):
        raise DecodeError("the annotations of a message are not a map")
    key = found.get(PARTITION_KEY)
    return (
        _whole(found.get(SEQUENCE_NUMBER)) or 0,
        _whole(found.get(ENQUEUED_TIME)),
        _whole(found.get(STATE)) or ACTIVE,
        None if key is None else str(key),
        _whole(found.get(SCHEDULED)),
    )


def _header(payload: bytes, span: Span | None) -> tuple[int | None, int]:
    """Time to live and delivery count."""
    if span is None:
        return None, 0
    start, end = span
    # Durable, priority and first acquirer one byte each, no time to live, the count in four bytes: the usual one.
    if end - start == 15 and payload[start + 8] == 0x40 and payload[start + 10] == 0x70 and payload[start + 3] == 0xC0:
        return None, _U32(payload, start + 11)[0]
    listed = decode_section(payload, span)
    if not isinstance(listed, list):
        raise DecodeError("the header of a message is not a list")
    ttl = listed[2] if len(listed) > 2 else None
    count = listed[4] if len(listed) > 4 else None
    return _whole(ttl), _whole(count) or 0


def _list(payload: bytes, span: Span) -> list[Any]:
    """The fixed properties, all but times and numbers as text; text and nulls by hand, the rest by the decoder."""
    start, end = span
    if payload[start + 1] != 0x53 or payload[start + 3] != 0xC0:
        listed = decode_section(payload, span)
        if not isinstance(listed, list) or len(listed) > _PROPERTY_FIELDS:
            raise DecodeError("the properties of a message are not the list they should be")
        return _as_text(listed)
    count = payload[start + 5]
    offset = start + 6
    found: list[Any] = []
    usual = True
    for _ in range(count):
        code = payload[offset]
        if code == 0x40:
            found.append(None)
            offset += 1
        elif code == 0xA1:
            stop = offset + 2 + payload[offset + 1]
            found.append(payload[offset + 2 : stop].decode())
            offset = stop
        elif code == 0xA3:
            stop = offset + 2 + payload[offset + 1]
            found.append(payload[offset + 2 : stop].decode("ascii"))
            offset = stop
        else:
            value, offset = decode(payload, offset)
            found.append(value)
            usual = False
    if offset != end:
        raise DecodeError("the properties of a message do not end where their size says")
    if not usual:
        return _as_text(found)
    return found + _NOTHING[count:] if count < _PROPERTY_FIELDS else found


def _as_text(listed: list[Any]) -> list[Any]:
    """All fields there are, ids of other types as text."""
    found = listed + _NOTHING[len(listed) :]
    for at in _TEXTS:
        found[at] = _text(found[at])
    found[8] = _whole(found[8])
    return found


def _map(payload: bytes, span: Span) -> dict[str, Any]:
    found = decode_section(payload, span)
    if found is not None and not isinstance(found, dict):
        raise DecodeError("the application's properties are not a map")
    return found or {}


def _json_map(payload: bytes, span: Span) -> dict[str, Any]:
    """The application's properties as JSON; what they mostly are by hand."""
    start, end = span
    if payload[start + 1] != 0x53 or payload[start + 3] != 0xC1:
        return {_key(name): to_json(value) for name, value in _map(payload, span).items()}
    count = payload[start + 5]
    offset = start + 6
    found: dict[str, Any] = {}
    for _ in range(count >> 1):
        if payload[offset] == 0xA1:
            stop = offset + 2 + payload[offset + 1]
            name = payload[offset + 2 : stop].decode()
            offset = stop
        else:
            given, offset = decode(payload, offset)
            name = _key(given)
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
            value, offset = decode(payload, offset)
            found[name] = to_json(value)
    if offset != end:
        raise DecodeError("the application's properties do not end where their size says")
    return found


def _key(name: Any) -> str:
    return name if type(name) is str else str(name)


def _body(payload: bytes, span: Span | None) -> bytes:
    if span is None:
        return b""
    start, end = span
    # One data section, in its two usual forms.
    if payload[start + 1] == 0x53 and payload[start + 2] == DATA:
        if payload[start + 3] == 0xB0 and start + 8 + _U32(payload, start + 4)[0] == end:
            return payload[start + 8 : end]
        if payload[start + 3] == 0xA0 and start + 5 + payload[start + 4] == end:
            return payload[start + 5 : end]
    code, _ = section_kind(payload, span)
    if code == DATA:
        return b"".join(data_sections(payload, span))
    if code == SEQUENCE:
        return to_json(_sequences(payload, span)).encode()
    if code != VALUE:
        raise DecodeError("a message has no body that we know")
    value = decode_section(payload, span)
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and not isinstance(value, Symbol):
        return value.encode()
    return to_json(value).encode()


def _sequences(payload: bytes, span: Span) -> Any:
    """The list of a sequence section; of several, their lists one behind the other, as they are one sequence."""
    offset, end = span
    found: list[Any] = []
    while offset < end:
        _, offset = section_kind(payload, (offset, end))
        value, offset = decode(payload, offset)
        if not isinstance(value, list):
            raise DecodeError("a sequence section does not hold a list")
        found += value
    return found


def _whole(value: Any) -> int | None:
    """A number as it is; a sender can write anything in its place, which must not make a message unreadable."""
    return int(value) if isinstance(value, int) else None


def _text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)
