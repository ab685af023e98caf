"""Writes XML as text. Prefixes and their positions are part of the contract: one client matches them literally.

So no tree is built: every description is assembled from these pieces, in the service's order.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

ATOM = "http://www.w3.org/2005/Atom"
SERVICE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

# Characters that XML 1.0 cannot contain, not even escaped.
_IMPOSSIBLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})


def escaped(text: str) -> str:
    """Escape text for use between tags or in double quotes."""
    return _IMPOSSIBLE.sub("\ufffd", text).translate(_ESCAPES)


def element(name: str, text: str) -> str:
    return f"<{name}>{escaped(text)}</{name}>"


def optional(name: str, text: str | None) -> str:
    """The element, or nothing for None."""
    return "" if text is None else element(name, text)


def flag(value: bool) -> str:
    return "true" if value else "false"


def moment(ms: int) -> str:
    """A time with milliseconds: `2024-01-01T00:00:00.123Z`."""
    seconds, rest = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def description(kind: str, *parts: str) -> str:
    """The content of an entry, with `kind` as its only element."""
    return f'<{kind} xmlns="{SERVICE}" xmlns:i="{INSTANCE}">{"".join(parts)}</{kind}>'


def count_details(active: int, dead_letter: int, scheduled: int, transfer: int, transfer_dead_letter: int) -> str:
    """The message counts. The namespace must be declared on this element, as its only attribute."""
    counts = (
        ("ActiveMessageCount", active),
        ("DeadLetterMessageCount", dead_letter),
        ("ScheduledMessageCount", scheduled),
        ("TransferMessageCount", transfer),
        ("TransferDeadLetterMessageCount", transfer_dead_letter),
    )
    parts = "".join(f"<d2p1:{name}>{count}</d2p1:{name}>" for name, count in counts)
    return f'<CountDetails xmlns:d2p1="{COUNTS}">{parts}</CountDetails>'
