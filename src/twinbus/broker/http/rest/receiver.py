"""An HTTP request that waits for one message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from twinbus.entities.message import QueuedMessage
from twinbus.entities.session import MessageSession
from twinbus.errors import EntityNotFoundError, ServiceError
from twinbus.store.facts import Facts

if TYPE_CHECKING:
    from twinbus.broker.links.dispatcher import Dispatcher


class LockedMessage(NamedTuple):
    """A message and the token of its lock."""

    message: QueuedMessage
    token: bytes


class OneReceiver:
    """Waits in an entity's line for a single message, alongside the consumers with links.

    It only locks the message. Sometimes a hang-up is noticed late, and a locked message can still be returned; so even
    a destructive read removes nothing before its answer is written.
    """

    __slots__ = ("_dispatcher", "_future", "session", "waiting")

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        # Resolves to the message, or None on a timeout.
        self._future: asyncio.Future[LockedMessage | None] = asyncio.get_running_loop().create_future()
        # HTTP has no sessions.
        self.session: MessageSession | None = None
        # Whether it is in the dispatcher's line.
        self.waiting = False

    async def receive(self, timeout_s: float) -> LockedMessage | None:
        """The next message; None on a timeout."""
        self._dispatcher.line_up(self)
        timer = asyncio.get_running_loop().call_later(timeout_s, self._give_up)
        try:
            return await self._future
        except asyncio.CancelledError:
            # The client hung up in the same turn that brought the message.
            if self._future.done() and not self._future.cancelled() and self._future.exception() is None:
                locked = self._future.result()
                if locked is not None:
                    self.give_back(locked)
            raise
        finally:
            timer.cancel()
            self._dispatcher.step_out(self)

    def give_back(self, locked: LockedMessage, *, counting: bool = False) -> None:
        """Return the message; `counting` counts a delivery, so that a bad message is dead-lettered eventually."""
        host = self._dispatcher.host
        queue = self._dispatcher.queue
        give = queue.abandon if counting else queue.release
        try:
            give(locked.token, host.clock.now_ms(), host.commits.facts)
        except ServiceError:
            return  # the lock expired, or the entity was deleted
        host.commits.request_if_needed()

    def _give_up(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def entity_gone(self) -> None:
        if not self._future.done():
            queue = self._dispatcher.queue
            self._future.set_exception(EntityNotFoundError(f"The messaging entity '{queue.path}' was deleted."))

    def room(self) -> int:
        return 0 if self._future.done() else 1

    def feed(self, now_ms: int, facts: Facts) -> int:
        if self._future.done():
            return 0
        try:
            messages = self._dispatcher.queue.acquire(1, now_ms, facts)
        except ServiceError as error:
            # The entity is disabled, perhaps since the wait began.
            self._future.set_exception(error)
            return 0
        if not messages:
            return 0
        token = messages[0].token
        assert token is not None
        self._future.set_result(LockedMessage(messages[0], token))
        return 1
