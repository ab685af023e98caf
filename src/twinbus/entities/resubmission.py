"""Resubmitting dead letters: they return to the entity that dead-lettered them, as if sent now.

1. A message leaves its dead-letter queue and arrives in one commit, so it is never in both and never in neither.
2. Duplicate detection does not apply, because it was accepted before. A subscription's copy returns only to it.
3. A message that cannot return stays a dead letter and does not block the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from twinbus.errors import ArgumentError, FilterEvaluationError
from twinbus.limits import BATCH_DELETE_MESSAGES_MAX
from twinbus.store.facts import Facts

from .dead_letter import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from .filters import Changes
from .message import ACTIVE, QueuedMessage, Relayed

if TYPE_CHECKING:
    from .queue import Queue
    from .views import Views


class Resubmitted(NamedTuple):
    """The outcome of resubmitting dead letters."""

    moved: int
    # How many stay: they need a session id and have none, or cannot be decoded.
    refused: int
    # The last sequence number looked at; the next call continues after it.
    last_seq: int


def resubmit_dead_letters(
    queue: Queue,
    part: Queue,
    sequence_numbers: Sequence[int] | None,
    after_seq: int,
    views: Views,
    now_ms: int,
    facts: Facts,
) -> Resubmitted:
    """Move dead letters from one of a queue's own dead-letter queues back to the queue."""
    if part.owner is not queue:
        raise ArgumentError(f"'{part.path}' is no dead-letter queue of '{queue.path}'.")
    if sequence_numbers is not None and len(sequence_numbers) > BATCH_DELETE_MESSAGES_MAX:
        raise ArgumentError(
            f"A call takes at most {BATCH_DELETE_MESSAGES_MAX} sequence numbers, this one has {len(sequence_numbers)}."
        )
    queue.gate.check_open()
    queue.touch(now_ms)
    available = part.messages.available
    if sequence_numbers is None:
        # `browse` appends those that returned from a lock, so sort and cut again.
        found = sorted(available.browse(after_seq + 1, BATCH_DELETE_MESSAGES_MAX), key=_seq)
        found = found[:BATCH_DELETE_MESSAGES_MAX]
    else:
        found = [each for seq in dict.fromkeys(sequence_numbers) if (each := available.find(seq)) is not None]
    refused = 0
    for message in found:
        if not _take_back(queue, part, message, views, now_ms, facts):
            refused += 1
    return Resubmitted(len(found) - refused, refused, max(map(_seq, found), default=after_seq))


def _take_back(queue: Queue, part: Queue, message: QueuedMessage, views: Views, now_ms: int, facts: Facts) -> bool:
    view = views.of_stored(message)
    ttl_ms = None if message.expires_ms is None else max(message.expires_ms - message.enqueued_ms, 0)
    expires_ms = queue.expires_at(ttl_ms, now_ms)
    changes = dict(message.changes or {})
    changes.pop(DEAD_LETTER_REASON, None)
    changes.pop(DEAD_LETTER_DESCRIPTION, None)
    session_id: str | None = None
    try:
        if queue.sessions is not None:
            found = view.system("SessionId")
            if found is None:
                return False
            session_id = str(found)
        if expires_ms is not None:
            # The old time is in the stored message, and clients drop messages that look expired.
            changes.update(view.encode(Changes({}, {"ExpiresAtUtc": expires_ms})))
    except FilterEvaluationError:
        return False
    origin_seq, source = message.seq, None
    if isinstance(message, Relayed):
        origin_seq, source = message.origin_seq, message.dead_letter_source
    fresh = Relayed(
        queue.numbers.next(facts),
        message.body_number,
        message.size,
        now_ms,
        expires_ms,
        ACTIVE,
        0,
        None,
        changes or None,
        origin_seq,
        0,
        source,
    )
    part.messages.hand_over(message, facts)
    part.messages.note_gone(message)
    queue.take_in(fresh, session_id, facts)
    return True


def _seq(message: QueuedMessage) -> int:
    return message.seq
