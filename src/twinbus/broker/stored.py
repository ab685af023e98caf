"""The form in which a message lies on disk, and its rendering for a receiver.

A stored message is a head of fixed size, the sender's own message and delivery annotations as encoded pairs, and the
*tail*: properties, application properties, body and footer, byte for byte as they came. On delivery only the header and
the annotations are built anew; the tail is copied once.
"""

from __future__ import annotations

import uuid
from struct import Struct

from twinbus.amqp.codec import decode, encode, skip
from twinbus.amqp.sections import locate
from twinbus.entities.message import ACTIVE, DEFERRED, SCHEDULED, Message

# version, durable (0, 1, 2 = absent), priority (255 = absent), ttl (all ones = absent), message annotation pairs and
# their bytes, delivery annotation pairs and their bytes
HEAD = Struct(">BBBIHIHI")
HEAD_BYTES = HEAD.size
VERSION = 1
DURABLE_ABSENT = 2
PRIORITY_ABSENT = 255
TTL_ABSENT = 0xFFFFFFFF


def _symbol(name: str, code: int) -> bytes:
    raw = name.encode("ascii")
    return b"\xa3" + bytes((len(raw),)) + raw + bytes((code,))


_SEQUENCE = _symbol("x-opt-sequence-number", 0x81)
_ENQUEUED = _symbol("x-opt-enqueued-time", 0x83)
_STATE = _symbol("x-opt-message-state", 0x71)
_LOCKED = _symbol("x-opt-locked-until", 0x83)
_LOCK_TOKEN = _symbol("x-opt-lock-token", 0x98)

# A map section opens with its descriptor, map32, its size and its item count.
_open = Struct(">4sII").pack
_MESSAGE_ANNOTATIONS = b"\x00\x53\x72\xd1"
_DELIVERY_ANNOTATIONS = b"\x00\x53\x71\xd1"
_NO_DELIVERY_ANNOTATIONS = b"\x00\x53\x71\xc1\x01\x00"

_pack_common = Struct(f">{len(_SEQUENCE)}sq{len(_ENQUEUED)}sq").pack
_pack_until = Struct(f">{len(_LOCKED)}sq").pack
_pack_state = Struct(f">{len(_STATE)}si").pack
_unpack_head = HEAD.unpack_from

# The two annotation sections of nearly every locked delivery, in one go: the lock token, then number, time and lock.
_TOKEN_OPEN = _DELIVERY_ANNOTATIONS[:3] + b"\xc1" + bytes((len(_LOCK_TOKEN) + 17, 2)) + _LOCK_TOKEN
_LOCKED_BYTES = len(_SEQUENCE) + len(_ENQUEUED) + len(_LOCKED) + 24
_LOCKED_OPEN = _MESSAGE_ANNOTATIONS[:3] + b"\xc1" + bytes((_LOCKED_BYTES + 1, 6)) + _SEQUENCE
_pack_locked = Struct(f">{len(_TOKEN_OPEN)}sIHH8s{len(_LOCKED_OPEN)}sq{len(_ENQUEUED)}sq{len(_LOCKED)}sq").pack
# A lock token is in .NET order, a UUID on the wire in network order: its first three groups are turned around.
_unpack_token = Struct("<IHH8s").unpack

# Headers repeat: nearly every message of a sender has the same one. Bounded, so that odd ones cannot fill memory.
_HEADERS: dict[tuple[int, int, int, int], bytes] = {}
_HEADERS_MAX = 4_096

_UINT = Struct(">I").pack


def _header(durable: int, priority: int, ttl: int, delivery_count: int) -> bytes:
    body = b"\x40" if durable == DURABLE_ABSENT else (b"\x41" if durable else b"\x42")
    body += b"\x40" if priority == PRIORITY_ABSENT else b"\x50" + bytes((priority,))
    body += b"\x40" if ttl == TTL_ABSENT else b"\x70" + _UINT(ttl)
    body += b"\x40"
    body += b"\x70" + _UINT(delivery_count)
    return b"\x00\x53\x70\xc0" + bytes((len(body) + 1, 5)) + body


def render(stored: bytes, message: Message, token: bytes | None = None) -> bytes:
    """The message as a receiver gets it, with its lock when `token` is given. A taken one is shown as active."""
    _version, durable, priority, ttl, pairs, pairs_bytes, delivery_pairs, delivery_bytes = _unpack_head(stored)
    key = (durable, priority, ttl, message.delivery_count)
    header = _HEADERS.get(key)
    if header is None:
        header = _header(durable, priority, ttl, message.delivery_count)
        if len(_HEADERS) < _HEADERS_MAX:
            _HEADERS[key] = header
    tail = stored[HEAD_BYTES + pairs_bytes + delivery_bytes :]
    if message.changes is not None:
        tail = with_changes(tail, message.changes)
    if token is not None and pairs == 0 and delivery_pairs == 0 and message.state == ACTIVE:
        first, second, third, rest = _unpack_token(token)
        annotations = _pack_locked(
            _TOKEN_OPEN,
            first,
            second,
            third,
            rest,
            _LOCKED_OPEN,
            message.seq,
            _ENQUEUED,
            message.enqueued_ms,
            _LOCKED,
            message.locked_until_ms,
        )
        return b"".join((header, annotations, tail))

    at = HEAD_BYTES + pairs_bytes
    own = stored[HEAD_BYTES:at] + _pack_common(_SEQUENCE, message.seq, _ENQUEUED, message.enqueued_ms)
    items = 4 + pairs * 2
    if message.state in (DEFERRED, SCHEDULED):
        own += _pack_state(_STATE, message.state)
        items += 2
    theirs = stored[at : at + delivery_bytes]
    if token is not None:
        own += _pack_until(_LOCKED, message.locked_until_ms)
        items += 2
        theirs += _LOCK_TOKEN + uuid.UUID(bytes_le=token).bytes
        delivery_pairs += 1
    if delivery_pairs:
        delivery = _open(_DELIVERY_ANNOTATIONS, len(theirs) + 4, delivery_pairs * 2) + theirs
    else:
        # Present though empty: a client tells "no annotations" from "nothing said".
        delivery = _NO_DELIVERY_ANNOTATIONS
    return b"".join((header, delivery, _open(_MESSAGE_ANNOTATIONS, len(own) + 4, items), own, tail))


def with_changes(tail: bytes, changes: dict[str, str | bytes]) -> bytes:
    """The tail with application properties set to what a settlement asked for: text, or values already encoded."""
    sections = locate(tail)
    encoded: dict[bytes, bytes] = {}
    span = sections.application_properties
    if span is not None:
        encoded = _pairs(tail, span[0] + 3)
    for name, value in changes.items():
        encoded[encode(name)] = encode(value) if isinstance(value, str) else value
    body = b"".join([key + value for key, value in encoded.items()])
    section = b"\x00\x53\x74\xd1" + _UINT(len(body) + 4) + _UINT(len(encoded) * 2) + body
    if span is not None:
        return tail[: span[0]] + section + tail[span[1] :]
    # Application properties stand between the properties and the body.
    at = sections.properties[1] if sections.properties is not None else 0
    return tail[:at] + section + tail[at:]


def _pairs(buffer: bytes, at: int) -> dict[bytes, bytes]:
    """The encoded pairs of the map at `at`, keys in the form `encode` gives them."""
    code = buffer[at]
    if code == 0xC1:
        count, at = buffer[at + 2], at + 3
    elif code == 0xD1:
        count, at = int.from_bytes(buffer[at + 5 : at + 9], "big"), at + 9
    else:
        return {}
    found: dict[bytes, bytes] = {}
    for _ in range(count // 2):
        key, value_at = decode(buffer, at)
        end = skip(buffer, value_at)
        found[encode(key)] = buffer[value_at:end]
        at = end
    return found
