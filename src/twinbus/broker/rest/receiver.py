"""One HTTP request that waits for one message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinbus.entities.message import Message
from twinbus.entities.session import Session
from twinbus.errors import EntityNotFoundError
from twinbus.store.facts import Facts

if TYPE_CHECKING:
    from twinbus.broker.dispatcher import Dispatcher

Received = tuple[Message, bytes]


class OneReceiver:
    """Stands in an entity's line for a single message, beside the consumers with their links."""

    __slots__ = ("_deleting", "_dispatcher", "_future", "_served", "session", "waiting")

    def __init__(self, dispatcher: Dispatcher, deleting: bool) -> None:
        # Hands out the entity's messages.
        self._dispatcher = dispatcher
        # Receive-and-delete: the message is given once its removal is on disk.
        self._deleting = deleting
        # Resolved with the message and its stored form, or with None when time ran out.
        self._future: asyncio.Future[Received] = asyncio.get_running_loop().create_future()
        # Whether it has its message, or left.
        self._served = False
        # Never a session: HTTP has none.
        self.session: Session | None = None
        # Whether the dispatcher has it in its line.
        self.waiting = False

    async def receive(self, timeout_s: float) -> Received | None:
        """The next message, None when there is none in time."""
        self._dispatcher.line_up(self)
        try:
            return await asyncio.wait_for(asyncio.shield(self._future), timeout_s)
        except TimeoutError:
            # Its removal may be on the way to the disk: then the message is worth the moment it takes.
            return await self._future if self._served else None
        finally:
            # A message taken for it but not on its way yet is lost with it, as receive-and-delete has it.
            self._served = True
            self._future.cancel()

    def entity_gone(self) -> None:
        if not self._served:
            self._served = True
            queue = self._dispatcher.queue
            self._future.set_exception(EntityNotFoundError(f"The messaging entity '{queue.path}' was deleted."))

    def room(self) -> int:
        return 0 if self._served else 1

    def feed(self, now_ms: int, facts: Facts) -> int:
        if self._served:
            return 0
        queue = self._dispatcher.queue
        messages = queue.take(1, now_ms, facts) if self._deleting else queue.acquire(1, now_ms, facts)
        if not messages:
            return 0
        self._served = True
        message = messages[0]
        received = (message, self._dispatcher.host.store.body(message.body))
        if self._deleting:
            facts.then.append((self._give, received))
        else:
            self._give(received)
        return 1

    def _give(self, received: Received) -> None:
        if not self._future.done():
            self._future.set_result(received)
