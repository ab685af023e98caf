"""Where a message can be, and what moves it: one table.

The queue keeps a message's place as `state` plus `token` (see `message.py`); `place` reads it back. The documentation
draws its diagram from `TRANSITIONS`, and the model test checks every move of a real queue against it.
"""

from __future__ import annotations

import enum
from typing import Final

from .message import ACTIVE, DEFERRED, GONE, RETURNING, SCHEDULED, TAKEN, Message


class Place(enum.Enum):
    """Where a message is."""

    SENT = "sent"  # accepted, not durable yet: nobody sees it
    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    LOCKED = "locked"
    TAKEN = "taken"  # on its way to a receiver that gets it settled
    RETURNING = "returning"  # unlocked, its new count not durable yet
    DEFERRED = "deferred"
    DEFERRED_LOCKED = "deferred, locked"
    DEFERRED_RETURNING = "deferred, returning"
    DEAD_LETTERED = "dead-lettered"  # in the dead-letter queue, where it is available again
    REMOVED = "removed"


class Move(enum.Enum):
    """What moves a message."""

    COMMIT = "commit"
    ACTIVATE = "scheduled time reached"
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
    DROP = "drop"
    LAPSE = "lock lapses"
    EXHAUST = "max delivery count reached"
    EXPIRE = "time to live over, dropped"
    EXPIRE_DEAD_LETTER = "time to live over, dead-lettered"
    DELETE = "batch delete"
    RESUBMIT = "resubmit"  # from a dead-letter queue to the entity it belongs to


_SETTLE: Final = {
    Move.COMPLETE: Place.REMOVED,
    Move.DEAD_LETTER: Place.DEAD_LETTERED,
    Move.EXHAUST: Place.DEAD_LETTERED,
}

_EXPIRE: Final = {
    Move.EXPIRE: Place.REMOVED,
    Move.EXPIRE_DEAD_LETTER: Place.DEAD_LETTERED,
}

# Unlocking an expired message expires it, so the two moves of _EXPIRE start from a lock as well.
TRANSITIONS: Final[dict[Place, dict[Move, Place]]] = {
    Place.SENT: {Move.COMMIT: Place.AVAILABLE},
    Place.SCHEDULED: {Move.ACTIVATE: Place.SENT, Move.CANCEL: Place.REMOVED},
    Place.AVAILABLE: {
        Move.ACQUIRE: Place.LOCKED,
        Move.TAKE: Place.TAKEN,
        Move.DELETE: Place.REMOVED,
        Move.RESUBMIT: Place.SENT,
        **_EXPIRE,
    },
    Place.LOCKED: {
        **_SETTLE,
        **_EXPIRE,
        Move.DEFER: Place.DEFERRED_RETURNING,
        Move.ABANDON: Place.RETURNING,
        Move.RELEASE: Place.RETURNING,
        Move.DROP: Place.RETURNING,
        Move.LAPSE: Place.RETURNING,
    },
    Place.TAKEN: {Move.WRITTEN: Place.REMOVED, Move.RELEASE: Place.RETURNING, **_EXPIRE},
    Place.RETURNING: {Move.COMMIT: Place.AVAILABLE},
    Place.DEFERRED: {
        Move.RECEIVE_DEFERRED: Place.DEFERRED_LOCKED,
        **_EXPIRE,
    },
    Place.DEFERRED_LOCKED: {
        **_SETTLE,
        Move.DEFER: Place.DEFERRED_RETURNING,
        Move.ABANDON: Place.DEFERRED_RETURNING,
        Move.RELEASE: Place.DEFERRED_RETURNING,
        Move.DROP: Place.DEFERRED_RETURNING,
        Move.LAPSE: Place.DEFERRED_RETURNING,
    },
    Place.DEFERRED_RETURNING: {Move.COMMIT: Place.DEFERRED},
    Place.DEAD_LETTERED: {Move.COMMIT: Place.AVAILABLE},
    Place.REMOVED: {},
}


def place(message: Message) -> Place:
    """The place of a message whose arrival is durable."""
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
