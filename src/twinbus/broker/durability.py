"""Lets a coroutine wait for the disk, but not forever: a disk that hangs must not hold requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinbus.errors import ServerBusyError
from twinbus.limits import ADMIN_COMMIT_TIMEOUT_MS

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost


async def until_durable(host: NamespaceHost) -> None:
    """Wait until the open facts are on disk."""
    done: asyncio.Future[None] = host.loop.create_future()
    host.commits.facts.then.append((resolve, done))
    host.commits.request()
    try:
        await asyncio.wait_for(done, ADMIN_COMMIT_TIMEOUT_MS / 1000)
    except TimeoutError:
        raise ServerBusyError("The disk did not answer in time; look whether the change was made.") from None


def resolve(done: asyncio.Future[None]) -> None:
    """End the wait, unless it has ended by its timeout."""
    if not done.done():
        done.set_result(None)
