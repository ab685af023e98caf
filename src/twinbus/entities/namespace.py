"""A namespace: its entities by path, its deadlines, and what outlives a restart.

Entity ids come in blocks of four: the queue itself, its dead-letter queue, and two kept for its transfer dead-letter
queue and later needs. Ids are never used twice, so rows left by a deleted queue can never be taken for another's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from twinbus.errors import EntityExistsError, EntityNotFoundError, QuotaExceededError
from twinbus.limits import ENTITIES_MAX, TICK_MESSAGES_MAX
from twinbus.store.facts import Facts, Table

from .bodies import Bodies
from .commons import Commons
from .effects import Effect, EffectKind
from .holding import not_found_text
from .queue import Queue
from .records import ENTITY_KEY, META_ENTITIES, NUMBER
from .settings import QueueSettings

Rows = Iterable[tuple[bytes, bytes]]

IDS_PER_ENTITY = 4
DEAD_LETTER_SUFFIX = "/$DeadLetterQueue"

_SUFFIX_KEY = DEAD_LETTER_SUFFIX.lower()


class Namespace:
    """All entities of one namespace."""

    def __init__(self, name: str, *, tokens: Callable[[], bytes], reserved_bodies: int = 0) -> None:
        # Its name, for people.
        self.name = name
        # What its queues share.
        self._commons = Commons(tokens, Bodies(reserved_bodies))
        # Queues by lower-case path; dead-letter queues hang on their queue.
        self._queues: dict[str, Queue] = {}
        # Queues and dead-letter queues by entity id.
        self._by_id: dict[int, Queue] = {}
        # The last block of entity ids given out.
        self._last_id = 0

    @classmethod
    def restore(
        cls,
        name: str,
        entities: Rows,
        index: Rows,
        sessions: Rows,
        duplicates: Rows,
        meta: Rows,
        now_ms: int,
        tokens: Callable[[], bytes],
    ) -> Namespace:
        """Read a namespace back. Locks are released; schedules, sessions and the duplicates window go on."""
        from .restore import restore

        return restore(cls, name, entities, index, sessions, duplicates, meta, now_ms, tokens)

    # --- entities ---------------------------------------------------------------------------------------------------

    def create_queue(self, settings: QueueSettings, now_ms: int, facts: Facts) -> Queue:
        key = settings.path.lower()
        if key in self._queues:
            raise EntityExistsError(f"The messaging entity '{settings.path}' already exists.")
        if len(self._queues) >= ENTITIES_MAX:
            raise QuotaExceededError(f"The namespace has {len(self._queues)} entities, the limit is {ENTITIES_MAX}.")
        entity_id = self._last_id + IDS_PER_ENTITY
        facts.rows.append((Table.META, META_ENTITIES, NUMBER.pack(entity_id)))
        queue = self._add(settings, entity_id, now_ms)
        self._write(queue, facts)
        return queue

    def update_queue(self, settings: QueueSettings, now_ms: int, facts: Facts) -> Queue:
        queue = self.queue(settings.path)
        queue.update(settings, now_ms, facts)
        self._write(queue, facts)
        return queue

    def delete_queue(self, path: str, now_ms: int, facts: Facts) -> None:
        """Delete a queue and its dead-letter queue; the rows of their messages go by `sweep`."""
        queue = self._queues.get(path.lower())
        if queue is None:
            raise EntityNotFoundError(not_found_text(path))
        del self._queues[path.lower()]
        facts.deletes.append((Table.ENTITIES, ENTITY_KEY.pack(queue.entity_id)))
        for part in (queue, queue.dead_letters):
            if part is not None:
                del self._by_id[part.entity_id]
                part.close(facts)

    def queue(self, path: str) -> Queue:
        """A queue, or by `<path>/$DeadLetterQueue` its dead-letter queue; names are case-insensitive."""
        key = path.lower()
        if key.endswith(_SUFFIX_KEY):
            parent = self._queues.get(key[: -len(_SUFFIX_KEY)])
            queue = None if parent is None else parent.dead_letters
        else:
            queue = self._queues.get(key)
        if queue is None:
            raise EntityNotFoundError(not_found_text(path))
        return queue

    def queues(self) -> list[Queue]:
        """All queues by path, without dead-letter queues."""
        return [self._queues[key] for key in sorted(self._queues)]

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, facts: Facts) -> list[Effect]:
        """Do what is due. A bounded amount: what remains is due at once again."""
        effects: list[Effect] = []
        budget = TICK_MESSAGES_MAX
        while budget > 0:
            entity_id = self._commons.alarms.pop(now_ms)
            if entity_id is None:
                break
            queue = self._by_id[entity_id]
            if queue.idle(now_ms):
                self.delete_queue(queue.path, now_ms, facts)
                effects.append(Effect(EffectKind.IDLE_DELETED, queue, 1))
                budget -= 1
                continue
            done = queue.tick(now_ms, facts)
            budget -= 1 + sum(effect.count for effect in done)
            effects.extend(done)
        return effects

    def next_deadline(self) -> int | None:
        """When the next tick is due."""
        return self._commons.alarms.next_ms()

    def sweep(self, facts: Facts, limit: int = TICK_MESSAGES_MAX) -> bool:
        """Remove up to `limit` rows that deleted entities left; True when more remain."""
        return self._commons.sweep.step(facts, limit)

    @property
    def sweep_pending(self) -> bool:
        """Rows of deleted entities wait for `sweep`."""
        return self._commons.sweep.pending

    # --- parts ------------------------------------------------------------------------------------------------------

    def _add(self, settings: QueueSettings, entity_id: int, now_ms: int) -> Queue:
        dead_path = settings.path + DEAD_LETTER_SUFFIX
        dead_letters = Queue(settings, dead_path, entity_id + 1, self._commons, None, now_ms)
        queue = Queue(settings, settings.path, entity_id, self._commons, dead_letters, now_ms)
        self._queues[settings.path.lower()] = queue
        self._by_id[entity_id] = queue
        self._by_id[entity_id + 1] = dead_letters
        self._last_id = max(self._last_id, entity_id)
        queue.arm(now_ms)
        return queue

    def _write(self, queue: Queue, facts: Facts) -> None:
        fields = {
            "kind": "queue",
            "settings": queue.settings.to_json(),
            "created_ms": queue.created_ms,
            "updated_ms": queue.updated_ms,
        }
        row = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        facts.rows.append((Table.ENTITIES, ENTITY_KEY.pack(queue.entity_id), row))
