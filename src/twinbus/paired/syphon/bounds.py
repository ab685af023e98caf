"""How far one run of a syphon goes.

Rules:
- A run that reaches a bound asks for nothing more, finishes what it has in hand, and gives back what it cannot finish.
- A brief run waits for nobody: it ends when nothing more could be moved now, and says what is left.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """None is no bound. `messages_max` counts what was settled, of all queues together; what is in hand when it is
    reached, at most one receive of each queue, is finished as well."""

    messages_max: int | None = None
    seconds_max: float | None = None
    brief: bool = False

    def __post_init__(self) -> None:
        if self.messages_max is not None and self.messages_max < 1:
            raise ValueError(f"messages_max is {self.messages_max}: it must be 1 or more.")
        if self.seconds_max is not None and self.seconds_max <= 0:
            raise ValueError(f"seconds_max is {self.seconds_max}: it must be more than 0.")


UNBOUNDED = Bounds()
