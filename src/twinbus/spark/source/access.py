"""How to connect to a namespace, in a form that can be sent to every node. It contains the secret but never shows it.

- It is pickled to workers, so it holds strings, not clients; each worker creates its own.
- Its repr, its str and its errors omit the secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from twinbus.client import BusClient, ConnectionString, tls_context
from twinbus.client.blocking import BlockingBus
from twinbus.errors import ConfigError

DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class Access:
    """A connection string, or a namespace and the name of a credential."""

    # The value of the column `namespace`: host, and port if given.
    namespace: str
    secret: str | None = field(default=None, repr=False)
    # `default`, or `module:name` of a function that creates a credential on each node.
    credential: str | None = None
    ca_file: str | None = None
    websocket: bool = False

    @classmethod
    def of(
        cls,
        *,
        connection_string: str | None,
        namespace: str | None,
        credential: str | None,
        ca_file: str | None,
        websocket: bool,
    ) -> tuple[Access, str | None]:
        """The access, and the entity to which the connection string is bound, if any."""
        if connection_string is not None:
            if namespace is not None or credential is not None:
                raise ConfigError("Give connectionString, or fullyQualifiedNamespace and credential, not both.")
            parsed = ConnectionString.parse(connection_string)
            return cls(parsed.netloc, connection_string, None, ca_file, websocket), parsed.entity_path
        if namespace is None:
            raise ConfigError(
                "No namespace given: set connectionString, or fullyQualifiedNamespace and credential (for example "
                "option('connectionString', os.environ['TWINBUS_CONNECTION_STRING']))."
            )
        if "=" in namespace:
            raise ConfigError(
                "fullyQualifiedNamespace is a host such as contoso.servicebus.windows.net. A connection string goes "
                "into the option connectionString."
            )
        host = urlsplit(namespace if "//" in namespace else f"//{namespace}").netloc
        if not host:
            raise ConfigError(f"fullyQualifiedNamespace {namespace!r} has no host.")
        return cls(host, None, credential or DEFAULT, ca_file, websocket), None

    def bus(self) -> BlockingBus:
        """A blocking client, which connects on first use."""
        return BlockingBus(self.client)

    def client(self) -> BusClient:
        """An asyncio client; create it on the loop that will use it."""
        tls = None if self.ca_file is None else tls_context(self.ca_file)
        if self.secret is not None:
            emulator = ConnectionString.parse(self.secret).emulator
            return BusClient.from_connection_string(
                self.secret, tls=None if emulator else tls, websocket=self.websocket
            )
        return BusClient.with_credential(
            self.namespace, self._credential(), tls=True if tls is None else tls, websocket=self.websocket
        )

    def _credential(self) -> Any:
        """Create the credential on the node that needs it, because it cannot be pickled."""
        assert self.credential is not None
        if self.credential == DEFAULT:
            try:
                return import_module("azure.identity").DefaultAzureCredential()
            except ImportError:
                raise ConfigError(
                    "The credential 'default' is azure-identity's, which is not installed here: run `pip install "
                    "azure-identity` on every node, or give credential as module:name of your own."
                ) from None
        module, separator, name = self.credential.partition(":")
        if not separator:
            raise ConfigError("credential is 'default', or module:name of a function that makes one on each node.")
        try:
            return getattr(import_module(module), name)()
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"The credential {self.credential!r} cannot be made here: {error}.") from None
