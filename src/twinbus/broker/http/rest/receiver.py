"""One HTTP request that waits for one message."""

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
    """Stands in an entity's line for a single message, beside the consumers with their links.

    It only locks the message. A client that hangs up is noticed afterwards at times, and what is locked can be given
    back; so even a destructive read removes nothing before its answer is ready.
    """

    __slots__ = ("_dispatcher", "_future", "session", "waiting")

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        # Resolved with the message, or with None when time ran out.
        self._future: asyncio.Future[LockedMessage | None] = asyncio.get_running_loop().create_future()
        # Never a session: HTTP has none.
        self.session: MessageSession | None = None
        # Whether the dispatcher has it in its line.
        self.waiting = False

    async def receive(self, timeout_s: float) -> LockedMessage | None:
        """The next message, None when there is none in time."""
        self._dispatcher.line_up(self)
        timer = asyncio.get_running_loop().call_later(timeout_s, self._give_up)
        try:
            return await self._future
        except asyncio.CancelledError:
            # The client hung up in the very turn that brought its message.
            if self._future.done() and not self._future.cancelled() and self._future.exception() is None:
                locked = self._future.result()
                if locked is not None:
                    self.give_back(locked)
            raise
        finally:
            timer.cancel()
            self._dispatcher.step_out(self)

    def give_back(self, locked: LockedMessage, *, counting: bool = False) -> None:
        """Let others have the message; `counting` counts a delivery, so that a bad one is dead-lettered in the end."""
        host = self._dispatcher.host
        queue = self._dispatcher.queue
        give = queue.abandon if counting else queue.release
        try:
            give(locked.token, host.clock.now_ms(), host.commits.facts)
        except ServiceError:
            return  # the lock lapsed, or the entity is gone
        host.commits.request_if_needed()
        host.timers.reschedule()

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
            # The entity is disabled, perhaps since the request began to wait.
            self._future.set_exception(error)
            return 0
        if not messages:
            return 0
        token = messages[0].token
        assert token is not None
        self._future.set_result(LockedMessage(messages[0], token))
        return 1
