"""What is known about one backlog queue; None where something is not known."""

from __future__ import annotations

from dataclasses import dataclass, field

from twinbus.paired.homes import Relation


@dataclass(slots=True)
class QueueLook:
    """One backlog queue. `destinations` and `reasons` count peeked messages; `oldest_ms` is when the first was
    enqueued. `mark` is its user metadata, if that says whose it is; `receivers` are those that are attached now."""

    name: str
    primary: str
    index: int
    active: int | None = 0
    dead: int | None = 0
    other: int | None = 0
    size_bytes: int | None = 0
    oldest_ms: int | None = None
    oldest_dead_ms: int | None = None
    destinations: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    sampled: bool = False
    mark: str | None = None
    receivers: int | None = None
    # Whose it is, seen from one primary; None if it was not compared with any.
    relation: Relation | None = None

    @property
    def waiting(self) -> int | None:
        """Messages that wait in it, apart from dead letters; None if they were not counted to the end."""
        return None if self.active is None or self.other is None else self.active + self.other

    @property
    def waits(self) -> bool:
        """Whether messages wait in it."""
        return self.waiting is None or self.waiting > 0

    @property
    def empty(self) -> bool:
        return not self.waits and self.dead == 0
