"""Messages as JSON lines and as text, and back from JSON lines.

Rules:
- `send --lines` reads what `receive --json` and `peek --json` write; fields that the broker added are not sent.
- A message cannot control the terminal: control characters are escaped, and a body that contains some is shown in hex.
"""

from __future__ import annotations

import base64
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from twinbus.cli.properties import from_json, to_json
from twinbus.cli.view import counted, plain, time_text
from twinbus.errors import ConfigError
from twinbus.spelling import did_you_mean

if TYPE_CHECKING:
    from twinbus.client import Message, ReceivedMessage

_STATES = {0: "active", 1: "deferred", 2: "scheduled"}
_MARKS = {"DeadLetterReason": "dead_letter_reason", "DeadLetterErrorDescription": "dead_letter_description"}
# Fields that the sender sets.
_SENT = (
    "message_id",
    "session_id",
    "subject",
    "content_type",
    "correlation_id",
    "to",
    "reply_to",
    "reply_to_session_id",
    "partition_key",
    "ttl_ms",
    "scheduled_ms",
    "application_properties",
)
_BODIES = ("body", "body_base64")
# Fields that the broker sets.
_GIVEN = (
    "sequence_number",
    "enqueued_ms",
    "state",
    "delivery_count",
    "locked_until_ms",
    "body_bytes",
    # In older files, instead of body_bytes.
    "size_bytes",
    "dead_letter_source",
    *_MARKS.values(),
    "unreadable",
)
_HEX_BYTES = 16


class Body(StrEnum):
    """How to show bodies."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    NONE = "none"


def message_fields(message: ReceivedMessage, body: Body = Body.AUTO) -> dict[str, Any]:
    """Return a message as a JSON object without empty fields. Sections that cannot be decoded are in `unreadable`,
    encoded."""
    unreadable = message.decode_readable()
    amqp = message.amqp
    annotations = amqp.message_annotations or {}
    own = dict(amqp.application_properties or {})
    found: dict[str, Any] = {
        "sequence_number": message.sequence_number,
        "message_id": _name(amqp.message_id),
        "session_id": _text(amqp.group_id),
        "enqueued_ms": message.enqueued_ms,
        "state": _STATES.get(message.state, str(message.state)),
        "delivery_count": message.delivery_count,
        "locked_until_ms": message.locked_until_ms if message.tag else None,
        "subject": _text(amqp.subject),
        "content_type": None if amqp.content_type is None else str(amqp.content_type),
        "correlation_id": _name(amqp.correlation_id),
        "to": _text(amqp.to),
        "reply_to": _text(amqp.reply_to),
        "reply_to_session_id": _text(amqp.reply_to_group_id),
        "partition_key": _text(annotations.get("x-opt-partition-key")),
        "ttl_ms": None if amqp.ttl is None else int(amqp.ttl),
        "scheduled_ms": message.scheduled_ms,
        **{name: _text(own.pop(mark, None)) for mark, name in _MARKS.items()},
        "dead_letter_source": annotations.get("x-opt-deadletter-source"),
        "application_properties": to_json(own) or None,
        "body_bytes": body_bytes_of(message),
        "unreadable": {name: base64.b64encode(raw).decode() for name, raw in unreadable.items()} or None,
    }
    return {name: value for name, value in found.items() if value is not None} | _body_fields(message, body)


def _name(value: Any) -> Any:
    """Return an id as a string: AMQP has four kinds, but programs compare strings."""
    return value if value is None else str(value)


def _text(value: Any) -> Any:
    """Return a text property; a sender can write anything there."""
    return value if value is None or isinstance(value, str) else to_json(value)


def body_bytes_of(message: ReceivedMessage) -> int:
    """Return the size of the body, whether or not it can be decoded."""
    raw = message.decode_readable().get("body")
    return message.body_bytes if raw is None else len(raw)


def content_of(message: ReceivedMessage) -> Any:
    """Return the body, or its encoded bytes if it cannot be decoded."""
    raw = message.decode_readable().get("body")
    return message.body if raw is None else raw


def _body_fields(message: ReceivedMessage, body: Body) -> dict[str, Any]:
    if body is Body.NONE:
        return {}
    content = content_of(message)
    if not isinstance(content, bytes):
        return {"body_value": to_json(content)}
    if body is Body.HEX:
        return {"body_hex": content.hex()}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(content).decode()}
    if body is Body.JSON:
        try:
            return {"body": json.loads(text)}
        except (ValueError, RecursionError):
            pass  # not JSON: keep the text
    return {"body": text}


# --- text -------------------------------------------------------------------------------------------------------------


def block(message: ReceivedMessage, body: Body = Body.AUTO) -> str:
    """Format a message for reading: a heading, its properties, its body."""
    fields = message_fields(message, Body.NONE)
    heading = [f"#{fields.pop('sequence_number')}", plain(str(fields.pop("message_id", "-")))]
    heading.append(time_text(fields.pop("enqueued_ms", None)))
    state = fields.pop("state")
    heading += [state] if state != "active" else []
    heading.append(f"{counted(fields.pop('body_bytes'), 'body byte')}")
    own = fields.pop("application_properties", {})
    for name in ("locked_until_ms",):
        fields.pop(name, None)
    if not fields.get("delivery_count"):
        fields.pop("delivery_count", None)
    lines = ["  ".join(heading)]
    lines += [f"  {name.replace('_', '-')}: {plain(_field(name, value))}" for name, value in fields.items()]
    lines += [f"  {plain(str(name))} = {plain(json.dumps(value, ensure_ascii=False))}" for name, value in own.items()]
    shown = body_text(message, body)
    return "\n".join([*lines, *([shown] if shown else []), "", ""])


def _field(name: str, value: Any) -> str:
    return time_text(value) if name == "scheduled_ms" else str(value)


def body_text(message: ReceivedMessage, body: Body) -> str:
    """Format the body for reading."""
    if body is Body.NONE:
        return ""
    content = content_of(message)
    if not isinstance(content, bytes):
        return plain(json.dumps(to_json(content), indent=2, ensure_ascii=False))
    if body is Body.HEX:
        return hex_text(content)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return hex_text(content)
    if body is Body.JSON:
        try:
            return plain(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
        except (ValueError, RecursionError):
            return plain(text)
    return plain(text) if body is Body.TEXT or _printable(text) else hex_text(content)


def excerpt(message: ReceivedMessage, chars: int) -> str:
    """Return the start of the body on one line."""
    content = content_of(message)
    if not isinstance(content, bytes):
        text = json.dumps(to_json(content), ensure_ascii=False)
    else:
        text = content[: 4 * chars].decode(errors="replace")
    text = plain(" ".join(text.split()))
    return text if len(text) <= chars else text[: chars - 3] + "..."


def hex_text(content: bytes) -> str:
    """Return a hex dump: offset, bytes and letters."""
    lines = []
    for at in range(0, len(content), _HEX_BYTES):
        part = content[at : at + _HEX_BYTES]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * _HEX_BYTES}} {letters}")
    return "\n".join(lines)


def _printable(text: str) -> bool:
    return all(each.isprintable() or each in "\t\n\r" for each in text)


# --- reading ----------------------------------------------------------------------------------------------------------


def message_of(line: str | bytes, number: int, defaults: dict[str, Any]) -> Message:
    """Return the message of a JSON line; `defaults` fill in missing fields."""
    from twinbus.client import Message

    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Line {number} is not JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise ConfigError(f'Line {number} is not a JSON object: write {{"body": "text"}}.')
    for name in fields:
        if name not in (*_SENT, *_BODIES, *_GIVEN):
            if name in ("body_value", "body_hex"):
                raise ConfigError(f"Line {number} has {name!r}, which cannot be sent: give body or body_base64.")
            hint = did_you_mean(name, [*_SENT, *_BODIES], f"A line has {', '.join([*_BODIES, *_SENT])}.")
            raise ConfigError(f"Line {number} has the unknown field {name!r}.{hint}")
    told = {**defaults, **{name: fields[name] for name in _SENT if fields.get(name) is not None}}
    own = {**(defaults.get("application_properties") or {}), **(fields.get("application_properties") or {})}
    told["application_properties"] = {name: from_json(value) for name, value in own.items()} or None
    for name in ("ttl_ms", "scheduled_ms"):
        if told.get(name) is not None and (isinstance(told[name], bool) or not isinstance(told[name], int)):
            raise ConfigError(f"Line {number}: {name} is a whole number of milliseconds.")
    return Message(body=_body_of(fields, number), **told)


def _body_of(fields: dict[str, Any], number: int) -> bytes:
    coded = fields.get("body_base64")
    if coded is not None:
        try:
            return base64.b64decode(coded, validate=True)
        except (ValueError, TypeError):
            raise ConfigError(f"Line {number}: body_base64 is not valid base64.") from None
    body = fields.get("body", "")
    return body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False).encode()
