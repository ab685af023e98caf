"""Counters of a syphon, by backlog queue.

- Counters only grow; compute a rate from the difference.
- Messages are the senders' own: a packed batch counts every message in it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields


@dataclass(slots=True)
class QueueTally:
    """The counters of one backlog queue.

    `received`: deliveries from the backlog. `syphoned`: messages accepted by the primary and completed in the backlog.
    `left`: failed sends that will be retried. `repeated`: messages accepted by the primary but not completed, which
    will be sent again. `renewed`: lock renewals. `polls`: receives that returned nothing.
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
