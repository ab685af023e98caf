"""What the entities of one namespace share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .account import Accounts
from .alarms import Alarms
from .bodies import Bodies
from .sweep import Sweep

if TYPE_CHECKING:
    from .queue import Queue
    from .topic import Topic
    from .views import Views


class Commons:
    """Body numbers, lock tokens, deadlines, rows left by deleted entities, and the index of entities."""

    __slots__ = ("accounts", "alarms", "bodies", "by_id", "sweep", "targets", "tick_work", "tokens", "views")

    def __init__(
        self, tokens: Callable[[], bytes], bodies: Bodies, views: Views, accounts: Accounts | None = None
    ) -> None:
        # Injected; returns 16 random bytes for each lock token.
        self.tokens = tokens
        self.bodies = bodies
        # Injected; reads messages for filters, because the entities never look into a body.
        self.views = views
        # Limits what the entities hold in memory.
        self.accounts = accounts or Accounts()
        self.alarms = Alarms()
        # Rows that deleted entities left behind.
        self.sweep = Sweep(bodies)
        # Every entity and dead-letter queue by entity id.
        self.by_id: dict[int, Queue | Topic] = {}
        # Copies that ticks have made so far, and work of rules that counts like copies.
        self.tick_work = 0
        # Queues and topics by lower-case path: the possible forwarding targets.
        self.targets: dict[str, Queue | Topic] = {}
