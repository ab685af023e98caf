"""How far one run of a syphon goes.

- At a bound a run receives no more, finishes what it holds, and releases what it cannot finish.
- A brief run waits for nothing: it ends when nothing more can be moved now, and reports what is left.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """None means no bound. `messages_max` counts settled messages of all queues; messages held when it is reached, at
    most one receive per queue, are finished as well."""

    messages_max: int | None = None
    seconds_max: float | None = None
    brief: bool = False

    def __post_init__(self) -> None:
        if self.messages_max is not None and self.messages_max < 1:
            raise ValueError(f"messages_max is {self.messages_max}: it must be 1 or more.")
        if self.seconds_max is not None and self.seconds_max <= 0:
            raise ValueError(f"seconds_max is {self.seconds_max}: it must be more than 0.")


UNBOUNDED = Bounds()
