"""What a syphon needs of a namespace: the small port behind which our own client and the SDK are exchangeable.

Rules:
- Every failure is one of our ServiceErrors; what is sent or settled together has an outcome for each, None for done.
- A message that was received is `Held`: locked until it is settled, released, or its lock ends.
- `abandon` ends a send that hangs: what has no outcome gets the error given, and the destination is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from twinbus.errors import ServiceError
from twinbus.limits import LOCK_DURATION_MS_DEFAULT, LOCK_DURATION_MS_MIN

# The encoded messages that are one delivery: several only for a batch.
Parcel = tuple[bytes, ...]
Outcomes = list[ServiceError | None]


@dataclass(slots=True, eq=False)
class Held:
    """A message of a backlog queue, locked for us.

    The port settles it by its `handle`. Its lock lasts `lock_ms` from one renewal to the next, and ends at `expires_ms`
    of a clock that only measures. It came to the backlog at `enqueued_ms` of the service's time of day, if known.
    """

    payload: bytes
    handle: Any
    lock_ms: int
    expires_ms: int
    enqueued_ms: int | None = None


def lock_left_ms(until_ms: int | None, now_ms: int) -> int:
    """How long a lock may be relied on that ends at this time of the service, if our own time of day is right.

    Two clocks may differ by more than a lock lasts, so it is bounded by the shortest that a queue can have and by what
    backlog queues have: a lock renewed too early costs a request, one renewed too late is lost.
    """
    left_ms = LOCK_DURATION_MS_MIN if until_ms is None else until_ms - now_ms
    return min(max(left_ms, LOCK_DURATION_MS_MIN), LOCK_DURATION_MS_DEFAULT)


class BacklogSource(Protocol):
    """One backlog queue."""

    async def receive(self, max_count: int, wait_s: float) -> list[Held]:
        """What is there, or the first that come in time; none is an empty list."""
        ...

    async def complete(self, held: Sequence[Held]) -> Outcomes: ...

    async def dead_letter(self, held: Held, reason: str, description: str) -> None: ...

    async def renew(self, held: Sequence[Held]) -> None:
        """Lock them for another while."""
        ...

    async def release(self, held: Sequence[Held]) -> None:
        """Unlock them, in their old places."""
        ...

    async def is_empty(self) -> bool:
        """Whether nothing is there, not even something that somebody has locked."""
        ...

    async def close(self) -> None: ...


class Destination(Protocol):
    """One entity of the primary."""

    @property
    def usable(self) -> bool:
        """Whether another send may succeed; if not, a new destination is needed."""
        ...

    async def send(self, parcels: Sequence[Parcel], on_accepted: Callable[[int], None]) -> Outcomes:
        """Send them in order, pipelined as far as the transport can; each that is accepted is told at once."""
        ...

    def abandon(self, error: ServiceError) -> None: ...

    async def close(self) -> None: ...


class Port(Protocol):
    """One namespace."""

    async def connect(self) -> None:
        """Have a connection; quick when there is one."""
        ...

    async def source(self, path: str) -> BacklogSource: ...

    async def destination(self, path: str) -> Destination: ...

    async def oldest_ms(self, path: str) -> int | None:
        """When the first message of a queue came, by the service's time of day; None when there is none."""
        ...

    async def close(self) -> None: ...
