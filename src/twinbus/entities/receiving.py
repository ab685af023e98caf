"""Other ways to receive: in a session, by sequence number, and deleting a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.errors import ArgumentError, MessageNotFoundError, NotAllowedError
from twinbus.limits import BATCH_DELETE_MESSAGES_MAX
from twinbus.store.facts import Facts

from .available import Available
from .message import QueuedMessage
from .moves import expire, pick
from .refusals import SESSION_NEEDED_TEXT

if TYPE_CHECKING:
    from .queue import Queue
    from .session import MessageSession
    from .sessions import Sessions


def acquire_in_session(
    session: MessageSession, count: int, now_ms: int, facts: Facts, limit_bytes: int
) -> list[QueuedMessage]:
    """Lock a session's next messages; none while an earlier one is returning."""
    picked = _pick_in_session(session, count, now_ms, facts, limit_bytes)
    if picked:
        assert session.locked_until_ms is not None
        session.queue.messages.lock(picked, session.locked_until_ms)
    return picked


def take_in_session(
    session: MessageSession, count: int, now_ms: int, facts: Facts, limit_bytes: int
) -> list[QueuedMessage]:
    """Take a session's next messages for a receive-and-delete receiver; see `Queue.take`."""
    picked = _pick_in_session(session, count, now_ms, facts, limit_bytes)
    session.queue.messages.take(picked)
    return picked


def _pick_in_session(
    session: MessageSession, count: int, now_ms: int, facts: Facts, limit_bytes: int
) -> list[QueuedMessage]:
    queue = session.queue
    queue.gate.check_receivable()
    session.check(now_ms)
    if session.returning:
        return []
    queue.touch(now_ms)
    return pick(queue, session.available, count, now_ms, facts, limit_bytes)


def receive_by_number(
    queue: Queue, sequence_numbers: Sequence[int], now_ms: int, facts: Facts, session: MessageSession | None
) -> list[QueuedMessage]:
    """Lock deferred messages. All must exist; expired ones leave and are not returned."""
    queue.gate.check_receivable()
    if queue.sessions is not None:
        if session is None:
            raise NotAllowedError(SESSION_NEEDED_TEXT)
        session.check(now_ms)
    deferred = queue.messages.deferred
    found: list[QueuedMessage] = []
    for seq in dict.fromkeys(sequence_numbers):
        message = deferred.get(seq)
        if message is None or message.session is not session:
            raise MessageNotFoundError(f"No deferred message has the sequence number {seq}.")
        found.append(message)
    queue.touch(now_ms)
    until = now_ms + queue.settings.lock_duration_ms
    if session is not None:
        assert session.locked_until_ms is not None
        until = session.locked_until_ms
    received: list[QueuedMessage] = []
    for message in found:
        del deferred[message.seq]
        if session is not None:
            session.drop_aside(message.seq)
        if queue.dead_letters is not None and message.expires_ms is not None and message.expires_ms <= now_ms:
            expire(queue, message, facts)
            continue
        received.append(message)
    if received:
        queue.messages.lock(received, until)
    queue.alarm.wake(until)
    return received


def delete_available(
    queue: Queue, count: int, before_ms: int, now_ms: int, facts: Facts, session_id: str | None
) -> int:
    """Delete up to `count` available messages, in order, until one was not enqueued before `before_ms`; return how
    many."""
    if not 1 <= count <= BATCH_DELETE_MESSAGES_MAX:
        raise ArgumentError(f"The message count {count} is out of range: 1 to {BATCH_DELETE_MESSAGES_MAX}.")
    queue.gate.check_receivable()
    queue.touch(now_ms)
    sources: list[Available] = [queue.messages.available]
    if queue.sessions is not None:
        if session_id is None:
            sources = _with_older(queue.sessions, count, before_ms)
        else:
            session = queue.sessions.by_id.get(session_id)
            sources = [] if session is None else [session.available]
    deleted = 0
    for available in sources:
        while deleted < count:
            message = available.first()
            if message is None or message.enqueued_ms >= before_ms:
                break
            available.pop()
            queue.messages.remove(message, facts)
            deleted += 1
    return deleted


def _with_older(sessions: Sessions, count: int, before_ms: int) -> list[Available]:
    """The messages of up to `count` sessions whose next one was enqueued before that time: there may be a million
    sessions."""
    found: list[Available] = []
    for session in sessions.by_id.values():
        message = session.available.first()
        if message is not None and message.enqueued_ms < before_ms:
            found.append(session.available)
            if len(found) == count:
                break
    return found
