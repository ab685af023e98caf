"""What time does to a queue: locks expire, messages expire, scheduled ones become active, an idle queue is deleted.

Each tick handles a bounded number of messages; the rest is due again at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.limits import TICK_MESSAGES_MAX, UNLIMITED_MS
from twinbus.store.facts import Facts

from .message import ACTIVE
from .moves import expire, free_session, give_back

if TYPE_CHECKING:
    from .queue import Queue
    from .sessions import Sessions


def lapse_locks(queue: Queue, now_ms: int, facts: Facts) -> int:
    """Take back messages whose lock has expired; each counts as a delivery."""
    lapsed = queue.messages.locks.lapsed(now_ms, TICK_MESSAGES_MAX)
    for message in lapsed:
        queue.messages.unlock(message)
        give_back(queue, message, True, False, now_ms, facts)
    return len(lapsed)


def lapse_sessions(queue: Queue, sessions: Sessions, now_ms: int, facts: Facts) -> int:
    """Take back sessions whose lock has expired, until their messages are as many as one tick should move; their
    receivers are told after the commit. Returns how many messages returned; a session without any counts as one."""
    count = 0
    for session in sessions.locks.lapsed(now_ms, TICK_MESSAGES_MAX):
        count += max(len(session.held), 1)
        session.leaving = True
        free_session(queue, session, now_ms, facts)
        facts.then.append((queue.session_lost, session))
        if count >= TICK_MESSAGES_MAX:
            break
    return count


def expire_due(queue: Queue, now_ms: int, facts: Facts) -> int:
    """Expire available messages whose time to live is over."""
    due = queue.messages.expiry.due(now_ms, TICK_MESSAGES_MAX)
    for message in due:
        expire(queue, message, facts)
        queue.messages.note_gone(message)
    return len(due)


def activate_due(queue: Queue, now_ms: int, facts: Facts) -> int:
    """Activate scheduled messages under a new sequence number, as if they were sent now."""
    messages = queue.messages
    due = messages.schedule.due(now_ms, TICK_MESSAGES_MAX)
    for message in due:
        messages.delete_row(message, facts)
        if message.session is not None:
            message.session.drop_aside(message.seq)
        if message.expires_ms is not None:
            message.expires_ms += now_ms - message.enqueued_ms
        message.enqueued_ms = now_ms
        message.seq = queue.numbers.next(facts)
        message.state = ACTIVE
        messages.write(message, facts)
        queue.arrivals.add(message, facts)
    return len(due)


def idle_deadline_ms(queue: Queue, now_ms: int) -> int | None:
    """When the queue will have been idle long enough. Links and scheduled messages keep it in use."""
    limit_ms = queue.settings.auto_delete_on_idle_ms
    dead_letters = queue.dead_letters
    if limit_ms >= UNLIMITED_MS or dead_letters is None:
        return None
    if queue.links > 0 or dead_letters.links > 0 or len(queue.messages.schedule):
        return now_ms + limit_ms
    return max(queue.accessed_ms, dead_letters.accessed_ms) + limit_ms
