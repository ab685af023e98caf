"""Messages that a person chose by their sequence numbers: deleted, or dead-lettered.

1. Only what is at rest moves: available, deferred, or (to be deleted) scheduled. What a receiver has locked stays.
2. Exactly the numbers given, whatever stands before them; a number that is not there is left out of the answer.
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
    """Delete messages; return the numbers of those that were there."""
    queue.gate.check_receivable()
    queue.touch(now_ms)
    deleted: list[int] = []
    for seq in dict.fromkeys(sequence_numbers):
        message = queue.messages.find_at_rest(seq)
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
    """Dead-letter messages; return the numbers of those that went."""
    queue.gate.check_receivable()
    if queue.dead_letters is None:
        raise NotAllowedError("A message in a dead-letter queue cannot be dead-lettered again.")
    queue.touch(now_ms)
    moved: list[int] = []
    for seq in dict.fromkeys(sequence_numbers):
        message = queue.messages.find_at_rest(seq)
        if message is None or message.state == SCHEDULED:
            continue
        waiting = _set_free(queue, message)
        dead_letter(queue, message, queue.dead_letters, reason, description, facts)
        if waiting:
            queue.messages.note_gone(message)
        moved.append(seq)
    return moved


def _set_free(queue: Queue, message: QueuedMessage) -> bool:
    """Take a deferred message out of its place; True for an available one, which is noted as gone when it has left."""
    if message.state == ACTIVE:
        return True
    del queue.messages.deferred[message.seq]
    if message.session is not None:
        del message.session.aside[message.seq]
    return False
