"""What each task of a round does: backlog queues, as many times as they have slots, dealt to the tasks.

Rules:
- A task works at all of its queues at once, over two connections; more tasks than cores would only wait for each other.
- Two slots of one queue are in different tasks where there are enough: in the same one the second would add nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twinbus.limits import SYPHON_ROUND_MESSAGES, SYPHON_ROUND_S


@dataclass(frozen=True, slots=True)
class Share:
    """One task's queues, what it settles at most, and how long it receives."""

    queues: tuple[str, ...]
    messages_max: int
    seconds_max: float


def shares_of(
    queues: Sequence[str],
    tasks: int,
    *,
    slots: int = 1,
    messages_max: int = SYPHON_ROUND_MESSAGES,
    seconds_max: float = SYPHON_ROUND_S,
) -> list[Share]:
    """At most so many shares, even ones; the bounds are those of one slot of a queue."""
    if slots < 1 or tasks < 1:
        raise ValueError(f"slots is {slots} and tasks is {tasks}: both must be 1 or more.")
    # The slots of a queue stand side by side, so that neighbours in turn are different tasks.
    rows = [queue for queue in queues for _ in range(slots)]
    count = min(tasks, len(rows))
    dealt = [rows[at::count] for at in range(count)]
    return [Share(tuple(dict.fromkeys(each)), messages_max * len(each), seconds_max) for each in dealt]
