"""The ledger's vocabulary: the source of a record, the kind of operation, and its stage in a message's path.

Rules:
- A kind is what one operation did; settlement has several kinds, because prices and analyses distinguish them.
- A stage says why an operation was needed: a diverted message takes four of them to reach the primary.
- The broker cannot know a sender's intention: it recognises backlog queues by name and calls everything else direct.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

# The outcome of success; every other outcome is the error's AMQP condition, or `http:` and the status.
OK: Final = "ok"

# Separates the primary's name from the number in the name of a backlog queue.
BACKLOG_MARK: Final = "/x-servicebus-transfer/"

# Begins the user metadata of a backlog queue that remembers whose it is. The rest is for `paired.homes` to read.
HOME_MARK: Final = "x-twinbus-home="
# The properties of a Twinbus broker's open that hold the namespace's name and its identity.
NAMESPACE_PROPERTY: Final = "namespace"
IDENTITY_PROPERTY: Final = "identity"


class LedgerSource(StrEnum):
    """Who recorded it."""

    BROKER = "broker"
    CLIENT = "client"
    SYPHON = "syphon"


class Kind(StrEnum):
    """What one operation did."""

    SEND = "send"
    PING = "ping"
    SCHEDULE = "schedule"
    CANCEL = "cancel"
    RECEIVE = "receive"
    RECEIVE_DEFERRED = "receive-deferred"
    EMPTY_POLL = "empty-poll"
    PEEK = "peek"
    COMPLETE = "complete"
    ABANDON = "abandon"
    RELEASE = "release"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    SETTLE = "settle"  # a settlement of unknown outcome
    RENEW = "renew"
    DELETE = "delete"
    ACCEPT_SESSION = "accept-session"
    RENEW_SESSION = "renew-session"
    GET_SESSION_STATE = "get-session-state"
    SET_SESSION_STATE = "set-session-state"
    LIST_SESSIONS = "list-sessions"
    MANAGE = "manage"


class Stage(StrEnum):
    """Why the operation was needed."""

    DIRECT = "direct"
    TO_BACKLOG = "to-backlog"
    FROM_BACKLOG = "from-backlog"
    TO_PRIMARY = "to-primary"
    PING = "ping"
    POLL = "poll"


class Event(StrEnum):
    """What happened to a pair of namespaces."""

    FAILED_OVER = "failed-over"
    FAILED_BACK = "failed-back"
    QUEUE_OUT = "backlog-queue-out"
    QUEUE_IN = "backlog-queue-in"
    DIVERTED = "diverted"
    SYPHONED = "syphoned"
    DEAD_LETTERED = "dead-lettered"
    PAIRING_FAILED = "pairing-failed"
    PING_REFUSED = "ping-refused"
    NAME_UNCONFIRMED = "name-unconfirmed"
    STARVED = "starved"


_INTO: Final = frozenset({Kind.SEND, Kind.SCHEDULE, Kind.CANCEL})
_OUT_OF: Final = frozenset(
    {
        Kind.RECEIVE,
        Kind.RECEIVE_DEFERRED,
        Kind.COMPLETE,
        Kind.ABANDON,
        Kind.RELEASE,
        Kind.DEFER,
        Kind.DEAD_LETTER,
        Kind.SETTLE,
        Kind.RENEW,
    }
)


def stage_of(entity: str, kind: Kind) -> Stage:
    """Derive the stage from the entity's name and the kind."""
    if kind is Kind.PING:
        return Stage.PING
    if kind is Kind.EMPTY_POLL:
        return Stage.POLL
    if BACKLOG_MARK in entity.lower():
        if kind in _INTO:
            return Stage.TO_BACKLOG
        if kind in _OUT_OF:
            return Stage.FROM_BACKLOG
    return Stage.DIRECT
