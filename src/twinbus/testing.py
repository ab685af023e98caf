"""A real broker for your tests: real sockets, a real store in a temporary folder, ready in a few milliseconds.

    with Broker(namespaces=["contoso"], queues=["orders"]) as broker:
        client = ServiceBusClient.from_connection_string(broker.connection_string("contoso"))

Rules:
- The broker runs in a thread with its own event loop, so blocking and asyncio tests can use it alike.
- A restart keeps the data folder and the ports: connection strings stay valid, and accepted messages persist.
- The pytest fixture `twinbus_broker` provides a running broker (see `twinbus.testing_plugin`).
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from twinbus.broker.configuration.config import LEDGER_NAME, BrokerConfig, NamespaceConfig
from twinbus.broker.faults import Fault
from twinbus.broker.security.certificates import ensure_ca
from twinbus.broker.server import NamespaceEndpoint, Server
from twinbus.clock import Clock
from twinbus.entities.filters import SqlAction, SqlFilter
from twinbus.entities.rule import DEFAULT_RULE, Rule
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ConfigError, NotAllowedError

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

T = TypeVar("T")

Queues = Iterable[str | QueueSettings]

_WAIT_S = 30.0


class Broker:
    """A broker for the duration of a test; start it with `with` or `start()`.

    `namespaces` are names, or configurations with their own entities and policies. `queues` are created in every
    namespace; pass a mapping from namespace to queues if they differ. `dev` accepts any key, like the official
    emulator; otherwise each namespace has its own keys. `data` is a folder to keep; the default is a temporary folder
    that is removed. `sync=False` does not flush to disk: it is faster, and only a power cut loses data. `allow_faults`
    enables `fault`. `ledger` is a folder for the operations ledger, or True for one in the data folder; its files are
    complete once the broker has stopped.
    """

    def __init__(
        self,
        namespaces: Iterable[str | NamespaceConfig] = ("contoso",),
        queues: Queues | Mapping[str, Queues] = (),
        *,
        dev: bool = True,
        data: Path | None = None,
        clock: Clock | None = None,
        sync: bool = True,
        allow_faults: bool = False,
        tls_names: Iterable[str] = (),
        ledger: Path | bool = False,
    ) -> None:
        # Created for this broker; None if a folder was given, or before the start.
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        # Without the data folder and the ports.
        self._config = BrokerConfig(
            [_namespace(each) for each in namespaces],
            data=data,
            dev=dev,
            allow_faults=allow_faults,
            tls_names=list(tls_names),
        )
        # None for the system's clock.
        self._clock = clock
        # Whether commits wait for the disk.
        self._sync = sync
        # The ledger's folder; True for one in the data folder, False for no ledger.
        self._ledger = ledger
        # None while stopped. Use it only on its own loop, through `call`.
        self.server: Server | None = None
        # By namespace; kept while stopped, because a restart uses the same addresses.
        self.endpoints: dict[str, NamespaceEndpoint] = {}
        # None while stopped.
        self._thread: threading.Thread | None = None
        # None while stopped.
        self._loop: asyncio.AbstractEventLoop | None = None
        # Set on the loop to stop the broker.
        self._stopping: asyncio.Event | None = None
        # The exception that ended the broker's thread, if any.
        self._failures: list[BaseException] = []
        self._add_queues(queues)

    # Creates the event loop; None for asyncio's default. Subclasses in our tests override it.
    _loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failure = self.server.failure if self.server is not None else None
        self.close()
        if failure is not None and error is None:
            raise failure

    # --- starting and stopping ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker; return once every namespace accepts connections."""
        if self._thread is not None:
            raise RuntimeError("The broker is running already.")
        if self._config.data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="twinbus-", ignore_cleanup_errors=True)
            self._config = replace(self._config, data=Path(self._temporary.name))
        if self._ledger:
            ledger = self.data / LEDGER_NAME if self._ledger is True else self._ledger
            self._config = replace(self._config, ledger=ledger)
        ready = threading.Event()
        self._failures = []
        self._thread = threading.Thread(target=self._run, args=(ready,), name="twinbus-broker", daemon=True)
        self._thread.start()
        if not ready.wait(_WAIT_S):
            raise TimeoutError(f"The broker did not start within {_WAIT_S:.0f} seconds.")
        if self._failures:
            self._thread.join()
            self._thread = None
            raise self._failures[0]

    def stop(self) -> None:
        """Stop the broker. `start` resumes with the same data and ports."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None:
            return
        if loop is not None and stopping is not None:
            loop.call_soon_threadsafe(stopping.set)
        thread.join(_WAIT_S)
        if thread.is_alive():
            raise TimeoutError(f"The broker did not stop within {_WAIT_S:.0f} seconds.")
        self._thread = None
        if self._failures:
            raise self._failures[0]

    def restart(self) -> None:
        """Stop and start with the same data on the same ports."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the temporary folder."""
        self.stop()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
            self._config = replace(self._config, data=None)

    # --- for tests ---------------------------------------------------------------------------------------------------

    @property
    def data(self) -> Path:
        """The data folder."""
        if self._config.data is None:
            raise RuntimeError("The broker has no data folder before it is started.")
        return self._config.data

    @property
    def ca_file(self) -> Path:
        """The CA certificate for TLS clients: `connection_verify=str(broker.ca_file)`. Created on first use."""
        return ensure_ca(self.data)

    def connection_string(self, namespace: str | None = None) -> str:
        """Return a connection string for SDK clients; `namespace` may be omitted if there is only one."""
        return self.endpoint(namespace).connection_string

    def administration_client(self, namespace: str | None = None) -> ServiceBusAdministrationClient:
        """Return the official SDK's administration client, which trusts this broker's certificate."""
        from azure.servicebus.management import ServiceBusAdministrationClient

        return ServiceBusAdministrationClient.from_connection_string(
            self.connection_string(namespace), connection_verify=str(self.ca_file)
        )

    def endpoint(self, namespace: str | None = None) -> NamespaceEndpoint:
        """Return the addresses of a namespace."""
        if not self.endpoints:
            raise RuntimeError("The broker has not been started.")
        if self.server is not None:
            # A rotated key changes the connection string.
            self.endpoints = dict(self.server.endpoints)
        return self.endpoints[self._name(namespace)]

    def create_queue(self, queue: str | QueueSettings, namespace: str | None = None, **settings: Any) -> QueueSettings:
        """Create a queue in the running broker: `create_queue("orders", requires_session=True)`."""
        if isinstance(queue, QueueSettings) and settings:
            raise TypeError("Give the settings as QueueSettings or by name, not both.")
        made = queue if isinstance(queue, QueueSettings) else QueueSettings(path=queue, **settings)
        name = self._name(namespace)
        self.call(lambda server: server.hosts[name].create_queue(made), name)
        return made

    def delete_queue(self, path: str, namespace: str | None = None) -> None:
        """Delete a queue and its messages from the running broker."""
        name = self._name(namespace)
        self.call(lambda server: server.hosts[name].delete_queue(path), name)

    def create_topic(self, topic: str | TopicSettings, namespace: str | None = None, **settings: Any) -> TopicSettings:
        """Create a topic in the running broker: `create_topic("news", requires_duplicate_detection=True)`."""
        if isinstance(topic, TopicSettings) and settings:
            raise TypeError("Give the settings as TopicSettings or by name, not both.")
        made = topic if isinstance(topic, TopicSettings) else TopicSettings(path=topic, **settings)
        name = self._name(namespace)
        self.call(lambda server: server.hosts[name].create_topic(made), name)
        return made

    def delete_topic(self, path: str, namespace: str | None = None) -> None:
        """Delete a topic and its subscriptions from the running broker."""
        name = self._name(namespace)
        self.call(lambda server: server.hosts[name].delete_topic(path), name)

    def create_subscription(
        self, topic: str, subscription: str, namespace: str | None = None, *, filter: Any = None, **settings: Any
    ) -> SubscriptionSettings:
        """Create a subscription: `create_subscription("news", "sport", filter="kind = 'sport'")`. Without a filter it
        receives every message. A filter is a SQL condition or an object of `twinbus.entities.filters`."""
        made = SubscriptionSettings(topic=topic, name=subscription, **settings)
        name = self._name(namespace)
        self.call(
            lambda server: server.hosts[name].create_subscription(
                made, None if filter is None else _rule(DEFAULT_RULE, filter, None, server.hosts[name].clock.now_ms())
            ),
            name,
        )
        return made

    def delete_subscription(self, topic: str, subscription: str, namespace: str | None = None) -> None:
        """Delete a subscription and its messages from the running broker."""
        name = self._name(namespace)
        self.call(lambda server: server.hosts[name].delete_subscription(topic, subscription), name)

    def create_rule(
        self,
        topic: str,
        subscription: str,
        rule: str,
        filter: Any,
        action: str | None = None,
        namespace: str | None = None,
    ) -> None:
        """Add a rule to a subscription: `create_rule("news", "sport", "goals", "goals > 0", "SET loud = TRUE")`."""
        name = self._name(namespace)
        self.call(
            lambda server: server.hosts[name].add_rule(
                topic, subscription, _rule(rule, filter, action, server.hosts[name].clock.now_ms())
            ),
            name,
        )

    @contextmanager
    def fault(
        self, mode: str, entity: str | None = None, namespace: str | None = None, **options: Any
    ) -> Iterator[None]:
        """Cause an outage during the `with` block: down, silent, slow, refusing or lossy; of an entity or the
        namespace."""
        if not self._config.allow_faults:
            raise NotAllowedError(
                "This broker allows no faults: create it with allow_faults=True, for example with "
                "@pytest.mark.twinbus(allow_faults=True)."
            )
        name = self._name(namespace)
        fault = Fault(mode, entity, **options)
        self.call(lambda server: server.hosts[name].faults.set(fault), name)
        try:
            yield
        finally:
            self.call(lambda server: server.hosts[name].faults.clear(entity), name)

    def call(self, work: Callable[[Server], T], namespace: str | None = None) -> T:
        """Run `work` on the broker's loop and wait until its changes are on disk."""

        async def worked(server: Server) -> T:
            result = work(server)
            await server.hosts[self._name(namespace)].commits.drain()
            return result

        if self.server is None:
            raise RuntimeError("The broker is not running.")
        return self._wait(worked(self.server))

    # --- internal ----------------------------------------------------------------------------------------------------

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    def _run(self, ready: threading.Event) -> None:
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._serve(ready))
        except BaseException as error:  # raised again in the thread that waits for the broker
            self._failures.append(error)
        finally:
            self.server = self._loop = self._stopping = None
            ready.set()

    async def _serve(self, ready: threading.Event) -> None:
        server = Server(self._config, self._clock, sync=self._sync)
        await server.start()
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.server = server
        self.endpoints = dict(server.endpoints)
        namespaces = [_placed(each, server.endpoints[each.name]) for each in self._config.namespaces]
        self._config = replace(self._config, namespaces=namespaces)
        ready.set()
        try:
            await self._stopping.wait()
        finally:
            await server.stop()

    def _name(self, namespace: str | None) -> str:
        names = [each.name for each in self._config.namespaces]
        if namespace is None:
            if len(names) != 1:
                raise ValueError(f"Choose a namespace: {', '.join(names)}.")
            return names[0]
        for name in names:
            if name.lower() == namespace.lower():
                return name
        raise ValueError(f"There is no namespace {namespace!r}; choose one of {', '.join(names)}.")

    def _add_queues(self, queues: Queues | Mapping[str, Queues]) -> None:
        if isinstance(queues, str):
            raise ConfigError(f"queues must be a list of queues, not the text {queues!r}.")
        if isinstance(queues, Mapping):
            wanted = {name: list(some) for name, some in queues.items()}
        else:
            everywhere = list(queues)
            wanted = {each.name: everywhere for each in self._config.namespaces}
        for name in wanted:
            self._name(name)
        by_name = {name.lower(): [_queue(each) for each in some] for name, some in wanted.items()}
        self._config.namespaces = [
            replace(each, queues=[*each.queues, *by_name.get(each.name.lower(), [])])
            for each in self._config.namespaces
        ]


def _namespace(namespace: str | NamespaceConfig) -> NamespaceConfig:
    return NamespaceConfig(namespace) if isinstance(namespace, str) else namespace


def _placed(namespace: NamespaceConfig, at: NamespaceEndpoint) -> NamespaceConfig:
    """Return the namespace with its assigned ports, so that a restart uses them again."""
    return replace(namespace, port=at.port, amqp_port=at.amqp_port, amqps_port=at.amqps_port, admin_port=at.admin_port)


def _queue(queue: str | QueueSettings) -> QueueSettings:
    return QueueSettings(path=queue) if isinstance(queue, str) else queue


def _rule(name: str, filter: Any, action: str | None, now_ms: int) -> Rule:
    condition = SqlFilter(filter) if isinstance(filter, str) else filter
    return Rule(name, condition, None if action is None else SqlAction(action), now_ms)
