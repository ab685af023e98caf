"""Consecutive deliveries of one AMQP session that wait for the same commit and are answered together.

A session has one run of sends and one of completions, whichever links they arrive on: a client with a link for each of
many queues is answered in as few frames as one with a single link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp.link import Link
from twinbus.amqp.session import Session
from twinbus.amqp.states import STATE_ACCEPTED
from twinbus.store.facts import Facts

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection


class DeliveryRun:
    """Grows while its facts are open and the next delivery has the next id."""

    __slots__ = ("facts", "first", "last")

    def __init__(self, facts: Facts, delivery_id: int) -> None:
        # What the deliveries wait for; None once durable, so that the facts can be freed.
        self.facts: Facts | None = facts
        self.first = delivery_id
        self.last = delivery_id


class SessionAnswers:
    """The links of one AMQP session, and what is answered on it after commits."""

    __slots__ = ("_completed", "_connection", "_session", "links", "sent")

    def __init__(self, connection: BrokerConnection, session: Session) -> None:
        self._connection = connection
        self._session = session
        # Kept by session, so that ending one does not search the links of all.
        self.links: set[Link] = set()
        # The latest deliveries that are accepted, and whose completions are answered; None before the first.
        self.sent: DeliveryRun | None = None
        self._completed: DeliveryRun | None = None

    def accept(self, delivery_id: int, facts: Facts) -> None:
        """Accept a delivery once these facts are durable."""
        run = self.sent
        if run is not None and run.facts is facts and delivery_id == run.last + 1:
            run.last = delivery_id
            return
        self.sent = run = DeliveryRun(facts, delivery_id)
        facts.then.append((self._accept, run))

    def complete(self, delivery_id: int, facts: Facts) -> None:
        """Answer a completion once these facts are durable."""
        run = self._completed
        if run is not None and run.facts is facts and delivery_id == run.last + 1:
            run.last = delivery_id
            return
        self._completed = run = DeliveryRun(facts, delivery_id)
        facts.then.append((self._complete, run))

    def _accept(self, run: DeliveryRun) -> None:
        run.facts = None
        self._session.dispose(run.first, run.last, STATE_ACCEPTED, True)
        self._connection.flush_soon()

    def _complete(self, run: DeliveryRun) -> None:
        run.facts = None
        self._session.answer_all(run.first, run.last, STATE_ACCEPTED)
        connection = self._connection
        connection.flush_soon()
        if connection.crowded:
            connection.make_room()
