"""The system properties of a message: which there are, and which a rule action may change.

Names are taken in any case, and by the newer names that the current clients use for some of them. A name that does not
exist is refused when the rule is made, not when the first message comes.
"""

from __future__ import annotations

from typing import Final

from ...errors import ArgumentError

TEXT: Final = "text"
TIME: Final = "time"
SPAN: Final = "span"
NUMBER: Final = "number"
FLAG: Final = "flag"
TOKEN: Final = "token"

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
    "LockToken": TOKEN,
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


def fold(name: str) -> str:
    """The form under which names that differ only in case are one."""
    return name.lower()


def system_name(name: str) -> str:
    """The canonical name of a system property; ArgumentError with the nearest one when there is no such property."""
    canonical = _CANONICAL.get(fold(name))
    if canonical is None:
        raise ArgumentError(f"there is no system property sys.{name}{_nearest(name)}")
    return canonical


def settable_name(name: str) -> str:
    """The canonical name of a system property that an action may change."""
    canonical = system_name(name)
    if canonical not in SETTABLE:
        raise ArgumentError(f"sys.{canonical} is read-only; an action can change {', '.join(sorted(SETTABLE))}")
    return canonical


def _nearest(name: str) -> str:
    # Only a mistake pays for the import.
    import difflib

    near = difflib.get_close_matches(fold(name), _CANONICAL, n=1, cutoff=0.0)
    return f"; the nearest is sys.{_CANONICAL[near[0]]}" if near else ""
