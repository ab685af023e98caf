"""The whole broker: namespaces, each with its own store and listener, in one process."""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.auth.policies import Policy
from twinbus.broker.clock_watch import ClockWatch
from twinbus.broker.configuration.config import BrokerConfig, NamespaceConfig
from twinbus.broker.configured import make_entities
from twinbus.broker.connections.listener import Listener
from twinbus.broker.host import NamespaceHost
from twinbus.broker.memory import Memory
from twinbus.broker.metering.scribe import Scribe
from twinbus.broker.security.certificates import Certificates
from twinbus.broker.security.identity_provider import identity_provider
from twinbus.broker.security.jwt_keys import jwt_verifier
from twinbus.broker.security.keys import with_keys
from twinbus.clock import AnchoredClock, Clock
from twinbus.errors import ConfigError
from twinbus.store.folder import prepare

if TYPE_CHECKING:
    from twinbus.broker.http.console.console import Console

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NamespaceEndpoint:
    """The address of a served namespace."""

    host: str
    port: int
    connection_string: str = field(repr=False)
    admin_url: str | None = None
    # The standard ports, if configured.
    amqp_port: int | None = None
    amqps_port: int | None = None
    admin_port: int | None = None


class Server:
    """Serves every namespace of a configuration."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None, *, sync: bool = True) -> None:
        self._config = config
        self._clock: Clock = clock if clock is not None else AnchoredClock()
        # False only in tests that do not test power loss.
        self._sync = sync
        # A temporary folder if the configuration names none; removed at the end.
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self.hosts: dict[str, NamespaceHost] = {}
        self._watch = ClockWatch(self._clock, self.hosts)
        self.endpoints: dict[str, NamespaceEndpoint] = {}
        # Notes for whoever started the broker: optional ports that were taken, a certificate's dates.
        self.notes: list[str] = []
        self._listeners: list[Listener] = []
        # Writes the ledger of all namespaces, if there is one.
        self._scribe: Scribe | None = None
        # What the clients of all namespaces make the process hold in memory.
        self._memory = Memory()
        # The web console; None until the first browser asks for it.
        self._console: Console | None = None
        # Certificates for TLS clients; set by start().
        self.certificates: Certificates
        # Called when a connection string has changed.
        self.on_endpoints: Callable[[], None] | None = None
        # Set when a store failed: nothing can be promised any more, so the process should exit.
        self.failed = asyncio.Event()
        self.failure: BaseException | None = None

    async def start(self) -> None:
        """Open every store, then listen. On an error, close everything again."""
        self._config.check()
        data = self._config.data
        if data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="twinbus-", ignore_cleanup_errors=True)
            data = Path(self._temporary.name)
            self._config = replace(self._config, data=data)
        self._watch.start()
        try:
            # First, because whoever creates a folder below it would create the parents with the umask's mode.
            prepare(data)
            if self._config.ledger is not None:
                self._scribe = Scribe(self._config.ledger, self._clock)
                self._scribe.start()
            self.certificates = self._make_certificates(data)
            for namespace in with_keys(self._config).namespaces:
                await self._start_namespace(namespace, data)
        except BaseException:
            await self.stop()
            raise

    async def _start_namespace(self, namespace: NamespaceConfig, data: Path) -> None:
        folder = data / namespace.name.lower()
        sign_in = None if namespace.jwt is None else identity_provider(namespace.jwt)
        host = NamespaceHost(
            namespace.name,
            folder,
            clock=self._clock,
            dev=self._config.dev,
            policies=namespace.policies,
            kept=namespace.kept,
            jwt=None if namespace.jwt is None else jwt_verifier(namespace.jwt),
            on_failure=self._fail,
            sync=self._sync,
            sku=namespace.sku,
            allow_faults=self._config.allow_faults,
            scribe=self._scribe,
            memory=self._memory,
        )
        host.console = self.console
        host.sign_in = sign_in
        host.known_names = frozenset(name.lower() for name in self._config.tls_names)
        host.served_names = frozenset(self.certificates.names)
        self.hosts[namespace.name] = host
        host.start()
        make_entities(host, namespace)
        await host.commits.drain()
        listener = Listener(host, self.certificates, plain_anywhere=self._config.plain_anywhere)
        self._listeners.append(listener)
        port = await self._listen(listener, namespace, namespace.port, or_free=True)
        self.endpoints[namespace.name] = replace(
            self._endpoint(namespace, port or 0),
            amqp_port=await self._listen(listener, namespace, namespace.amqp_port),
            amqps_port=await self._listen(listener, namespace, namespace.amqps_port),
            admin_port=await self._listen(listener, namespace, namespace.admin_port),
        )
        logger.info("namespace %s serves %s on %s:%s", namespace.name, folder, self._config.host, port)
        host.keyring.on_change = functools.partial(self._policy_changed, namespace)

    def console(self) -> Console:
        """The web console of all namespaces."""
        if self._console is None:
            from twinbus.broker.http.console.console import Console

            self._console = Console(self.hosts, self.endpoints, self._clock)
        return self._console

    def _policy_changed(self, namespace: NamespaceConfig, policy: Policy) -> None:
        """Update the connection string after its key was rotated."""
        if policy.scope or policy.name != namespace.root.name:
            return
        endpoint = self.endpoints[namespace.name]
        text = self._connection_string(policy, endpoint.port)
        self.endpoints[namespace.name] = replace(endpoint, connection_string=text)
        if self.on_endpoints is not None:
            self.on_endpoints()

    async def _listen(
        self, listener: Listener, namespace: NamespaceConfig, port: int | None, *, or_free: bool = False
    ) -> int | None:
        if port is None:
            return None
        name = namespace.name
        try:
            return await listener.open(self._config.host, port)
        except OSError as error:
            if port in namespace.optional_ports and error.errno == errno.EADDRINUSE:
                free = await listener.open(self._config.host, 0) if or_free else None
                self.notes.append(
                    f"Port {port} is taken: {name} "
                    + (f"uses port {free}." if or_free else "does without it, its own port takes everything.")
                )
                return free
            raise ConfigError(
                f"Namespace {name!r} cannot listen on {self._config.host}:{port}: {error.strerror or error}. "
                f"Free the port, or give another with --namespace {name}:PORT (0 picks a free one)."
            ) from error

    def _make_certificates(self, data: Path) -> Certificates:
        config = self._config
        certificates = Certificates(
            data,
            [*config.tls_names, *(namespace.name for namespace in config.namespaces), config.host],
            certificate=config.tls_certificate,
            key=config.tls_key,
        )
        if certificates.own:
            # Report a bad certificate now, not to the first client.
            certificates.load()
            if certificates.warning:
                self.notes.append(f"Warning: {certificates.warning}")
        return certificates

    def _endpoint(self, namespace: NamespaceConfig, port: int) -> NamespaceEndpoint:
        config = self._config
        admin_url = f"{'http' if config.plain_anywhere else 'https'}://{self._shown_host()}:{port}"
        return NamespaceEndpoint(config.host, port, self._connection_string(namespace.root, port), admin_url)

    def _connection_string(self, root: Policy, port: int) -> str:
        # Clients use plain TCP only with what they believe to be the official emulator.
        plain = "UseDevelopmentEmulator=true;" if self._config.plain_anywhere else ""
        return (
            f"Endpoint=sb://{self._shown_host()}:{port};SharedAccessKeyName={root.name};"
            f"SharedAccessKey={root.primary_key};{plain}"
        )

    def _shown_host(self) -> str:
        config = self._config
        # The wildcard address has no name; on this machine localhost always works.
        shown = "localhost" if config.host in ("127.0.0.1", "::1", "0.0.0.0", "::") else config.host  # noqa: S104
        if config.tls_names and not config.plain_anywhere:
            shown = config.tls_names[0]
        return f"[{shown.strip('[]')}]" if ":" in shown else shown

    async def stop(self) -> None:
        """Stop listening, close connections in an orderly way, let the disks finish."""
        if self.hosts:
            logger.info("stopping: clients are answered and disconnected")
        self._watch.stop()
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        if self._console is not None:
            self._console.close()
        for host in self.hosts.values():
            await host.stop()
        if self.hosts:
            logger.info("stopped: everything confirmed is on disk")
        self.hosts.clear()
        if self._scribe is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._scribe.close)
            self._scribe = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _fail(self, error: BaseException) -> None:
        """A store cannot be written: disconnect everybody, so that nobody waits for an answer that cannot come."""
        logger.critical("the store failed: %s", error)
        self.failure = error
        for listener in self._listeners:
            listener.close()
        for host in self.hosts.values():
            host.cut_connections()
        self.failed.set()

    def step(self) -> None:
        """Make everything that depends on the clock check it again, for tests that step it."""
        self._watch.look()
        for host in self.hosts.values():
            host.check_time()
