"""Commits a transaction that makes many copies: in steps, over several commits, and yet as a whole or not at all.

1. Everything is checked and the messages are settled before the first step; from then on nothing can be refused.
2. The settlements have their own facts, which the last commit writes together with what makes the copies valid. If the
   broker crashes before that commit, the copies are removed and the messages were never settled.
3. All topics of the transaction are held from the first step to the last commit, so no two of them wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from twinbus.amqp.states import State
from twinbus.broker.links.settlement import settle_all
from twinbus.entities.message import NewMessage
from twinbus.entities.queue import Queue
from twinbus.entities.scheduling import place
from twinbus.entities.topic import Topic
from twinbus.store.facts import Facts, index_numbers


class LongCommit:
    """One transaction on its way to the disk."""

    __slots__ = ("_batches", "_now_ms", "_schedules", "_sends", "_settled", "_settled_on", "topics")

    def __init__(
        self,
        settlements: Mapping[bytes, tuple[Queue, State | None]],
        sends: Mapping[Queue | Topic, list[NewMessage]],
        schedules: Mapping[Queue | Topic, Mapping[NewMessage, int]],
        now_ms: int,
    ) -> None:
        self._now_ms = now_ms
        self._sends = sends
        self._schedules = schedules
        self._settled = Facts()
        self._settled_on = {queue for queue, _ in settlements.values()}
        settle_all(settlements, now_ms, self._settled)
        self.topics = [target for target in dict.fromkeys((*sends, *schedules)) if isinstance(target, Topic)]
        self._batches = [topic.hand_out(sends.get(topic, []), now_ms) for topic in self.topics]

    def steps(self, facts: Callable[[], Facts]) -> Iterator[None]:
        """Everything except the last commit. `facts` returns the facts that are open at each step."""
        for batch in self._batches:
            yield from batch.steps(facts)

    def finish(self, facts: Facts) -> None:
        """The last commit: these facts make the transaction durable, and `show` then makes the copies visible."""
        for batch in self._batches:
            batch.finish(facts)
        self._add_settled(facts)
        now_ms = self._now_ms
        for target, messages in self._sends.items():
            if isinstance(target, Queue) and not target.deleted:
                place(target, target.accept, messages, now_ms, facts)
        for target, numbered in self._schedules.items():
            if not target.deleted:
                accept = target.keep if isinstance(target, Topic) else target.accept
                place(target, accept, list(numbered), now_ms, facts, list(numbered.values()))

    def show(self) -> Iterator[None]:
        """Make the copies visible. Call this when the last commit is durable."""
        for batch in self._batches:
            yield from batch.show()

    def _add_settled(self, facts: Facts) -> None:
        settled = self._settled
        for table, key in settled.deletes:
            facts.delete(table, key)
        # Entities deleted meanwhile get no new rows: after a restart nobody would own them.
        gone = {part.entity_id for queue in self._settled_on if queue.deleted for part in queue.parts}
        for key, row in settled.index.items():
            if index_numbers(key)[0] not in gone:
                facts.index[key] = row
        facts.rows.update(settled.rows)
        facts.then += self._batches[0].without_deleted(self._settled_on, settled.then, facts)
