"""A link without an address on which a client sends messages to any entity: the message's `to` says which.

The right to send is checked for each message, because each may go somewhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp.events import Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.reader import TO, locate, read_properties
from twinbus.amqp.states import AmqpError, State, state_rejected
from twinbus.auth.policies import Right
from twinbus.broker.links.addresses import parse
from twinbus.broker.links.publisher import REFUSED, Publisher
from twinbus.broker.messages.changes import FIELDS
from twinbus.broker.slices import Work
from twinbus.entities.queue import Queue
from twinbus.entities.subscription import subscription_of
from twinbus.errors import ArgumentError, DecodeError, MessageTooLargeError, NotAllowedError
from twinbus.limits import RELAY_DESTINATIONS_MAX

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection


_TO = FIELDS["To"]


class Relay:
    """Passes each transfer to the publisher of its destination."""

    __slots__ = ("_connection", "_publishers", "link")

    def __init__(self, connection: BrokerConnection, link: Link) -> None:
        self._connection = connection
        self.link = link
        # Publishers of recent destinations by entity id, the least recent first.
        self._publishers: dict[int, Publisher] = {}

    def on_transfer(self, event: Transfer) -> Work | None:
        path = ""
        try:
            path = self._destination(event)
            publisher = self._publisher(path)
        except REFUSED as error:
            self._reject(event, error, path)
            return None
        return publisher.on_transfer(event)

    def _destination(self, event: Transfer) -> str:
        payload = event.payload
        if payload is None:
            raise MessageTooLargeError(f"The received message of {event.size} bytes is larger than the link allows.")
        span = locate(payload).properties
        to = None if span is None else read_properties(payload, span, TO)[_TO]
        if not to:
            raise ArgumentError("The message has no 'to': a link without an address needs one in each message.")
        address = parse(str(to))
        if address.cbs or address.management:
            raise NotAllowedError(f"Messages cannot be relayed to '{str(to)[:260]}'.")
        return address.path

    def _publisher(self, path: str) -> Publisher:
        connection = self._connection
        host = connection.host
        connection.claims.require(path, Right.SEND)
        host.faults.check_attach(path)
        entity = host.entities.entity(path)
        if subscription_of(entity) is not None or (isinstance(entity, Queue) and entity.owner is not None):
            raise NotAllowedError(f"Messages cannot be sent to '{path}': send to its queue or topic.")
        publisher = self._publishers.pop(entity.entity_id, None)
        if publisher is None:
            publisher = Publisher(connection, self.link, host.senders(entity))
            if len(self._publishers) >= RELAY_DESTINATIONS_MAX:
                del self._publishers[next(iter(self._publishers))]
        self._publishers[entity.entity_id] = publisher
        return publisher

    def _reject(self, event: Transfer, error: Exception, path: str) -> None:
        if isinstance(error, UnicodeDecodeError | IndexError):
            error = DecodeError("The message cannot be read: it is cut short, or a text is not UTF-8.")
        if not event.settled:
            wire_error = self._connection.host.tracker.wire_error(error, path)
            self.link.session.settle(event.delivery_id, state_rejected(wire_error))
            self._connection.flush_soon()

    def on_credit(self) -> None:
        """Never called: the peer sends on this link."""

    def on_disposed(self, delivery_id: int, tag: bytes, state: State | None, settled: bool) -> None:
        """Never called: the peer sends on this link."""

    def on_detached(self, orderly: bool) -> None:
        """Nothing to clean up: its publishers are not among the links of their entities."""

    def detach(self, error: AmqpError) -> None:
        self._connection.detach(self.link, error)
