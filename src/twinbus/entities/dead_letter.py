"""Why a message was dead-lettered: the broker's own reasons, and the application properties that carry a reason."""

from __future__ import annotations

from typing import Final

from twinbus.limits import DEAD_LETTER_TEXT_CHARS_MAX

from .message import QueuedMessage

DEAD_LETTER_REASON: Final = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION: Final = "DeadLetterErrorDescription"

EXPIRED_REASON: Final = "TTLExpiredException"
EXPIRED_DESCRIPTION: Final = "The message expired and was dead lettered."
EXHAUSTED_REASON: Final = "MaxDeliveryCountExceeded"


def with_reason(message: QueuedMessage, reason: str | None, description: str | None) -> dict[str, str | bytes] | None:
    """The message's changes plus the reason, cut to the maximum length."""
    changes = dict(message.changes) if message.changes else {}
    if reason is not None:
        changes[DEAD_LETTER_REASON] = reason[:DEAD_LETTER_TEXT_CHARS_MAX]
    if description is not None:
        changes[DEAD_LETTER_DESCRIPTION] = description[:DEAD_LETTER_TEXT_CHARS_MAX]
    return changes or None
