"""What the entities of one namespace share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .alarms import Alarms
from .bodies import Bodies
from .sweep import Sweep

if TYPE_CHECKING:
    from .queue import Queue
    from .topic import Topic
    from .views import Views


class Commons:
    """Body numbers, lock tokens, deadlines, the rows left by deleted entities, and who else there is."""

    __slots__ = ("alarms", "bodies", "by_id", "sweep", "targets", "tokens", "views")

    def __init__(self, tokens: Callable[[], bytes], bodies: Bodies, views: Views) -> None:
        # Source of 16 random bytes, injected: a lock token each.
        self.tokens = tokens
        self.bodies = bodies
        # Reads messages for rules that look at them, injected: the rules never look into a body.
        self.views = views
        self.alarms = Alarms()
        # What deleted entities left behind.
        self.sweep = Sweep(bodies)
        # Every entity and dead-letter queue by entity id.
        self.by_id: dict[int, Queue | Topic] = {}
        # Queues and topics by lower-case path: what messages can be forwarded to.
        self.targets: dict[str, Queue | Topic] = {}
