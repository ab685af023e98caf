"""Receiving by hand: messages are locked for a login, shown, and settled one by one.

- A login can settle only what it received itself: lock tokens stay in the broker.
- A session is held while one of its messages is, and released with the last one.
- Nothing renews a lock automatically: when the page is closed its locks expire, like those of any other receiver.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.auth.policies import Right
from twinbus.broker.durability import until_durable
from twinbus.broker.http.console.fields import Fields, queue_place, sequence_numbers, text, whole
from twinbus.broker.http.console.messages import shown_message
from twinbus.broker.messages import damage
from twinbus.broker.messages.stored import render
from twinbus.entities.message import QueuedMessage
from twinbus.entities.queue import Queue
from twinbus.entities.session import MessageSession
from twinbus.errors import ArgumentError, MessageLockLostError, SessionLockLostError
from twinbus.ledger.words import Kind
from twinbus.limits import CONSOLE_HELD_MAX, CONSOLE_RECEIVE_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.visitor import Visitor

_SETTLEMENTS = {
    "complete": Kind.COMPLETE,
    "abandon": Kind.ABANDON,
    "defer": Kind.DEFER,
    "dead-letter": Kind.DEAD_LETTER,
    "renew": Kind.RENEW,
}


class HeldMessage(NamedTuple):
    """A message that a login has received and not settled yet."""

    queue: Queue
    message: QueuedMessage
    token: bytes


async def receive(visitor: Visitor, fields: Fields) -> Fields:
    """Lock the next messages (of one session, if the entity has sessions), or deferred ones by number."""
    host, queue = queue_place(visitor, fields, Right.LISTEN)
    count = whole(fields, "count", 1, CONSOLE_RECEIVE_MAX)
    held = visitor.login.held
    for handle, each in list(held.items()):
        if each.message.token != each.token:
            # Its lock has expired.
            del held[handle]
    if len(held) + count > CONSOLE_HELD_MAX:
        raise ArgumentError(f"You hold {len(held)} messages: settle some first. The limit is {CONSOLE_HELD_MAX}.")
    now_ms, facts = host.clock.now_ms(), host.commits.facts
    session = _session(queue, text(fields, "session"), now_ms)
    if queue.sessions is not None and session is None:
        return {"received": []}
    if fields.get("numbers") is not None:
        found = queue.receive_deferred(sequence_numbers(fields, count), now_ms, facts, session=session)
    elif session is not None:
        found = session.acquire(count, now_ms, facts)
    else:
        found = queue.acquire(count, now_ms, facts)
    bodies = zip(*damage.whole(host, queue, found), strict=True)
    shown = [_shown(host, queue, message, body, held) for message, body in bodies]
    if session is not None and not session.held:
        queue.release_session(session, now_ms, facts)
    host.meter.entity(queue.path).counter(Kind.RECEIVE).add_many([each["size_bytes"] for each in shown if each])
    # Locks are not stored, but messages that expired on the way are.
    await until_durable(host)
    return {"received": [each for each in shown if each]}


async def settle(visitor: Visitor, fields: Fields) -> Fields:
    """Complete, abandon, defer or dead-letter a message received here, or renew its lock."""
    host, queue = queue_place(visitor, fields, Right.LISTEN)
    how, handle = text(fields, "how"), text(fields, "handle")
    if how not in _SETTLEMENTS:
        raise ArgumentError(f"A message is settled by one of: {', '.join(_SETTLEMENTS)}.")
    held = visitor.login.held.get(handle)
    if held is None or held.queue is not queue:
        raise MessageLockLostError
    now_ms, facts = host.clock.now_ms(), host.commits.facts
    until_ms: int | None = None
    session = held.message.session
    try:
        if how == "renew":
            until_ms = queue.renew_session(session.id, now_ms) if session else queue.renew(held.token, now_ms)
        elif how == "dead-letter":
            reason, description = text(fields, "reason") or None, text(fields, "description") or None
            queue.dead_letter(held.token, now_ms, facts, reason, description)
        else:
            getattr(queue, how)(held.token, now_ms, facts)
    except (MessageLockLostError, SessionLockLostError):
        visitor.login.held.pop(handle, None)
        raise
    if until_ms is None:
        visitor.login.held.pop(handle, None)
        if session is not None and not session.held:
            queue.release_session(session, now_ms, facts)
    host.meter.entity(queue.path).counter(_SETTLEMENTS[how]).count += 1
    await until_durable(host)
    return {"settled": how, "locked_until_ms": until_ms}


def _session(queue: Queue, session_id: str, now_ms: int) -> MessageSession | None:
    if queue.sessions is None:
        return None
    return queue.accept_session(session_id or None, now_ms)


def _shown(
    host: NamespaceHost, queue: Queue, message: QueuedMessage, body: bytes, held: dict[str, HeldMessage]
) -> dict[str, Any] | None:
    try:
        payload = render(body, message)
    except damage.UNREADABLE as error:
        damage.put_aside(host, queue, message, error)
        return None
    token, handle = message.token, secrets.token_urlsafe(12)
    assert token is not None
    held[handle] = HeldMessage(queue, message, token)
    return shown_message(message, payload) | {"handle": handle, "locked_until_ms": message.locked_until_ms}
