"""Sends a large batch to a queue in steps, in one commit.

The steps write into separate facts, which the last step adds to the open ones. Until then others can send to the queue.
The numbers are reserved in the open facts before the first step, so that none is used twice after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from twinbus.store.facts import Facts

from .message import ACTIVE, SCHEDULED, NewMessage, QueuedMessage
from .records import BODY_KEY, KEY
from .refusals import not_found

if TYPE_CHECKING:
    from .queue import Queue

# Messages accepted in one step, and shown in one call after the commit.
_MESSAGES: Final = 50


class LargeSend:
    """One batch on its way into a queue: accepted as a whole or not at all."""

    __slots__ = ("_bodies", "_messages", "_now_ms", "_own", "_queue", "_taken")

    def __init__(self, queue: Queue, messages: Sequence[NewMessage], now_ms: int) -> None:
        queue.check_send(messages)
        queue.accessed_ms = now_ms
        self._queue = queue
        self._bodies = queue._bodies
        self._messages = messages
        self._now_ms = now_ms
        self._own = Facts()
        # The accepted messages, with their ids for duplicate detection.
        self._taken: list[tuple[QueuedMessage, str]] = []

    def steps(self, facts: Facts) -> Iterator[None]:
        """Everything except the end; the numbers are reserved in `facts`."""
        queue = self._queue
        kept = [new for new in self._messages if not new.ping]
        queue.pings += len(self._messages) - len(kept)
        numbers = queue.reserve_numbers(len(kept), facts)
        body = self._bodies.reserve(len(kept), facts)
        yield None
        for at, new in enumerate(kept):
            if queue.deleted:
                return
            self._take(new, numbers[at], body + at)
            if at % _MESSAGES == _MESSAGES - 1:
                yield None

    def finish(self, facts: Facts) -> None:
        """Add everything to the open facts, which make it durable and visible."""
        queue, own = self._queue, self._own
        if queue.deleted:
            raise not_found(queue.path)
        duplicates = queue.duplicates
        shown: list[QueuedMessage] = []
        for message, message_id in self._taken:
            if duplicates is not None:
                # Check again, because others may have sent the same id meanwhile.
                if duplicates.find(message_id, self._now_ms) is not None:
                    self._drop(message)
                    continue
                duplicates.add(message_id, message.seq, self._now_ms, facts)
            shown.append(message)
        facts.bodies.update(own.bodies)
        facts.index.update(own.index)
        for start in range(0, len(shown), _MESSAGES):
            facts.then.append((queue.arrivals.durable, shown[start : start + _MESSAGES]))

    def undo(self) -> None:
        """A step failed: forget what the steps accepted."""
        if not self._queue.deleted:
            for message, _ in self._taken:
                self._queue.messages.withdraw(message)

    def _take(self, new: NewMessage, seq: int, body: int) -> None:
        queue, now_ms = self._queue, self._now_ms
        enqueued_ms, state = now_ms, ACTIVE
        if new.scheduled_ms is not None and new.scheduled_ms > now_ms:
            enqueued_ms, state = new.scheduled_ms, SCHEDULED
        expires_ms = queue.expires_at(new.ttl_ms, enqueued_ms)
        size = self._bodies.size(new.size)
        message = QueuedMessage(seq, body, size, enqueued_ms, expires_ms, state, 0, None, None)
        if queue.sessions is not None:
            assert new.session_id is not None
            message.session = queue.sessions.join(new.session_id)
        queue.messages.take_in(message, self._own)
        self._own.bodies[BODY_KEY.pack(body)] = new.body
        self._taken.append((message, new.message_id))

    def _drop(self, message: QueuedMessage) -> None:
        """Undo a duplicate: accepted, but not kept."""
        queue, own = self._queue, self._own
        del own.index[KEY.pack(queue.entity_id, message.seq)]
        del own.bodies[BODY_KEY.pack(message.body_number)]
        queue.messages.withdraw(message)
