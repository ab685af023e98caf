"""From an incoming transfer to messages the entities can take.

The payload is looked at, not decoded: header, annotations and three of the properties are read, the rest stays bytes.
What the broker owns (its annotations) is dropped, what is missing (a message id) is added, and the result is the
stored form.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Any

from twinbus.amqp.codec import decode, encode, skip
from twinbus.amqp.sections import Sections, data_sections, decode_section, locate, value_offset
from twinbus.amqp.types import Symbol
from twinbus.broker.messages.changes import (
    ABSOLUTE_EXPIRY,
    CONTENT_TYPE,
    CREATION,
    GROUP_ID,
    MESSAGE_ID,
    with_field,
    with_times,
)
from twinbus.broker.messages.stored_head import (
    DURABLE_ABSENT,
    FIRST_GIVEN,
    FIRST_TRUE,
    HEAD,
    PRIORITY_ABSENT,
    TTL_ABSENT,
    TTL_LONG,
    VERSION,
    WAS_SCHEDULED,
)
from twinbus.entities.message import NewMessage
from twinbus.errors import ArgumentError, DecodeError
from twinbus.limits import (
    APPLICATION_PROPERTIES_BYTES_MAX,
    APPLICATION_PROPERTY_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    TIME_MS_MAX,
    UNLIMITED_MS,
)

BATCH_FORMAT = 0x80013700
PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"

# Annotations only the broker may set: a sender's are ignored.
BROKER_ANNOTATIONS = frozenset(
    {
        "x-opt-sequence-number",
        "x-opt-enqueue-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-locked-until",
        "x-opt-message-state",
        "x-opt-deadletter-source",
        "x-opt-partition-id",
        "x-opt-lock-token",
    }
)

_uint = Struct(">I").unpack_from

# (flags, priority, ttl) by the header's bytes: senders repeat theirs.
_HEADERS: dict[bytes, tuple[int, int, int]] = {}
_HEADERS_MAX = 4_096
# Longer ones are made to be odd: they would not come again.
_HEADER_BYTES_MAX = 64


class Intake:
    """Turns payloads into `NewMessage`s; `new_id` gives a message id to those that come without one."""

    __slots__ = ("_new_id",)

    def __init__(self, new_id: Callable[[], str]) -> None:
        # Source of message ids, injected because it is random.
        self._new_id = new_id

    def messages(self, payload: bytes, message_format: int, now_ms: int, default_ttl_ms: int) -> list[NewMessage]:
        """The messages of one transfer: one, or those inside a batch."""
        if message_format != BATCH_FORMAT:
            return [self.message(payload, now_ms, default_ttl_ms)]
        body = locate(payload).body
        parts = data_sections(payload, body) if body is not None else []
        if not parts:
            raise ArgumentError("A batch must hold at least one message.")
        if len(parts) > BATCH_MESSAGES_MAX:
            raise ArgumentError(f"A batch holds at most {BATCH_MESSAGES_MAX} messages, this one {len(parts)}.")
        return [self.message(part, now_ms, default_ttl_ms) for part in parts]

    def message(self, payload: bytes, now_ms: int, default_ttl_ms: int) -> NewMessage:
        sections = locate(payload)
        flags, priority, ttl = _header(payload, sections)
        pairs: bytes = b""
        pair_count = 0
        scheduled_ms: int | None = None
        partition_key: str | None = None
        if sections.message_annotations is not None:
            pairs, pair_count, scheduled_ms, partition_key = _annotations(payload, sections.message_annotations)
        delivery_pairs: bytes = b""
        delivery_count = 0
        if sections.delivery_annotations is not None:
            delivery_pairs, delivery_count, _, _ = _annotations(payload, sections.delivery_annotations)
        span = sections.application_properties
        if span is not None and span[1] - span[0] > APPLICATION_PROPERTY_BYTES_MAX:
            _check_application_properties(payload, span)

        properties: bytes | None
        if sections.properties is not None:
            start, end = sections.properties
            try:
                message_id, content_type, session_id = _identity(payload, value_offset(payload, start), end)
            except (IndexError, struct_error) as error:
                raise DecodeError("properties are cut off") from error
            properties = payload[start:end]
        else:
            message_id, content_type, session_id = "", None, None
            properties = None
        if not message_id:
            message_id = self._new_id()
            properties = with_field(properties, MESSAGE_ID, encode(message_id))

        ttl_ms: int | None = ttl
        if ttl == TTL_ABSENT:
            ttl_ms = _long_ttl_ms(payload, sections) if flags & TTL_LONG else None
        if default_ttl_ms < UNLIMITED_MS and (ttl_ms is None or ttl_ms > default_ttl_ms):
            ttl_ms = default_ttl_ms
        enqueued_ms = now_ms
        if scheduled_ms is not None and scheduled_ms > now_ms:
            enqueued_ms = scheduled_ms
            flags |= WAS_SCHEDULED
        if ttl_ms is not None:
            flags = flags | TTL_LONG if ttl_ms >= TTL_ABSENT else flags & ~TTL_LONG
            ttl = min(ttl_ms, TTL_ABSENT)
            properties = with_times(properties, enqueued_ms, enqueued_ms + ttl_ms)
        else:
            flags &= ~TTL_LONG

        head = HEAD.pack(VERSION, flags, priority, ttl, pair_count, len(pairs), delivery_count, len(delivery_pairs))
        body = b"".join((head, pairs, delivery_pairs, *_tail(payload, sections, properties)))
        return NewMessage(
            message_id=message_id,
            session_id=session_id,
            partition_key=partition_key,
            ttl_ms=ttl_ms,
            scheduled_ms=scheduled_ms,
            size=len(payload),
            body=body,
            ping=content_type == PING_CONTENT_TYPE,
        )


def _tail(payload: bytes, sections: Sections, properties: bytes | None) -> list[bytes]:
    parts: list[bytes] = []
    if properties is not None:
        parts.append(properties)
    for span in (sections.application_properties, sections.body):
        if span is not None:
            parts.append(payload[span[0] : span[1]])
    if sections.footer is not None:
        parts.append(_footer(payload, sections.footer))
    return parts


def _footer(payload: bytes, span: tuple[int, int]) -> bytes:
    """The footer, its keys as symbols: some clients write strings, and those that read expect what AMQP says."""
    found = decode_section(payload, span)
    if not isinstance(found, dict) or not any(type(key) is str for key in found):
        return payload[span[0] : span[1]]
    return b"\x00\x53\x78" + encode({_as_symbol(key): value for key, value in found.items()})


def _as_symbol(key: Any) -> Any:
    """A key of annotations or of a footer; text that is not ASCII is no symbol."""
    return Symbol(key) if type(key) is str and key.isascii() else key


def _long_ttl_ms(payload: bytes, sections: Sections) -> int | None:
    """The time to live of a message whose header has no room for it: the difference of its two times."""
    fields = decode_section(payload, sections.properties) if sections.properties is not None else None
    if not isinstance(fields, list) or len(fields) <= CREATION:
        return None
    expires_ms, created_ms = fields[ABSOLUTE_EXPIRY], fields[CREATION]
    if not isinstance(expires_ms, int) or not isinstance(created_ms, int) or expires_ms >= TIME_MS_MAX:
        return None
    return max(expires_ms - created_ms, 0)


def _header(payload: bytes, sections: Sections) -> tuple[int, int, int]:
    span = sections.header
    if span is None:
        return DURABLE_ABSENT, PRIORITY_ABSENT, TTL_ABSENT
    raw = payload[span[0] : span[1]]
    known = _HEADERS.get(raw)
    if known is not None:
        return known
    fields = decode_section(payload, span)
    if not isinstance(fields, list):
        raise DecodeError("header is not a list")
    fields += [None] * (4 - len(fields))
    durable, priority, ttl, first = fields[:4]
    flags = DURABLE_ABSENT if durable is None else int(bool(durable))
    if first is not None:
        flags |= FIRST_GIVEN | (FIRST_TRUE if first else 0)
    if ttl == TTL_ABSENT:
        flags |= TTL_LONG
    found = (
        flags,
        PRIORITY_ABSENT if not isinstance(priority, int) else min(max(priority, 0), 254),
        TTL_ABSENT if not isinstance(ttl, int) else min(max(ttl, 0), TTL_ABSENT),
    )
    if len(_HEADERS) < _HEADERS_MAX and len(raw) <= _HEADER_BYTES_MAX:
        _HEADERS[raw] = found
    return found


def _annotations(payload: bytes, span: tuple[int, int]) -> tuple[bytes, int, int | None, str | None]:
    """The sender's own annotations as encoded pairs, how many, and what they say of schedule and partition."""
    found = decode_section(payload, span)
    if found is None:
        return b"", 0, None, None
    if not isinstance(found, dict):
        raise DecodeError("annotations are not a map")
    pairs: list[bytes] = []
    scheduled_ms: int | None = None
    partition_key: str | None = None
    for key, value in found.items():
        if key in BROKER_ANNOTATIONS:
            continue
        if key == "x-opt-scheduled-enqueue-time":
            if isinstance(value, int):
                if value > TIME_MS_MAX:
                    raise ArgumentError("x-opt-scheduled-enqueue-time is after the year 9999: give an earlier time.")
                # Long ago is now.
                scheduled_ms = max(int(value), 0)
        elif key == "x-opt-partition-key" and value is not None:
            partition_key = text_of(value)
        pairs.append(encode(_as_symbol(key)) + encode(value))
    return b"".join(pairs), len(pairs), scheduled_ms, partition_key


def _identity(buffer: bytes, at: int, stop: int) -> tuple[str, str | None, str | None]:
    """Message id, content type and session id of the properties list from `at` to `stop`, walking over the others."""
    code = buffer[at]
    if code == 0xC0:
        count, at = buffer[at + 2], at + 3
    elif code == 0xD0:
        count, at = _uint(buffer, at + 5)[0], at + 9
    elif code == 0x45:
        return "", None, None
    else:
        raise DecodeError("properties are not a list")
    message_id: str = ""
    content_type: str | None = None
    session_id: str | None = None
    index = 0
    while index < count:
        code = buffer[at]
        if code == 0x40:
            at += 1
        elif code == 0xA1:
            end = at + 2 + buffer[at + 1]
            if index == MESSAGE_ID:
                message_id = buffer[at + 2 : end].decode("utf-8")
            elif index == CONTENT_TYPE:
                content_type = buffer[at + 2 : end].decode("utf-8")
            elif index == GROUP_ID:
                session_id = buffer[at + 2 : end].decode("utf-8")
                index = count
            at = end
        elif code == 0xA3:
            end = at + 2 + buffer[at + 1]
            if index == CONTENT_TYPE:
                content_type = buffer[at + 2 : end].decode("ascii", "replace")
            at = end
        elif index == MESSAGE_ID:
            value, at = decode(buffer, at)
            message_id = text_of(value)
        elif index == CONTENT_TYPE:
            value, at = decode(buffer, at)
            content_type = text_of(value)
        elif index == GROUP_ID:
            value, at = decode(buffer, at)
            session_id = text_of(value)
            index = count
        else:
            at = skip(buffer, at)
        index += 1
    if at > stop:
        raise DecodeError("properties do not end where their size says")
    return message_id, content_type, session_id


def text_of(value: object) -> str:
    """An id as text. The Python SDK sends a received string again as binary, and means the same id."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value.hex()
    return str(value)


def _check_application_properties(payload: bytes, span: tuple[int, int]) -> None:
    size = span[1] - span[0]
    if size > APPLICATION_PROPERTIES_BYTES_MAX:
        raise ArgumentError(
            f"The application properties take {size} bytes; "
            f"all together they may take {APPLICATION_PROPERTIES_BYTES_MAX}."
        )
    found = decode_section(payload, span)
    if not isinstance(found, dict):
        raise DecodeError("application properties are not a map")
    for key, value in found.items():
        taken = len(encode(value))
        if taken > APPLICATION_PROPERTY_BYTES_MAX:
            raise ArgumentError(
                f"The application property '{str(key)[:64]}' takes {taken} bytes; "
                f"one may take {APPLICATION_PROPERTY_BYTES_MAX}."
            )
