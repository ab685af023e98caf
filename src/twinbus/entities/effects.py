"""What a tick did by itself, for logs and counters. Everything else happens through facts."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .queue import Queue
    from .topic import Topic


class EffectKind(enum.Enum):
    """What time brought about."""

    LOCKS_LAPSED = "locks lapsed"
    SESSIONS_LOST = "session locks lapsed"
    EXPIRED = "messages expired"
    ACTIVATED = "scheduled messages activated"
    FORWARDED = "messages forwarded"
    IDS_FORGOTTEN = "message ids past the duplicates window"
    DAMAGED = "damaged messages set aside"
    IDLE_DELETED = "deleted for being idle"


class Effect:
    """One kind of thing that happened to one entity."""

    __slots__ = ("count", "kind", "queue")

    def __init__(self, kind: EffectKind, queue: Queue | Topic, count: int) -> None:
        self.kind = kind
        self.queue = queue
        # To how many messages or sessions.
        self.count = count

    def __repr__(self) -> str:
        return f"<Effect {self.count} {self.kind.value} in {self.queue.path}>"


def note(effects: list[Effect], kind: EffectKind, queue: Queue | Topic, count: int) -> None:
    """Add an effect, if there was any."""
    if count:
        effects.append(Effect(kind, queue, count))
