"""What was changed on a message since it was sent, put into its stored form.

Changes come by name with an encoded AMQP value, or text to encode; an empty value removes. A plain name is an
application property. A name after a NUL is a system property: only a rule's action can change one. Everything that is
not changed keeps its bytes. What a sender wrote so that it does not read is left out of what is rebuilt: a message that
was accepted must be deliverable.
"""

from __future__ import annotations

from struct import Struct, error

from twinbus.amqp.codec import decode, encode, skip
from twinbus.amqp.sections import locate, value_offset
from twinbus.amqp.types import Symbol, Timestamp
from twinbus.broker.messages.stored_head import DURABLE_ABSENT, DURABLE_MASK, HEAD, HEAD_BYTES, TTL_ABSENT, TTL_LONG
from twinbus.errors import ProtocolError

# Before the name of a system property.
SYSTEM = "\0"
REMOVED = b""

MESSAGE_ID = 0
CONTENT_TYPE = 6
ABSOLUTE_EXPIRY = 8
CREATION = 9
GROUP_ID = 10

# System property -> its place in the properties section.
FIELDS = {
    "MessageId": MESSAGE_ID,
    "To": 2,
    "Label": 3,
    "ReplyTo": 4,
    "CorrelationId": 5,
    "ContentType": CONTENT_TYPE,
    "SessionId": GROUP_ID,
    "ReplyToSessionId": 12,
}
# System property -> the message annotation that holds it.
ANNOTATIONS = {
    "PartitionKey": "x-opt-partition-key",
    "ScheduledEnqueueTimeUtc": "x-opt-scheduled-enqueue-time",
    "ViaPartitionKey": "x-opt-via-partition-key",
}

_UINT = Struct(">I")
_UNREADABLE = (ProtocolError, UnicodeDecodeError, IndexError, error)


def changed(stored: bytes, changes: dict[str, str | bytes]) -> bytes:
    """The stored form with its changes made."""
    version, flags, priority, ttl, pairs, pairs_bytes, delivery_pairs, delivery_bytes = HEAD.unpack_from(stored)
    annotations = stored[HEAD_BYTES : HEAD_BYTES + pairs_bytes]
    delivery = stored[HEAD_BYTES + pairs_bytes : HEAD_BYTES + pairs_bytes + delivery_bytes]
    tail = stored[HEAD_BYTES + pairs_bytes + delivery_bytes :]
    own: dict[str, str | bytes] = {}
    for name, value in changes.items():
        if not name.startswith(SYSTEM):
            own[name] = value
            continue
        encoded = encode(value) if isinstance(value, str) else value
        system = name[len(SYSTEM) :]
        if system in FIELDS:
            tail = _with_property(tail, FIELDS[system], encoded or b"\x40")
        elif system in ANNOTATIONS:
            annotations, pairs = _with_annotation(annotations, pairs, ANNOTATIONS[system], encoded)
        elif system == "ExpiresAtUtc":
            tail = _with_property(tail, ABSOLUTE_EXPIRY, encoded or b"\x40")
        elif system == "TimeToLive":
            ttl = TTL_ABSENT if encoded == REMOVED else min(max(int(decode(encoded, 0)[0]), 0), TTL_ABSENT)
            flags &= ~TTL_LONG
        elif system == "ForcePersistence":
            durable = DURABLE_ABSENT if encoded == REMOVED else int(bool(decode(encoded, 0)[0]))
            flags = flags & ~DURABLE_MASK | durable
    if own:
        tail = _with_application_properties(tail, own)
    head = HEAD.pack(version, flags, priority, ttl, pairs, len(annotations), delivery_pairs, delivery_bytes)
    return b"".join((head, annotations, delivery, tail))


def with_field(properties: bytes | None, index: int, encoded: bytes) -> bytes:
    """The properties section with one field set; the other fields keep their bytes."""
    fields = _fields(properties, index + 1)
    fields[index] = encoded
    return _section(fields)


def with_times(properties: bytes | None, created_ms: int, expires_ms: int) -> bytes:
    """The properties section with the two times whose difference clients take for the time to live."""
    fields = _fields(properties, CREATION + 1)
    fields[ABSOLUTE_EXPIRY] = encode(Timestamp(expires_ms))
    fields[CREATION] = encode(Timestamp(created_ms))
    return _section(fields)


def _fields(properties: bytes | None, count_min: int) -> list[bytes]:
    """The encoded fields of a properties section, filled up with nulls."""
    fields: list[bytes] = []
    if properties is not None:
        at = value_offset(properties, 0)
        code = properties[at]
        count = 0
        if code == 0xC0 and len(properties) > at + 2:
            count, at = properties[at + 2], at + 3
        elif code == 0xD0 and len(properties) > at + 8:
            count, at = _UINT.unpack_from(properties, at + 5)[0], at + 9
        for _ in range(count):
            try:
                end = skip(properties, at)
            except _UNREADABLE:
                break
            fields.append(properties[at:end])
            at = end
    return fields + [b"\x40"] * (count_min - len(fields))


def _section(fields: list[bytes]) -> bytes:
    body = b"".join(fields)
    return b"\x00\x53\x73\xd0" + (len(body) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + body


def _with_property(tail: bytes, index: int, encoded: bytes) -> bytes:
    span = locate(tail).properties
    if span is None:
        return with_field(None, index, encoded) + tail
    return tail[: span[0]] + with_field(tail[span[0] : span[1]], index, encoded) + tail[span[1] :]


def _with_annotation(annotations: bytes, pairs: int, name: str, encoded: bytes) -> tuple[bytes, int]:
    """The encoded pairs with one of them set, or removed."""
    kept = _pairs(annotations, 0, pairs)
    key = encode(Symbol(name))
    if encoded == REMOVED:
        kept.pop(key, None)
    else:
        kept[key] = encoded
    return b"".join([each + value for each, value in kept.items()]), len(kept)


def _with_application_properties(tail: bytes, changes: dict[str, str | bytes]) -> bytes:
    sections = locate(tail)
    encoded: dict[bytes, bytes] = {}
    span = sections.application_properties
    if span is not None:
        encoded = _map_pairs(tail[span[0] : span[1]])
    for name, value in changes.items():
        if value == REMOVED:
            encoded.pop(encode(name), None)
        else:
            encoded[encode(name)] = encode(value) if isinstance(value, str) else value
    body = b"".join([key + value for key, value in encoded.items()])
    section = b"\x00\x53\x74\xd1" + _UINT.pack(len(body) + 4) + _UINT.pack(len(encoded) * 2) + body
    if span is not None:
        return tail[: span[0]] + section + tail[span[1] :]
    # Application properties stand between the properties and the body.
    at = sections.properties[1] if sections.properties is not None else 0
    return tail[:at] + section + tail[at:]


def _map_pairs(section: bytes) -> dict[bytes, bytes]:
    """The encoded pairs of a section that is a map."""
    at = value_offset(section, 0)
    code = section[at]
    try:
        if code == 0xC1:
            return _pairs(section, at + 3, section[at + 2] // 2)
        if code == 0xD1:
            return _pairs(section, at + 9, _UINT.unpack_from(section, at + 5)[0] // 2)
    except _UNREADABLE:
        pass  # too short to hold a count
    return {}


def _pairs(buffer: bytes, at: int, count: int) -> dict[bytes, bytes]:
    """Encoded pairs, keys in the form `encode` gives them; those up to the first that cannot be decoded."""
    found: dict[bytes, bytes] = {}
    for _ in range(count):
        try:
            key, value_at = decode(buffer, at)
            end = skip(buffer, value_at)
        except _UNREADABLE:
            break
        found[encode(key)] = buffer[value_at:end]
        at = end
    return found
