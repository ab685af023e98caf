"""How messages move in a queue: picked for a receiver, returned, expired, dead-lettered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.limits import ACQUIRE_BYTES_MAX, EXPIRED_PER_ACQUIRE_MAX
from twinbus.store.facts import Facts

from .available import Available
from .dead_letter import EXHAUSTED_REASON, EXPIRED_DESCRIPTION, EXPIRED_REASON, with_reason
from .message import ACTIVE, QueuedMessage, moved

if TYPE_CHECKING:
    from .queue import Queue
    from .session import MessageSession


def pick(
    queue: Queue, available: Available, count: int, now_ms: int, facts: Facts, limit_bytes: int = ACQUIRE_BYTES_MAX
) -> list[QueuedMessage]:
    """Remove the next messages until one reaches the limit; also expire a bounded number of messages."""
    picked, expired = available.pick(count, limit_bytes, 0 if queue.dead_letters is None else now_ms)
    if expired:
        expire_picked(queue, expired, facts)
    return picked


def expire_picked(queue: Queue, expired: list[QueuedMessage], facts: Facts) -> None:
    """Expire messages found while picking. If their number hit the bound, more may be available."""
    for message in expired:
        expire(queue, message, facts)
    if len(expired) == EXPIRED_PER_ACQUIRE_MAX:
        facts.then.append((queue.announce_again, expired[-1].session))


def expire(queue: Queue, message: QueuedMessage, facts: Facts) -> None:
    if queue.settings.dead_letter_on_expiry:
        assert queue.dead_letters is not None
        dead_letter(queue, message, queue.dead_letters, EXPIRED_REASON, EXPIRED_DESCRIPTION, facts)
    else:
        queue.messages.remove(message, facts)


def dead_letter(
    queue: Queue, message: QueuedMessage, target: Queue, reason: str | None, description: str | None, facts: Facts
) -> None:
    """Move a message to one of the queue's own dead-letter queues. Only its index record moves."""
    changes = with_reason(message, reason, description)
    queue.messages.hand_over(message, facts)
    target.take_in(moved(message, changes), None, facts)


def give_back(queue: Queue, message: QueuedMessage, counts: bool, changed: bool, now_ms: int, facts: Facts) -> None:
    """Return an unlocked message to its old place, unless its deliveries or its time to live are used up."""
    dead_letters = queue.dead_letters
    if dead_letters is None:
        # Dead-letter queues do not count deliveries: there is nowhere further to go.
        counts = False
    else:
        if counts:
            message.delivery_count += 1
            if message.delivery_count >= queue.settings.max_delivery_count:
                description = f"Message could not be consumed after {message.delivery_count} delivery attempts."
                dead_letter(queue, message, dead_letters, EXHAUSTED_REASON, description, facts)
                return
        if message.expires_ms is not None and message.expires_ms <= now_ms and message.state == ACTIVE:
            expire(queue, message, facts)
            return
    if counts or changed:
        queue.messages.write(message, facts)
    if message.session is not None:
        message.session.returning += 1
    queue.arrivals.add(message, facts)


def free_session(queue: Queue, session: MessageSession, now_ms: int, facts: Facts) -> None:
    """Remove a session's lock. Its locked messages return, each counting as a delivery; later messages of the session
    wait until that is durable."""
    if queue.sessions is not None:
        queue.sessions.unlock(session)
    for message in list(session.held.values()):
        queue.messages.unlock(message)
        give_back(queue, message, True, False, now_ms, facts)
