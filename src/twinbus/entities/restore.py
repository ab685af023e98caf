"""Restores a namespace after a restart.

Index rows come in key order, so each queue's messages arrive by sequence number and need no sorting. A plain message
takes the fast path: one unpack, one object, one append. A million of them take about a second, a million copies in
subscriptions about two. Rows of a deleted entity go to the sweep. Rows of an unknown entity and unreadable rows are
set aside: they stay in the store and do not prevent the start.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from twinbus.errors import ServiceError, StoreCorruptError
from twinbus.limits import STORE_FINDINGS_MAX
from twinbus.store.facts import Table

from .entity_ids import IDS_PER_ENTITY, TRANSFER_PART
from .findings import Findings
from .message import ACTIVE, GONE, SCHEDULED, QueuedMessage, Relayed
from .queue import Queue
from .records import (
    BODY_KEY,
    ENTITY_KEY,
    HEAD,
    KEY,
    META_BODIES,
    META_DELETED,
    META_ENTITIES,
    META_PENDING,
    META_SEQUENCE,
    NUMBER,
    RELAY,
    RELAYED,
    RULE_KEY,
    SHARED,
    VERSION,
    message_of,
    unpack,
    unpack_duplicate,
    unpack_session,
)
from .rule import Rule
from .settings import QueueSettings
from .sweep import Row
from .topic import Topic
from .topic_settings import Settings, SubscriptionSettings, TopicSettings

if TYPE_CHECKING:
    from .account import Accounts
    from .namespace import Namespace, Rows
    from .views import Views

# Messages passed to a queue at a time.
_CHUNK: Final = 10_000

# An unmodified copy in a subscription: a shared body, its origin, and nothing after that.
_COPY: Final = ACTIVE | SHARED | RELAYED
_COPY_BYTES: Final = HEAD.size + RELAY.size

_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, struct.error, ServiceError)


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
    last_body: int = 0,
    findings: Findings | None = None,
    accounts: Accounts | None = None,
) -> Namespace:
    set_aside = Findings(STORE_FINDINGS_MAX, strict=True) if findings is None else findings
    marks = dict(meta)
    reserved = max(_number(marks, META_BODIES, set_aside), last_body)
    namespace = cls(name, tokens=tokens, reserved_bodies=reserved, views=views, accounts=accounts)
    namespace.set_aside = set_aside
    namespace._last_id = _number(marks, META_ENTITIES, set_aside)
    _restore_entities(namespace, entities, now_ms)
    for queue in namespace._by_id.values():
        queue.numbers.reserve(_number(marks, META_SEQUENCE + ENTITY_KEY.pack(queue.entity_id), set_aside))
    leftovers = Leftovers(namespace, marks)
    _restore_index(namespace, leftovers.without_pending(index), leftovers)
    _restore_sessions(namespace, sessions, leftovers)
    _restore_duplicates(namespace, duplicates, leftovers, now_ms)
    leftovers.sweep()
    _drop_single_references(namespace._commons.bodies.references)
    for queue in list(namespace._by_id.values()):
        if isinstance(queue, Queue) and queue.sessions is not None:
            queue.sessions.offer_restored()
        queue.arm(now_ms)
    return namespace


def _number(marks: dict[bytes, bytes], key: bytes, findings: Findings) -> int:
    value = marks.get(key)
    if value is None:
        return 0
    if len(value) != NUMBER.size:
        findings.refuse(Table.META, key, f"the mark {key!r} cannot be read")
        return 0
    number: int = NUMBER.unpack(value)[0]
    return number


class Leftovers:
    """Rows without an entity: those of a deleted entity are swept, all others are set aside. Copies of an unfinished
    batch are swept, too."""

    __slots__ = ("_deleted", "_marks", "_namespace", "_pending", "_rows")

    def __init__(self, namespace: Namespace, marks: dict[bytes, bytes]) -> None:
        self._namespace = namespace
        # Marks of deleted entities, which are removed after all other rows of the entity.
        self._marks = [key for key in marks if key.startswith(META_DELETED)]
        self._deleted = {int.from_bytes(key[len(META_DELETED) :], "big") for key in self._marks}
        self._rows: list[Row] = []
        # Body numbers of unfinished batches.
        self._pending: set[int] = set()
        for key in [key for key in marks if key.startswith(META_PENDING)]:
            last = _number(marks, key, namespace.set_aside)
            self._pending.update(range(int.from_bytes(key[len(META_PENDING) :], "big"), last + 1))
            self._marks.append(key)

    def without_pending(self, index: Rows) -> Rows:
        """The rows that are not copies of an unfinished batch."""
        return self._whole(index, self._pending) if self._pending else index

    def _whole(self, index: Rows, pending: set[int]) -> Rows:
        for key, value in index:
            if len(value) >= HEAD.size and HEAD.unpack_from(value)[3] in pending:
                # The bodies are swept after all rows, so no row ever lacks its body.
                self._rows.append((Table.INDEX, key, 0))
            else:
                yield key, value

    def add(self, table: Table, key: bytes, entity_id: int, what: str, body: int = 0) -> None:
        if entity_id in self._deleted:
            self._rows.append((table, key, body))
            return
        namespace = self._namespace
        namespace.set_aside.add(table, key, f"{what} belongs to entity {entity_id}, which does not exist")
        # A new entity must not inherit rows that were set aside.
        namespace._last_id = max(namespace._last_id, entity_id - entity_id % IDS_PER_ENTITY)

    def sweep(self) -> None:
        sweep = self._namespace._commons.sweep
        if self._rows or self._marks:
            bodies = ((Table.BODIES, BODY_KEY.pack(number), 0) for number in self._pending)
            sweep.add(iter([*self._rows, *bodies, *((Table.META, key, 0) for key in self._marks)]))


# --- entities -------------------------------------------------------------------------------------------------------


class _Entity(NamedTuple):
    """A decoded entity record."""

    key: bytes
    settings: Settings
    created_ms: int
    updated_ms: int
    temporary: bool


def _restore_entities(namespace: Namespace, rows: Rows, now_ms: int) -> None:
    findings = namespace.set_aside
    entities: list[_Entity] = []
    rules: list[tuple[bytes, Rule]] = []
    for key, value in rows:
        try:
            fields = json.loads(value)
            if len(key) == RULE_KEY.size:
                rules.append((key, Rule.from_json(fields)))
            else:
                ENTITY_KEY.unpack(key)
                settings = _settings(fields["kind"], fields["settings"])
                times = int(fields["created_ms"]), int(fields["updated_ms"])
                entities.append(_Entity(key, settings, *times, bool(fields.get("temporary"))))
        except _UNREADABLE as error:
            findings.refuse(Table.ENTITIES, key, f"the entity record {key.hex()} cannot be read: {error}")
    # Of two entities with the same name the later one counts: the earlier was deleted.
    by_path = {entity.settings.path.lower(): entity for entity in entities}
    for entity in sorted(entities, key=_subscriptions_last):
        if by_path[entity.settings.path.lower()] is not entity:
            findings.add(Table.ENTITIES, entity.key, f"another entity has the name '{entity.settings.path}'")
        else:
            _restore_entity(namespace, entity, now_ms)
    _restore_rules(namespace, rules)


def _settings(kind: str, fields: dict[str, Any]) -> Settings:
    if kind == "topic":
        return TopicSettings.from_json(fields)
    if kind == "subscription":
        return SubscriptionSettings.from_json(fields)
    return QueueSettings.from_json(fields)


def _subscriptions_last(entity: _Entity) -> bool:
    return isinstance(entity.settings, SubscriptionSettings)


def _restore_entity(namespace: Namespace, entity: _Entity, now_ms: int) -> None:
    (entity_id,) = ENTITY_KEY.unpack(entity.key)
    settings = entity.settings
    made: Queue | Topic
    if isinstance(settings, TopicSettings):
        made = namespace._add_topic(settings, entity_id, now_ms)
    elif isinstance(settings, QueueSettings):
        made = namespace._add_queue(settings, entity_id, now_ms)
    else:
        topic = namespace._entities.get(settings.topic.lower())
        if not isinstance(topic, Topic):
            text = f"the topic of subscription '{settings.path}' does not exist"
            namespace.set_aside.add(Table.ENTITIES, entity.key, text)
            namespace._last_id = max(namespace._last_id, entity_id)
            return
        made = namespace._add_subscription(topic, settings, entity_id, now_ms).queue
    if entity.temporary:
        namespace.temporary[made.path.lower()] = made
    made.created_ms = entity.created_ms
    made.updated_ms = entity.updated_ms


def _restore_rules(namespace: Namespace, rules: list[tuple[bytes, Rule]]) -> None:
    latest = {(key[: ENTITY_KEY.size], rule.name.lower()): key for key, rule in rules}
    for key, rule in rules:
        owner_id, number = RULE_KEY.unpack(key)
        owner = namespace._by_id.get(owner_id)
        subscription = owner.subscription if isinstance(owner, Queue) else None
        if subscription is None:
            text = f"rule '{rule.name}' belongs to subscription {owner_id}, which does not exist"
            namespace.set_aside.add(Table.ENTITIES, key, text)
            namespace._last_id = max(namespace._last_id, owner_id)
        elif latest[key[: ENTITY_KEY.size], rule.name.lower()] != key:
            text = f"another rule of subscription '{subscription.path}' has the name '{rule.name}'"
            namespace.set_aside.add(Table.ENTITIES, key, text)
        else:
            subscription.restore_rule(number, rule)


# --- messages -------------------------------------------------------------------------------------------------------


def _find(namespace: Namespace, entity_id: int) -> Queue | Topic | None:
    """The entity of a row; creates a transfer dead-letter queue if a row belongs to one."""
    found = namespace._by_id.get(entity_id)
    if found is None and entity_id % IDS_PER_ENTITY == TRANSFER_PART:
        owner = namespace._by_id.get(entity_id - TRANSFER_PART)
        if isinstance(owner, Queue):
            return owner.open_transfer()
    return found


def _restore_index(namespace: Namespace, index: Rows, leftovers: Leftovers) -> None:
    unpack_key = KEY.unpack
    unpack_head = HEAD.unpack_from
    unpack_relay = RELAY.unpack_from
    references = namespace._commons.bodies.references
    shared_size = namespace._commons.bodies.size
    last_id = -1
    queue: Queue | Topic | None = None
    plain = False
    size_total = 0
    messages: list[QueuedMessage] = []
    for key, value in index:
        try:
            entity_id, seq = unpack_key(key)
            version, flags, count, body, size, enqueued_ms, expires_ms = unpack_head(value)
        except struct.error as error:
            namespace.set_aside.add(Table.INDEX, key, f"the record of message {key.hex()} cannot be read: {error}")
            continue
        if entity_id != last_id or len(messages) == _CHUNK:
            if queue is not None and messages:
                _restore_many(queue, messages, size_total)
            size_total = 0
            messages = []
            last_id = entity_id
            queue = _find(namespace, entity_id)
            plain = isinstance(queue, Queue) and (queue.dead_letters is None or not queue.settings.requires_session)
        if flags == ACTIVE and plain and version == VERSION:
            size_total += size
            messages.append(
                QueuedMessage(seq, body, shared_size(size), enqueued_ms, expires_ms or None, ACTIVE, count, None, None)
            )
        elif flags == _COPY and plain and version == VERSION and len(value) == _COPY_BYTES:
            origin_seq, hops, _ = unpack_relay(value, HEAD.size)
            references[body] = references.get(body, 0) + 1
            size_total += size
            messages.append(
                Relayed(
                    seq,
                    body,
                    shared_size(size),
                    enqueued_ms,
                    expires_ms or None,
                    ACTIVE,
                    count,
                    None,
                    None,
                    origin_seq,
                    hops,
                    None,
                )
            )
        else:
            if queue is not None and messages:
                _restore_many(queue, messages, size_total)
                size_total = 0
                messages = []
            _restore_message(namespace, queue, key, value, leftovers)
    if queue is not None and messages:
        _restore_many(queue, messages, size_total)


def _restore_many(queue: Queue | Topic, messages: list[QueuedMessage], size: int) -> None:
    queue.numbers.reserve(messages[-1].seq)
    queue.messages.restore_many(messages, size)


def _restore_message(
    namespace: Namespace, queue: Queue | Topic | None, key: bytes, value: bytes, leftovers: Leftovers
) -> None:
    """The slow path: scheduled and deferred messages, sessions, changed properties, shared bodies, leftovers."""
    entity_id, seq = KEY.unpack(key)
    what = f"message {seq}" if queue is None else f"message {seq} of '{queue.path}'"
    try:
        record = unpack(value)
    except StoreCorruptError as error:
        namespace.set_aside.add(Table.INDEX, key, f"the record of {what} cannot be read: {error}")
        return
    if record.shared:
        references = namespace._commons.bodies.references
        references[record.body_number] = references.get(record.body_number, 0) + 1
    if queue is None:
        leftovers.add(Table.INDEX, key, entity_id, what, record.body_number)
    elif record.damaged:
        queue.numbers.reserve(seq)
        queue.messages.restore_damaged(message_of(seq, record))
    elif record.state == GONE or (isinstance(queue, Topic) and record.state != SCHEDULED):
        namespace.set_aside.add(Table.INDEX, key, f"{what} is in no place that this entity has")
    elif isinstance(queue, Queue) and queue.sessions is not None and record.session_id is None:
        namespace.set_aside.add(Table.INDEX, key, f"{what} has no session, and nobody could receive it")
    else:
        queue.numbers.reserve(seq)
        queue.messages.restore(message_of(seq, record), record.session_id)


def _restore_sessions(namespace: Namespace, sessions: Rows, leftovers: Leftovers) -> None:
    for key, value in sessions:
        try:
            (entity_id,) = ENTITY_KEY.unpack_from(key)
            session_id, updated_ms, state = unpack_session(value)
        except (struct.error, StoreCorruptError) as error:
            namespace.set_aside.add(Table.SESSIONS, key, f"the session state {key.hex()} cannot be read: {error}")
            continue
        queue = namespace._by_id.get(entity_id)
        if queue is None:
            leftovers.add(Table.SESSIONS, key, entity_id, f"the state of session '{session_id}'")
        elif not isinstance(queue, Queue) or queue.sessions is None:
            text = f"session '{session_id}' has a state, but '{queue.path}' has no sessions"
            namespace.set_aside.add(Table.SESSIONS, key, text)
        else:
            queue.sessions.restore_state(session_id, updated_ms, state)


def _restore_duplicates(namespace: Namespace, duplicates: Rows, leftovers: Leftovers, now_ms: int) -> None:
    for key, value in duplicates:
        try:
            entity_id, seq = KEY.unpack(key)
            seen_ms, message_id = unpack_duplicate(value)
        except (struct.error, StoreCorruptError) as error:
            namespace.set_aside.add(Table.DUPLICATES, key, f"the message id {key.hex()} cannot be read: {error}")
            continue
        queue = namespace._by_id.get(entity_id)
        if queue is None:
            leftovers.add(Table.DUPLICATES, key, entity_id, f"the id of message {seq}")
        elif queue.duplicates is None:
            text = f"the id of message {seq} is kept, but '{queue.path}' does not detect duplicates"
            namespace.set_aside.add(Table.DUPLICATES, key, text)
        else:
            queue.duplicates.restore(message_id, seq, seen_ms, now_ms)


def _drop_single_references(references: dict[int, int]) -> None:
    for body in [body for body, count in references.items() if count == 1]:
        del references[body]
