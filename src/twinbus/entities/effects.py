"""What a tick did on its own, for logs and counters. Everything else is in the facts."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .queue import Queue
    from .topic import Topic


class EffectKind(enum.Enum):
    """What a tick can do to an entity."""

    LOCKS_LAPSED = "locks lapsed"
    SESSIONS_LOST = "session locks lapsed"
    EXPIRED = "messages expired"
    ACTIVATED = "scheduled messages activated"
    FORWARDED = "messages forwarded"
    IDS_FORGOTTEN = "message ids past the duplicates window"
    DAMAGED = "damaged messages set aside"
    IDLE_DELETED = "deleted for being idle"


class Effect:
    """One kind of effect on one entity."""

    __slots__ = ("count", "kind", "queue")

    def __init__(self, kind: EffectKind, queue: Queue | Topic, count: int) -> None:
        self.kind = kind
        self.queue = queue
        # How many messages or sessions were affected.
        self.count = count

    def __repr__(self) -> str:
        return f"<Effect {self.count} {self.kind.value} in {self.queue.path}>"


def note(effects: list[Effect], kind: EffectKind, queue: Queue | Topic, count: int) -> None:
    """Add an effect unless the count is zero."""
    if count:
        effects.append(Effect(kind, queue, count))
