"""The console's commands on messages: purge, delete, dead-letter, resubmit, edit and resend.

- Each command needs its right on the entity: Manage to delete, Listen to dead-letter, Listen and Send to resubmit or
  resend.
- A message that moves leaves one place and arrives in the other in one commit, so it is never lost in between.
- A command on chosen messages affects exactly the given sequence numbers; messages locked by a receiver stay.
- Long work goes in steps of one commit each, so that nobody else waits for it; one request does a bounded part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.auth.policies import Right
from twinbus.broker.durability import until_durable
from twinbus.broker.http.console import edited
from twinbus.broker.http.console.entities import found_entity
from twinbus.broker.http.console.fields import Fields, place, queue_place, sequence_numbers, text
from twinbus.broker.http.console.messages import one
from twinbus.entities.admission import checked_bytes
from twinbus.entities.message import NewMessage
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic
from twinbus.errors import ArgumentError, NotAllowedError, QuotaExceededError
from twinbus.ledger.words import Kind
from twinbus.limits import BATCH_DELETE_MESSAGES_MAX, CONSOLE_MESSAGES_PAGE, CONSOLE_PURGE_MESSAGES_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.visitor import Visitor

FULL_TEXT = "The disk that holds this namespace is full: receive messages or make room."


async def purge(visitor: Visitor, fields: Fields) -> Fields:
    """Delete the unlocked messages that existed when the command began."""
    host, part = queue_place(visitor, fields, Right.MANAGE)
    before_ms = host.clock.now_ms() + 1
    purged = 0
    while purged < CONSOLE_PURGE_MESSAGES_MAX and not part.deleted:
        deleted = part.delete_batch(BATCH_DELETE_MESSAGES_MAX, before_ms, host.clock.now_ms(), host.commits.facts)
        if not deleted:
            break
        purged += deleted
        host.meter.entity(part.path).counter(Kind.DELETE).count += deleted
        await until_durable(host)
    return {"purged": purged, "more": purged >= CONSOLE_PURGE_MESSAGES_MAX}


async def resubmit(visitor: Visitor, fields: Fields) -> Fields:
    """Send dead letters back to the entity they came from: those with the given numbers, or all."""
    host, part = queue_place(visitor, fields, Right.LISTEN, Right.SEND)
    owner = part.owner
    if owner is None:
        raise ArgumentError("Only dead letters can be resubmitted.")
    numbers = None if fields.get("numbers") is None else sequence_numbers(fields, BATCH_DELETE_MESSAGES_MAX)
    moved = refused = after = 0
    while moved + refused < CONSOLE_PURGE_MESSAGES_MAX and not owner.deleted:
        done = owner.resubmit(part, numbers, after, host.clock.now_ms(), host.commits.facts)
        moved, refused, after = moved + done.moved, refused + done.refused, done.last_seq
        host.meter.entity(part.path).counter(Kind.RECEIVE).count += done.moved
        host.meter.entity(owner.path).counter(Kind.SEND).count += done.moved
        await until_durable(host)
        if numbers is not None or done.moved + done.refused < BATCH_DELETE_MESSAGES_MAX:
            break
    return {"resubmitted": moved, "refused": refused, "more": moved + refused >= CONSOLE_PURGE_MESSAGES_MAX}


async def remove(visitor: Visitor, fields: Fields) -> Fields:
    """Delete chosen messages; in a topic, scheduled ones."""
    host, part = place(visitor, fields, Right.MANAGE)
    numbers = sequence_numbers(fields, CONSOLE_MESSAGES_PAGE)
    now_ms, facts = host.clock.now_ms(), host.commits.facts
    if isinstance(part, Topic):
        deleted = [seq for seq in dict.fromkeys(numbers) if seq in part.messages.schedule.messages]
        part.cancel(deleted, now_ms, facts)
    else:
        deleted = part.delete_chosen(numbers, now_ms, facts)
    host.meter.entity(part.path).counter(Kind.DELETE).count += len(deleted)
    await until_durable(host)
    return {"removed": len(deleted), "left": len(set(numbers)) - len(deleted)}


async def dead_letter(visitor: Visitor, fields: Fields) -> Fields:
    """Move chosen messages to the dead-letter queue."""
    host, part = queue_place(visitor, fields, Right.LISTEN)
    numbers = sequence_numbers(fields, CONSOLE_MESSAGES_PAGE)
    reason, description = text(fields, "reason"), text(fields, "description")
    moved = part.dead_letter_chosen(
        numbers, host.clock.now_ms(), host.commits.facts, reason or None, description or None
    )
    host.meter.entity(part.path).counter(Kind.DEAD_LETTER).count += len(moved)
    await until_durable(host)
    return {"moved": len(moved), "left": len(set(numbers)) - len(moved)}


async def resend(visitor: Visitor, fields: Fields) -> Fields:
    """Send a changed copy of a message and, unless `keep` is true, delete the original in the same commit."""
    to = text(fields, "to").strip()
    host, part = place(visitor, fields, Right.LISTEN, *(() if to else (Right.SEND,)))
    target = _target(visitor, host, part, to)
    keep = fields.get("keep", False)
    if not isinstance(keep, bool):
        raise ArgumentError("'keep' is true or false.")
    if host.store.full:
        raise QuotaExceededError(FULL_TEXT)
    (seq,) = sequence_numbers({"numbers": [fields.get("seq")]}, 1)
    payload = edited.payload(one(host, part, seq)[1], fields, host)
    now_ms, facts = host.clock.now_ms(), host.commits.facts
    new = host.intake.message(payload, now_ms, target.settings.default_ttl_ms)
    if not keep and part.messages.find_at_rest(seq) is None:
        raise NotAllowedError(f"A receiver has locked message {seq}: nothing was sent.")
    if not keep:
        # Check now what could reject the deletion after the copy was accepted.
        if not isinstance(part, Topic):
            part.gate.check_receivable()
        _check_kept(host, target, new, now_ms)
    if isinstance(target, Queue) and target.subscription is not None:
        # Return it only to its own subscription: the others have already had it.
        target.gate.check_open()
        target.quota.check(checked_bytes([new], target.settings.max_message_bytes, target.sessions is not None))
        target.accept(new, now_ms, facts)
    else:
        target.send([new], now_ms, facts)
    host.meter.entity(target.path).add_sends([new])
    if not keep:
        if isinstance(part, Topic):
            part.cancel([seq], now_ms, facts)
        else:
            part.delete_chosen([seq], now_ms, facts)
        host.meter.entity(part.path).counter(Kind.DELETE).count += 1
    await until_durable(host)
    return {"sent": 1, "to": target.path, "removed": int(not keep)}


def _target(visitor: Visitor, host: NamespaceHost, part: Queue | Topic, wanted: str) -> Queue | Topic:
    """The named entity, on which Send is required, or that of the message."""
    if wanted:
        return found_entity(visitor, host, wanted, Right.SEND)
    return part if isinstance(part, Topic) or part.owner is None else part.owner


def _check_kept(host: NamespaceHost, target: Queue | Topic, new: NewMessage, now_ms: int) -> None:
    """Reject a copy that would be accepted and dropped: with the original deleted, the message would be lost."""
    if new.ping:
        raise NotAllowedError("A ping is dropped by the entity, so the original stays: choose another content type.")
    if target.duplicates is not None and target.duplicates.find(new.message_id, now_ms) is not None:
        raise NotAllowedError(
            f"'{target.path}' drops messages whose id it knows, and knows '{new.message_id}': change the message id."
        )
    scheduled = new.scheduled_ms is not None and new.scheduled_ms > now_ms
    if isinstance(target, Topic) and not scheduled:
        view = host.views.of_new(new)
        view.place(0, now_ms, None)
        if not target.selection.select(view):
            raise NotAllowedError(f"No subscription of '{target.path}' selects the message: nothing was sent.")
