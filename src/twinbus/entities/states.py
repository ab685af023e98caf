"""The states of a message and the transitions between them: one table.

The entities store a message's place as `state` plus `token` (see `message.py`); `place` decodes it. The model tests
check every move of real queues and topics against `TRANSITIONS`, another test checks that each of its moves occurs,
and `docs/states.md` is generated from it.
"""

from __future__ import annotations

import enum
from typing import Final

from .message import ACTIVE, DEFERRED, GONE, RETURNING, SCHEDULED, TAKEN, QueuedMessage


class Place(enum.Enum):
    """The state of a message in its entity."""

    SENT = "sent"
    SCHEDULING = "scheduling"
    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    LOCKED = "locked"
    TAKEN = "taken"
    RETURNING = "returning"
    DEFERRED = "deferred"
    DEFERRED_LOCKED = "deferred, locked"
    DEFERRED_RETURNING = "deferred, returning"
    REMOVED = "removed"
    DEAD_LETTERED = "dead-lettered"
    TRANSFER_DEAD_LETTERED = "transfer dead-lettered"
    FORWARDED = "forwarded"
    RESUBMITTED = "resubmitted"
    HANDED_OUT = "handed out"
    SET_ASIDE = "set aside"


class Move(enum.Enum):
    """What moves a message."""

    COMMIT = "commit"
    ACTIVATE = "scheduled time reached"
    HAND_OUT = "scheduled time reached in a topic"
    CANCEL = "cancel"
    ACQUIRE = "acquire"
    TAKE = "receive and delete"
    WRITTEN = "written to the socket"
    RECEIVE_DEFERRED = "receive by sequence number"
    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RELEASE = "release"
    DROP = "connection broken"
    LAPSE = "lock lapsed or session released"
    EXHAUST = "max delivery count reached"
    EXPIRE = "time to live over, dropped"
    EXPIRE_DEAD_LETTER = "time to live over, dead-lettered"
    DELETE = "delete by count or by sequence number"
    FORWARD = "forward"
    REFUSE = "forward refused by the target"
    HOPS = "forwarded too often"
    RESUBMIT = "resubmit"
    DAMAGE = "body unreadable"


# For places whose name does not say enough.
MEANINGS: Final[dict[Place, str]] = {
    Place.SENT: "accepted, or come from another entity; not durable yet, so nobody sees it",
    Place.SCHEDULING: "accepted for later; not durable yet",
    Place.SCHEDULED: "waits for its time",
    Place.AVAILABLE: "can be received",
    Place.LOCKED: "a receiver holds its lock token",
    Place.TAKEN: "on its way to a receiver that gets it settled",
    Place.RETURNING: "unlocked; its return is not durable yet",
    Place.DEFERRED: "received by its sequence number only",
    Place.DEFERRED_LOCKED: "deferred, and a receiver holds its lock token",
    Place.DEFERRED_RETURNING: "deferred or unlocked; that is not durable yet",
    Place.REMOVED: "gone, and its body with it",
    Place.DEAD_LETTERED: "sent to the dead-letter queue of its entity",
    Place.TRANSFER_DEAD_LETTERED: "sent to the transfer dead-letter queue of its entity",
    Place.FORWARDED: "sent to the queue or topic that its entity forwards to",
    Place.RESUBMITTED: "sent to the entity that had dead-lettered it",
    Place.HANDED_OUT: "sent to the subscriptions of its topic, a copy each",
    Place.SET_ASIDE: "kept in the store, and given to nobody",
}

_EXPIRE: Final = {
    Move.EXPIRE: Place.REMOVED,
    Move.EXPIRE_DEAD_LETTER: Place.DEAD_LETTERED,
}

_SETTLE: Final = {
    Move.COMPLETE: Place.REMOVED,
    Move.DEAD_LETTER: Place.DEAD_LETTERED,
    Move.EXHAUST: Place.DEAD_LETTERED,
    Move.DEFER: Place.DEFERRED_RETURNING,
    Move.DAMAGE: Place.SET_ASIDE,
}

# An expired message that returns expires at once, so the moves of _EXPIRE also start where a message is held.
TRANSITIONS: Final[dict[Place, dict[Move, Place]]] = {
    Place.SENT: {Move.COMMIT: Place.AVAILABLE},
    Place.SCHEDULING: {Move.COMMIT: Place.SCHEDULED},
    Place.SCHEDULED: {
        Move.ACTIVATE: Place.SENT,
        Move.HAND_OUT: Place.HANDED_OUT,
        Move.CANCEL: Place.REMOVED,
        Move.DAMAGE: Place.SET_ASIDE,
    },
    Place.AVAILABLE: {
        Move.ACQUIRE: Place.LOCKED,
        Move.TAKE: Place.TAKEN,
        **_EXPIRE,
        Move.DELETE: Place.REMOVED,
        Move.DEAD_LETTER: Place.DEAD_LETTERED,
        Move.FORWARD: Place.FORWARDED,
        Move.REFUSE: Place.TRANSFER_DEAD_LETTERED,
        Move.HOPS: Place.DEAD_LETTERED,
        Move.RESUBMIT: Place.RESUBMITTED,
        Move.DAMAGE: Place.SET_ASIDE,
    },
    Place.LOCKED: {
        **_SETTLE,
        **_EXPIRE,
        Move.ABANDON: Place.RETURNING,
        Move.RELEASE: Place.RETURNING,
        Move.DROP: Place.RETURNING,
        Move.LAPSE: Place.RETURNING,
    },
    Place.TAKEN: {
        Move.WRITTEN: Place.REMOVED,
        Move.DROP: Place.RETURNING,
        **_EXPIRE,
        Move.DAMAGE: Place.SET_ASIDE,
    },
    Place.RETURNING: {Move.COMMIT: Place.AVAILABLE},
    Place.DEFERRED: {
        Move.RECEIVE_DEFERRED: Place.DEFERRED_LOCKED,
        Move.DELETE: Place.REMOVED,
        Move.DEAD_LETTER: Place.DEAD_LETTERED,
        **_EXPIRE,
        Move.DAMAGE: Place.SET_ASIDE,
    },
    Place.DEFERRED_LOCKED: {
        **_SETTLE,
        Move.ABANDON: Place.DEFERRED_RETURNING,
        Move.RELEASE: Place.DEFERRED_RETURNING,
        Move.DROP: Place.DEFERRED_RETURNING,
        Move.LAPSE: Place.DEFERRED_RETURNING,
    },
    Place.DEFERRED_RETURNING: {Move.COMMIT: Place.DEFERRED},
    Place.REMOVED: {},
    Place.DEAD_LETTERED: {},
    Place.TRANSFER_DEAD_LETTERED: {},
    Place.FORWARDED: {},
    Place.RESUBMITTED: {},
    Place.HANDED_OUT: {},
    Place.SET_ASIDE: {},
}


def place(message: QueuedMessage) -> Place:
    """The place of a message whose arrival is durable. A message that has left is always REMOVED."""
    if message.state == GONE:
        return Place.REMOVED
    if message.state == SCHEDULED:
        return Place.SCHEDULED
    token = message.token
    if message.state == DEFERRED:
        if token is None:
            return Place.DEFERRED
        return Place.DEFERRED_RETURNING if token == RETURNING else Place.DEFERRED_LOCKED
    assert message.state == ACTIVE
    if token is None:
        return Place.AVAILABLE
    if token == TAKEN:
        return Place.TAKEN
    return Place.RETURNING if token == RETURNING else Place.LOCKED
