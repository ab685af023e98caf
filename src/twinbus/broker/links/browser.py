"""A link on which a client browses an entity: distribution mode `copy`, as JMS browsers request.

Browsing is peeking: messages are sent settled, in sequence order, and none is removed or locked. A drain completes only
after the last message, however slowly the client reads, because that is how the client detects the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp.events import Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.states import AmqpError, State
from twinbus.broker.links.consumer import BURST
from twinbus.broker.messages.browsing import browse
from twinbus.broker.messages.damage import UNREADABLE, put_aside_at_rest
from twinbus.broker.messages.stored import render
from twinbus.entities.filters import MessageSelector
from twinbus.entities.message import ACTIVE, QueuedMessage
from twinbus.entities.queue import Queue
from twinbus.errors import DamagedBodyError
from twinbus.ledger.words import Kind
from twinbus.limits import SELECTOR_STEP_MESSAGES

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection
    from twinbus.broker.links.dispatcher import Dispatcher


class Browser:
    """Credit in, copies of messages out."""

    __slots__ = (
        "_at_end",
        "_dispatcher",
        "_gone",
        "_host",
        "_next",
        "_peeked",
        "_scheduled",
        "_selector",
        "connection",
        "link",
        "queue",
    )

    def __init__(
        self, connection: BrokerConnection, link: Link, dispatcher: Dispatcher, selector: MessageSelector | None
    ) -> None:
        self.connection = connection
        self._host = connection.host
        self.link = link
        self._dispatcher = dispatcher
        self.queue: Queue = dispatcher.queue
        # None shows all messages.
        self._selector = selector
        # The lowest sequence number not looked at yet.
        self._next = 0
        # Whether there was no message from there on.
        self._at_end = False
        # Whether a run is already scheduled.
        self._scheduled = False
        # Set when the link has ended.
        self._gone = False
        self._peeked = connection.host.meter.entity(self.queue.path).counter(Kind.PEEK)

    def on_credit(self) -> None:
        self.resume()

    def new_messages(self) -> None:
        """Messages arrived at the entity."""
        self._at_end = False
        if self.link.credit > 0:
            self.resume()

    def resume(self) -> None:
        """Continue in the next turn of the loop."""
        if not self._scheduled and not self._gone:
            self._scheduled = True
            self._host.loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        link = self.link
        if self._gone:
            return
        if not self._at_end and link.credit > 0:
            if self.connection.room_bytes() <= 0:
                self.connection.choked.add(self)
            elif link.sendable() <= 0:
                self.connection.crowded.add(self)
            else:
                self._show(min(link.sendable(), BURST if self._selector is None else 4 * SELECTOR_STEP_MESSAGES))
                # Continue in another turn, so that others get served.
                self.resume()
        elif link.drain:
            link.drained()
        self.connection.flush_soon()

    def _show(self, count: int) -> None:
        sizes: list[int] = []
        # One snapshot for index and bodies: a commit between the two could delete a body.
        with self._host.store.snapshot():
            found = browse(self._host, self.queue, self._next, count)
            self._at_end = len(found) < count
            for message in found:
                if self.connection.room_bytes() <= 0:
                    self._at_end = False
                    break
                self._next = message.seq + 1
                # A browser does not see scheduled and deferred messages.
                if message.state == ACTIVE and self._wants(message):
                    try:
                        payload = render(self._host.store.body(message.body_number), message)
                    except (DamagedBodyError, *UNREADABLE) as error:
                        put_aside_at_rest(self._host, self.queue, message.seq, error)
                        continue
                    self.link.send(payload, tag=b"", settled=True)
                    sizes.append(len(payload))
        self._peeked.add_many(sizes)

    def _wants(self, message: QueuedMessage) -> bool:
        return self._selector is None or self._selector.matches(self._host.views.of_stored(message))

    def detach(self, error: AmqpError) -> None:
        """Detach the link from our side."""
        self.connection.detach(self.link, error)

    def on_detached(self, orderly: bool) -> None:
        self._gone = True
        self._dispatcher.leave_browser(self)

    def on_transfer(self, event: Transfer) -> None:
        """Never called: we send on this link."""

    def on_disposed(self, delivery_id: int, tag: bytes, state: State | None, settled: bool) -> None:
        """Messages are sent settled, so there is nothing to do."""
