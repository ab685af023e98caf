"""Turns an incoming transfer into messages for the entities.

The payload is scanned, not decoded: only the header, annotations and three properties are read. Annotations that belong
to the broker are dropped, a missing message id is added, and the result is the stored form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinbus.amqp.codec import count_values, encode
from twinbus.amqp.reader import (
    IDENTITY,
    TIMES,
    Span,
    data_sections,
    decode_section,
    locate,
    mapped,
    plain_text,
    read_properties,
    section_kind,
    spans,
)
from twinbus.amqp.sections import ABSOLUTE_EXPIRY, CONTENT_TYPE, CREATION, GROUP_ID, MESSAGE_ID, timestamp
from twinbus.amqp.types import Symbol
from twinbus.broker.messages.changes import with_fields
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
    ANNOTATION_VALUES_MAX,
    APPLICATION_PROPERTIES_BYTES_MAX,
    APPLICATION_PROPERTY_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    TIME_MS_MAX,
    UNLIMITED_MS,
)

BATCH_FORMAT = 0x80013700
# When a message with JMS's delivery delay becomes available.
DELIVERY_TIME = "x-opt-delivery-time"
PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"

# Only the broker may set these annotations; a sender's are ignored.
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

# (flags, priority, ttl) by the header's bytes: a sender repeats its headers.
_HEADERS: dict[bytes, tuple[int, int, int]] = {}
_HEADERS_MAX = 4_096
# Longer headers are unusual and would not repeat.
_HEADER_BYTES_MAX = 64


class Intake:
    """Turns payloads into `NewMessage`s; `new_id` supplies missing message ids."""

    __slots__ = ("_delays", "_new_id")

    def __init__(self, new_id: Callable[[], str], delays: bool = False) -> None:
        # Injected because it is random.
        self._new_id = new_id
        # Whether JMS's delivery time schedules a message.
        self._delays = delays

    def messages(self, payload: bytes, message_format: int, now_ms: int, default_ttl_ms: int) -> list[NewMessage]:
        """The messages of one transfer: one, or those of a batch."""
        if message_format != BATCH_FORMAT:
            return [self.message(payload, now_ms, default_ttl_ms)]
        return [self.message(part, now_ms, default_ttl_ms) for part in self.parts(payload)]

    def parts(self, payload: bytes) -> list[bytes]:
        """The messages in a batch, as they were sent."""
        body = locate(payload).body
        parts = data_sections(payload, body) if body is not None else []
        if not parts:
            raise ArgumentError("A batch must hold at least one message.")
        if len(parts) > BATCH_MESSAGES_MAX:
            raise ArgumentError(f"A batch holds at most {BATCH_MESSAGES_MAX} messages, this one {len(parts)}.")
        return parts

    def message(self, payload: bytes, now_ms: int, default_ttl_ms: int) -> NewMessage:
        header, delivery, annotations, fixed, own, content, footer = spans(payload)
        flags, priority, ttl = _header(payload, header)
        pairs: bytes = b""
        pair_count = 0
        scheduled_ms: int | None = None
        partition_key: str | None = None
        if annotations is not None:
            pairs, pair_count, scheduled_ms, partition_key = _annotations(payload, annotations, self._delays)
        delivery_pairs: bytes = b""
        delivery_count = 0
        if delivery is not None:
            delivery_pairs, delivery_count, _, _ = _annotations(payload, delivery, False)
        if own is not None and own[1] - own[0] > APPLICATION_PROPERTY_BYTES_MAX:
            _check_application_properties(payload, own)

        message_id: str | None = None
        content_type: str | None = None
        session_id: str | None = None
        if fixed is not None:
            identity = read_properties(payload, fixed, IDENTITY)
            message_id, content_type, session_id = identity[MESSAGE_ID], identity[CONTENT_TYPE], identity[GROUP_ID]
        changed: dict[int, bytes] = {}
        if not message_id:
            message_id = self._new_id()
            changed[MESSAGE_ID] = encode(message_id)

        ttl_ms: int | None = ttl
        if ttl == TTL_ABSENT:
            ttl_ms = _long_ttl_ms(payload, fixed) if flags & TTL_LONG else None
        if default_ttl_ms < UNLIMITED_MS and (ttl_ms is None or ttl_ms > default_ttl_ms):
            ttl_ms = default_ttl_ms
        enqueued_ms = now_ms
        if scheduled_ms is not None and scheduled_ms > now_ms:
            enqueued_ms = scheduled_ms
            flags |= WAS_SCHEDULED
        if ttl_ms is not None and enqueued_ms + ttl_ms <= TIME_MS_MAX:
            flags = flags | TTL_LONG if ttl_ms >= TTL_ABSENT else flags & ~TTL_LONG
            ttl = min(ttl_ms, TTL_ABSENT)
            # Clients compute the time to live as the difference of these two.
            changed[CREATION] = timestamp(enqueued_ms)
            changed[ABSOLUTE_EXPIRY] = timestamp(enqueued_ms + ttl_ms)
        else:
            # Clients cannot represent dates after the year 9999, so such a message never expires.
            ttl_ms, ttl = None, TTL_ABSENT
            flags &= ~TTL_LONG

        head = HEAD.pack(VERSION, flags, priority, ttl, pair_count, len(pairs), delivery_count, len(delivery_pairs))
        parts = [head, pairs, delivery_pairs]
        if changed:
            parts.append(with_fields(payload, fixed, changed))
        elif fixed is not None:
            parts.append(payload[fixed[0] : fixed[1]])
        if own is not None:
            parts.append(payload[own[0] : own[1]])
        if content is not None:
            parts.append(payload[content[0] : content[1]])
        if footer is not None:
            parts.append(_footer(payload, footer))
        return NewMessage(
            message_id=message_id,
            session_id=session_id,
            partition_key=partition_key,
            ttl_ms=ttl_ms,
            scheduled_ms=scheduled_ms,
            size=len(payload),
            body=b"".join(parts),
            ping=content_type == PING_CONTENT_TYPE,
        )


def _check_values(payload: bytes, span: Span) -> None:
    """Refuse a section that would take many times its bytes, decoded."""
    if span[1] - span[0] <= ANNOTATION_VALUES_MAX:
        return
    start = section_kind(payload, span[0])[1]
    if count_values(payload, start, ANNOTATION_VALUES_MAX) > ANNOTATION_VALUES_MAX:
        raise ArgumentError(f"The annotations, or the footer, hold more than {ANNOTATION_VALUES_MAX} values.")


def _footer(payload: bytes, span: Span) -> bytes:
    """The footer with symbols as keys: some clients write strings, but readers expect symbols, as AMQP says."""
    _check_values(payload, span)
    found = decode_section(payload, span)
    if not isinstance(found, dict) or not any(type(key) is str for key in found):
        return payload[span[0] : span[1]]
    return b"\x00\x53\x78" + encode({_as_symbol(key): value for key, value in found.items()})


def _as_symbol(key: Any) -> Any:
    """A key of annotations or a footer as a symbol; text that is not ASCII stays a string."""
    return Symbol(key) if type(key) is str and key.isascii() else key


def _long_ttl_ms(payload: bytes, span: Span | None) -> int | None:
    """The time to live of a message whose header cannot hold it: the difference of its two times."""
    if span is None:
        return None
    fields = read_properties(payload, span, TIMES)
    expires_ms: int | None = fields[ABSOLUTE_EXPIRY]
    created_ms: int | None = fields[CREATION]
    if expires_ms is None or created_ms is None or expires_ms >= TIME_MS_MAX:
        return None
    return max(expires_ms - created_ms, 0)


def _header(payload: bytes, span: Span | None) -> tuple[int, int, int]:
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


def _annotations(payload: bytes, span: Span, delays: bool) -> tuple[bytes, int, int | None, str | None]:
    """The sender's annotations as encoded pairs, their number, the scheduled time and the partition key."""
    _check_values(payload, span)
    pairs: list[bytes] = []
    scheduled_ms: int | None = None
    partition_key: str | None = None
    for key, value in (mapped(payload, span) or {}).items():
        if key in BROKER_ANNOTATIONS:
            continue
        if key == "x-opt-scheduled-enqueue-time" or (delays and key == DELIVERY_TIME):
            if isinstance(value, int):
                if value > TIME_MS_MAX:
                    raise ArgumentError(f"{key} is after the year 9999: give an earlier time.")
                # A time before the epoch means now.
                scheduled_ms = max(int(value), 0)
        elif key == "x-opt-partition-key" and value is not None:
            partition_key = plain_text(value)
        pairs.append(encode(_as_symbol(key)) + encode(value))
    return b"".join(pairs), len(pairs), scheduled_ms, partition_key


def _check_application_properties(payload: bytes, span: Span) -> None:
    size = span[1] - span[0]
    if size > APPLICATION_PROPERTIES_BYTES_MAX:
        raise ArgumentError(
            f"The application properties take {size} bytes; "
            f"all together they may take {APPLICATION_PROPERTIES_BYTES_MAX}."
        )
    for key, value in (mapped(payload, span) or {}).items():
        taken = len(encode(value))
        if taken > APPLICATION_PROPERTY_BYTES_MAX:
            raise ArgumentError(
                f"The application property '{str(key)[:64]}' takes {taken} bytes; "
                f"one may take {APPLICATION_PROPERTY_BYTES_MAX}."
            )
