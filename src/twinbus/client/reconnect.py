"""Retry with backoff, for long-running clients.

Three rules. Pauses double from the shortest to the longest and start over after a success. Each is drawn at random from
the upper half of its length, so that many clients of a namespace do not return at the same moment. Errors that waiting
cannot cure are raised at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from twinbus.errors import ServiceError
from twinbus.limits import RECONNECT_PAUSE_MS_MAX, RECONNECT_PAUSE_MS_MIN

T = TypeVar("T")


class Backoff:
    """The pauses between retries."""

    def __init__(
        self,
        first_ms: int = RECONNECT_PAUSE_MS_MIN,
        longest_ms: int = RECONNECT_PAUSE_MS_MAX,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if not 0 < first_ms <= longest_ms:
            raise ValueError(
                f"The first pause of {first_ms} ms must be above 0 and at most the longest of {longest_ms} ms."
            )
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        # Returns a number from 0 to 1.
        self._draw = draw
        # Failures since the last success.
        self.failures = 0

    def next_ms(self) -> int:
        """Count a failure and return the pause that follows it."""
        # Bound the exponent, so that the number does not grow without limit.
        whole_ms = min(self._first_ms * 2 ** min(self.failures, 30), self._longest_ms)
        self.failures += 1
        return int(whole_ms * (0.5 + self._draw() / 2))

    def reset(self) -> None:
        """Start over after a success."""
        self.failures = 0


async def retried(
    work: Callable[[], Awaitable[T]],
    *,
    backoff: Backoff | None = None,
    attempts_max: int | None = None,
    passing: Callable[[ServiceError], bool] = lambda error: error.retryable,
) -> T:
    """Retry `work` until it succeeds, fails for good or has failed `attempts_max` times; return its result."""
    pauses = backoff or Backoff()
    while True:
        try:
            result = await work()
        except ServiceError as error:
            if not passing(error) or (attempts_max is not None and pauses.failures + 1 >= attempts_max):
                raise
            await asyncio.sleep(pauses.next_ms() / 1000)
        else:
            pauses.reset()
            return result
