"""Coming back after a failure, for those who run for long.

Three rules. Pauses grow from the first to the longest, and start again after a success. Each is drawn from the upper
half of its length, so that many clients of one namespace do not come back in one moment. What cannot succeed by waiting
is raised at once.
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
    """The pauses of one who tries again and again."""

    def __init__(
        self,
        first_ms: int = RECONNECT_PAUSE_MS_MIN,
        longest_ms: int = RECONNECT_PAUSE_MS_MAX,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if not 0 < first_ms <= longest_ms:
            raise ValueError(f"Pauses from {first_ms} to {longest_ms} ms do not grow.")
        # The first pause, and the one that is not exceeded.
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        # Gives a number from 0 to 1.
        self._draw = draw
        # Failures since the last success.
        self.failures = 0

    def next_ms(self) -> int:
        """One more failure: how long to wait now."""
        # The exponent is bounded, because a number of a thousand digits is of no use to anybody.
        whole_ms = min(self._first_ms * 2 ** min(self.failures, 30), self._longest_ms)
        self.failures += 1
        return int(whole_ms * (0.5 + self._draw() / 2))

    def reset(self) -> None:
        """A success."""
        self.failures = 0


async def retried(
    work: Callable[[], Awaitable[T]],
    *,
    backoff: Backoff | None = None,
    attempts_max: int | None = None,
    passing: Callable[[ServiceError], bool] = lambda error: error.retryable,
) -> T:
    """The result of `work`, tried until it succeeds, fails for good, or has failed `attempts_max` times."""
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
