"""The system properties of a message: their names and types, and which ones a rule action may change.

Names are case-insensitive; the newer names used by current clients are accepted too. An unknown name is rejected when
the rule is created, not when the first message arrives.
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

# Type by canonical name. Times are milliseconds since the Unix epoch, spans milliseconds.
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

# A sender can set these, so an action can too; the broker sets the others.
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

# Newer names for the same properties.
_NEWER: Final = {
    "enqueuedtime": "EnqueuedTimeUtc",
    "expiresat": "ExpiresAtUtc",
    "lockeduntil": "LockedUntilUtc",
    "scheduledenqueuetime": "ScheduledEnqueueTimeUtc",
    "subject": "Label",
    "transactionpartitionkey": "ViaPartitionKey",
}

_CANONICAL: Final = {name.lower(): name for name in SYSTEM_PROPERTIES} | _NEWER


# Names that differ only in case fold to the same string.
fold: Final = str.lower


def system_name(name: str) -> str | None:
    """The canonical name of a system property; None if there is no such property."""
    return _CANONICAL.get(fold(name))


def nearest(name: str) -> str:
    """The canonical name closest to a misspelled one."""
    near = spelling.nearest(fold(name), _CANONICAL, 0.0)
    assert near is not None
    return _CANONICAL[near]
