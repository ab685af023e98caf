"""Deliveries of one link with consecutive ids that wait for one commit: they are answered together."""

from __future__ import annotations

from twinbus.store.facts import Facts


class DeliveryRun:
    """Grows while its facts are open and the next delivery has the next id."""

    __slots__ = ("facts", "first", "last")

    def __init__(self, facts: Facts, delivery_id: int) -> None:
        # What the deliveries wait for; None once it is durable, so that nothing keeps the facts alive.
        self.facts: Facts | None = facts
        self.first = delivery_id
        self.last = delivery_id

    def takes(self, facts: Facts, delivery_id: int) -> bool:
        """Whether the delivery waits for the same facts and is next; it belongs to the run then."""
        if self.facts is not facts or delivery_id != self.last + 1:
            return False
        self.last = delivery_id
        return True
