"""Reading a namespace back after a restart.

Index rows come in key order, so each queue's messages arrive by sequence number and nothing needs sorting. A plain
message takes the short way: one unpack, one object, one append; a million of them take about a second. Rows without
an entity belong to one that was deleted: they go to the sweep.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from twinbus.errors import ServiceError, StoreCorruptError
from twinbus.store.facts import Table

from .holding import IDS_PER_ENTITY, TRANSFER_PART
from .message import ACTIVE, Message
from .queue import Queue
from .records import (
    ENTITY_KEY,
    HEAD,
    KEY,
    META_BODIES,
    META_ENTITIES,
    META_SEQUENCE,
    NUMBER,
    RULE_KEY,
    VERSION,
    message_of,
    unpack,
    unpack_duplicate,
    unpack_session,
)
from .rule import Rule
from .settings import QueueSettings
from .subscription import Subscription
from .sweep import Row
from .topic_settings import SubscriptionSettings, TopicSettings

if TYPE_CHECKING:
    from .namespace import Namespace, Rows
    from .sending import Sending
    from .views import Views

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
    views: Views | None = None,
) -> Namespace:
    marks = dict(meta)
    namespace = cls(name, tokens=tokens, reserved_bodies=_number(marks.get(META_BODIES)), views=views)
    namespace._last_id = _number(marks.get(META_ENTITIES))
    for key, value in entities:
        _restore_entity(namespace, key, value, now_ms)
    for queue in namespace._by_id.values():
        queue.reserve(_number(marks.get(META_SEQUENCE + ENTITY_KEY.pack(queue.entity_id))))
    orphans: list[Row] = []
    _restore_index(namespace, index, orphans)
    _restore_sessions(namespace, sessions, orphans)
    _restore_duplicates(namespace, duplicates, orphans, now_ms)
    if orphans:
        namespace._commons.sweep.add(iter(orphans))
    _drop_single_references(namespace._commons.bodies.references)
    for queue in list(namespace._by_id.values()):
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
        if len(key) == RULE_KEY.size:
            owner_id, number = RULE_KEY.unpack(key)
            owner = namespace._by_id[owner_id]
            assert isinstance(owner, Subscription)
            owner.restore_rule(number, Rule.from_json(fields))
            return
        created_ms, updated_ms = int(fields["created_ms"]), int(fields["updated_ms"])
        (entity_id,) = ENTITY_KEY.unpack(key)
        entity = _add(namespace, fields["kind"], fields["settings"], entity_id, now_ms)
    except (ValueError, KeyError, TypeError, AssertionError, struct.error, ServiceError) as error:
        raise StoreCorruptError(f"The entity record {key.hex()} does not read back: {error}.") from error
    entity.created_ms = created_ms
    entity.updated_ms = updated_ms


def _add(namespace: Namespace, kind: str, settings: dict[str, Any], entity_id: int, now_ms: int) -> Sending:
    if kind == "topic":
        return namespace._add_topic(TopicSettings.from_json(settings), entity_id, now_ms)
    if kind == "subscription":
        own = SubscriptionSettings.from_json(settings)
        return namespace._add_subscription(namespace.topic(own.topic), own, entity_id, now_ms)
    return namespace._add_queue(QueueSettings.from_json(settings), entity_id, now_ms)


def _find(namespace: Namespace, entity_id: int) -> Sending | None:
    """The entity of a row; a transfer dead-letter queue is made where a row asks for it."""
    found = namespace._by_id.get(entity_id)
    if found is None and entity_id % IDS_PER_ENTITY == TRANSFER_PART:
        owner = namespace._by_id.get(entity_id - TRANSFER_PART)
        if isinstance(owner, Queue):
            return owner.open_transfer()
    return found


def _restore_index(namespace: Namespace, index: Rows, orphans: list[Row]) -> None:
    unpack_key = KEY.unpack
    unpack_head = HEAD.unpack_from
    shared_size = namespace._commons.bodies.size
    last_id = -1
    queue: Sending | None = None
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
                queue = _find(namespace, entity_id)
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
    namespace: Namespace, queue: Sending | None, key: bytes, seq: int, value: bytes, orphans: list[Row]
) -> None:
    """The long way: scheduled and deferred messages, sessions, changed properties, shared bodies, orphans."""
    record = unpack(value)
    if record.shared:
        references = namespace._commons.bodies.references
        references[record.body] = references.get(record.body, 0) + 1
    if queue is None:
        orphans.append((Table.INDEX, key, record.body))
        return
    message = message_of(seq, record)
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


def _restore_duplicates(namespace: Namespace, duplicates: Rows, orphans: list[Row], now_ms: int) -> None:
    for key, value in duplicates:
        entity_id, seq = KEY.unpack(key)
        queue = namespace._by_id.get(entity_id)
        if queue is None:
            orphans.append((Table.DUPLICATES, key, 0))
        else:
            seen_ms, message_id = unpack_duplicate(value)
            queue.restore_duplicate(message_id, seq, seen_ms, now_ms)


def _drop_single_references(references: dict[int, int]) -> None:
    for body in [body for body, count in references.items() if count == 1]:
        del references[body]
