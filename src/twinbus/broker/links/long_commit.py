"""Commits a transaction that makes many copies: in steps, over several commits, and yet as a whole or not at all.

1. Everything is checked and the locks of the messages to settle are pinned before the first step; from then on nothing
   can be refused.
2. The messages are settled in the last commit, which also makes the copies valid, and nothing knows of it earlier: what
   the commits in between delete, number or drop must not depend on facts that a crash would undo. If the broker crashes
   before the last commit, the copies are removed and the messages were never settled.
3. All topics of the transaction are held from the first step to the last commit, so no two of them wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from twinbus.amqp.states import State
from twinbus.broker.links.pending_changes import PendingChanges
from twinbus.broker.links.settlement import check_all, settle_checked
from twinbus.entities.message import NewMessage, QueuedMessage
from twinbus.entities.queue import Queue
from twinbus.entities.scheduling import place
from twinbus.entities.session import MessageSession
from twinbus.entities.topic import Topic
from twinbus.store.facts import Facts


class LongCommit:
    """One transaction on its way to the disk."""

    __slots__ = ("_batches", "_changes", "_now_ms", "_pinned", "_schedules", "_sends", "topics")

    def __init__(
        self,
        settlements: Mapping[bytes, tuple[Queue, State | None]],
        sends: Mapping[Queue | Topic, list[NewMessage]],
        schedules: Mapping[Queue | Topic, Mapping[NewMessage, int]],
        changes: PendingChanges,
        now_ms: int,
    ) -> None:
        self._now_ms = now_ms
        self._sends = sends
        self._schedules = schedules
        self._changes = changes
        check_all(settlements, now_ms)
        self.topics = [target for target in dict.fromkeys((*sends, *schedules)) if isinstance(target, Topic)]
        self._batches = [topic.hand_out(sends.get(topic, []), now_ms) for topic in self.topics]
        # The messages to settle, and how.
        self._pinned: list[tuple[Queue, QueuedMessage, State | None]] = [
            (queue, queue.messages.pin(token, now_ms), state) for token, (queue, state) in settlements.items()
        ]

    def steps(self, facts: Callable[[], Facts]) -> Iterator[None]:
        """Everything except the last commit. `facts` returns the facts that are open at each step."""
        for batch in self._batches:
            yield from batch.steps(facts)

    def finish(self, facts: Facts) -> None:
        """The last commit: these facts make the transaction durable, and `show` then makes the copies visible."""
        for batch in self._batches:
            batch.finish(facts)
        now_ms = self._now_ms
        for queue, token, state in self._unpinned(facts):
            settle_checked(queue, token, state, now_ms, facts)
        for target, messages in self._sends.items():
            if isinstance(target, Queue) and not target.deleted:
                place(target, target.accept, messages, now_ms, facts)
        for target, numbered in self._schedules.items():
            if not target.deleted:
                accept = target.keep if isinstance(target, Topic) else target.accept
                place(target, accept, list(numbered), now_ms, facts, list(numbered.values()))
        self._changes.put_states(now_ms, facts)

    def show(self) -> Iterator[None]:
        """Make the copies visible. Call this when the last commit is durable."""
        for batch in self._batches:
            yield from batch.show()

    def undo(self, facts: Facts) -> None:
        """A step failed: forget the copies and return the messages."""
        for batch in self._batches:
            batch.undo()
        for queue, token, _ in self._unpinned(facts):
            queue.release(token, self._now_ms, facts)

    def _unpinned(self, facts: Facts) -> Iterator[tuple[Queue, bytes, State | None]]:
        """The messages to settle now, without those of queues deleted meanwhile."""
        sessions: dict[MessageSession, Queue] = {}
        for queue, message, state in self._pinned:
            if not queue.deleted:
                assert message.token is not None
                if message.session is not None:
                    sessions[message.session] = queue
                yield queue, message.token, state
        for session, queue in sessions.items():
            # Its next messages had to wait.
            facts.then.append((queue.announce_again, session))
