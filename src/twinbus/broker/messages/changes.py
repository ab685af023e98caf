"""Applies changes made to a message since it was sent to its stored form.

A change is a name with an encoded AMQP value or a text to encode; an empty value removes the property. A plain name is
an application property; a name after a NUL is a system property, which only a rule's action can change. Everything
else keeps its bytes. What cannot be decoded is dropped from a rebuilt section, because an accepted message must stay
deliverable.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from twinbus.amqp.codec import decode, encode, skip
from twinbus.amqp.reader import Span, items, locate
from twinbus.amqp.sections import ABSOLUTE_EXPIRY, CONTENT_TYPE, GROUP_ID, MESSAGE_ID, NULL
from twinbus.amqp.types import Symbol
from twinbus.broker.messages.stored_head import DURABLE_ABSENT, DURABLE_MASK, HEAD, HEAD_BYTES, TTL_ABSENT, TTL_LONG
from twinbus.errors import DecodeError

_sizes = Struct(">II").pack

# Prefix of system property names.
SYSTEM = "\0"
REMOVED = b""

# Index in the properties section, by system property.
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
# Message annotation, by system property.
ANNOTATIONS = {
    "PartitionKey": "x-opt-partition-key",
    "ScheduledEnqueueTimeUtc": "x-opt-scheduled-enqueue-time",
    "ViaPartitionKey": "x-opt-via-partition-key",
}


def changed(stored: bytes, changes: dict[str, str | bytes]) -> bytes:
    """The stored form with the changes applied."""
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
            tail = with_properties(tail, {FIELDS[system]: encoded or NULL})
        elif system in ANNOTATIONS:
            annotations, pairs = _with_annotation(annotations, pairs, ANNOTATIONS[system], encoded)
        elif system == "ExpiresAtUtc":
            tail = with_properties(tail, {ABSOLUTE_EXPIRY: encoded or NULL})
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


def with_fields(payload: bytes, span: Span | None, changes: dict[int, bytes]) -> bytes:
    """The properties section at `span` with some fields replaced; the others keep their bytes."""
    fields = items(payload, span, readable=True)
    for index, encoded in changes.items():
        if index >= len(fields):
            fields += [NULL] * (index + 1 - len(fields))
        fields[index] = encoded
    return _section(b"\x00\x53\x73\xd0", fields)


def with_properties(tail: bytes, changes: dict[int, bytes]) -> bytes:
    """A message from its properties section on, with some properties replaced."""
    span = locate(tail).properties
    start, end = span or (0, 0)
    return tail[:start] + with_fields(tail, span, changes) + tail[end:]


def _section(opening: bytes, encoded: list[bytes]) -> bytes:
    body = b"".join(encoded)
    return opening + _sizes(len(body) + 4, len(encoded)) + body


def _with_annotation(annotations: bytes, pairs: int, name: str, encoded: bytes) -> tuple[bytes, int]:
    """The encoded pairs with one of them set or removed."""
    found: list[bytes] = []
    at = 0
    for _ in range(pairs * 2):
        end = skip(annotations, at)
        found.append(annotations[at:end])
        at = end
    kept = _with_pairs(found, {Symbol(name): encoded})
    return b"".join(kept), len(kept) // 2


def _with_application_properties(tail: bytes, changes: dict[str, str | bytes]) -> bytes:
    sections = locate(tail)
    kept = _with_pairs(items(tail, sections.application_properties, readable=True), changes)
    # Application properties come between the properties and the body.
    at = sections.properties[1] if sections.properties is not None else 0
    start, end = sections.application_properties or (at, at)
    return tail[:start] + _section(b"\x00\x53\x74\xd1", kept) + tail[end:]


def _with_pairs(encoded: list[bytes], changes: Mapping[str, str | bytes]) -> list[bytes]:
    """Alternating keys and values with some set or removed; stops at the first key that cannot be decoded."""
    found: dict[bytes, bytes] = {}
    for at in range(0, len(encoded) - 1, 2):
        try:
            # Re-encode the key as `encode` would, or a change would not find it.
            found[encode(decode(encoded[at])[0])] = encoded[at + 1]
        except DecodeError:
            break
    for name, value in changes.items():
        if value == REMOVED:
            found.pop(encode(name), None)
        else:
            found[encode(name)] = encode(value) if isinstance(value, str) else value
    return [each for pair in found.items() for each in pair]
