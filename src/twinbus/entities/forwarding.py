"""Auto-forwarding: an entity with a target passes its messages on, a bounded number per tick.

A message leaves its entity and arrives at the target in one commit; its body does not move. After four hops it is
dead-lettered. A message that the target rejects goes to the entity's own transfer dead-letter queue with the reason, so
it is not lost and does not block those behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinbus.errors import (
    EntityDisabledError,
    EntityNotFoundError,
    FilterEvaluationError,
    MessageTooLargeError,
    NotAllowedError,
    QuotaExceededError,
    ServiceError,
)
from twinbus.limits import COPY_US, FORWARD_COPIES_MAX, FORWARD_HOPS_MAX, SELECT_US_MAX, TICK_MESSAGES_MAX
from twinbus.store.facts import Facts

from .commons import Commons
from .message import ACTIVE, QueuedMessage, Relayed
from .moves import dead_letter, pick
from .refusals import not_found
from .selection import Choosing
from .topic import Topic

if TYPE_CHECKING:
    from .queue import Queue

HOPS_REASON: Final = "MaxTransferHopCountExceeded"
HOPS_DESCRIPTION: Final = (
    "The maximum number of allowed hops when forwarding between queues exceeded. "
    f"This value is set to {FORWARD_HOPS_MAX}."
)
SESSION_REASON: Final = "Session ID is null."
SESSION_DESCRIPTION: Final = "Session enabled entity doesn't allow a message whose session identifier is null."

# Why a target rejected a message, in the names that current clients use.
_REASONS: Final[tuple[tuple[type[ServiceError], str], ...]] = (
    (EntityNotFoundError, "MessagingEntityNotFound"),
    (EntityDisabledError, "MessagingEntityDisabled"),
    (QuotaExceededError, "QuotaExceeded"),
    (MessageTooLargeError, "MessageSizeExceeded"),
    (NotAllowedError, SESSION_REASON),
    (FilterEvaluationError, "MessageUnreadable"),
)


def forward_due(queue: Queue, path: str, commons: Commons, now_ms: int, facts: Facts) -> int:
    """Forward available messages to the entity at that path; return how many were forwarded."""
    forwarded = 0
    copies = 0
    target = commons.targets.get(path.lower())
    if target is not None and target.held is not None:
        return 0  # a topic in the middle of a large batch: later
    while copies < FORWARD_COPIES_MAX:
        chosen: Choosing | None = None
        first = queue.messages.available.first()
        if first is not None and isinstance(target, Topic) and target.selection.looks:
            view = commons.views.of_stored(first)
            cost_us = target.selection.cost_us(1, view.looked_bytes())
            if cost_us > SELECT_US_MAX and first.state == ACTIVE:
                chosen = target.choose(queue, first, _expires_ms(queue, first), view, now_ms, facts)
                if chosen is None:
                    # More in the next tick.
                    copies = TICK_MESSAGES_MAX
                    break
            copies += cost_us // COPY_US
        picked = pick(queue, queue.messages.available, 1, now_ms, facts)
        if not picked:
            break
        if chosen is not None and picked[0] is not first:
            chosen = None  # it has expired
        copies += _forward(queue, picked[0], path, commons, now_ms, facts, chosen)
        forwarded += 1
    commons.tick_work += copies
    return forwarded


def _forward(
    queue: Queue,
    message: QueuedMessage,
    path: str,
    commons: Commons,
    now_ms: int,
    facts: Facts,
    chosen: Choosing | None,
) -> int:
    """Forward or dead-letter one message; return how many copies that made."""
    carried = _carried(queue, message, now_ms)
    if carried.hops > FORWARD_HOPS_MAX:
        end = _transfer(queue) if queue.dead_letters is None else queue.dead_letters
        dead_letter(queue, message, end, HOPS_REASON, HOPS_DESCRIPTION, facts)
        return 1
    view = commons.views.of_stored(message)
    target = commons.targets.get(path.lower())
    try:
        if target is None:
            raise not_found(path)
        target.check_relay(carried, view)
    except ServiceError as error:
        dead_letter(queue, message, _transfer(queue), _reason(error), error.text, facts)
        return 1
    queue.messages.hand_over(message, facts)
    if isinstance(target, Topic):
        return max(target.relay(carried, view, now_ms, facts, chosen), 1)
    return max(target.relay(carried, view, now_ms, facts), 1)


def _carried(queue: Queue, message: QueuedMessage, now_ms: int) -> Relayed:
    """The message as it arrives at the target, which numbers it."""
    origin_seq, hops, source = message.seq, 1, None
    if isinstance(message, Relayed):
        origin_seq, hops, source = message.origin_seq, message.hops + 1, message.dead_letter_source
    if queue.owner is not None:
        source = queue.owner.path
    return Relayed(
        0,
        message.body_number,
        message.size,
        now_ms,
        _expires_ms(queue, message),
        ACTIVE,
        0,
        None,
        message.changes,
        origin_seq,
        hops,
        source,
    )


def _expires_ms(queue: Queue, message: QueuedMessage) -> int | None:
    """When it expires at the target. A dead letter may have expired long ago: that can be why it is one."""
    return None if queue.owner is not None else message.expires_ms


def _transfer(queue: Queue) -> Queue:
    """The queue for messages that could not be forwarded."""
    return (queue if queue.owner is None else queue.owner).open_transfer()


def _reason(error: ServiceError) -> str:
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    return type(error).__name__.removesuffix("Error")
