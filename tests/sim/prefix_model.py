"""What a namespace remembers, and what a disk holds: after every commit the two must say the same.

The memory is recorded when a commit's facts are closed, and compared with the disk when that commit is written. A
difference means that a crash right then would bring back something that a later commit had already been told is gone,
or lose something that memory took for safe: a body, a number, a duplicate id, a session, bytes of a quota.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from twinbus.entities import records
from twinbus.entities.arrivals import Arrivals
from twinbus.entities.fan_out import FanOut
from twinbus.entities.large_send import LargeSend
from twinbus.entities.message import GONE, QueuedMessage
from twinbus.entities.namespace import Namespace
from twinbus.entities.queue import Queue
from twinbus.entities.records import (
    ENTITY_KEY,
    META_BODIES,
    META_DELETED,
    META_ENTITIES,
    META_PENDING,
    META_SEQUENCE,
    NUMBER,
)
from twinbus.entities.topic import Topic
from twinbus.store.facts import Facts, Table, body_number, index_numbers

ALL = 1 << 62

# Entity id and sequence number.
Place = tuple[int, int]


@dataclass
class Summary:
    """What a namespace consists of, as far as a restart must find it again."""

    # Body, state, delivery count, session, size and changed properties of each message.
    messages: dict[Place, tuple[Any, ...]] = field(default_factory=dict)
    # Bytes that count against the quota of each entity that has some.
    bytes: dict[int, int] = field(default_factory=dict)
    # Where the ids for duplicate detection came from.
    ids: set[tuple[int, int, str]] = field(default_factory=set)
    # States of sessions.
    states: dict[tuple[int, str], bytes] = field(default_factory=dict)
    # How many messages each session has.
    members: dict[tuple[int, str], int] = field(default_factory=dict)
    # Reference counts of bodies that have more than one.
    references: dict[int, int] = field(default_factory=dict)


@dataclass
class Numbers:
    """The highest numbers handed out: sequence numbers by entity, of bodies, of entities."""

    sequence: dict[int, int] = field(default_factory=dict)
    body: int = 0
    entity: int = 0


def held(entity: Queue | Topic) -> Iterator[QueuedMessage]:
    """The messages of an entity that do not wait for a commit."""
    messages = entity.messages
    yield from messages.available.browse(0, ALL)
    yield from messages.locks.held.values()
    yield from messages.locks.older.values()
    yield from messages.pinned.values()
    yield from (message for message in messages.taken.values() if message.state != GONE)
    yield from messages.deferred.values()
    yield from messages.schedule.messages.values()
    yield from messages.damaged.values()
    if isinstance(entity, Queue) and entity.sessions is not None:
        for session in entity.sessions.by_id.values():
            yield from session.available.browse(0, ALL)


def remembered(
    namespace: Namespace, closed: Iterable[Facts], finished: Iterable[FanOut], unfinished: Iterable[FanOut | LargeSend]
) -> tuple[Summary, Numbers]:
    """What memory says. `closed` are facts whose calls are not made yet; batches that are finished wait to be shown,
    and unfinished ones do not exist yet."""
    summary, numbers = Summary(), Numbers()
    waiting: dict[int, list[QueuedMessage]] = {}
    for facts in (*closed, *(batch._last for batch in finished)):
        for call, messages in facts.then:
            arrivals = getattr(call, "__self__", None)
            if isinstance(arrivals, Arrivals):
                waiting.setdefault(id(arrivals), []).extend(messages)
    early = [message for batch in unfinished for message in unseen(batch)]
    early_bytes = Counter[int]()
    early_members = Counter[tuple[int, str]]()
    for entity_id, message in early:
        early_bytes[entity_id] += message.size
        if message.session is not None:
            early_members[entity_id, message.session.id] += 1
    for entity in namespace._by_id.values():
        entity_id = entity.entity_id
        arrivals = entity._arrivals if isinstance(entity, Topic) else entity.arrivals
        for message in (*held(entity), *waiting.get(id(arrivals), ())):
            assert (entity_id, message.seq) not in summary.messages, f"{message} of {entity.path} is in two places"
            summary.messages[entity_id, message.seq] = (
                message.body_number,
                message.state,
                message.delivery_count,
                None if message.session is None else message.session.id,
                message.size,
                message.changes,
            )
        if size := entity.messages.bytes - early_bytes[entity_id]:
            summary.bytes[entity_id] = size
        if isinstance(entity, Topic) or entity.owner is None:
            # Dead letters keep the numbers of their queue.
            numbers.sequence[entity_id] = entity.numbers.last
        if entity.duplicates is not None:
            summary.ids |= {(entity_id, seq, name) for _, seq, name in entity.duplicates._order}
        if isinstance(entity, Queue) and entity.sessions is not None:
            for session in entity.sessions.by_id.values():
                if session.state is not None:
                    summary.states[entity_id, session.id] = session.state
                if members := session.members - early_members[entity_id, session.id]:
                    summary.members[entity_id, session.id] = members
    bodies = namespace._commons.bodies
    summary.references = dict(bodies.references)
    numbers.body, numbers.entity = bodies._last, namespace._last_id
    return summary, numbers


def unseen(batch: FanOut | LargeSend) -> Iterator[tuple[int, QueuedMessage]]:
    """Messages of an unfinished batch, with the entity in which they count already."""
    if isinstance(batch, LargeSend):
        for message, _ in batch._taken:
            yield batch._queue.entity_id, message
        return
    parts = {id(part.arrivals): part for each in batch._touched for part in each.queue.parts}
    for call, messages in batch._last.then:
        part = parts[id(getattr(call, "__self__", None))]
        for message in messages:
            yield part.entity_id, message


class Disk:
    """The rows of a store, read as a restart reads them."""

    def __init__(self, rows: dict[Table, dict[bytes, bytes]]) -> None:
        self.rows = rows
        meta = rows[Table.META]
        self.entities = {
            part
            for key in rows[Table.ENTITIES]
            if len(key) == ENTITY_KEY.size
            for part in range(ENTITY_KEY.unpack(key)[0], ENTITY_KEY.unpack(key)[0] + 3)
        }
        self.deleted = {
            ENTITY_KEY.unpack_from(key, len(META_DELETED))[0] for key in meta if key.startswith(META_DELETED)
        }
        # Bodies of unfinished batches: they and all rows that refer to them do not exist.
        self.pending = {
            number
            for key, value in meta.items()
            if key.startswith(META_PENDING)
            for number in range(int.from_bytes(key[len(META_PENDING) :], "big"), NUMBER.unpack(value)[0] + 1)
        }

    def summary(self) -> Summary:
        found = Summary()
        # Bodies that a row refers to, also if the row does not count.
        rows: set[int] = set()
        counted = Counter[int]()
        flagged = Counter[int]()
        members = Counter[tuple[int, str]]()
        sizes = Counter[int]()
        for key, value in self.rows[Table.INDEX].items():
            entity_id, seq = index_numbers(key)
            record = records.unpack(value)
            rows.add(record.body_number)
            if record.body_number in self.pending:
                continue
            counted[record.body_number] += 1
            flagged[record.body_number] += record.shared
            if entity_id not in self.entities:
                assert entity_id in self.deleted, f"message {seq} of entity {entity_id} belongs to nobody"
                continue
            found.messages[entity_id, seq] = (
                record.body_number,
                record.state,
                record.delivery_count,
                record.session_id,
                record.size,
                record.changes,
            )
            sizes[entity_id] += record.size
            if record.session_id is not None:
                members[entity_id, record.session_id] += 1
        found.bytes, found.members = dict(sizes), dict(members)
        found.references = {body: count for body, count in counted.items() if count > 1}
        for body, count in found.references.items():
            assert flagged[body] == count, f"{count} rows share body {body}, and a restart would count {flagged[body]}"
        stored = {body_number(key) for key in self.rows[Table.BODIES]}
        assert rows <= stored, f"rows without a body: {sorted(rows - stored)}"
        assert stored <= {*counted, *self.pending}, (
            f"bodies without a row: {sorted(stored - {*counted, *self.pending})}"
        )
        for key, value in self.rows[Table.DUPLICATES].items():
            entity_id, seq = index_numbers(key)
            if entity_id in self.entities:
                found.ids.add((entity_id, seq, records.unpack_duplicate(value)[1]))
        for key, value in self.rows[Table.SESSIONS].items():
            (entity_id,) = ENTITY_KEY.unpack_from(key)
            if entity_id in self.entities:
                session_id, _, state = records.unpack_session(value)
                found.states[entity_id, session_id] = state
        return found

    def numbers(self) -> Numbers:
        """The numbers above which a restart continues."""
        meta = self.rows[Table.META]
        found = Numbers()
        for entity_id in self.entities:
            mark = meta.get(META_SEQUENCE + ENTITY_KEY.pack(entity_id))
            found.sequence[entity_id] = 0 if mark is None else NUMBER.unpack(mark)[0]
        for key in self.rows[Table.INDEX]:
            entity_id, seq = index_numbers(key)
            if entity_id in self.entities:
                found.sequence[entity_id] = max(found.sequence[entity_id], seq)
        found.body = max(
            [NUMBER.unpack(meta.get(META_BODIES, bytes(8)))[0], *map(body_number, self.rows[Table.BODIES])]
        )
        found.entity = NUMBER.unpack(meta.get(META_ENTITIES, bytes(8)))[0]
        return found


def compare(memory: tuple[Summary, Numbers], disk: Disk) -> None:
    """Raise if a restart would find something else than memory took for granted."""
    wanted, found = memory[0], disk.summary()
    # Bodies of batches that are unfinished, or failed, are deleted at the next start.
    wanted.references = {body: count for body, count in wanted.references.items() if body not in disk.pending}
    for name in ("messages", "bytes", "ids", "states", "members", "references"):
        said, holds = getattr(wanted, name), getattr(found, name)
        assert said == holds, f"{name}: only in memory {_only(said, holds)}, only on disk {_only(holds, said)}"
    used, marks = memory[1], disk.numbers()
    for entity_id, last in used.sequence.items():
        assert marks.sequence.get(entity_id, 0) >= last, f"number {last} of entity {entity_id} would be used again"
    assert marks.body >= used.body, f"body number {used.body} would be used again"
    assert marks.entity >= used.entity, f"entity id {used.entity} would be used again"


def _only(some: Any, others: Any) -> list[Any]:
    if isinstance(some, dict):
        return [item for item in some.items() if others.get(item[0]) != item[1]][:5]
    return sorted(some - others)[:5]
