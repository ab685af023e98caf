"""Distributes an entity's messages to its consumers, in the order in which their credit arrived."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from twinbus.amqp.states import AmqpError
from twinbus.broker.links.consumer import BURST, Consumer
from twinbus.broker.links.publisher import Publisher
from twinbus.broker.links.senders import Senders
from twinbus.entities.filters import MessageSelector
from twinbus.entities.queue import Queue
from twinbus.entities.session import MessageSession
from twinbus.errors import QuotaExceededError, ServiceError
from twinbus.limits import SELECTORS_PER_ENTITY_MAX
from twinbus.store.facts import Facts

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.links.browser import Browser
    from twinbus.broker.links.selector_line import SelectorLine

# Messages sent before the loop gets its turn, so that one deep queue does not block everybody else.
RUN = 2 * BURST


class Receiving(Protocol):
    """Anything that can wait in line for an entity's messages."""

    waiting: bool

    @property
    def session(self) -> MessageSession | None: ...

    def room(self) -> int: ...

    def feed(self, now_ms: int, facts: Facts) -> int: ...

    def entity_gone(self) -> None: ...


class SessionWaiter(Protocol):
    """A client that waits for the next session with messages."""

    # Ends the wait; None until set.
    timer: asyncio.TimerHandle | None
    # Set once it got a session or left.
    done: bool

    def granted(self, session: MessageSession) -> None:
        """It gets this session."""

    def ended(self, error: AmqpError) -> None:
        """The wait is over without a session."""


class Dispatcher(Senders):
    """Matches an entity's available messages with credit."""

    __slots__ = ("_browsers", "_line", "_scheduled", "_selector_lines", "_sessions", "_waiters", "consumers", "queue")

    def __init__(self, host: NamespaceHost, queue: Queue) -> None:
        super().__init__(host, queue)
        # The same entity, typed as a queue.
        self.queue = queue
        # All consumers; a deletion must reach each of them.
        self.consumers: set[Consumer] = set()
        # Links that only browse.
        self._browsers: set[Browser] = set()
        # Consumers with credit, first come, first served.
        self._line: OrderedDict[Receiving, None] = OrderedDict()
        self._sessions: dict[str, Consumer] = {}
        self._waiters: OrderedDict[SessionWaiter, None] = OrderedDict()
        # Consumers with a selector, by its text; None if there are none.
        self._selector_lines: dict[str, SelectorLine] | None = None
        # Whether a run is already scheduled.
        self._scheduled = False
        queue.on_available = self._available
        queue.on_session_lost = self._session_lost

    def join(self, consumer: Consumer) -> None:
        self.consumers.add(consumer)
        self._count_links()
        if consumer.session is not None:
            self._sessions[consumer.session.id] = consumer
            consumer.session.on_available = self._session_available

    def leave(self, consumer: Consumer) -> None:
        self.consumers.discard(consumer)
        self.step_out(consumer)
        self._count_links()
        if consumer.session is not None and self._sessions.get(consumer.session.id) is consumer:
            del self._sessions[consumer.session.id]
            consumer.session.on_available = None

    def selector_line(self, selector: MessageSelector) -> SelectorLine:
        """The line of the consumers that use this selector."""
        from twinbus.broker.links.selector_line import SelectorLine

        if self._selector_lines is None:
            self._selector_lines = {}
        line = self._selector_lines.get(selector.expression)
        if line is None:
            if len(self._selector_lines) >= SELECTORS_PER_ENTITY_MAX:
                raise QuotaExceededError(
                    f"The receivers of '{self.queue.path}' use {SELECTORS_PER_ENTITY_MAX} different message selectors, "
                    "and more are not allowed: close receivers, or use the same selectors."
                )
            line = self._selector_lines[selector.expression] = SelectorLine(self, selector)
        return line

    def drop_selector_line(self, line: SelectorLine) -> None:
        if self._selector_lines is not None:
            self._selector_lines.pop(line.selected.selector.expression, None)
            if not self._selector_lines:
                self._selector_lines = None

    def join_browser(self, browser: Browser) -> None:
        self._browsers.add(browser)
        self._count_links()

    def leave_browser(self, browser: Browser) -> None:
        self._browsers.discard(browser)
        self._count_links()

    @property
    def owners(self) -> list[Browser | Consumer | Publisher]:
        """The owners of the entity's links."""
        return [*self.consumers, *self.publishers, *self._browsers]

    def close(self, error: AmqpError) -> None:
        super().close(error)
        for waiter in list(self._waiters):
            self.stop_waiting(waiter)
            waiter.ended(error)
        for receiver in [*self._line]:
            receiver.entity_gone()

    def line_up(self, consumer: Receiving) -> None:
        if not consumer.waiting:
            consumer.waiting = True
            self._line[consumer] = None
        self.wake()

    def step_out(self, consumer: Receiving) -> None:
        """Leave the line, if it is in it."""
        if consumer.waiting:
            consumer.waiting = False
            self._line.pop(consumer, None)

    def wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.host.loop.call_soon(self._run)

    def _available(self, queue: Queue) -> None:
        if not self._scheduled and (self._line or self._waiters):
            self.wake()
        for browser in self._browsers:
            browser.new_messages()
        if self._selector_lines is not None:
            for line in self._selector_lines.values():
                line.wake()

    def _session_available(self, session: MessageSession) -> None:
        for browser in self._browsers:
            browser.new_messages()
        consumer = self._sessions.get(session.id)
        if consumer is not None:
            self.line_up(consumer)

    def _run(self) -> None:
        self._scheduled = False
        host = self.host
        now_ms = host.clock.now_ms()
        facts = host.commits.facts
        if self._waiters:
            self._serve_waiters(now_ms)
        line = self._line
        available = self.queue.messages.available
        left = RUN
        while line and left > 0:
            consumer = next(iter(line))
            sent = _fed(consumer, now_ms, facts)
            left -= sent
            if consumer.room() > 0:
                if sent > 0 and (consumer.session is not None or len(available)):
                    if host.slices.over():
                        left = 0
                    continue
                if consumer.session is None:
                    break  # it has room and got nothing, so there is nothing for those behind it either
            # Out of credit, or its session is empty; it lines up again when that changes.
            line.pop(consumer, None)
            consumer.waiting = False
        host.commits.request_if_needed()
        if line and left <= 0:
            self.wake()

    def serve(self, consumer: Consumer) -> bool:
        """Send one consumer a burst within its credit, ahead of the line; False if nothing was sent."""
        host = self.host
        fed = _fed(consumer, host.clock.now_ms(), host.commits.facts)
        host.commits.request_if_needed()
        return fed > 0

    # --- sessions ---------------------------------------------------------------------------------------------------

    def wait_for_session(self, waiter: SessionWaiter) -> None:
        """Grant a free session with messages, now or when there is one."""
        self._waiters[waiter] = None
        self._serve_waiters(self.host.clock.now_ms())

    def stop_waiting(self, waiter: SessionWaiter) -> None:
        """A client left, or its wait timed out."""
        waiter.done = True
        self._waiters.pop(waiter, None)

    def _serve_waiters(self, now_ms: int) -> None:
        waiters = self._waiters
        while waiters:
            waiter = next(iter(waiters))
            try:
                session = self.queue.accept_session(None, now_ms)
            except ServiceError:
                return  # the entity is disabled: the client's own timeout ends the wait
            if session is None:
                return
            self.stop_waiting(waiter)
            if waiter.timer is not None:
                waiter.timer.cancel()
            waiter.granted(session)

    def _session_lost(self, queue: Queue, session: MessageSession) -> None:
        consumer = self._sessions.get(session.id)
        if consumer is not None:
            consumer.on_session_lost()


def _fed(consumer: Receiving, now_ms: int, facts: Facts) -> int:
    """Feed a consumer; returns 0 if its entity is disabled or deleted, or its session's lock is lost."""
    try:
        return consumer.feed(now_ms, facts)
    except ServiceError:
        return 0
