"""Decides what happens to a backlog message, by the outcome of its send: one place for every kind of syphon.

    | outcome                                                        | the backlog message is           |
    |----------------------------------------------------------------|----------------------------------|
    | accepted                                                       | completed                        |
    | cannot be restored: no path, a bad alias                       | dead-lettered                    |
    | refused for good: not found, disabled, too large, not allowed  | dead-lettered                    |
    | primary down, busy, full, unauthorised, anything not known     | left, its destination is paused  |

- Pure: an outcome in, a decision out.
- After an unknown error a message is left: it can still be dead-lettered later, while the reverse needs a person.
- The reason of a dead letter is one word; its description has the path and the error.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from twinbus.errors import (
    ArgumentError,
    ConnectionForcedError,
    EncodeError,
    EntityDisabledError,
    EntityNotFoundError,
    EnvelopeError,
    MessageTooLargeError,
    NotAllowedError,
    ServiceError,
    TwinbusError,
    UnsupportedError,
)
from twinbus.limits import DEAD_LETTER_TEXT_CHARS_MAX


class Fate(Enum):
    """What happens to the message in the backlog."""

    COMPLETE = "complete"
    DEAD_LETTER = "dead-letter"
    LEAVE = "leave"


class Decision(NamedTuple):
    """`cause` is a condition or a class name; `everywhere` means that more than this destination is affected."""

    fate: Fate
    reason: str = ""
    description: str = ""
    cause: str = ""
    everywhere: bool = False


CANNOT_BE_RESTORED: Final = "CannotBeRestored"

# Permanent errors, and the reason for each.
FOR_GOOD: Final[dict[type[TwinbusError], str]] = {
    EnvelopeError: CANNOT_BE_RESTORED,
    EntityNotFoundError: "DestinationNotFound",
    EntityDisabledError: "DestinationDisabled",
    MessageTooLargeError: "MessageTooLarge",
    NotAllowedError: "NotAllowed",
    ArgumentError: "BadMessage",
    UnsupportedError: "NotSupported",
    EncodeError: "BadMessage",
}

_COMPLETED: Final = Decision(Fate.COMPLETE)


def decide(error: TwinbusError | None, path: str | None = None) -> Decision:
    """Decide about a message for `path` by the outcome of its send; None is accepted."""
    if error is None:
        return _COMPLETED
    cause = cause_of(error)
    reason = FOR_GOOD.get(type(error))
    if reason is None:
        return Decision(Fate.LEAVE, cause=cause, everywhere=isinstance(error, ConnectionForcedError))
    text = f"{path or '(no path)'}: {cause}: {error}"
    return Decision(Fate.DEAD_LETTER, reason, text[:DEAD_LETTER_TEXT_CHARS_MAX], cause)


def check_destination(path: str) -> None:
    """Reject a path that is not an entity: a client that may write to the backlog must not reach the service's own
    nodes, such as `$management`, with the syphon's rights."""
    if any(part.startswith("$") for part in path.split("/")):
        raise EnvelopeError("The path names a node of the service, not an entity.")


def cause_of(error: TwinbusError) -> str:
    """The part of an error that a ledger may contain."""
    return error.condition if isinstance(error, ServiceError) else type(error).__name__
