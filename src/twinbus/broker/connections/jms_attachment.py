"""Attaches the links of JMS clients on Premium namespaces: consumers of topics, temporary queues and topics, senders
without an address.

What an attach creates or deletes is on disk before the attach is answered. What it created for the time of its link or
connection is deleted with that; after a crash, the next start deletes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twinbus.amqp.link import Link
from twinbus.amqp.states import AmqpError
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Array, Described, Symbol, UInt
from twinbus.auth.policies import Right
from twinbus.broker.links.consumer import Consumer
from twinbus.broker.links.publisher import Publisher
from twinbus.broker.links.relay import Relay
from twinbus.broker.links.source_filters import SESSION_FILTER, AskedSelector, read_filters
from twinbus.entities.affinity import ClientAffinity, affinity_of, durable_keys
from twinbus.entities.filters import Filter, TrueFilter
from twinbus.entities.queue import Queue
from twinbus.entities.rule import DEFAULT_RULE, Rule
from twinbus.entities.settings import QueueSettings
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import (
    NotAllowedError,
    QuotaExceededError,
    UnsupportedError,
)
from twinbus.limits import (
    MESSAGE_BYTES_MAX,
    SENDER_CREDIT,
    TEMPORARY_NODES_PER_CONNECTION_MAX,
    VOLATILE_SUBSCRIPTIONS_PER_CONNECTION_MAX,
)

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection

# Fields of sources and targets.
_DURABLE = 1
_NODE_PROPERTIES = 5
_SOURCE_CAPABILITIES = 10
_TARGET_CAPABILITIES = 6

_NO_LOCAL_NAMES = ("no-local", "apache.org:no-local-filter:list")
_NO_LOCAL_DESCRIPTORS = ("apache.org:no-local-filter:list", 0x0000468C00000003)
_LIFETIME_POLICY = "lifetime-policy"
# Delete on close.
_LIFETIMES = (43, "amqp:delete-on-close:list")

Require = Callable[[Link, str, Right], None]


class JmsAttachment:
    """Handles the attaches of JMS clients on one connection."""

    __slots__ = ("_connection", "_nodes", "_volatile")

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        # Temporary entities by the link that made them.
        self._nodes: dict[Link, Queue | Topic] = {}
        # Subscriptions that end with their last link, by link.
        self._volatile: dict[Link, Subscription] = {}

    # --- consumers of topics ----------------------------------------------------------------------------------------

    def attach_subscriber(self, link: Link, topic: Topic) -> None:
        """The subscription of a consumer comes from the name of its link."""
        assert isinstance(link.source, Source)
        filters: dict[Any, Any] = link.source.filter or {}
        if SESSION_FILTER in filters:
            raise NotAllowedError(f"Sessions cannot be received from the topic '{topic.path}': use a subscription.")
        _check_no_local(filters)
        asked = read_filters(filters, premium=True)
        wanted = capabilities(link.source.fields[_SOURCE_CAPABILITIES])
        affinity = affinity_of(
            link.name,
            self._client_id,
            durable=bool(link.source.fields[_DURABLE]),
            shared="shared" in wanted,
            everyone="global" in wanted,
        )
        if not affinity.durable and len(self._volatile) >= VOLATILE_SUBSCRIPTIONS_PER_CONNECTION_MAX:
            raise QuotaExceededError(
                f"The connection has {len(self._volatile)} consumers whose subscription is not durable, "
                f"the limit is {VOLATILE_SUBSCRIPTIONS_PER_CONNECTION_MAX}."
            )
        subscription = self._subscription(topic, affinity, asked)
        if not affinity.durable:
            self._volatile[link] = subscription
        source = link.source if asked is None else link.source.with_filter({asked.name: asked.value})
        if asked is None and filters:
            source = link.source.with_filter(None)
        self._consume(link, subscription.queue, source)

    def _subscription(self, topic: Topic, affinity: ClientAffinity, asked: AskedSelector | None) -> Subscription:
        """The subscription of that name; created if there is none, created anew if nobody uses it and it differs."""
        host = self._connection.host
        condition: Filter = TrueFilter() if asked is None else asked.selector
        found = host.entities.affine.get(affinity.key)
        if found is not None:
            same = found.topic is topic and found.settings.affinity == affinity and _has_only(found, condition)
            if found.queue.links and not (same and affinity.shared):
                raise NotAllowedError(
                    f"Cannot create a new consumer on subscriber {found.name} because there is already a subscriber "
                    "using the same name with an active consumer on the same or different topic."
                )
            if same:
                return found
        self._connection.claims.require(topic.path, Right.MANAGE)
        if found is not None:
            self._connection.claims.require(found.topic.path, Right.MANAGE)
            host.delete_subscription(found.topic.path, found.name)
        settings = SubscriptionSettings(topic=topic.path, name=affinity.entity_name, affinity=affinity)
        return host.create_subscription(settings, Rule(DEFAULT_RULE, condition, None, host.clock.now_ms()))

    def unsubscribe(self, link: Link) -> bool:
        """Delete the durable subscription that a link without a source means; False if there is none.

        The client closes the link next. It learns of the deletion by the answer to its attach, so that is when it
        must be on disk.
        """
        host = self._connection.host
        found = host.entities.affine.get(durable_keys(link.name, self._client_id))
        if found is None:
            return False
        topic = found.topic.path
        self._connection.claims.require(topic, Right.MANAGE)
        if found.queue.links:
            raise NotAllowedError(f"The subscription {found.name} of '{topic}' has an active consumer: close it first.")
        host.delete_subscription(topic, found.name)
        kind = Symbol("topic")
        source = Source(topic, fields=[topic, UInt(2), Symbol("never"), *[None] * 7, Array([kind], 0xB3)])
        link.context = _Ended()
        self._answer_durably(lambda: link.accept(source=source))
        return True

    # --- temporary queues and topics --------------------------------------------------------------------------------

    def attach_dynamic(self, link: Link, properties: dict[Symbol, Any], require: Require) -> str:
        """Create the node that the link asks for, and attach the link to it; returns the node's path. `require` checks
        a right now and when tokens expire."""
        terminus = link.source if link.sender else link.target
        assert isinstance(terminus, Source | Target)
        _check_lifetime(terminus.fields[_NODE_PROPERTIES])
        if len(self._nodes) >= TEMPORARY_NODES_PER_CONNECTION_MAX:
            raise QuotaExceededError(
                f"The connection has {len(self._nodes)} temporary queues and topics, "
                f"the limit is {TEMPORARY_NODES_PER_CONNECTION_MAX}."
            )
        host = self._connection.host
        wanted = capabilities(terminus.fields[_SOURCE_CAPABILITIES if link.sender else _TARGET_CAPABILITIES])
        topic = not link.sender and "temporary-topic" in wanted
        path = f"temporary-{'topic' if topic else 'queue'}-{host.new_id()}"
        self._connection.claims.require(path, Right.MANAGE)
        if link.sender:
            require(link, path, Right.LISTEN)
            queue = host.create_queue(QueueSettings(path=path), temporary=True)
            self._nodes[link] = queue
            assert isinstance(terminus, Source)
            self._consume(link, queue, terminus.with_address(path))
            return path
        require(link, path, Right.SEND)
        made: Queue | Topic
        if topic:
            made = host.create_topic(TopicSettings(path=path), temporary=True)
        else:
            made = host.create_queue(QueueSettings(path=path), temporary=True)
        self._nodes[link] = made
        senders = host.senders(made)
        publisher = Publisher(self._connection, link, senders)
        link.context = publisher
        senders.join_publisher(publisher)
        assert isinstance(terminus, Target)
        target = terminus.with_address(path)
        bytes_max = made.settings.max_message_bytes
        self._answer_durably(
            lambda: link.accept(target=target, properties=properties, max_message_size=bytes_max, credit=SENDER_CREDIT)
        )
        return path

    # --- senders without an address ---------------------------------------------------------------------------------

    def attach_relay(self, link: Link, properties: dict[Symbol, Any]) -> None:
        link.context = Relay(self._connection, link)
        link.accept(properties=properties, max_message_size=MESSAGE_BYTES_MAX, credit=SENDER_CREDIT)

    # --- the end ----------------------------------------------------------------------------------------------------

    def forget(self, link: Link) -> None:
        """The link has ended: delete what existed for it, once its owner has left."""
        node = self._nodes.pop(link, None)
        if node is not None:
            self._connection.host.loop.call_soon(self._delete_node, node)
        subscription = self._volatile.pop(link, None)
        if subscription is not None:
            self._connection.host.loop.call_soon(self._delete_unused, subscription)

    def _delete_node(self, node: Queue | Topic) -> None:
        host = self._connection.host
        if host.entities.temporary.get(node.path.lower()) is not node:
            return  # deleted already
        if isinstance(node, Topic):
            host.delete_topic(node.path)
        else:
            host.delete_queue(node.path)

    def _delete_unused(self, subscription: Subscription) -> None:
        if not subscription.queue.deleted and not subscription.queue.links:
            self._connection.host.delete_subscription(subscription.topic.path, subscription.name)

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def _client_id(self) -> str:
        """JMS sends its client id as the name of the container."""
        opened = self._connection.engine.remote_open
        assert opened is not None
        return opened.container_id

    def _consume(self, link: Link, queue: Queue, source: Source) -> None:
        dispatcher = self._connection.host.dispatcher(queue)
        consumer = Consumer(self._connection, link, dispatcher, None, deleting=link.snd_settle_mode == 1)
        link.context = consumer
        dispatcher.join(consumer)
        bytes_max = queue.settings.max_message_bytes

        def accept() -> None:
            link.accept(source=source, max_message_size=bytes_max)
            if link.credit > 0 and link.context is consumer:
                consumer.on_credit()

        self._answer_durably(accept)

    def _answer_durably(self, accept: Callable[[], None]) -> None:
        """Answer the attach once everything up to now is on disk."""

        def answer(_: None) -> None:
            accept()
            self._connection.flush_soon()

        commits = self._connection.host.commits
        commits.facts.then.append((answer, None))
        commits.request()


class _Ended:
    """Owns the link of an unsubscribe, on which nothing happens."""

    def on_credit(self) -> None:
        """There is nothing to send."""

    def on_transfer(self, event: Any) -> None:
        """Never called: we are the sender."""

    def on_disposed(self, delivery_id: int, tag: bytes, state: Any, settled: bool) -> None:
        """Nothing was delivered."""

    def on_detached(self, orderly: bool) -> None:
        """Nothing to clean up."""

    def detach(self, error: AmqpError) -> None:
        """Never called: no entity has the link."""


def capabilities(value: Any) -> frozenset[str]:
    """Capabilities of a terminus: a symbol, an array of symbols, or nothing."""
    if isinstance(value, str):
        return frozenset((str(value),))
    return frozenset(map(str, value)) if isinstance(value, list) else frozenset()


def _check_no_local(filters: dict[Any, Any]) -> None:
    for name, value in filters.items():
        if name in _NO_LOCAL_NAMES or (isinstance(value, Described) and value.descriptor in _NO_LOCAL_DESCRIPTORS):
            raise UnsupportedError("Consumers that do not get the messages of their own connection are not available.")


def _check_lifetime(properties: Any) -> None:
    policy = properties.get(Symbol(_LIFETIME_POLICY)) if isinstance(properties, dict) else None
    if isinstance(policy, Described) and policy.descriptor not in _LIFETIMES:
        raise UnsupportedError("A temporary queue or topic is deleted with its link; it has no other lifetime policy.")


def _has_only(subscription: Subscription, condition: Filter) -> bool:
    """Whether the subscription has one rule, with this filter."""
    rules = subscription.rules
    return len(rules) == 1 and rules[0].filter == condition and rules[0].action is None
