"""Delete or dead-letter messages that a person selected by sequence number.

1. Only messages at rest move: available, deferred, or (delete only) scheduled. Locked messages stay.
2. Exactly the given numbers move, whatever precedes them; unknown numbers are missing from the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.errors import NotAllowedError
from twinbus.store.facts import Facts

from .message import ACTIVE, SCHEDULED, QueuedMessage
from .moves import dead_letter

if TYPE_CHECKING:
    from .queue import Queue


def delete_chosen(queue: Queue, sequence_numbers: Sequence[int], now_ms: int, facts: Facts) -> list[int]:
    """Delete messages; return the numbers of those that were found."""
    queue.gate.check_receivable()
    queue.touch(now_ms)
    deleted: list[int] = []
    found = queue.messages.find_all_at_rest(sequence_numbers)
    for seq in dict.fromkeys(sequence_numbers):
        message = found.get(seq)
        if message is None:
            continue
        if message.state == SCHEDULED:
            queue.cancel([seq], now_ms, facts)
        else:
            waiting = _set_free(queue, message)
            queue.messages.remove(message, facts)
            if waiting:
                queue.messages.note_gone(message)
        deleted.append(seq)
    return deleted


def dead_letter_chosen(
    queue: Queue,
    sequence_numbers: Sequence[int],
    now_ms: int,
    facts: Facts,
    reason: str | None,
    description: str | None,
) -> list[int]:
    """Dead-letter messages; return the numbers of those that moved."""
    queue.gate.check_receivable()
    if queue.dead_letters is None:
        raise NotAllowedError("A message in a dead-letter queue cannot be dead-lettered again.")
    queue.touch(now_ms)
    moved: list[int] = []
    found = queue.messages.find_all_at_rest(sequence_numbers)
    for seq in dict.fromkeys(sequence_numbers):
        message = found.get(seq)
        if message is None or message.state == SCHEDULED:
            continue
        waiting = _set_free(queue, message)
        dead_letter(queue, message, queue.dead_letters, reason, description, facts)
        if waiting:
            queue.messages.note_gone(message)
        moved.append(seq)
    return moved


def _set_free(queue: Queue, message: QueuedMessage) -> bool:
    """Remove a deferred message from its index. True for an available one, which the caller must note as gone."""
    if message.state == ACTIVE:
        return True
    del queue.messages.deferred[message.seq]
    if message.session is not None:
        message.session.drop_aside(message.seq)
    return False
