"""Reading a namespace back after a restart.

Index rows come in key order, so each queue's messages arrive by sequence number and nothing needs sorting. A plain
message takes the short way: one unpack, one object, one append; a million of them take about a second. Rows without
an entity belong to one that was deleted: they go to the sweep.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from twinbus.errors import ArgumentError, StoreCorruptError
from twinbus.store.facts import Table

from .message import ACTIVE, Message
from .records import (
    ENTITY_KEY,
    HEAD,
    KEY,
    META_BODIES,
    META_ENTITIES,
    META_SEQUENCE,
    NUMBER,
    VERSION,
    unpack,
    unpack_duplicate,
    unpack_session,
)
from .settings import QueueSettings
from .sweep import Row

if TYPE_CHECKING:
    from .namespace import Namespace, Rows
    from .queue import Queue

# Messages handed to a queue at a time.
_CHUNK: Final = 10_000


def restore(
    cls: type[Namespace],
    name: str,
    entities: Rows,
    index: Rows,
    sessions: Rows,
    duplicates: Rows,
    meta: Rows,
    now_ms: int,
    tokens: Callable[[], bytes],
) -> Namespace:
    marks = dict(meta)
    namespace = cls(name, tokens=tokens, reserved_bodies=_number(marks.get(META_BODIES)))
    namespace._last_id = _number(marks.get(META_ENTITIES))
    for key, value in entities:
        _restore_entity(namespace, key, value, now_ms)
    for queue in namespace._by_id.values():
        queue.reserve(_number(marks.get(META_SEQUENCE + ENTITY_KEY.pack(queue.entity_id))))
    orphans: list[Row] = []
    _restore_index(namespace, index, orphans)
    _restore_sessions(namespace, sessions, orphans)
    _restore_duplicates(namespace, duplicates, orphans)
    if orphans:
        namespace._commons.sweep.add(iter(orphans))
    _drop_single_references(namespace._commons.bodies.references)
    for queue in namespace._by_id.values():
        queue.restored()
        queue.arm(now_ms)
    return namespace


def _number(value: bytes | None) -> int:
    if value is None:
        return 0
    number: int = NUMBER.unpack(value)[0]
    return number


def _restore_entity(namespace: Namespace, key: bytes, value: bytes, now_ms: int) -> None:
    try:
        fields = json.loads(value)
        settings = QueueSettings.from_json(fields["settings"])
        created_ms, updated_ms = int(fields["created_ms"]), int(fields["updated_ms"])
        (entity_id,) = ENTITY_KEY.unpack(key)
    except (ValueError, KeyError, TypeError, ArgumentError) as error:
        raise StoreCorruptError(f"The entity record {key.hex()} does not read back: {error}.") from error
    queue = namespace._add(settings, entity_id, now_ms)
    queue.created_ms = created_ms
    queue.updated_ms = updated_ms


def _restore_index(namespace: Namespace, index: Rows, orphans: list[Row]) -> None:
    unpack_key = KEY.unpack
    unpack_head = HEAD.unpack_from
    shared_size = namespace._commons.bodies.size
    last_id = -1
    queue: Queue | None = None
    plain = False
    size_total = 0
    messages: list[Message] = []
    try:
        for key, value in index:
            entity_id, seq = unpack_key(key)
            if entity_id != last_id or len(messages) == _CHUNK:
                if queue is not None and messages:
                    queue.restore_many(messages, size_total)
                size_total = 0
                messages = []
                last_id = entity_id
                queue = namespace._by_id.get(entity_id)
                plain = queue is not None and (queue.dead_letters is None or not queue.settings.requires_session)
            version, flags, count, body, size, enqueued_ms, expires_ms = unpack_head(value)
            if flags == ACTIVE and plain and version == VERSION:
                size_total += size
                messages.append(
                    Message(seq, body, shared_size(size), enqueued_ms, expires_ms or None, ACTIVE, count, None, None)
                )
            else:
                if queue is not None and messages:
                    queue.restore_many(messages, size_total)
                    size_total = 0
                    messages = []
                _restore_message(namespace, queue, key, seq, value, orphans)
    except struct.error as error:
        raise StoreCorruptError(f"An index record does not read back: {error}.") from error
    if queue is not None and messages:
        queue.restore_many(messages, size_total)


def _restore_message(
    namespace: Namespace, queue: Queue | None, key: bytes, seq: int, value: bytes, orphans: list[Row]
) -> None:
    """The long way: scheduled and deferred messages, sessions, changed properties, shared bodies, orphans."""
    record = unpack(value)
    if record.shared:
        references = namespace._commons.bodies.references
        references[record.body] = references.get(record.body, 0) + 1
    if queue is None:
        orphans.append((Table.INDEX, key, record.body))
        return
    message = Message(
        seq,
        record.body,
        record.size,
        record.enqueued_ms,
        record.expires_ms,
        record.state,
        record.delivery_count,
        None,
        record.changes,
    )
    queue.restore_message(message, record.session_id)


def _restore_sessions(namespace: Namespace, sessions: Rows, orphans: list[Row]) -> None:
    for key, value in sessions:
        (entity_id,) = ENTITY_KEY.unpack_from(key)
        queue = namespace._by_id.get(entity_id)
        if queue is None:
            orphans.append((Table.SESSIONS, key, 0))
        else:
            session_id, updated_ms, state = unpack_session(value)
            queue.restore_session(session_id, updated_ms, state)


def _restore_duplicates(namespace: Namespace, duplicates: Rows, orphans: list[Row]) -> None:
    for key, value in duplicates:
        entity_id, seq = KEY.unpack(key)
        queue = namespace._by_id.get(entity_id)
        if queue is None:
            orphans.append((Table.DUPLICATES, key, 0))
        else:
            seen_ms, message_id = unpack_duplicate(value)
            queue.restore_duplicate(message_id, seq, seen_ms)


def _drop_single_references(references: dict[int, int]) -> None:
    for body in [body for body, count in references.items() if count == 1]:
        del references[body]
