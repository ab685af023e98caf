"""Attaches links to entities: what an attach asks for, whether it is allowed, and which object owns the link."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from twinbus.amqp.link import Link
from twinbus.amqp.states import AmqpError
from twinbus.amqp.terminus import Coordinator, Source, Target
from twinbus.amqp.types import Described, Symbol, ULong
from twinbus.auth.policies import Right
from twinbus.broker.connections.jms_attachment import JmsAttachment
from twinbus.broker.links.addresses import CBS, MANAGEMENT, parse
from twinbus.broker.links.browser import Browser
from twinbus.broker.links.consumer import Consumer
from twinbus.broker.links.dispatcher import Dispatcher
from twinbus.broker.links.publisher import Publisher
from twinbus.broker.links.selector_line import SelectiveConsumer
from twinbus.broker.links.source_filters import (
    SESSION_FILTER,
    AskedSelector,
    is_browsing,
    read_filters,
    with_selector,
    with_session,
    without_filters,
)
from twinbus.broker.links.transactions import ControlLink
from twinbus.broker.nodes.cbs import Cbs
from twinbus.broker.nodes.management import EntityManagement
from twinbus.broker.nodes.requests import ReplyLink, RequestLink, RequestNode
from twinbus.entities.queue import Queue
from twinbus.entities.session import MessageSession
from twinbus.entities.subscription import subscription_of
from twinbus.entities.topic import Topic
from twinbus.errors import (
    ArgumentError,
    EntityDisabledError,
    EntityNotFoundError,
    NotAllowedError,
    OperationTimeoutError,
    ServiceError,
    UnauthorizedError,
    UnsupportedError,
    bad_token,
)
from twinbus.ledger.words import Kind
from twinbus.limits import (
    ACCEPT_SESSION_TIMEOUT_MS_DEFAULT,
    ATTACH_BYTES_USUAL,
    BATCH_BYTES_MAX,
    MESSAGE_BYTES_DEFAULT,
    SENDER_CREDIT,
    TOKEN_MESSAGE_BYTES_MAX,
)

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection

LOCKED_UNTIL = Symbol("com.microsoft:locked-until-utc")
TIMEOUT = "com.microsoft:timeout"
DESTINATION = "com.microsoft:transfer-destination-address"

# After a lost connection the JavaScript client opens a pair of links for each operation in progress, and fails an
# operation whose link is refused permanently instead of retrying.
SEVERAL_CBS_PRODUCT = "MSJSClient"

# .NET counts 100 ns ticks from the year 1.
EPOCH_TICKS = 621_355_968_000_000_000


def ticks(ms: int) -> int:
    return EPOCH_TICKS + ms * 10_000


class Attachment:
    """Handles the attaches of one connection."""

    __slots__ = ("_cbs", "_connection", "_jms", "_needs")

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        # The rights that each link depends on, by path, for when tokens expire.
        self._needs: dict[Link, list[tuple[str, Right]]] = {}
        # The links to `$cbs`, by whether we are the sender.
        self._cbs: dict[bool, Link] = {}
        self._jms = JmsAttachment(connection)

    def attach(self, link: Link) -> None:
        entity = ""
        try:
            if isinstance(link.target, Coordinator):
                self._attach_control(link)
                return
            terminus = link.source if link.sender else link.target
            if terminus is not None and terminus.dynamic:
                if not self._connection.host.premium:
                    raise UnsupportedError("Temporary queues and topics are not available: create an entity.")
                entity = self._jms.attach_dynamic(link, self._properties(), self._require)
                return
            if terminus is None or not terminus.address:
                self._attach_without_address(link, terminus)
                return
            address = parse(str(terminus.address))
            entity = address.path
            if address.cbs:
                self._attach_cbs(link)
            elif address.management:
                self._attach_management(link, entity)
            elif link.sender:
                self._attach_consumer(link, entity)
            else:
                self._attach_publisher(link, entity)
            self._connection.host.faults.wrap(link)
        except ServiceError as error:
            self._refuse(link, error, entity)

    def _attach_without_address(self, link: Link, terminus: Source | Target | None) -> None:
        """A JMS client unsubscribes, or sends to whatever its messages name."""
        if self._connection.host.premium:
            if link.sender and terminus is None:
                if not self._jms.unsubscribe(link):
                    raise EntityNotFoundError(f"There is no durable subscription '{link.name[:128]}' of this client.")
                return
            if not link.sender and terminus is not None:
                self._connection.claims.require_some("")
                self._jms.attach_relay(link, self._properties())
                return
        raise ArgumentError("The link names no address.")

    def expired(self, link: Link) -> ServiceError | None:
        """The error to detach `link` with if no claim covers it any more; otherwise None."""
        needs = self._needs.get(link)
        if needs is None or link.context is None:
            return None
        try:
            for path, right in needs:
                self._connection.claims.require(path, right)
        except UnauthorizedError:
            return bad_token("ExpiredToken", "The token is expired. Put a new one and attach again.")
        return None

    def forget(self, link: Link) -> None:
        self._needs.pop(link, None)
        self._jms.forget(link)
        if self._cbs.get(link.sender) is link:
            del self._cbs[link.sender]

    def _refuse(self, link: Link, error: ServiceError, entity: str) -> None:
        connection = self._connection
        told = connection.host.tracker.wire_error(connection.addressed(error), entity, connection.address)
        connection.refuse(link, told)

    def _require(self, link: Link, path: str, right: Right) -> None:
        self._connection.claims.require(path, right)
        self._needs.setdefault(link, []).append((path, right))

    def _attach_control(self, link: Link) -> None:
        # No right is needed here: the links that do the work have their own. The .NET and Java clients attach here and
        # declare before they put a token; a client without one has few transactions, in which it can do nothing.
        link.context = ControlLink(self._connection, link)
        link.accept(
            properties=self._properties(),
            max_message_size=self._connection.host.request_bytes_max,
            credit=SENDER_CREDIT,
        )

    # --- request nodes ----------------------------------------------------------------------------------------------

    def _attach_cbs(self, link: Link) -> None:
        # One link in each direction per connection: the Go client relies on the refusal and reconnects.
        opened = self._connection.engine.remote_open
        assert opened is not None
        if link.sender in self._cbs and (opened.properties or {}).get("product") != SEVERAL_CBS_PRODUCT:
            raise NotAllowedError(f"A link to connection '{opened.container_id}' $cbs node has already been opened.")
        self._cbs[link.sender] = link
        self._attach_node(link, CBS, Cbs(self._connection), TOKEN_MESSAGE_BYTES_MAX)

    def _attach_node(self, link: Link, node: str, handler: RequestNode, request_bytes_max: int) -> None:
        if link.sender:
            reply = ReplyLink(self._connection, link, node)
            link.context = reply
            self._connection.replies.add(reply)
            link.accept(
                source=without_filters(link.source),
                properties=self._properties(),
                max_message_size=MESSAGE_BYTES_DEFAULT,
            )
        else:
            link.context = RequestLink(self._connection, link, node, handler)
            link.accept(properties=self._properties(), max_message_size=request_bytes_max, credit=SENDER_CREDIT)

    def _attach_management(self, link: Link, path: str) -> None:
        # Before the look-up, so that nobody can probe for entities without a token.
        self._connection.claims.require_some(f"{path}/{MANAGEMENT}" if path else MANAGEMENT)
        if path:
            self._connection.host.entities.entity(path)  # one that does not exist is refused
        node = f"{path}/{MANAGEMENT}".lower()
        self._attach_node(link, node, EntityManagement(self._connection, path), self._connection.host.request_bytes_max)

    # --- entities ---------------------------------------------------------------------------------------------------

    def _attach_publisher(self, link: Link, path: str) -> None:
        host = self._connection.host
        self._require(link, path, Right.SEND)
        host.faults.check_attach(path)
        entity = host.entities.entity(path)
        destination = (link.properties or {}).get(DESTINATION)
        if destination is not None:
            # A send via `path`: our transactions span the whole namespace, so the message goes straight to its
            # destination.
            path = parse(str(destination)).path
            self._require(link, path, Right.SEND)
            host.faults.check_attach(path)
            entity = host.entities.entity(path)
        if subscription_of(entity) is not None:
            raise NotAllowedError(f"Messages cannot be sent to '{path}': send to the topic of the subscription.")
        if isinstance(entity, Queue) and entity.owner is not None:
            raise NotAllowedError(f"Messages cannot be sent to '{path}': a dead-letter queue is only received from.")
        if entity.settings.status == "Disabled":
            raise EntityDisabledError(f"The entity '{path}' is disabled.")
        bytes_max = entity.settings.max_message_bytes
        senders = host.senders(entity)
        publisher = Publisher(self._connection, link, senders)
        link.context = publisher
        senders.join_publisher(publisher)
        properties = self._properties()
        properties[Symbol("com.microsoft:max-message-batch-size")] = ULong(min(bytes_max, BATCH_BYTES_MAX))
        link.accept(properties=properties, max_message_size=bytes_max, credit=SENDER_CREDIT)

    def _attach_consumer(self, link: Link, path: str) -> None:
        host = self._connection.host
        self._require(link, path, Right.LISTEN)
        host.faults.check_attach(path)
        queue = host.entities.entity(path)
        if isinstance(queue, Topic):
            if host.premium:
                self._jms.attach_subscriber(link, queue)
                return
            raise NotAllowedError(f"Messages cannot be received from the topic '{path}': receive from a subscription.")
        if queue.settings.forward_to is not None and queue.owner is None:
            raise NotAllowedError(f"A receiver cannot be created on '{path}': its messages are forwarded.")
        if queue.settings.status in ("Disabled", "ReceiveDisabled"):
            raise EntityDisabledError(f"Messages cannot be received from '{path}': it is {queue.settings.status}.")
        assert isinstance(link.source, Source)
        filters: dict[Any, Any] = link.source.filter or {}
        asked = read_filters(filters, host.premium)
        if is_browsing(link.source):
            self._attach_browser(link, queue, filters, asked)
            return
        sessionful = queue.settings.requires_session and queue.dead_letters is not None
        if SESSION_FILTER in filters:
            if asked is not None:
                raise UnsupportedError("A receiver of a session cannot have a message selector.")
            if not sessionful:
                raise NotAllowedError(
                    "A sessionful message receiver cannot be created on an entity that does not require sessions. "
                    "Ensure RequiresSession is set to true when creating a Queue or Subscription to enable sessionful "
                    "behavior."
                )
            self._attach_session(link, queue, filters[SESSION_FILTER])
            return
        if sessionful:
            raise NotAllowedError(
                "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
            )
        if asked is None:
            self._consume(link, queue, None)
        else:
            dispatcher = host.dispatcher(queue)
            line = dispatcher.selector_line(asked.selector)
            selective = SelectiveConsumer(self._connection, link, line, deleting=link.snd_settle_mode == 1)
            link.context = selective
            dispatcher.join(selective)
        self._accept_plain(link, queue, asked)

    def _attach_browser(self, link: Link, queue: Queue, filters: dict[Any, Any], asked: AskedSelector | None) -> None:
        if SESSION_FILTER in filters:
            raise UnsupportedError("A browser of one session is not available: browse the entity, or peek the session.")
        # Copies are always settled, whatever the client asked for; the answer says so.
        link.snd_settle_mode = 1
        dispatcher = self._connection.host.dispatcher(queue)
        browser = Browser(self._connection, link, dispatcher, None if asked is None else asked.selector)
        link.context = browser
        dispatcher.join_browser(browser)
        self._accept_plain(link, queue, asked)

    def _accept_plain(self, link: Link, queue: Queue, asked: AskedSelector | None) -> None:
        assert isinstance(link.source, Source)
        link.accept(
            source=without_filters(link.source) if asked is None else with_selector(link.source, asked),
            properties=self._properties(),
            max_message_size=queue.settings.max_message_bytes,
        )

    def _attach_session(self, link: Link, queue: Queue, wanted: Any) -> None:
        host = self._connection.host
        value = wanted.value if isinstance(wanted, Described) else wanted
        if value is not None:
            if not isinstance(value, str):
                raise ArgumentError("The session filter must hold a session id as a string, or null for any session.")
            try:
                session = queue.accept_session(str(value), host.clock.now_ms())
            except ServiceError as error:
                host.meter.entity(queue.path).counter(Kind.ACCEPT_SESSION, error.condition).count += 1
                raise
            assert session is not None
            self._grant(link, queue, session)
            return
        timeout = (link.properties or {}).get(TIMEOUT)
        wait_ms = int(timeout) if isinstance(timeout, int) else ACCEPT_SESSION_TIMEOUT_MS_DEFAULT

        dispatcher = host.dispatcher(queue)
        waiting = _WaitingLink(self, link, queue, dispatcher)
        link.context = waiting
        dispatcher.wait_for_session(waiting)
        if not waiting.done:
            waiting.timer = host.loop.call_later(wait_ms / 1000, waiting.give_up)

    def grant(self, link: Link, queue: Queue, session: MessageSession) -> None:
        """Give a waiting link its session."""
        self._grant(link, queue, session)
        self._connection.host.faults.wrap(link)
        self._connection.flush_soon()

    def end(self, link: Link, error: AmqpError) -> None:
        """The entity of a waiting link was deleted."""
        self._connection.refuse(link, error)

    def give_up(self, link: Link, queue: Queue) -> None:
        self._connection.host.meter.entity(queue.path).counter(Kind.EMPTY_POLL).count += 1
        self._refuse(
            link,
            OperationTimeoutError("No session with messages became available in time. Try again later."),
            queue.path,
        )

    def _grant(self, link: Link, queue: Queue, session: MessageSession) -> None:
        assert isinstance(link.source, Source)
        wanted = (link.source.filter or {})[SESSION_FILTER]
        held: Any = Described(wanted.descriptor, session.id) if isinstance(wanted, Described) else session.id
        properties = self._properties()
        properties[LOCKED_UNTIL] = ticks(session.locked_until_ms or 0)
        self._consume(link, queue, session)
        self._connection.host.meter.entity(queue.path).counter(Kind.ACCEPT_SESSION).count += 1
        link.accept(
            source=with_session(link.source, held),
            properties=properties,
            max_message_size=queue.settings.max_message_bytes,
        )

    def _consume(self, link: Link, queue: Queue, session: MessageSession | None) -> None:
        dispatcher = self._connection.host.dispatcher(queue)
        consumer = Consumer(self._connection, link, dispatcher, session, deleting=link.snd_settle_mode == 1)
        link.context = consumer
        dispatcher.join(consumer)

    def _properties(self) -> dict[Symbol, Any]:
        return {Symbol("com.microsoft:tracking-id"): self._connection.host.new_id()}


def trim(link: Link) -> None:
    """Drop what was only needed to attach; decoded, it may be a hundred times its encoded size."""
    link.properties = None
    if link.attach_bytes <= ATTACH_BYTES_USUAL:
        return
    if isinstance(link.source, Source):
        filters = link.source.filter or {}
        # A link that waits for its session still needs this filter.
        kept = {SESSION_FILTER: filters[SESSION_FILTER]} if SESSION_FILTER in filters else None
        link.source = Source(link.source.address, kept)
    if isinstance(link.target, Target):
        link.target = Target(link.target.address)
    elif isinstance(link.target, Coordinator):
        link.target = Coordinator()


class _WaitingLink:
    """Owns a link that has not got its session yet."""

    __slots__ = ("_attachment", "_dispatcher", "_link", "_queue", "done", "timer")

    def __init__(self, attachment: Attachment, link: Link, queue: Queue, dispatcher: Dispatcher) -> None:
        self._attachment = attachment
        self._link = link
        self._queue = queue
        self._dispatcher = dispatcher
        # Ends the wait; None until set.
        self.timer: asyncio.TimerHandle | None = None
        # Set once it got a session or left.
        self.done = False

    def ended(self, error: AmqpError) -> None:
        self._attachment.end(self._link, error)

    def granted(self, session: MessageSession) -> None:
        self._attachment.grant(self._link, self._queue, session)

    def give_up(self) -> None:
        if not self.done:
            self._dispatcher.stop_waiting(self)
            self._link.context = None
            self._attachment.give_up(self._link, self._queue)

    def on_detached(self, orderly: bool) -> None:
        self._dispatcher.stop_waiting(self)
        if self.timer is not None:
            self.timer.cancel()

    def on_transfer(self, event: Any) -> None:
        """Never called: we send on this link."""

    def on_credit(self) -> None:
        """The engine keeps the credit until the link has its session."""

    def on_disposed(self, delivery_id: int, tag: bytes, state: Any, settled: bool) -> None:
        """Nothing has been delivered yet."""
