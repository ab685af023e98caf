"""From an incoming transfer to messages the entities can take.

The payload is looked at, not decoded: header, annotations and three of the properties are read, the rest stays bytes.
What the broker owns (its annotations) is dropped, what is missing (a message id) is added, and the result is the
stored form.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from twinbus.amqp.codec import decode, encode, skip
from twinbus.amqp.sections import Sections, data_sections, decode_section, locate
from twinbus.amqp.types import Symbol, Timestamp
from twinbus.broker.changes import ABSOLUTE_EXPIRY, CONTENT_TYPE, GROUP_ID, MESSAGE_ID, with_field
from twinbus.broker.stored_head import DURABLE_ABSENT, HEAD, PRIORITY_ABSENT, TTL_ABSENT, VERSION
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

# (durable, priority, ttl) by the header's bytes: senders repeat theirs.
_HEADERS: dict[bytes, tuple[int, int, int]] = {}
_HEADERS_MAX = 4_096


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
        durable, priority, ttl = _header(payload, sections)
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
            message_id, content_type, session_id = _identity(payload, start + 3)
            properties = payload[start:end]
        else:
            message_id, content_type, session_id = "", None, None
            properties = None
        if not message_id:
            message_id = self._new_id()
            properties = with_field(properties, MESSAGE_ID, encode(message_id))

        ttl_ms: int | None = None if ttl == TTL_ABSENT else ttl
        if default_ttl_ms < UNLIMITED_MS and (ttl_ms is None or ttl_ms > default_ttl_ms):
            ttl_ms = default_ttl_ms
            ttl = min(default_ttl_ms, TTL_ABSENT - 1)
        if ttl_ms is not None:
            enqueued_ms = scheduled_ms if scheduled_ms is not None and scheduled_ms > now_ms else now_ms
            properties = with_field(properties, ABSOLUTE_EXPIRY, encode(Timestamp(enqueued_ms + ttl_ms)))

        head = HEAD.pack(VERSION, durable, priority, ttl, pair_count, len(pairs), delivery_count, len(delivery_pairs))
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
    for span in (sections.application_properties, sections.body, sections.footer):
        if span is not None:
            parts.append(payload[span[0] : span[1]])
    return parts


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
    fields += [None] * (3 - len(fields))
    durable, priority, ttl = fields[0], fields[1], fields[2]
    found = (
        DURABLE_ABSENT if durable is None else int(bool(durable)),
        PRIORITY_ABSENT if not isinstance(priority, int) else min(max(priority, 0), 254),
        TTL_ABSENT if not isinstance(ttl, int) else min(max(ttl, 0), TTL_ABSENT),
    )
    if len(_HEADERS) < _HEADERS_MAX:
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
        if isinstance(key, str) and not isinstance(key, Symbol):
            key = Symbol(key)
        pairs.append(encode(key) + encode(value))
    return b"".join(pairs), len(pairs), scheduled_ms, partition_key


def _identity(buffer: bytes, at: int) -> tuple[str, str | None, str | None]:
    """Message id, content type and session id of the properties list at `at`, walking over the other fields."""
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
                break
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
            break
        else:
            at = skip(buffer, at)
        index += 1
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
