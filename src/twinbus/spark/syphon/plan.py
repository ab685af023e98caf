"""What one round does: a row for each backlog queue and slot, dealt to the tasks.

Rules:
- Pure: queues and numbers in, rows and shares out.
- A task works at all of its queues at once, over two connections; more tasks than cores would only wait for each other.
- Two slots of one queue are in different tasks: in the same one the second would add nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twinbus.limits import SYPHON_ROUND_MESSAGES, SYPHON_ROUND_S


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One slot of one backlog queue: what it settles, and how long it receives, at most."""

    queue: str
    slot: int
    messages_max: int
    seconds_max: float


@dataclass(frozen=True, slots=True)
class Share:
    """What one task does."""

    rows: tuple[PlanRow, ...]

    @property
    def queues(self) -> tuple[str, ...]:
        """Each once, in the plan's order."""
        return tuple(dict.fromkeys(row.queue for row in self.rows))

    @property
    def messages_max(self) -> int:
        return sum(row.messages_max for row in self.rows)

    @property
    def seconds_max(self) -> float:
        return max(row.seconds_max for row in self.rows)


def plan(
    queues: Sequence[str],
    *,
    slots: int = 1,
    messages_max: int = SYPHON_ROUND_MESSAGES,
    seconds_max: float = SYPHON_ROUND_S,
) -> list[PlanRow]:
    """The rows of a round, queue by queue."""
    if slots < 1:
        raise ValueError(f"slots is {slots}: it must be 1 or more.")
    return [PlanRow(queue, slot, messages_max, seconds_max) for queue in queues for slot in range(slots)]


def deal(rows: Sequence[PlanRow], tasks: int) -> list[Share]:
    """The rows dealt to at most so many tasks, evenly; no task is without one."""
    if tasks < 1:
        raise ValueError(f"tasks is {tasks}: it must be 1 or more.")
    count = min(tasks, len(rows))
    # The slots of a queue stand side by side, so that neighbours in turn are different tasks.
    return [Share(tuple(rows[at::count])) for at in range(count)]
