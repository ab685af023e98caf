"""The broker as a whole: namespaces, each with its own store and its own listener, in one process."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from twinbus.broker.config import BrokerConfig, NamespaceConfig
from twinbus.broker.connection import Connection
from twinbus.broker.host import NamespaceHost
from twinbus.broker.keys import with_keys
from twinbus.clock import Clock, SystemClock
from twinbus.errors import ConfigError, EntityNotFoundError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Endpoint:
    """Where a namespace is served."""

    host: str
    port: int
    connection_string: str = field(repr=False)
    admin_url: str | None = None


class Server:
    """Serves every namespace of a configuration."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None, *, sync: bool = True) -> None:
        # What to serve.
        self._config = config
        # The time, for everything the server does.
        self._clock: Clock = clock if clock is not None else SystemClock()
        # False only in tests that do not care about power loss.
        self._sync = sync
        # A folder of our own when the configuration names none; removed at the end.
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        # The namespaces being served, by name.
        self.hosts: dict[str, NamespaceHost] = {}
        # Where each of them listens.
        self.endpoints: dict[str, Endpoint] = {}
        # The sockets.
        self._listeners: list[asyncio.Server] = []
        # Set when a store failed: nothing can be promised any more, so the process should end.
        self.failed = asyncio.Event()
        # Why.
        self.failure: BaseException | None = None

    async def start(self) -> None:
        """Open every store, then listen. On an error nothing is left open."""
        self._config.check()
        data = self._config.data
        if data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="twinbus-", ignore_cleanup_errors=True)
            data = Path(self._temporary.name)
            self._config = replace(self._config, data=data)
        try:
            for namespace in with_keys(self._config).namespaces:
                await self._start_namespace(namespace, data)
        except BaseException:
            await self.stop()
            raise

    async def _start_namespace(self, namespace: NamespaceConfig, data: Path) -> None:
        folder = data / namespace.name.lower()
        host = NamespaceHost(
            namespace.name,
            folder,
            clock=self._clock,
            dev=self._config.dev,
            policies=namespace.policies,
            on_failure=self._fail,
            sync=self._sync,
        )
        self.hosts[namespace.name] = host
        host.start()
        for settings in namespace.queues:
            try:
                existing = host.entities.queue(settings.path).settings
            except EntityNotFoundError:
                host.create_queue(settings)
                continue
            if existing != settings:
                host.update_queue(settings)
        await host.commits.drain()
        try:
            listener = await host.loop.create_server(
                lambda: Connection(host), self._config.host, namespace.port, backlog=1024
            )
        except OSError as error:
            raise ConfigError(
                f"Namespace {namespace.name!r} cannot listen on {self._config.host}:{namespace.port}: "
                f"{error.strerror or error}. "
                f"Free the port, or give another with --namespace {namespace.name}:PORT (0 picks a free one)."
            ) from error
        self._listeners.append(listener)
        port = listener.sockets[0].getsockname()[1]
        self.endpoints[namespace.name] = self._endpoint(namespace, port)

    def _endpoint(self, namespace: NamespaceConfig, port: int) -> Endpoint:
        shown = "localhost" if self._config.host in ("127.0.0.1", "::1") else self._config.host
        # Plain TCP: clients speak it only to what they take for the official emulator.
        connection_string = (
            f"Endpoint=sb://{shown}:{port};SharedAccessKeyName={namespace.root.name};"
            f"SharedAccessKey={namespace.root.primary_key};UseDevelopmentEmulator=true;"
        )
        return Endpoint(self._config.host, port, connection_string)

    async def stop(self) -> None:
        """Stop listening, close connections in good order, let the disks finish."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for host in self.hosts.values():
            await host.stop()
        self.hosts.clear()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _fail(self, error: BaseException) -> None:
        """A store cannot be written: cut everybody off, so that nobody waits for an answer that cannot come."""
        logger.critical("the store failed: %s", error)
        self.failure = error
        for listener in self._listeners:
            listener.close()
        for host in self.hosts.values():
            host.cut_connections()
        self.failed.set()

    def step(self) -> None:
        """Have everything that depends on the clock look at it again: for tests that step it."""
        for host in self.hosts.values():
            host.check_time()
