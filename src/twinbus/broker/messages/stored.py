"""The stored form of a message, and rendering it for a receiver.

A stored message consists of a fixed-size head, the sender's message and delivery annotations as encoded pairs, and the
*tail*: properties, application properties, body and footer, byte for byte as received. Delivery builds only the header
and the annotations and copies the tail once. Later changes (by a settlement or a rule's action) are applied first; see
`changes.py`.
"""

from __future__ import annotations

import uuid
from struct import Struct

from twinbus.amqp.reader import locate
from twinbus.amqp.sections import ABSOLUTE_EXPIRY, CREATION, timestamp
from twinbus.broker.messages.changes import changed, with_properties
from twinbus.broker.messages.stored_head import (
    DURABLE_ABSENT,
    DURABLE_MASK,
    FIRST_GIVEN,
    FIRST_TRUE,
    HEAD,
    HEAD_BYTES,
    PRIORITY_ABSENT,
    TTL_ABSENT,
    TTL_LONG,
    WAS_SCHEDULED,
)
from twinbus.entities.message import ACTIVE, DEFERRED, GONE, SCHEDULED, QueuedMessage, Relayed


def _symbol(name: str, code: int) -> bytes:
    raw = name.encode("ascii")
    return b"\xa3" + bytes((len(raw),)) + raw + bytes((code,))


_SEQUENCE = _symbol("x-opt-sequence-number", 0x81)
_ENQUEUED = _symbol("x-opt-enqueued-time", 0x83)
_STATE = _symbol("x-opt-message-state", 0x71)
_LOCKED = _symbol("x-opt-locked-until", 0x83)
_LOCK_TOKEN = _symbol("x-opt-lock-token", 0x98)
_ORIGIN = _symbol("x-opt-enqueue-sequence-number", 0x81)
_SOURCE = _symbol("x-opt-deadletter-source", 0xB1)
_OMITTED = _symbol("omitted-message-body-size", 0x81)

# A map section starts with its descriptor, map32, its size and its item count.
_open = Struct(">4sII").pack
_MESSAGE_ANNOTATIONS = b"\x00\x53\x72\xd1"
_DELIVERY_ANNOTATIONS = b"\x00\x53\x71\xd1"
_NO_DELIVERY_ANNOTATIONS = b"\x00\x53\x71\xc1\x01\x00"

_pack_common = Struct(f">{len(_SEQUENCE)}sq{len(_ENQUEUED)}sq").pack
_pack_until = Struct(f">{len(_LOCKED)}sq").pack
_pack_origin = Struct(f">{len(_ORIGIN)}sq").pack
_pack_state = Struct(f">{len(_STATE)}si").pack
_pack_omitted = Struct(f">{len(_OMITTED)}sq").pack
_unpack_head = HEAD.unpack_from

# The two annotation sections of nearly every locked delivery, packed at once: lock token; number, time and lock.
_TOKEN_OPEN = _DELIVERY_ANNOTATIONS[:3] + b"\xc1" + bytes((len(_LOCK_TOKEN) + 17, 2)) + _LOCK_TOKEN
_LOCKED_BYTES = len(_SEQUENCE) + len(_ENQUEUED) + len(_LOCKED) + 24
_LOCKED_OPEN = _MESSAGE_ANNOTATIONS[:3] + b"\xc1" + bytes((_LOCKED_BYTES + 1, 6)) + _SEQUENCE
_pack_locked = Struct(f">{len(_TOKEN_OPEN)}sIHH8s{len(_LOCKED_OPEN)}sq{len(_ENQUEUED)}sq{len(_LOCKED)}sq").pack
# A lock token is in .NET order, a UUID on the wire in network order: the first three groups are byte-swapped.
_unpack_token = Struct("<IHH8s").unpack

# Most messages of a sender have the same header. Bounded, so that unusual ones cannot fill memory.
_HEADERS: dict[tuple[int, int, int, int], bytes] = {}
_HEADERS_MAX = 4_096

_UINT = Struct(">I").pack

# Of a larger message the tail is copied once, into what is sent; for a smaller one a view would cost more.
_COPIED_BYTES_MAX = 8_192


def _header(flags: int, priority: int, ttl: int, delivery_count: int) -> bytes:
    durable = flags & DURABLE_MASK
    body = b"\x40" if durable == DURABLE_ABSENT else (b"\x41" if durable else b"\x42")
    body += b"\x40" if priority == PRIORITY_ABSENT else b"\x50" + bytes((priority,))
    body += b"\x40" if ttl == TTL_ABSENT and not flags & TTL_LONG else b"\x70" + _UINT(ttl)
    if flags & FIRST_GIVEN:
        # After a failed delivery nobody is the first acquirer.
        body += b"\x41" if flags & FIRST_TRUE and delivery_count == 0 else b"\x42"
    else:
        body += b"\x40"
    body += b"\x70" + _UINT(delivery_count)
    return b"\x00\x53\x70\xc0" + bytes((len(body) + 1, 5)) + body


def render(stored: bytes, message: QueuedMessage, token: bytes | None = None) -> bytes:
    """The message as sent to a receiver, with its lock if `token` is given. A taken message shows as active."""
    if message.changes is not None:
        stored = changed(stored, message.changes)
    _version, flags, priority, ttl, pairs, pairs_bytes, delivery_pairs, delivery_bytes = _unpack_head(stored)
    tail_at = HEAD_BYTES + pairs_bytes + delivery_bytes
    tail: bytes | memoryview
    if len(stored) > _COPIED_BYTES_MAX:
        tail = memoryview(stored)[tail_at:]
    else:
        tail = stored[tail_at:]
    relayed = isinstance(message, Relayed)
    if relayed and message.expires_ms is not None:
        # Another entity may have a shorter time to live than the one it was sent to.
        lives_ms = max(message.expires_ms - message.enqueued_ms, 0)
        # A resubmission changes only the expiry time.
        if lives_ms != ttl or message.changes is not None:
            flags = flags | TTL_LONG if lives_ms >= TTL_ABSENT else flags & ~TTL_LONG
            ttl = min(lives_ms, TTL_ABSENT)
            times = {CREATION: timestamp(message.enqueued_ms), ABSOLUTE_EXPIRY: timestamp(message.expires_ms)}
            tail = with_properties(bytes(tail), times)
    key = (flags, priority, ttl, message.delivery_count)
    header = _HEADERS.get(key)
    if header is None:
        header = _header(flags, priority, ttl, message.delivery_count)
        if len(_HEADERS) < _HEADERS_MAX:
            _HEADERS[key] = header
    if token is not None and pairs == 0 and delivery_pairs == 0 and message.state == ACTIVE and not relayed:
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
    state = message.state
    if state in (DEFERRED, SCHEDULED):
        own += _pack_state(_STATE, state)
        items += 2
    elif flags & WAS_SCHEDULED and (token is not None or state == GONE):
        # As the service does: receivers are told that it was scheduled, peekers its current state.
        own += _pack_state(_STATE, SCHEDULED)
        items += 2
    if isinstance(message, Relayed):
        own += _pack_origin(_ORIGIN, message.origin_seq)
        items += 2
        if message.dead_letter_source is not None:
            source = message.dead_letter_source.encode("utf-8", "replace")
            own += _SOURCE + _UINT(len(source)) + source
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
        # Present but empty, because clients distinguish empty annotations from missing ones.
        delivery = _NO_DELIVERY_ANNOTATIONS
    return b"".join((header, delivery, _open(_MESSAGE_ANNOTATIONS, len(own) + 4, items), own, tail))


def without_body(payload: bytes) -> bytes:
    """A rendered message up to its body, whose size is a delivery annotation then, as in the service."""
    sections = locate(payload)
    body, delivery = sections.body, sections.delivery_annotations
    if body is None or delivery is None:
        return payload
    start, end = delivery
    # One of the two forms that `render` writes: map8 or map32.
    at = start + (6 if payload[start + 3] == 0xC1 else 12)
    count = payload[at - 1] if at == start + 6 else int.from_bytes(payload[at - 4 : at], "big")
    pairs = payload[at:end] + _pack_omitted(_OMITTED, body[1] - body[0])
    told = _open(_DELIVERY_ANNOTATIONS, len(pairs) + 4, count + 2) + pairs
    return b"".join((payload[:start], told, payload[end : body[0]]))
