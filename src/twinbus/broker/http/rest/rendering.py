"""A received message as an HTTP answer: a body, `BrokerProperties` in JSON, and application properties as headers.

Everything the sender wrote is shown, because a destructive read deletes it:

- Header values are JSON literals, dates are RFC 1123. A time outside the years 1 to 9999 is shown in milliseconds, NaN
  and infinities as text, binary as base64, a described value as an object with `descriptor` and `value`.
- A content type that is not a valid header value becomes `ContentType` in BrokerProperties. Application properties
  whose names are not valid header names, are reserved, or are too many share the JSON object `Twinbus-Properties`.
- A section that cannot be decoded is in the JSON object `Twinbus-Unreadable` in base64; for a body that cannot be
  decoded, or is a value too large for JSON, the answer contains the encoded bytes.
- A message that does not fit into headers is refused; it can be received over AMQP.
"""

from __future__ import annotations

import base64
import json
import math
import re
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final, NamedTuple

from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.reader import locate
from twinbus.amqp.types import Described, Timestamp
from twinbus.broker.http.admin.errors import AdminError
from twinbus.broker.http.rest.properties import ANNOTATIONS, BROKER_PROPERTIES, HTTP_HEADERS, TEXTS
from twinbus.limits import (
    REST_HEADERS_BYTES_MAX,
    REST_PROPERTY_HEADERS_MAX,
    REST_VALUE_BYTES_MAX,
    REST_VALUES_MAX,
)

_PROPERTIES: Final = "Twinbus-Properties"
_UNREADABLE: Final = "Twinbus-Unreadable"
# Header names that the answer itself uses.
_TAKEN: Final = HTTP_HEADERS | {"keep-alive", "location", "server", "set-cookie", "trailer", "www-authenticate"}

_header_name = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}").fullmatch
_header_value = re.compile(r"[!-~]([ -~]{0,1022}[!-~])?").fullmatch


class Rendered(NamedTuple):
    """Headers and body of an answer."""

    headers: dict[str, str]
    body: bytes


def rendered(payload: bytes, state: str, lock: tuple[str, int] | None) -> Rendered:
    """Render a message for HTTP; `lock` is its token and the lock's end in ms."""
    message, unreadable = AmqpMessage.decode_readable(payload, REST_VALUES_MAX)
    shown = _broker_properties(message, state, lock)
    headers = {BROKER_PROPERTIES: ""}
    if message.content_type is not None:
        content_type = _plain(message.content_type)
        if isinstance(content_type, str) and _header_value(content_type):
            headers["Content-Type"] = content_type
        else:
            shown["ContentType"] = content_type
    headers[BROKER_PROPERTIES] = _json(shown)
    headers |= _property_headers(message.application_properties or {})
    body = unreadable.pop("body", message.encoded)
    span = locate(payload).body
    if body is None and span is not None and span[1] - span[0] > REST_VALUE_BYTES_MAX and not _is_plain(message):
        body = payload[span[0] : span[1]]
    if unreadable or body is not None:
        sections = {name: base64.b64encode(raw).decode() for name, raw in unreadable.items()}
        headers[_UNREADABLE] = _json(sections if body is None else {**sections, "body": None})
    size = sum(len(name) + len(value) + 4 for name, value in headers.items())
    if size > REST_HEADERS_BYTES_MAX:
        raise AdminError(
            422,
            f"The properties of message {shown['SequenceNumber']} take {size} bytes as HTTP headers, the limit is "
            f"{REST_HEADERS_BYTES_MAX}: receive it over AMQP.",
        )
    return Rendered(headers, _content(message) if body is None else body)


def _broker_properties(message: AmqpMessage, state: str, lock: tuple[str, int] | None) -> dict[str, Any]:
    annotations = message.message_annotations or {}
    shown: dict[str, Any] = {
        "DeliveryCount": (message.delivery_count or 0) + 1,
        "EnqueuedSequenceNumber": int(annotations.get("x-opt-enqueue-sequence-number") or 0),
        "EnqueuedTimeUtc": _date(annotations.get("x-opt-enqueued-time") or 0),
        "SequenceNumber": int(annotations.get("x-opt-sequence-number") or 0),
        "State": state,
    }
    for name, field in TEXTS.items():
        value = getattr(message, field)
        if value is not None:
            shown[name] = _plain(value)
    for name, key in ANNOTATIONS.items():
        if key in annotations:
            shown[name] = _plain(annotations[key])
    if message.ttl is not None:
        shown["TimeToLive"] = message.ttl / 1000
    scheduled = annotations.get("x-opt-scheduled-enqueue-time")
    if scheduled is not None:
        shown["ScheduledEnqueueTimeUtc"] = _date(scheduled) if isinstance(scheduled, int) else _plain(scheduled)
    if lock is not None:
        shown["LockToken"], shown["LockedUntilUtc"] = lock[0], _date(lock[1])
    return shown


def _property_headers(properties: dict[Any, Any]) -> dict[str, str]:
    headers: dict[str, str] = {}
    others: dict[str, Any] = {}
    taken = set(_TAKEN)
    for key, value in properties.items():
        name = str(key) if isinstance(key, str) else _json(_plain(key))
        folded = name.lower()
        # Our own prefix is reserved: a reader could not tell the two apart.
        is_free = folded not in taken and not folded.startswith("twinbus-")
        if _header_name(name) and is_free and len(headers) < REST_PROPERTY_HEADERS_MAX:
            taken.add(folded)
            headers[name] = _json(_plain(value))
        else:
            others[name] = _plain(value)
    if others:
        headers[_PROPERTIES] = _json(others)
    return headers


def _is_plain(message: AmqpMessage) -> bool:
    """Whether the body is text or binary, which is answered as it is."""
    return message.data is not None or isinstance(message.value, str | bytes)


def _content(message: AmqpMessage) -> bytes:
    """The message's body as bytes."""
    if message.data is not None:
        return b"".join(message.data)
    if not message.has_value and message.sequences is None:
        return b""
    value = message.value if message.has_value else message.sequences
    if isinstance(value, bytes):
        return bytes(value)
    return (value if isinstance(value, str) else _json(_plain(value))).encode()


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _date(ms: int) -> str | int:
    try:
        return format_datetime(datetime.fromtimestamp(int(ms) / 1000, UTC), usegmt=True)
    except (ValueError, OverflowError, OSError):
        return int(ms)


def _plain(value: Any) -> Any:
    """A decoded AMQP value in JSON types."""
    if isinstance(value, Timestamp):
        return _date(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Described):
        return {"descriptor": _plain(value.descriptor), "value": _plain(value.value)}
    return str(value)
