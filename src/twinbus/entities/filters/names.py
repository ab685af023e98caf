"""The system properties of a message: which there are, and which a rule action may change.

Names are taken in any case, and by the newer names that the current clients use for some of them. A name that does not
exist is refused when the rule is made, not when the first message comes.
"""

from __future__ import annotations

from typing import Final

from twinbus import spelling

TEXT: Final = "text"
TIME: Final = "time"
SPAN: Final = "span"
NUMBER: Final = "number"
FLAG: Final = "flag"
IDENTIFIER: Final = "identifier"

# Canonical name -> what it holds. Times are milliseconds since the Unix epoch, spans milliseconds.
SYSTEM_PROPERTIES: Final = {
    "ContentType": TEXT,
    "CorrelationId": TEXT,
    "DeadLetterSource": TEXT,
    "DeliveryCount": NUMBER,
    "EnqueuedSequenceNumber": NUMBER,
    "EnqueuedTimeUtc": TIME,
    "ExpiresAtUtc": TIME,
    "ForcePersistence": FLAG,
    "Label": TEXT,
    "LockToken": IDENTIFIER,
    "LockedUntilUtc": TIME,
    "MessageId": TEXT,
    "PartitionKey": TEXT,
    "ReplyTo": TEXT,
    "ReplyToSessionId": TEXT,
    "ScheduledEnqueueTimeUtc": TIME,
    "SequenceNumber": NUMBER,
    "SessionId": TEXT,
    "Size": NUMBER,
    "State": NUMBER,
    "TimeToLive": SPAN,
    "To": TEXT,
    "ViaPartitionKey": TEXT,
}

# What a sender can set, and so an action too; the others are the broker's own.
SETTABLE: Final = frozenset(
    {
        "ContentType",
        "CorrelationId",
        "ForcePersistence",
        "Label",
        "MessageId",
        "PartitionKey",
        "ReplyTo",
        "ReplyToSessionId",
        "ScheduledEnqueueTimeUtc",
        "SessionId",
        "TimeToLive",
        "To",
        "ViaPartitionKey",
    }
)

# The current clients' names for the same things.
_NEWER: Final = {
    "enqueuedtime": "EnqueuedTimeUtc",
    "expiresat": "ExpiresAtUtc",
    "lockeduntil": "LockedUntilUtc",
    "scheduledenqueuetime": "ScheduledEnqueueTimeUtc",
    "subject": "Label",
    "transactionpartitionkey": "ViaPartitionKey",
}

_CANONICAL: Final = {name.lower(): name for name in SYSTEM_PROPERTIES} | _NEWER


# The form under which names that differ only in case are one.
fold: Final = str.lower


def system_name(name: str) -> str | None:
    """The canonical name of a system property; None when there is no such property."""
    return _CANONICAL.get(fold(name))


def nearest(name: str) -> str:
    """The canonical name that a wrong one probably meant."""
    near = spelling.nearest(fold(name), _CANONICAL, 0.0)
    assert near is not None
    return _CANONICAL[near]
