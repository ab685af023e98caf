"""What the queues of one namespace share."""

from __future__ import annotations

from collections.abc import Callable

from .alarms import Alarms
from .bodies import Bodies
from .sweep import Sweep


class Commons:
    """Body numbers, lock tokens, deadlines, and the rows left by deleted entities."""

    __slots__ = ("alarms", "bodies", "sweep", "tokens")

    def __init__(self, tokens: Callable[[], bytes], bodies: Bodies) -> None:
        # Source of 16 random bytes, injected: a lock token each.
        self.tokens = tokens
        # Numbers and references of bodies.
        self.bodies = bodies
        # When each queue wants its next tick.
        self.alarms = Alarms()
        # What deleted queues left behind.
        self.sweep = Sweep(bodies)
