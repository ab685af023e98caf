"""Messages as HTTP clients send them: a body, `BrokerProperties` in JSON, and application properties as headers.

Header values are JSON literals (strings are quoted), as in the service; a value that is not JSON is taken as text.
Dates are RFC 1123.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.types import Symbol, Timestamp, UInt
from twinbus.broker.http.json_in import read_json
from twinbus.errors import ArgumentError

BROKER_PROPERTIES = "BrokerProperties"

# Headers of HTTP or of the request itself, never application properties.
HTTP_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "authorization",
        "brokerproperties",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "date",
        "expect",
        "host",
        "origin",
        "pragma",
        "referer",
        "servicebusauthorization",
        "te",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
    }
)

# The AMQP property of each textual broker property.
TEXTS = {
    "MessageId": "message_id",
    "CorrelationId": "correlation_id",
    "SessionId": "group_id",
    "ReplyToSessionId": "reply_to_group_id",
    "ReplyTo": "reply_to",
    "To": "to",
    "Label": "subject",
}
ANNOTATIONS = {"PartitionKey": "x-opt-partition-key", "ViaPartitionKey": "x-opt-via-partition-key"}
# Set only by the service; a client that resends a received message includes them.
_IGNORED = frozenset(
    {
        "DeliveryCount",
        "EnqueuedTimeUtc",
        "EnqueuedSequenceNumber",
        "LockToken",
        "LockedUntilUtc",
        "SequenceNumber",
        "State",
        "DeadLetterSource",
        "Size",
    }
)


def message_of(
    body: bytes, content_type: str | None, broker_properties: Any, properties: Mapping[str, Any]
) -> AmqpMessage:
    """The message of one request or one batch item."""
    message = AmqpMessage()
    message.data = [body]
    if content_type:
        message.content_type = Symbol(content_type)
    annotations: dict[Any, Any] = {}
    for name, value in _fields(broker_properties).items():
        if value is None or name in _IGNORED:
            continue
        if name in TEXTS:
            setattr(message, TEXTS[name], _text(name, value))
        elif name in ANNOTATIONS:
            annotations[Symbol(ANNOTATIONS[name])] = _text(name, value)
        elif name == "TimeToLive":
            message.ttl = UInt(_milliseconds(value))
        elif name == "ScheduledEnqueueTimeUtc":
            annotations[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(_time(name, value))
        elif name == "ContentType":
            message.content_type = Symbol(_text(name, value))
        else:
            raise ArgumentError(f"BrokerProperties has no property '{name[:64]}'.")
    message.message_annotations = annotations or None
    message.application_properties = dict(properties) or None
    return message


def properties_of(headers: Mapping[str, str]) -> dict[str, Any]:
    """The application properties in a request's headers."""
    return {name: _literal(value) for name, value in headers.items() if name.lower() not in HTTP_HEADERS}


def batch_of(body: bytes) -> list[AmqpMessage]:
    """The messages of a batch request."""
    try:
        items = read_json(body)
    except ValueError:
        raise ArgumentError("A batch is a JSON array of objects with a Body.") from None
    if not isinstance(items, list) or not items:
        raise ArgumentError("A batch is a JSON array with at least one message.")
    messages = []
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("Body", ""), str):
            raise ArgumentError("Each message of a batch is an object with its Body as a string.")
        text = item.get("Body", "")
        if item.get("IsBodyBase64Encoded"):
            try:
                content = base64.b64decode(text, validate=True)
            except ValueError:
                raise ArgumentError("A Body that is said to be base64 is not.") from None
        else:
            try:
                content = text.encode()
            except UnicodeEncodeError:
                raise ArgumentError("A Body has half of a surrogate pair, which is no text.") from None
        own = item.get("UserProperties") or {}
        if not isinstance(own, dict) or any(isinstance(value, list | dict) for value in own.values()):
            raise ArgumentError("UserProperties is an object of plain values.")
        messages.append(message_of(content, None, item.get("BrokerProperties"), own))
    return messages


def _fields(broker_properties: Any) -> dict[str, Any]:
    if broker_properties is None:
        return {}
    if isinstance(broker_properties, str):
        try:
            broker_properties = read_json(broker_properties)
        except ValueError:
            raise ArgumentError("BrokerProperties is not JSON.") from None
    if not isinstance(broker_properties, dict):
        raise ArgumentError("BrokerProperties is a JSON object.")
    return broker_properties


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ArgumentError(f"{name} in BrokerProperties must be a string.")
    return value


def _milliseconds(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**32 / 1000:
        raise ArgumentError("TimeToLive in BrokerProperties must be a number of seconds.")
    return max(round(value * 1000), 1)


def _time(name: str, value: Any) -> int:
    try:
        return round(parsedate_to_datetime(str(value)).timestamp() * 1000)
    except (ValueError, TypeError, OverflowError):
        pass
    try:
        parsed = datetime.fromisoformat(str(value))
    except ValueError:
        raise ArgumentError(f"{name} in BrokerProperties is not a date.") from None
    return round((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)


def _literal(value: str) -> Any:
    try:
        found = read_json(value)
    except ValueError:
        return value
    # A number that does not fit an AMQP type stays text.
    if isinstance(found, list | dict) or (isinstance(found, int) and not -(2**63) <= found < 2**63):
        return value
    return found
