"""The state of a pair, from what its two namespaces say: what waits, whose it is, and whether somebody brings it home.

- A figure that nobody knows is None, never 0.
- The state is the worst of all backlogs that may be this primary's. A backlog that is surely another's counts only if
  nobody receives from it.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from twinbus.paired.homes import Home, Relation
from twinbus.paired.syphon.queue_look import QueueLook


class PairState(Enum):
    """The states of a pair, with the exit codes of `twinbus pair status`."""

    HOME = 0
    WAITING = 3
    HOMELESS = 4
    UNREACHABLE = 5
    NO_SYPHON = 6
    DEAD_LETTERS = 7


@dataclass(frozen=True, slots=True)
class PairStanding:
    """What waits in a secondary, seen from one primary. `looks` is None if the secondary could not be asked."""

    home: Home
    # Why the primary cannot be reached; empty if it can.
    outage: str
    looks: Sequence[QueueLook] | None

    def those(self, *relations: Relation) -> list[QueueLook]:
        """The backlog queues of these relations."""
        return [look for look in self.looks or () if look.relation in relations]

    @property
    def own(self) -> list[QueueLook]:
        return self.those(Relation.OWN)

    @property
    def homeless(self) -> list[QueueLook]:
        """Backlogs with messages that neither this primary nor any syphon takes."""
        waiting = [look for look in self.those(Relation.NONE, Relation.OTHER) if look.waits]
        return [
            look
            for look in waiting
            if look.receivers == 0 or (look.receivers is None and look.relation is Relation.NONE)
        ]

    @property
    def diverted(self) -> int | None:
        """Messages in the primary's backlog; None if it is not known which that is, or how many there are."""
        if self.looks is None or any(look.waits for look in self.those(Relation.UNKNOWN)):
            return None
        return total([look.waiting for look in self.own])

    @property
    def dead_letters(self) -> int | None:
        if self.looks is None or self.those(Relation.UNKNOWN):
            return None
        return total([look.dead for look in self.own])

    @property
    def state(self) -> PairState:
        if self.looks is None:
            return PairState.UNREACHABLE
        if self.homeless:
            return PairState.HOMELESS
        own = [look for look in self.own if look.waits]
        if not self.outage and any(look.receivers == 0 for look in own):
            return PairState.NO_SYPHON
        perhaps = [look for look in self.those(Relation.UNKNOWN, Relation.NONE) if look.waits]
        if own or perhaps:
            return PairState.WAITING
        if any(look.dead != 0 for look in self.own):
            return PairState.DEAD_LETTERS
        return PairState.HOME


def total(counts: Sequence[int | None]) -> int | None:
    """The sum; None if one of them is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
