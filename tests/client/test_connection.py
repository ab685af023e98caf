"""What the callers of a connection share: its tokens and request links."""

from __future__ import annotations

import asyncio

from twinbus.client.connection import _shared


def test_a_failed_task_is_forgotten_once() -> None:
    """Two callers share a failed task; the first has started a new one when the second learns of the failure."""

    async def work() -> None:
        tasks: dict[str, asyncio.Task[int]] = {}
        started = 0

        async def fail_first() -> int:
            nonlocal started
            started += 1
            number = started
            await asyncio.sleep(0)
            if number == 1:
                raise ValueError
            await asyncio.sleep(0.01)
            return number

        async def stubborn() -> int:
            try:
                return await _shared(tasks, "key", fail_first)
            except ValueError:
                return await _shared(tasks, "key", fail_first)

        assert await asyncio.gather(stubborn(), stubborn(), stubborn()) == [2, 2, 2]

    asyncio.run(work())
