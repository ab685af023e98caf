"""One served namespace: its store, its entities, its connections and what ties them together."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus import __version__
from twinbus.amqp.types import Symbol
from twinbus.auth.policies import Policy
from twinbus.broker.commits import CommitLoop
from twinbus.broker.connections.strangers import Strangers, WrongKeys
from twinbus.broker.connections.tracking import Tracker
from twinbus.broker.faults import Faults
from twinbus.broker.identity import namespace_identity
from twinbus.broker.links.dispatcher import Dispatcher
from twinbus.broker.links.senders import Senders
from twinbus.broker.lock_tokens import LockTokenSource
from twinbus.broker.memory import Memory, MemoryKind
from twinbus.broker.messages.intake import Intake
from twinbus.broker.messages.message_view import StoredViews
from twinbus.broker.metering.meter import Meter
from twinbus.broker.metering.refusals import Refusals
from twinbus.broker.metering.scribe import Scribe
from twinbus.broker.security.keyring import Keyring
from twinbus.broker.slices import Slices
from twinbus.broker.timers import Timers
from twinbus.clock import Clock
from twinbus.entities.account import Accounts
from twinbus.entities.findings import Findings
from twinbus.entities.namespace import Namespace
from twinbus.entities.queue import Queue
from twinbus.entities.rule import Rule
from twinbus.entities.settings import QueueSettings
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ArgumentError, ConnectionForcedError, EntityNotFoundError
from twinbus.ledger.words import IDENTITY_PROPERTY, NAMESPACE_PROPERTY
from twinbus.limits import CONNECTIONS_MAX, MESSAGE_BYTES_MAX
from twinbus.store.facts import Table
from twinbus.store.lmdb_store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twinbus.auth.jwt import JwtVerifier
    from twinbus.broker.backup import RunningBackup
    from twinbus.broker.connections.connection import BrokerConnection
    from twinbus.broker.http.admin.api import AdminApi
    from twinbus.broker.http.app import HttpApp
    from twinbus.broker.http.console.console import Console
    from twinbus.broker.security.identity_provider import IdentityProvider

logger = logging.getLogger(__name__)

JMS_CAPABILITIES = (Symbol("DELAYED_DELIVERY"), Symbol("ANONYMOUS-RELAY"), Symbol("SHARED-SUBS"))
# Rows of deleted entities removed per commit.
SWEEP_ROWS = 2_000
# How many times a stop finishes long work and waits for the disk.
STOP_ROUNDS = 10
# How many unusable records the log names at start; `twinbus check` names them all.
SET_ASIDE_LINES = 20


class NamespaceHost:
    """Serves one namespace."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        clock: Clock,
        dev: bool,
        policies: Iterable[Policy],
        kept: Iterable[tuple[str, str]] = (),
        jwt: JwtVerifier | None = None,
        on_failure: Callable[[BaseException], None],
        sync: bool = True,
        sku: str = "Standard",
        allow_faults: bool = False,
        scribe: Scribe | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.name = name
        self.clock = clock
        self.started_ms = clock.now_ms()
        # Development mode accepts any key and any token.
        self.dev = dev
        # The tier that admin clients see; "Premium" lets them ask for large messages.
        self.sku = sku
        # Premium namespaces have what JMS 2.0 needs.
        self.premium = sku == "Premium"
        # Verifies JSON web tokens; None rejects them.
        self.jwt = jwt
        # Where people sign in to the console; None if they cannot.
        self.sign_in: IdentityProvider | None = None
        # Host names with a dot that a browser may use in development mode.
        self.known_names: frozenset[str] = frozenset()
        # All names that the broker's certificate has: those, this machine's, and the namespaces'.
        self.served_names: frozenset[str] = frozenset()
        # The container id sent to AMQP peers.
        self.container_id = f"twinbus-{name}"
        # What JMS clients need; they use only what is offered.
        self.open_capabilities = JMS_CAPABILITIES if self.premium else ()
        # Turns errors into what clients see.
        self.refusals = Refusals(name, clock)
        self.tracker = Tracker(name, clock, self.refusals)
        self.store = Store.open(folder, sync=sync)
        # Which namespace this is, whatever its name and address.
        self.identity = namespace_identity(self.store)
        self.open_properties = {
            Symbol("product"): "Twinbus",
            Symbol("version"): __version__,
            Symbol(NAMESPACE_PROPERTY): name,
            Symbol(IDENTITY_PROPERTY): self.identity,
        }
        self.tokens = LockTokenSource()
        self.intake = Intake(self.new_id, delays=self.premium)
        # The largest request a management node accepts: a batch of scheduled messages is one request.
        self.request_bytes_max = MESSAGE_BYTES_MAX
        self.views = StoredViews(self.store.body)
        # Limits what clients make the broker hold in memory.
        self.memory = Memory(Memory() if memory is None else memory)
        self.entities = self._restored()
        self.commits = CommitLoop(self.store, name, on_failure)
        # `keys.json` is beside the folders of the namespaces.
        self.keyring = Keyring(name, policies, kept, self.store.scan(Table.META), None if dev else folder.parent)
        self.keyring.commits = self.commits
        self.policies = self.keyring.policies
        # Counts operations for the ledger and the metrics.
        self.meter = Meter(self, scribe)
        self.faults = Faults(self, allow_faults)
        self.timers = Timers(self)
        # Connections that have not presented a token yet.
        self.strangers = Strangers()
        # Delays clients that use wrong keys.
        self.wrong_keys = WrongKeys(clock)
        self._connections: set[BrokerConnection] = set()
        # The number of the newest connection.
        self._connection_number = 0
        # Connections paused until the disk has caught up.
        self._held_back: set[BrokerConnection] = set()
        # The links of each queue, by entity id.
        self._dispatchers: dict[int, Dispatcher] = {}
        # The same for topics, which have no receivers.
        self._senders: dict[int, Senders] = {}
        # None until the first HTTP client connects.
        self._http: HttpApp | None = None
        # Loads the HTTP app; concurrent clients wait for the same task.
        self._http_opening: asyncio.Task[HttpApp] | None = None
        # The current or latest backup; None before the first.
        self.backup: RunningBackup | None = None
        # Returns the console of the whole process, if there is one.
        self.console: Callable[[], Console] | None = None
        # The event loop; set by start().
        self.loop: asyncio.AbstractEventLoop
        # Runs long work in slices; set by start().
        self.slices: Slices

    def _restored(self) -> Namespace:
        """Restore the entities from the store; close the store if that fails."""
        scan = self.store.scan
        try:
            restored = Namespace.restore(
                self.name,
                entities=scan(Table.ENTITIES),
                index=scan(Table.INDEX),
                sessions=scan(Table.SESSIONS),
                duplicates=scan(Table.DUPLICATES),
                meta=scan(Table.META),
                now_ms=self.clock.now_ms(),
                tokens=self.tokens,
                views=self.views,
                last_body=self.store.last_body,
                accounts=Accounts(
                    self.memory[MemoryKind.SESSION_STATES],
                    self.memory[MemoryKind.CHANGES],
                    self.memory[MemoryKind.DUPLICATE_IDS],
                    self.memory[MemoryKind.RULES],
                ),
            )
        except BaseException:
            self.store.close()
            raise
        self._tell_set_aside(restored.set_aside)
        return restored

    def _tell_set_aside(self, found: Findings) -> None:
        if not found.count:
            return
        logger.error(
            "%d %s of namespace %s cannot be used and %s set aside: the store keeps %s. "
            "Run `twinbus check` on %s when the broker is stopped.",
            found.count,
            *(("record", self.name, "is", "it") if found.count == 1 else ("records", self.name, "are", "them")),
            self.store.folder,
        )
        for finding in found.found[:SET_ASIDE_LINES]:
            logger.error("set aside in namespace %s: %s", self.name, finding.text)

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.slices = Slices(self.loop, self.commits)
        self.commits.on_relief = self._relieve
        self.commits.start()
        self._drop_temporary()
        self._sweep(None)
        self.timers.start()
        self.meter.start()

    async def stop(self) -> None:
        """Close every connection in an orderly way, let the disk finish, close the store."""
        self.timers.stop()
        if self.backup is not None:
            await self.backup.stop()
        error = self.tracker.wire_error(ConnectionForcedError("The broker is shutting down."))
        # Answer what was accepted before closing the connections.
        self.slices.finish()
        await self.commits.drain()
        # Work that waited for the disk continues, but not forever, because clients may still send.
        for _ in range(STOP_ROUNDS):
            if not self.slices.busy:
                break
            self.slices.finish()
            await self.commits.drain()
        for connection in list(self._connections):
            connection.close(error)
        if self._http is not None:
            await self._http.close()
        self.slices.finish()
        await self.commits.stop()
        self.meter.stop()
        self.store.close()

    @functools.cached_property
    def admin(self) -> AdminApi:
        """The administration API, loaded with its first request because most processes never get one."""
        from twinbus.broker.http.admin.api import AdminApi

        return AdminApi(self)

    def new_id(self) -> str:
        return uuid.uuid4().hex

    # --- connections ------------------------------------------------------------------------------------------------

    def admit(self, connection: BrokerConnection) -> str | None:
        """Register a connection; returns the reason if it is refused."""
        if self.faults.namespace is not None and self.faults.namespace.mode == "down":
            return "the namespace is down: a fault was asked for"
        if len(self._connections) >= CONNECTIONS_MAX:
            return f"the namespace has {CONNECTIONS_MAX} connections already"
        self._connections.add(connection)
        self._connection_number += 1
        connection.number = self._connection_number
        connection.opened_ms = self.clock.now_ms()
        self.meter.connections.see(len(self._connections))
        return None

    def forget(self, connection: BrokerConnection) -> None:
        self._connections.discard(connection)
        self._held_back.discard(connection)

    def hold_back(self, connection: BrokerConnection) -> None:
        """The disk is behind: pause reading from this client until it has caught up."""
        if connection not in self._held_back:
            self._held_back.add(connection)
            connection.hold_back()
            self.commits.hurry()

    def _relieve(self) -> None:
        self.timers.reschedule()
        held, self._held_back = self._held_back, set()
        for connection in held:
            connection.relieve()
        self.slices.wake()

    async def http(self) -> HttpApp:
        """The HTTP app, loaded on a thread the first time so that nobody else waits."""
        if self._http_opening is None:
            self._http_opening = self.loop.create_task(self._open_http())
        return await asyncio.shield(self._http_opening)

    async def _open_http(self) -> HttpApp:
        module = await self.loop.run_in_executor(None, importlib.import_module, "twinbus.broker.http.app")
        self._http = module.HttpApp(self)
        return self._http

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def link_counts(self) -> tuple[int, int]:
        """The number of sending links and of receiving links."""
        dispatchers = self._dispatchers.values()
        publishers = sum(len(each.publishers) for each in (*dispatchers, *self._senders.values()))
        return publishers, sum(len(each.consumers) for each in dispatchers)

    def connections(self) -> list[BrokerConnection]:
        """The connections, oldest first."""
        return sorted(self._connections, key=lambda each: each.number)

    def close_connection(self, number: int) -> None:
        """Close a connection in an orderly way; its client may reconnect."""
        for connection in self._connections:
            if connection.number == number:
                error = ConnectionForcedError("The connection was closed by an administrator.")
                connection.close(self.tracker.wire_error(error))
                return
        raise ArgumentError(f"There is no connection {number}: it is closed already, or the number is wrong.")

    def cut_connections(self) -> None:
        """Drop every connection without closing it first."""
        for connection in list(self._connections):
            connection.abort()

    def clock_set(self, step_ms: int) -> None:
        """The machine's clock was set."""
        self.entities.clock_set(step_ms, self.clock.now_ms())
        self.meter.clock_set(step_ms)
        self.check_time()

    def check_time(self) -> None:
        """Called after the clock was stepped."""
        self.timers.run()
        for connection in list(self._connections):
            connection.check_time()

    # --- entities ---------------------------------------------------------------------------------------------------

    def dispatcher(self, queue: Queue) -> Dispatcher:
        dispatcher = self._dispatchers.get(queue.entity_id)
        if dispatcher is None:
            dispatcher = self._dispatchers[queue.entity_id] = Dispatcher(self, queue)
        return dispatcher

    def senders(self, entity: Queue | Topic) -> Senders:
        """The sending links of an entity."""
        if not isinstance(entity, Topic):
            return self.dispatcher(entity)
        senders = self._senders.get(entity.entity_id)
        if senders is None:
            senders = self._senders[entity.entity_id] = Senders(self, entity)
        return senders

    def create_queue(self, settings: QueueSettings, *, temporary: bool = False) -> Queue:
        queue = self.entities.create_queue(settings, self.clock.now_ms(), self.commits.facts, temporary=temporary)
        self.commits.request()
        return queue

    def update_queue(self, settings: QueueSettings) -> Queue:
        queue = self.entities.update_queue(settings, self.clock.now_ms(), self.commits.facts)
        self.commits.request()
        return queue

    def delete_queue(self, path: str) -> None:
        entity = self.entities.entity(path)
        self.entities.delete_queue(path, self.clock.now_ms(), self.commits.facts)
        self._gone(entity)

    def create_topic(self, settings: TopicSettings, *, temporary: bool = False) -> Topic:
        topic = self.entities.create_topic(settings, self.clock.now_ms(), self.commits.facts, temporary=temporary)
        self.commits.request()
        return topic

    def update_topic(self, settings: TopicSettings) -> Topic:
        topic = self.entities.update_topic(settings, self.clock.now_ms(), self.commits.facts)
        self.commits.request()
        return topic

    def delete_topic(self, path: str) -> None:
        topic = self.entities.topic(path)
        subscriptions = topic.subscriptions
        self.entities.delete_topic(path, self.clock.now_ms(), self.commits.facts)
        for subscription in subscriptions:
            self.bury(subscription.queue)
        self._gone(topic)

    def create_subscription(self, settings: SubscriptionSettings, rule: Rule | None = None) -> Subscription:
        made = self.entities.create_subscription(settings, self.clock.now_ms(), self.commits.facts, rule)
        self.commits.request()
        return made

    def update_subscription(self, settings: SubscriptionSettings) -> Subscription:
        updated = self.entities.update_subscription(settings, self.clock.now_ms(), self.commits.facts)
        self.commits.request()
        return updated

    def delete_subscription(self, topic: str, name: str) -> None:
        subscription = self.entities.subscription(topic, name)
        self.entities.delete_subscription(topic, name, self.clock.now_ms(), self.commits.facts)
        self._gone(subscription.queue)

    def add_rule(self, topic: str, name: str, rule: Rule) -> None:
        self.entities.subscription(topic, name).add_rule(rule, self.clock.now_ms(), self.commits.facts)
        self.commits.request()

    def update_rule(self, topic: str, name: str, rule: Rule) -> None:
        self.entities.subscription(topic, name).update_rule(rule, self.clock.now_ms(), self.commits.facts)
        self.commits.request()

    def remove_rule(self, topic: str, name: str, rule_name: str) -> None:
        self.entities.subscription(topic, name).remove_rule(rule_name, self.clock.now_ms(), self.commits.facts)
        self.commits.request()

    def _drop_temporary(self) -> None:
        """Delete what ended with the connections of the previous run."""
        for entity in list(self.entities.temporary.values()):
            if isinstance(entity, Topic):
                self.delete_topic(entity.path)
            else:
                self.delete_queue(entity.path)
        for subscription in list(self.entities.affine.values()):
            affinity = subscription.settings.affinity
            if affinity is not None and not affinity.durable:
                self.delete_subscription(subscription.topic.path, subscription.name)

    def _gone(self, entity: Queue | Topic) -> None:
        self.drop_policies(entity.path)
        self.bury(entity)
        self.sweep_later()
        self.commits.request()

    def sweep_later(self) -> None:
        """Remove the rows of a deleted entity once its deletion is durable."""
        self.commits.facts.then.append((self._sweep, None))

    def sweep_if_needed(self) -> None:
        """Continue sweeping: a deleted entity may have left more rows."""
        if self.entities.sweep_pending:
            self._sweep(None)

    def let_go(self, topic: Topic) -> None:
        """A large fan-out is done: senders that waited may continue."""
        self.slices.resume(topic.let_go(self.clock.now_ms()))
        self.sweep_if_needed()

    def bury(self, entity: Queue | Topic) -> None:
        """An entity was deleted: detach its links and sweep its messages in steps."""
        error = self.tracker.wire_error(
            EntityNotFoundError(
                f"The messaging entity 'sb://{self.name}/{entity.path}' could not be found: it was deleted."
            ),
            entity.path,
        )
        for part in [entity] if isinstance(entity, Topic) else entity.parts:
            links = self._dispatchers.pop(part.entity_id, None) or self._senders.pop(part.entity_id, None)
            if links is not None:
                links.close(error)
            part.on_deleted = None
            if not self._exists(entity.path):
                self.meter.forget(part.path)
        self._sweep(None)

    def _exists(self, path: str) -> bool:
        """Whether an entity of that name exists; it may have been created again after a deletion."""
        try:
            self.entities.entity(path)
        except EntityNotFoundError:
            return False
        return True

    # --- policies ---------------------------------------------------------------------------------------------------

    def set_policies(self, path: str, policies: list[Policy]) -> None:
        """Replace the policies of an entity permanently."""
        self.keyring.replace(path, policies)

    def drop_policies(self, path: str) -> None:
        """Delete the policies of a deleted entity: a later entity of the same name must not inherit its keys."""
        self.keyring.drop(path)

    def _sweep(self, _: object) -> None:
        if self.entities.sweep(self.commits.facts, SWEEP_ROWS):
            self.commits.facts.then.append((self._sweep, None))
        self.commits.request_if_needed()

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "connections": self.connection_count,
            "queues": len(self.entities.queues()),
            "topics": len(self.entities.topics()),
        }
