"""Consecutive deliveries of one link that wait for the same commit and are answered together."""

from __future__ import annotations

from twinbus.store.facts import Facts


class DeliveryRun:
    """Grows while its facts are open and the next delivery has the next id."""

    __slots__ = ("facts", "first", "last")

    def __init__(self, facts: Facts, delivery_id: int) -> None:
        # What the deliveries wait for; None once durable, so that the facts can be freed.
        self.facts: Facts | None = facts
        self.first = delivery_id
        self.last = delivery_id

    def takes(self, facts: Facts, delivery_id: int) -> bool:
        """Add the delivery if it waits for the same facts and has the next id; returns whether it was added."""
        if self.facts is not facts or delivery_id != self.last + 1:
            return False
        self.last = delivery_id
        return True
