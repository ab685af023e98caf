"""A message edited by a person: everything not edited keeps its bytes and types.

- Fields that are not given stay as they are, including the body; an empty field is removed.
- What the broker added on delivery or dead-lettering is dropped: the copy is a message of its own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.types import Symbol, Timestamp, UInt
from twinbus.broker.http.console.fields import Fields, text, whole
from twinbus.broker.http.console.messages import decoded_message
from twinbus.entities.dead_letter import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from twinbus.errors import ArgumentError, EncodeError, NotAllowedError
from twinbus.limits import CONSOLE_DELAY_S_MAX, CONSOLE_PROPERTIES_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

# AMQP property by form field.
_NAMES = {
    "message_id": "message_id",
    "session_id": "group_id",
    "subject": "subject",
    "correlation_id": "correlation_id",
    "to_address": "to",
    "reply_to": "reply_to",
}
_BROKERS = "x-opt-"
_PARTITION_KEY = "x-opt-partition-key"
_SCHEDULE = "x-opt-scheduled-enqueue-time"


def payload(original: bytes, fields: Fields, host: NamespaceHost) -> bytes:
    """The edited message, encoded."""
    message = decoded_message(original)
    if message is None:
        raise NotAllowedError("The message is not valid AMQP: it cannot be edited.")
    _undeliver(message, host.clock.now_ms())
    for name, title in _NAMES.items():
        if name in fields:
            setattr(message, title, text(fields, name) or None)
    if "content_type" in fields:
        message.content_type = Symbol(text(fields, "content_type")) if text(fields, "content_type") else None
    if "body" in fields:
        _set_body(message, text(fields, "body"))
    message.application_properties = _properties(message, fields)
    if fields.get("time_to_live_s"):
        message.ttl = UInt(whole(fields, "time_to_live_s", 1, (2**32 - 1) // 1000) * 1000)
    if fields.get("delay_s"):
        seconds = whole(fields, "delay_s", 1, CONSOLE_DELAY_S_MAX)
        annotations = message.message_annotations or {}
        annotations[Symbol(_SCHEDULE)] = Timestamp(host.clock.now_ms() + seconds * 1000)
        message.message_annotations = annotations
    try:
        return message.encode()
    except (EncodeError, UnicodeEncodeError) as error:
        raise ArgumentError(f"The message has no AMQP form: {error}") from None


def properties_of(fields: Fields) -> dict[str, Any]:
    """The application properties of a form."""
    own = fields.get("properties", {})
    if not isinstance(own, dict) or any(isinstance(value, list | dict) or value is None for value in own.values()):
        raise ArgumentError("Properties are names with strings, numbers, true or false.")
    if len(own) > CONSOLE_PROPERTIES_MAX:
        raise ArgumentError(f"A message sent from here has at most {CONSOLE_PROPERTIES_MAX} properties.")
    return own


def time_after(host: NamespaceHost, seconds: int) -> str:
    return datetime.fromtimestamp(host.clock.now_ms() / 1000 + seconds, UTC).isoformat()


def _undeliver(message: AmqpMessage, now_ms: int) -> None:
    """Remove what a broker adds; its times are computed again from the time to live. A future schedule stays."""
    message.first_acquirer = message.delivery_count = None
    message.delivery_annotations = None
    message.absolute_expiry_time = message.creation_time = None
    kept = {}
    for name, value in (message.message_annotations or {}).items():
        later = name == _SCHEDULE and isinstance(value, int) and value > now_ms
        if later or name == _PARTITION_KEY or not str(name).startswith(_BROKERS):
            kept[name] = value
    message.message_annotations = kept or None


def _set_body(message: AmqpMessage, body: str) -> None:
    try:
        content = body.encode()
    except UnicodeEncodeError:
        raise ArgumentError("The body has half of a surrogate pair, which is no text.") from None
    if message.has_value and isinstance(message.value, str):
        message.value = body
        return
    structured = message.sequences is not None or message.value is not None or message.encoded is not None
    if message.data is None and structured:
        raise NotAllowedError("The body is an AMQP value, not text: it can be sent again, but not edited.")
    message.data, message.value, message.has_value = [content], None, False


def _properties(message: AmqpMessage, fields: Fields) -> dict[str, Any] | None:
    removed = fields.get("removed_properties", [])
    if not isinstance(removed, list) or not all(isinstance(each, str) for each in removed):
        raise ArgumentError("'removed_properties' is a list of names.")
    gone = {DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION, *removed}
    own = {name: value for name, value in (message.application_properties or {}).items() if name not in gone}
    return own | properties_of(fields) or None
