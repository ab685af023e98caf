"""Receivers with a message selector: those of one entity with the same selector share a line and what was found.

They do not stand in the entity's own line, where a receiver that gets nothing means that there is nothing. Looking at
messages is done in slices; what was found so far is sent meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from twinbus.amqp.link import Link
from twinbus.broker.links.consumer import BURST, Consumer
from twinbus.broker.messages.browsing import browse
from twinbus.broker.slices import Work
from twinbus.entities.filters import MessageSelector
from twinbus.entities.selected import SelectedMessages
from twinbus.errors import ServiceError
from twinbus.limits import SELECTOR_STEP_MESSAGES
from twinbus.store.facts import Facts

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection
    from twinbus.broker.links.dispatcher import Dispatcher


class SelectiveConsumer(Consumer):
    """A consumer that gets only the messages that its selector matches."""

    __slots__ = ("_selector_line",)

    def __init__(self, connection: BrokerConnection, link: Link, line: SelectorLine, deleting: bool) -> None:
        super().__init__(connection, link, line.dispatcher, None, deleting)
        self._selector_line = line
        line.join(self)

    def on_credit(self) -> None:
        link = self.link
        if link.drain:
            self.connection.do_in_slices(self._drain())
        elif link.credit > 0:
            self._poll_start = link.delivery_count
            self._selector_line.line_up(self)

    def resume(self) -> None:
        self._selector_line.line_up(self)

    def feed(self, now_ms: int, facts: Facts) -> int:
        count = self.room()
        if count <= 0:
            return 0
        source = self._selector_line.selected
        room_bytes = self.connection.room_bytes()
        if self.deleting:
            messages = source.take(count, now_ms, facts, room_bytes)
        else:
            messages = source.acquire(count, now_ms, facts, room_bytes)
        if messages:
            self._deliver(messages)
        return len(messages)

    def _drain(self) -> Work:
        """Send what matches and fits, once every message has been looked at; then return the remaining credit."""
        line = self._selector_line
        while not self.gone and self.link.drain:
            if line.serve(self):
                yield None
            elif line.selected.looking and self.link.credit > 0:
                line.look()
                yield None
            else:
                break
        if self.link.drain and not self.gone:
            self._finish_drain()

    def on_detached(self, orderly: bool) -> None:
        if not self.gone:
            self._selector_line.leave(self)
        super().on_detached(orderly)


class SelectorLine:
    """The receivers of one entity that use one selector."""

    __slots__ = ("_consumers", "_host", "_line", "_looking", "_scheduled", "dispatcher", "selected")

    def __init__(self, dispatcher: Dispatcher, selector: MessageSelector) -> None:
        self.dispatcher = dispatcher
        self._host = dispatcher.host
        self.selected = SelectedMessages(dispatcher.queue, selector, dispatcher.host.views)
        self._consumers: set[SelectiveConsumer] = set()
        # Consumers with credit, first come, first served.
        self._line: OrderedDict[SelectiveConsumer, None] = OrderedDict()
        # Whether messages are being looked at, in slices.
        self._looking = False
        # Whether a run is already scheduled.
        self._scheduled = False

    def join(self, consumer: SelectiveConsumer) -> None:
        self._consumers.add(consumer)

    def leave(self, consumer: SelectiveConsumer) -> None:
        self._step_out(consumer)
        self._consumers.discard(consumer)
        if not self._consumers:
            self.selected.close()
            self.dispatcher.drop_selector_line(self)

    def line_up(self, consumer: SelectiveConsumer) -> None:
        if not consumer.waiting:
            consumer.waiting = True
            self._line[consumer] = None
        self.wake()

    def wake(self) -> None:
        """Messages arrived or returned, or a receiver has credit."""
        if not self._scheduled:
            self._scheduled = True
            self._host.loop.call_soon(self._run)

    def serve(self, consumer: SelectiveConsumer) -> bool:
        """Send one consumer a burst within its credit; False if nothing was sent."""
        sent = self._fed(consumer)
        self._host.commits.request_if_needed()
        return sent > 0

    def look(self) -> None:
        """Look at a few more messages."""
        host = self._host
        selected = self.selected
        # One snapshot for index and bodies: a commit between the two could delete a body.
        with host.store.snapshot():
            selected.look(SELECTOR_STEP_MESSAGES)
            if selected.behind and not selected.full:
                found = browse(host, self.dispatcher.queue, selected.next_seq, SELECTOR_STEP_MESSAGES)
                selected.scanned(found, len(found) < SELECTOR_STEP_MESSAGES)

    def _run(self) -> None:
        self._scheduled = False
        self._feed_line()
        if self.selected.looking and not self._looking and self._consumers:
            self._looking = True
            self._host.slices.start(self._look_on())

    def _look_on(self) -> Work:
        while self.selected.looking and self._consumers:
            self.look()
            self._feed_line()
            yield None
        self._looking = False

    def _feed_line(self) -> None:
        host = self._host
        left = 2 * BURST
        while self._line and self.selected.ready:
            if left <= 0 or host.slices.over():
                self.wake()
                break
            consumer = next(iter(self._line))
            sent = self._fed(consumer)
            left -= sent
            if consumer.room() <= 0:
                # Out of credit; it lines up again when that changes.
                self._step_out(consumer)
            elif not sent:
                if self.selected.ready and self.dispatcher.queue.gate.receivable:
                    self.wake()  # it skipped many that others took
                break
        host.commits.request_if_needed()

    def _step_out(self, consumer: SelectiveConsumer) -> None:
        if consumer.waiting:
            consumer.waiting = False
            self._line.pop(consumer, None)

    def _fed(self, consumer: SelectiveConsumer) -> int:
        host = self._host
        try:
            return consumer.feed(host.clock.now_ms(), host.commits.facts)
        except ServiceError:
            return 0  # its entity is disabled or deleted
