"""The state machines of sessions and links, as tables.

A phase changes only through `after`, which raises for a transition the table does not have. Phases are numbers in order
of the life cycle, so that the hot path can compare them.
"""

from __future__ import annotations

from typing import Final

# --- sessions -------------------------------------------------------------------------------------------------------

BEGINNING: Final = 0
BEGUN: Final = 1
ENDING: Final = 2
ENDED: Final = 3

BEGIN: Final = "begin sent and received"
END_SENT: Final = "end sent"
END_RECEIVED: Final = "end received"
CONNECTION_CLOSED: Final = "connection closed"

SESSION_PHASES: Final[dict[int, tuple[str, str]]] = {
    BEGINNING: ("beginning", "one side has begun, the other has not answered"),
    BEGUN: ("begun", "links can be attached"),
    ENDING: ("ending", "we have ended; what the peer still sends is dropped until its end"),
    ENDED: ("ended", "both sides have ended, or the connection is closed"),
}

SESSION_TRANSITIONS: Final[dict[int, dict[str, int]]] = {
    BEGINNING: {BEGIN: BEGUN, END_SENT: ENDING, CONNECTION_CLOSED: ENDED},
    BEGUN: {END_SENT: ENDING, CONNECTION_CLOSED: ENDED},
    ENDING: {BEGIN: ENDING, END_RECEIVED: ENDED, CONNECTION_CLOSED: ENDED},
    ENDED: {},
}

# --- links ----------------------------------------------------------------------------------------------------------

ATTACHING: Final = 0
ATTACHED: Final = 1
DETACHING: Final = 2
GONE: Final = 3

ATTACH: Final = "attach sent and received"
DETACH_SENT: Final = "detach sent"
DETACH_RECEIVED: Final = "detach received"
SESSION_OVER: Final = "session ended"

LINK_PHASES: Final[dict[int, tuple[str, str]]] = {
    ATTACHING: ("attaching", "one side has attached, the other has not answered, or has answered by a refusal"),
    ATTACHED: ("attached", "messages and credit can flow"),
    DETACHING: ("detaching", "we have detached; what the peer still sends is dropped until its detach"),
    GONE: ("gone", "both sides have detached, or the session has ended"),
}

LINK_TRANSITIONS: Final[dict[int, dict[str, int]]] = {
    ATTACHING: {ATTACH: ATTACHED, DETACH_SENT: DETACHING, DETACH_RECEIVED: GONE, SESSION_OVER: GONE},
    ATTACHED: {DETACH_SENT: DETACHING, DETACH_RECEIVED: GONE, SESSION_OVER: GONE},
    DETACHING: {DETACH_RECEIVED: GONE, SESSION_OVER: GONE},
    GONE: {},
}


def after(table: dict[int, dict[str, int]], phase: int, event: str) -> int:
    """Return the phase that follows `phase` on `event`."""
    return table[phase][event]
