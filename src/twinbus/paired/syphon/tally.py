"""What a syphon has done, counted by backlog queue.

Rules:
- Counters only grow; whoever shows a rate takes the difference.
- Messages are the senders' own: a packed batch counts for all that are in it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields


@dataclass(slots=True)
class QueueTally:
    """One backlog queue.

    `received` deliveries from the backlog, `syphoned` messages accepted by the primary and completed in the backlog,
    `dead_lettered`, `left` sends that failed and will be tried again, `repeated` accepted by the primary and not
    completed, so that they will be sent once more, `renewed` locks, `polls` receives that brought nothing.
    """

    received: int = 0
    received_bytes: int = 0
    syphoned: int = 0
    syphoned_bytes: int = 0
    dead_lettered: int = 0
    left: int = 0
    repeated: int = 0
    renewed: int = 0
    polls: int = 0


class Tally:
    """All backlog queues."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueTally] = {}

    def of(self, queue: str) -> QueueTally:
        return self.queues.setdefault(queue, QueueTally())

    def total(self) -> QueueTally:
        """The sum over all queues."""
        return QueueTally(
            **{
                field.name: sum(getattr(each, field.name) for each in self.queues.values())
                for field in fields(QueueTally)
            }
        )

    def as_dict(self) -> dict[str, dict[str, int]]:
        return {name: asdict(each) for name, each in sorted(self.queues.items())}
