"""Index records: a message's row in the store's INDEX table, and the keys of every row the entities write.

The fixed part comes first, so that recovery reads a million records with one unpack each. Session id, changes and
origin follow only if they exist. The first byte is the format version. Numbers are big-endian, so that keys sort
numerically.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, NamedTuple

from twinbus.errors import StoreCorruptError

from .message import SCHEDULED, QueuedMessage, Relayed

VERSION: Final = 1

# version, flags, delivery count, body number, size, enqueued, expires (0: never)
HEAD: Final = struct.Struct(">BBIQIQQ")
_EXPIRES_OFFSET: Final = HEAD.size - 8
KEY: Final = struct.Struct(">IQ")
BODY_KEY: Final = struct.Struct(">Q")
ENTITY_KEY: Final = struct.Struct(">I")
# A rule's row sorts right after its subscription's.
RULE_KEY: Final = struct.Struct(">II")
NUMBER: Final = struct.Struct(">Q")

# Flags: the two lowest bits are the state.
STATE_MASK: Final = 0x03
SHARED: Final = 0x04  # other records point to the same body
IN_SESSION: Final = 0x08
CHANGED: Final = 0x10
RELAYED: Final = 0x20  # it came by way of another entity
DAMAGED: Final = 0x40  # its body cannot be read: nobody is given it

META_BODIES: Final = b"bodies"
META_ENTITIES: Final = b"entities"
META_SEQUENCE: Final = b"sequence:"
# A deleted entity whose rows are not all removed yet.
META_DELETED: Final = b"deleted:"
# Bodies of an unfinished batch, from the number in the key to the one in the value.
META_PENDING: Final = b"pending:"

_SHORT: Final = struct.Struct(">H")
_CHANGE: Final = struct.Struct(">HBI")
# Sequence number where it was sent, hops, length of the name of the entity that dead-lettered it (0: none)
RELAY: Final = struct.Struct(">QBH")
_SESSION_HEAD: Final = struct.Struct(">BQH")

# Text that arrived as JSON may contain lone surrogates; a record must be writable anyway.
_TEXT: Final = ("utf-8", "surrogatepass")

# LMDB keys have at most 511 bytes; a session id may have 128 characters of four bytes each.
_SESSION_KEY_BYTES_MAX: Final = 400


class Record(NamedTuple):
    """A decoded index record."""

    state: int
    delivery_count: int
    body_number: int
    size: int
    enqueued_ms: int
    expires_ms: int | None
    session_id: str | None
    changes: dict[str, str | bytes] | None
    shared: bool
    origin_seq: int | None
    hops: int
    dead_letter_source: str | None
    damaged: bool


def key(entity_id: int, seq: int) -> bytes:
    """The key of a message's row: an entity's messages are stored together, in sequence order."""
    return KEY.pack(entity_id, seq)


def pack(message: QueuedMessage, session_id: str | None = None, shared: bool = False) -> bytes:
    flags = message.state
    expires_ms = message.expires_ms
    changes = message.changes
    if session_id is None and changes is None and not shared and not isinstance(message, Relayed):
        return HEAD.pack(
            VERSION,
            flags,
            message.delivery_count,
            message.body_number,
            message.size,
            message.enqueued_ms,
            0 if expires_ms is None else expires_ms,
        )
    tail = b""
    if shared:
        flags |= SHARED
    if session_id is not None:
        flags |= IN_SESSION
        encoded = session_id.encode(*_TEXT)
        tail = _SHORT.pack(len(encoded)) + encoded
    if changes is not None:
        flags |= CHANGED
        tail += _pack_changes(changes)
    if isinstance(message, Relayed):
        flags |= RELAYED
        tail += _pack_relay(message)
    head = HEAD.pack(
        VERSION,
        flags,
        message.delivery_count,
        message.body_number,
        message.size,
        message.enqueued_ms,
        0 if expires_ms is None else expires_ms,
    )
    return head + tail


def unpack(value: bytes) -> Record:
    try:
        version, flags, delivery_count, body, size, enqueued_ms, expires_ms = HEAD.unpack_from(value)
        if version != VERSION:
            raise StoreCorruptError(f"An index record has version {version}; this release reads version {VERSION}.")
        session_id, changes, offset = _unpack_tail(value, flags)
        origin_seq: int | None = None
        hops = 0
        source: str | None = None
        if flags & RELAYED:
            origin_seq, hops, length = RELAY.unpack_from(value, offset)
            source = _slice(value, offset + RELAY.size, length).decode(*_TEXT) or None
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise StoreCorruptError(f"An index record of {len(value)} bytes cannot be decoded: {error}.") from error
    return Record(
        flags & STATE_MASK,
        delivery_count,
        body,
        size,
        enqueued_ms,
        expires_ms or None,
        session_id,
        changes,
        bool(flags & SHARED),
        origin_seq,
        hops,
        source,
        bool(flags & DAMAGED),
    )


def expired(value: bytes, now_ms: int) -> bool:
    """Whether the message of a record has expired, without decoding the rest. False for an unreadable record."""
    if len(value) < HEAD.size:
        return False
    expires_ms: int = NUMBER.unpack_from(value, _EXPIRES_OFFSET)[0]
    return 0 < expires_ms <= now_ms


def scheduled(value: bytes) -> bool:
    """Whether the message of a record is scheduled, without decoding the rest."""
    return len(value) >= HEAD.size and value[1] & STATE_MASK == SCHEDULED


def message_of(seq: int, record: Record) -> QueuedMessage:
    """The message of a record, not yet assigned to its session."""
    if record.origin_seq is None:
        return QueuedMessage(
            seq,
            record.body_number,
            record.size,
            record.enqueued_ms,
            record.expires_ms,
            record.state,
            record.delivery_count,
            None,
            record.changes,
        )
    return Relayed(
        seq,
        record.body_number,
        record.size,
        record.enqueued_ms,
        record.expires_ms,
        record.state,
        record.delivery_count,
        None,
        record.changes,
        record.origin_seq,
        record.hops,
        record.dead_letter_source,
    )


def _unpack_tail(value: bytes, flags: int) -> tuple[str | None, dict[str, str | bytes] | None, int]:
    """Session id and changes after the fixed part, and the offset of the rest."""
    session_id = None
    changes = None
    offset = HEAD.size
    if flags & IN_SESSION:
        (length,) = _SHORT.unpack_from(value, offset)
        offset += _SHORT.size
        session_id = _slice(value, offset, length).decode(*_TEXT)
        offset += length
    if flags & CHANGED:
        changes, offset = _unpack_changes(value, offset)
    return session_id, changes, offset


def session_key(entity_id: int, session_id: str) -> bytes:
    """The key of a session's state. A very long id is replaced by its digest; 0xff never starts UTF-8 text."""
    encoded = session_id.encode(*_TEXT)
    if len(encoded) > _SESSION_KEY_BYTES_MAX:
        encoded = b"\xff" + hashlib.blake2b(encoded, digest_size=32).digest()
    return ENTITY_KEY.pack(entity_id) + encoded


def pack_session(session_id: str, updated_ms: int, state: bytes) -> bytes:
    encoded = session_id.encode(*_TEXT)
    return _SESSION_HEAD.pack(VERSION, updated_ms, len(encoded)) + encoded + state


def unpack_session(value: bytes) -> tuple[str, int, bytes]:
    """Session id, time the state was set, state."""
    try:
        version, updated_ms, length = _SESSION_HEAD.unpack_from(value)
        if version != VERSION:
            raise StoreCorruptError(f"A session record has version {version}; this release reads version {VERSION}.")
        offset = _SESSION_HEAD.size
        session_id = _slice(value, offset, length).decode(*_TEXT)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise StoreCorruptError(f"A session record of {len(value)} bytes cannot be decoded: {error}.") from error
    return session_id, updated_ms, bytes(value[offset + length :])


def pack_duplicate(seen_ms: int, message_id: str) -> bytes:
    return NUMBER.pack(seen_ms) + message_id.encode(*_TEXT)


def unpack_duplicate(value: bytes) -> tuple[int, str]:
    """Time the id was seen, id."""
    try:
        (seen_ms,) = NUMBER.unpack_from(value)
        return seen_ms, bytes(value[NUMBER.size :]).decode(*_TEXT)
    except (struct.error, UnicodeDecodeError) as error:
        raise StoreCorruptError(f"A duplicate record of {len(value)} bytes cannot be decoded: {error}.") from error


def _pack_relay(message: Relayed) -> bytes:
    source = (message.dead_letter_source or "").encode(*_TEXT)
    return RELAY.pack(message.origin_seq, message.hops, len(source)) + source


def _pack_changes(changes: dict[str, str | bytes]) -> bytes:
    parts = [_SHORT.pack(len(changes))]
    for name, value in changes.items():
        encoded_name = name.encode(*_TEXT)
        encoded = value.encode(*_TEXT) if isinstance(value, str) else value
        parts.append(_CHANGE.pack(len(encoded_name), isinstance(value, str), len(encoded)))
        parts.append(encoded_name)
        parts.append(encoded)
    return b"".join(parts)


def _unpack_changes(value: bytes, offset: int) -> tuple[dict[str, str | bytes], int]:
    (count,) = _SHORT.unpack_from(value, offset)
    offset += _SHORT.size
    changes: dict[str, str | bytes] = {}
    for _ in range(count):
        name_length, is_text, length = _CHANGE.unpack_from(value, offset)
        offset += _CHANGE.size
        name = _slice(value, offset, name_length).decode(*_TEXT)
        offset += name_length
        encoded = _slice(value, offset, length)
        offset += length
        changes[name] = encoded.decode(*_TEXT) if is_text else encoded
    return changes, offset


def _slice(value: bytes, offset: int, length: int) -> bytes:
    end = offset + length
    if end > len(value):
        raise IndexError(f"{end} bytes needed")
    return bytes(value[offset:end])
