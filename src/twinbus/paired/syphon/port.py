"""What a syphon needs from a namespace: a small interface that hides whether our own client or the SDK is used.

- Every failure is one of our ServiceErrors. Operations on several messages have an outcome for each, None for success.
- A received message is `Held`: locked until it is settled or released, or its lock expires.
- `abandon` ends a hanging send: sends without an outcome get the given error, and the destination becomes unusable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from twinbus.errors import ServiceError
from twinbus.limits import LOCK_DURATION_MS_DEFAULT, LOCK_DURATION_MS_MIN

# The encoded messages of one delivery; more than one only for a batch.
Parcel = tuple[bytes, ...]
Outcomes = list[ServiceError | None]


@dataclass(slots=True, eq=False)
class Held:
    """A locked message of a backlog queue.

    The port settles it by its `handle`. Its lock lasts `lock_ms` from each renewal, and expires at `expires_ms` of a
    monotonic clock. It was enqueued in the backlog at `enqueued_ms` of the service's clock, if known.
    """

    payload: bytes
    handle: Any
    lock_ms: int
    expires_ms: int
    enqueued_ms: int | None = None


def lock_left_ms(until_ms: int | None, now_ms: int) -> int:
    """How long to rely on a lock that ends at this service time, assuming that our clock is right.

    Two clocks may differ by more than a lock lasts, so the result is bounded by the shortest lock of any queue and by
    that of backlog queues: renewing too early costs a request, renewing too late loses the lock.
    """
    left_ms = LOCK_DURATION_MS_MIN if until_ms is None else until_ms - now_ms
    return min(max(left_ms, LOCK_DURATION_MS_MIN), LOCK_DURATION_MS_DEFAULT)


class BacklogSource(Protocol):
    """One backlog queue."""

    async def receive(self, max_count: int, wait_s: float) -> list[Held]:
        """Available messages, or the first that arrive in time; may be empty."""
        ...

    async def complete(self, held: Sequence[Held]) -> Outcomes: ...

    async def dead_letter(self, held: Held, reason: str, description: str) -> None: ...

    async def renew(self, held: Sequence[Held]) -> None:
        """Renew their locks."""
        ...

    async def release(self, held: Sequence[Held]) -> None:
        """Release them to their old places."""
        ...

    async def is_empty(self) -> bool:
        """Whether the queue has no messages at all, not even locked ones."""
        ...

    async def close(self) -> None: ...


class Destination(Protocol):
    """One entity of the primary."""

    @property
    def usable(self) -> bool:
        """Whether another send may succeed; if not, a new destination is needed."""
        ...

    async def send(self, parcels: Sequence[Parcel], on_accepted: Callable[[int], None]) -> Outcomes:
        """Send them in order, pipelined as far as the transport can; reports each acceptance at once."""
        ...

    def abandon(self, error: ServiceError) -> None: ...

    async def close(self) -> None: ...


class Port(Protocol):
    """One namespace."""

    def expect(self, identity: str) -> None:
        """Connect only to the namespace with this identity; called before the first connection."""
        ...

    async def connect(self) -> None:
        """Ensure a connection; fast if there is one."""
        ...

    async def source(self, path: str) -> BacklogSource: ...

    async def destination(self, path: str) -> Destination: ...

    async def oldest_ms(self, path: str) -> int | None:
        """When the first message of a queue was enqueued, by the service's clock; None if there is none."""
        ...

    async def close(self) -> None: ...
