"""How to enter a namespace, in a form that travels to every node: the secret is in it, and in no text that it makes.

Rules:
- It is pickled to workers, so it holds words, not clients; each worker makes its own.
- Its repr, its str and every error of it leave the secret out.
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

    # What the column `namespace` shows: host, and port if one was given.
    namespace: str
    secret: str | None = field(default=None, repr=False)
    # `default`, or `module:name` of what makes a credential on each node.
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
        """The access, and the entity that the connection string is bound to."""
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
        """A client that blocks; nothing is connected before it is used."""
        return BlockingBus(self.client)

    def client(self) -> BusClient:
        """A client; make it on the loop that is to use it."""
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
        """Made on the node that needs it: a credential does not travel."""
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
