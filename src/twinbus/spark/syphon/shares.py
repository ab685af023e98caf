"""What each task of a round does: backlog queues, once per slot, dealt to the tasks.

- A task works on all its queues at the same time, over two connections; more tasks than cores would only wait for each
  other.
- Slots of one queue go to different tasks if there are enough: a second slot in the same task adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twinbus.limits import SYPHON_ROUND_MESSAGES, SYPHON_ROUND_S


@dataclass(frozen=True, slots=True)
class Share:
    """One task's queues, and its limits: messages settled and seconds spent receiving."""

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
    """At most this many even shares; the bounds are those of one slot of a queue."""
    if slots < 1 or tasks < 1:
        raise ValueError(f"slots is {slots} and tasks is {tasks}: both must be 1 or more.")
    # The slots of a queue are adjacent, so that dealing puts them into different tasks.
    rows = [queue for queue in queues for _ in range(slots)]
    count = min(tasks, len(rows))
    dealt = [rows[at::count] for at in range(count)]
    return [Share(tuple(dict.fromkeys(each)), messages_max * len(each), seconds_max) for each in dealt]
