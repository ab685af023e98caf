"""Growing pauses and retries."""

from __future__ import annotations

import pytest

from twinbus.client import Backoff, retried
from twinbus.errors import ConnectionForcedError, UnauthorizedError


def test_pauses_grow_to_a_bound_and_start_again() -> None:
    backoff = Backoff(100, 1_000, draw=lambda: 1.0)
    assert [backoff.next_ms() for _ in range(6)] == [100, 200, 400, 800, 1_000, 1_000]
    backoff.reset()
    assert backoff.next_ms() == 100


def test_pauses_are_spread() -> None:
    assert Backoff(100, 1_000, draw=lambda: 0.0).next_ms() == 50


def test_many_failures_do_no_harm() -> None:
    backoff = Backoff(100, 1_000, draw=lambda: 1.0)
    backoff.failures = 10_000
    assert backoff.next_ms() == 1_000


def test_pauses_that_do_not_grow() -> None:
    with pytest.raises(ValueError, match="must be above 0 and at most"):
        Backoff(0, 10)


async def test_tried_until_it_works() -> None:
    tries: list[int] = []

    async def work() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionForcedError("down")
        return "up"

    backoff = Backoff(1, 2)
    assert await retried(work, backoff=backoff) == "up"
    assert len(tries) == 3
    assert backoff.failures == 0


async def test_what_waiting_does_not_help_is_raised_at_once() -> None:
    tries: list[int] = []

    async def work() -> None:
        tries.append(1)
        raise UnauthorizedError("no")

    with pytest.raises(UnauthorizedError):
        await retried(work, backoff=Backoff(1, 2))
    assert len(tries) == 1


async def test_a_bound_on_tries() -> None:
    tries: list[int] = []

    async def work() -> None:
        tries.append(1)
        raise ConnectionForcedError("down")

    with pytest.raises(ConnectionForcedError):
        await retried(work, backoff=Backoff(1, 2), attempts_max=3)
    assert len(tries) == 3
