"""Request and response over a pair of links, as `$cbs` and `$management` use them.

A request is settled first and answered later, on the link that its reply-to names. Responses are sent settled and wait
for credit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from twinbus.amqp.events import Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.session import Session
from twinbus.amqp.states import (
    STATE_ACCEPTED,
    AmqpError,
    State,
    TransactionalState,
    state_rejected,
    state_transactional,
)
from twinbus.amqp.terminus import Target
from twinbus.amqp.types import Int, Symbol
from twinbus.broker.memory import MemoryKind
from twinbus.broker.slices import Work, pause_if_over
from twinbus.errors import ProtocolError
from twinbus.limits import REQUEST_VALUES_MAX, RESPONSES_WAITING_MAX

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection


# Called with whether the answer was written to the socket.
Delivered = Callable[[bool], None]
_Index = dict[tuple[str, Session | None], dict["ReplyLink", None]]
_NAMESAKES_MAX = 16


class Request:
    """One request and how to answer it."""

    __slots__ = ("_connection", "_node", "arguments", "message", "operation", "properties", "session", "txn_id")

    def __init__(
        self, connection: BrokerConnection, link: Link, node: str, message: AmqpMessage, txn_id: bytes | None = None
    ) -> None:
        self._connection = connection
        # The address of the node: `$cbs`, or an entity's path with `/$management`.
        self._node = node
        # The AMQP session of the request link, where the reply link is looked for first.
        self.session = link.session
        self.message = message
        # Application properties; never None.
        self.properties: dict[Any, Any] = message.application_properties or {}
        self.operation = str(self.properties.get("operation", ""))
        # The transaction it is part of, if any.
        self.txn_id = txn_id
        # The body if it is a map, otherwise empty.
        self.arguments: dict[Any, Any] = message.value if isinstance(message.value, dict) else {}

    @property
    def connection_number(self) -> int:
        """The number of the connection it came from."""
        return self._connection.number

    def answer(self, properties: dict[str, Any], body: Any, delivered: Delivered | None = None) -> None:
        """Answer; `delivered` is called with whether the answer was written to the socket."""
        reply = self._connection.replies.find(self._node, self.message.reply_to, self.session)
        if reply is None:
            # The client closed its reply link: nobody waits for the answer.
            if delivered is not None:
                delivered(False)
            return
        response = AmqpMessage()
        response.correlation_id = self.message.message_id
        response.application_properties = dict(properties)
        response.value = body
        response.has_value = True
        reply.send(response.encode(), delivered)

    def answer_management(
        self,
        status: int,
        description: str,
        body: Any = None,
        condition: str | None = None,
        delivered: Delivered | None = None,
    ) -> None:
        properties: dict[str, Any] = {"statusCode": Int(status), "statusDescription": description}
        if condition is not None:
            properties["errorCondition"] = Symbol(condition)
        self.answer(properties, {} if body is None and status == 200 else body, delivered)


class RequestNode(Protocol):
    """Something that answers requests."""

    def check(self, payload: bytes) -> None:
        """Raise a ProtocolError for a payload that is not worth decoding."""

    def handle(self, request: Request) -> Work | None:
        """Answer now or later; what takes long is returned as work."""


class RequestLink:
    """The link on which a client sends requests to one node."""

    __slots__ = ("_connection", "_handler", "_link", "_node")

    def __init__(self, connection: BrokerConnection, link: Link, node: str, handler: RequestNode) -> None:
        self._connection = connection
        self._link = link
        # The node's address, for finding the reply link.
        self._node = node
        self._handler = handler

    def on_transfer(self, event: Transfer) -> Work | None:
        """Handle a request. A request costs more than a message, so the time is checked after each one."""
        session = self._link.session
        tracker = self._connection.host.tracker
        if event.payload is None:
            error = AmqpError("amqp:link:message-size-exceeded", tracker.text("The request is too large.")[0], None)
            if not event.settled:
                session.settle(event.delivery_id, state_rejected(error))
            return None
        try:
            self._handler.check(event.payload)
            message = AmqpMessage.decode(event.payload, REQUEST_VALUES_MAX)
        except ProtocolError as error:
            if not event.settled:
                session.settle(event.delivery_id, state_rejected(tracker.wire_error(error, self._node)))
            return None
        if not event.settled:
            session.settle(event.delivery_id, _accepted(event.state))
        txn_id = event.state.txn_id if isinstance(event.state, TransactionalState) else None
        work = self._handler.handle(Request(self._connection, self._link, self._node, message, txn_id))
        return pause_if_over(self._connection.host.slices) if work is None else work

    def on_credit(self) -> None:
        """Never called: the peer sends on this link."""

    def on_disposed(self, delivery_id: int, tag: bytes, state: State | None, settled: bool) -> None:
        """Never called: the peer sends on this link."""

    def on_detached(self, orderly: bool) -> None:
        """A request link has nothing to clean up."""


class ReplyLink:
    """The link on which a client receives answers."""

    __slots__ = ("_account", "_connection", "_count", "_undelivered", "_waiting", "link", "node")

    def __init__(self, connection: BrokerConnection, link: Link, node: str) -> None:
        self._connection = connection
        self.link = link
        self.node = node
        self._account = connection.memory[MemoryKind.ANSWERS]
        # Answers that wait for credit, bounded, each with its callback.
        self._waiting: deque[tuple[bytes, Delivered | None]] = deque()
        # Callbacks of answers that are not written yet.
        self._undelivered: dict[Delivered, None] = {}
        self._count = 0

    @property
    def address(self) -> str | None:
        """The target address the client gave, if any."""
        target = self.link.target
        return target.address if isinstance(target, Target) else None

    def send(self, payload: bytes, delivered: Delivered | None = None) -> None:
        if delivered is not None:
            self._undelivered[delivered] = None
        if len(self._waiting) >= RESPONSES_WAITING_MAX or not self._account.take(len(payload)):
            text = "Too many responses wait for credit on this link: give credit, and ask for less at a time."
            self.link.detach(
                AmqpError("amqp:resource-limit-exceeded", self._connection.host.tracker.text(text)[0], None)
            )
            self.on_detached(True)
            return
        self._waiting.append((payload, delivered))
        self._push()

    def on_credit(self) -> None:
        self._push()
        if self.link.drain:
            self.link.drained()

    def _push(self) -> None:
        link = self.link
        while self._waiting and link.sendable() > 0:
            self._count += 1
            payload, delivered = self._waiting.popleft()
            self._account.give(len(payload))
            link.send(payload, tag=self._count.to_bytes(4, "big"), settled=True)
            if delivered is not None:
                link.session.mark(link, (self, delivered))
        self._connection.flush_soon()

    def on_transfer(self, event: Transfer) -> None:
        """Never called: we send on this link."""

    def on_disposed(self, delivery_id: int, tag: bytes, state: State | None, settled: bool) -> None:
        """Answers are sent settled, so there is nothing to do."""

    def on_written(self, delivered: Delivered) -> None:
        if self._undelivered.pop(delivered, delivered) is None:
            delivered(True)

    def on_detached(self, orderly: bool) -> None:
        self._connection.replies.forget(self)
        self._account.give(sum(len(payload) for payload, _ in self._waiting))
        self._waiting.clear()
        undelivered, self._undelivered = self._undelivered, {}
        for delivered in undelivered:
            delivered(False)


class ReplyLinks:
    """The reply links of one connection, and the choice of the one for an answer.

    The JavaScript client opens several pairs to one node on one connection, all with the same link name, each in its
    own session. The session of the request therefore comes first; another one only if it has no link of that name.
    """

    __slots__ = ("_by_name", "_by_node")

    def __init__(self) -> None:
        # By target address and link name, in order of attaching; session None stands for all sessions.
        self._by_name: _Index = {}
        self._by_node: _Index = {}

    def add(self, reply: ReplyLink) -> None:
        for index, key in self._places(reply):
            index.setdefault(key, {})[reply] = None

    def forget(self, reply: ReplyLink) -> None:
        for index, key in self._places(reply):
            found = index.get(key, {})
            found.pop(reply, None)
            if not found:
                index.pop(key, None)

    def _places(self, reply: ReplyLink) -> Iterator[tuple[_Index, tuple[str, Session | None]]]:
        session = reply.link.session
        yield self._by_node, (reply.node, session)
        for name in {reply.link.name, reply.address} - {None}:
            yield self._by_name, (str(name), session)
            yield self._by_name, (str(name), None)

    def find(self, node: str, reply_to: str | None, session: Session) -> ReplyLink | None:
        """The link that `reply_to` names by target address or link name; without `reply_to`, the node's own link."""
        if reply_to is not None:
            named = self._by_name.get((reply_to, session)) or self._by_name.get((reply_to, None))
            if named:
                # The node must be the requested one, and a target address is a stronger hint than a link name. Nobody
                # needs
                # many links of one name, so only a few are considered.
                return max(
                    islice(named, _NAMESAKES_MAX), key=lambda reply: (reply.node == node, reply.address == reply_to)
                )
        return next(iter(self._by_node.get((node, session), ())), None)


def _accepted(state: State | None) -> bytes:
    """The outcome for a received request; in a transaction it names the transaction."""
    if isinstance(state, TransactionalState):
        return state_transactional(state.txn_id, STATE_ACCEPTED)
    return STATE_ACCEPTED
