"""Encode messages by hand: the same bytes as `AmqpMessage.encode` in half the time."""

from __future__ import annotations

import struct
from typing import Any, Final

from twinbus.amqp import data_section
from twinbus.amqp.codec import encode
from twinbus.amqp.sections import HEADER, MESSAGE_ANNOTATIONS, NULL, PROPERTIES, map_section, timestamp
from twinbus.amqp.states import composite_of
from twinbus.errors import EncodeError

_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"
_SCHEDULED: Final = b"\xa3\x1cx-opt-scheduled-enqueue-time"
_PARTITION_KEY: Final = b"\xa3\x13x-opt-partition-key"
UINT_MAX: Final = 2**32 - 1


def encode_message(
    body: bytes,
    message_id: str | None,
    *,
    session_id: str | None = None,
    subject: str | None = None,
    content_type: str | None = None,
    correlation_id: str | None = None,
    to: str | None = None,
    reply_to: str | None = None,
    reply_to_session_id: str | None = None,
    partition_key: str | None = None,
    ttl_ms: int | None = None,
    scheduled_ms: int | None = None,
    application_properties: dict[str, Any] | None = None,
) -> bytes:
    """Encode a complete message for the wire."""
    parts = []
    if ttl_ms is not None:
        ttl = min(max(ttl_ms, 0), UINT_MAX)
        parts.append(composite_of(HEADER, 3, NULL + NULL + b"\x70" + ttl.to_bytes(4, "big")))
    if scheduled_ms is not None or partition_key is not None:
        parts.append(_annotations(partition_key, scheduled_ms))
    fields = [
        message_id,
        None,
        to,
        subject,
        reply_to,
        correlation_id,
        content_type,
        None,
        None,
        None,
        session_id,
        None,
        reply_to_session_id,
    ]
    count = 13
    while count and fields[count - 1] is None:
        count -= 1
    if count:
        encoded = [NULL if value is None else _string(value) for value in fields[:count]]
        if content_type is not None:
            encoded[6] = _symbol(content_type)
        parts.append(composite_of(PROPERTIES, count, b"".join(encoded)))
    if application_properties:
        parts.append(_APPLICATION_PROPERTIES)
        parts.append(encode(application_properties))
    parts.append(data_section(body))
    return b"".join(parts)


def _annotations(partition_key: str | None, scheduled_ms: int | None) -> bytes:
    items: list[bytes] = []
    if partition_key is not None:
        items += (_PARTITION_KEY, _string(partition_key))
    if scheduled_ms is not None:
        try:
            items += (_SCHEDULED, timestamp(scheduled_ms))
        except struct.error as error:
            raise EncodeError(f"The scheduled time {scheduled_ms} is out of range for a timestamp.") from error
    return map_section(MESSAGE_ANNOTATIONS, items)


def _string(value: str) -> bytes:
    try:
        raw = value.encode()
    except (AttributeError, UnicodeEncodeError):
        # An id of another type, or text without a UTF-8 encoding, which `encode` refuses.
        return encode(value)
    if len(raw) < 256:
        return b"\xa1" + bytes((len(raw),)) + raw
    return b"\xb1" + len(raw).to_bytes(4, "big") + raw


def _symbol(value: str) -> bytes:
    raw = value.encode("ascii", "replace")
    if len(raw) < 256:
        return b"\xa3" + bytes((len(raw),)) + raw
    return b"\xb3" + len(raw).to_bytes(4, "big") + raw
