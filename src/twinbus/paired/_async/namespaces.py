"""A namespace as the application names it: by a connection string, or by a host and a credential.

Rules:
- Nothing is connected here; clients are made when they are needed.
- The administration client knows keys and signatures only out of connection strings, so such credentials become one.
- A string with `UseDevelopmentEmulator=true` means plain connections to one port. The SDK keeps to that for messages;
  its administration client always speaks HTTPS, unless its transport knows better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ssl import SSLContext
from typing import Any, cast
from urllib.parse import urlsplit

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus import parse_connection_string
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from twinbus.client import BusClient
from twinbus.paired.options import EMULATOR_PORT, NamespaceAddress

# As the SDK's clients take them; None with a connection string.
Credential = AsyncTokenCredential | AzureSasCredential | AzureNamedKeyCredential | None


class AsyncRoutedTransport(AioHttpTransport):  # type: ignore[misc]
    """Sends elsewhere what the SDK means to send by HTTPS to the namespace: by HTTP, or to another address."""

    def __init__(self, *, by_http: bool, address: str | None, **options: Any) -> None:
        super().__init__(**options)
        self._by_http = by_http
        # Host and port; None for the namespace's own.
        self._address = None if address is None else urlsplit(address if "//" in address else f"//{address}").netloc

    async def send(self, request: Any, **options: Any) -> Any:
        given = request.url
        parts = urlsplit(given)
        request.url = parts._replace(
            scheme="http" if self._by_http else parts.scheme, netloc=self._address or parts.netloc
        ).geturl()
        try:
            return await super().send(request, **options)
        finally:
            # The SDK may send it again, and insists on HTTPS before it shows a token.
            request.url = given


class AsyncPairedNamespace:
    """Where a namespace is, and how to enter it."""

    def __init__(
        self,
        address: NamespaceAddress,
        client: Callable[..., ServiceBusClient],
        admin: Callable[..., ServiceBusAdministrationClient],
        bus: Callable[..., BusClient],
    ) -> None:
        self.address = address
        # Of its host, or what it has told; None while it has not.
        self.name = address.label
        self.client = client
        self.admin = admin
        # Makes a client of our own, for bulk work: `ca` is a context for TLS, the rest are its options.
        self.bus = bus
        # Options of the SDK's clients and of its administration clients, as the application wants them.
        self.options: Mapping[str, Any] = {}
        self.admin_options: Mapping[str, Any] = {}

    @classmethod
    def of_string(cls, text: str) -> AsyncPairedNamespace:
        """By a connection string."""
        endpoint = parse_connection_string(text).endpoint
        emulator = "usedevelopmentemulator=true" in text.lower()

        def client(**options: Any) -> ServiceBusClient:
            return ServiceBusClient.from_connection_string(text, **options)

        def admin(**options: Any) -> ServiceBusAdministrationClient:
            return ServiceBusAdministrationClient.from_connection_string(text, **_routed(options, by_http=emulator))

        def bus(ca: SSLContext | None = None, address: str | None = None, **options: Any) -> BusClient:
            # The emulator's way of connecting is plain whatever there is to trust.
            tls = None if emulator else ca
            return _at(BusClient.from_connection_string(text, tls=tls, **options), address)

        address = NamespaceAddress.parse(endpoint)
        if emulator and address.port is None:
            address = NamespaceAddress(address.host, EMULATOR_PORT)
        return cls(address, client, admin, bus)

    @classmethod
    def of_credential(cls, namespace: str, credential: Credential) -> AsyncPairedNamespace:
        """By a host name and a credential of azure-identity or azure-core."""

        def client(**options: Any) -> ServiceBusClient:
            return ServiceBusClient(namespace, cast(AsyncTokenCredential, credential), **options)

        def admin(**options: Any) -> ServiceBusAdministrationClient:
            place = NamespaceAddress.parse(namespace)
            host = f"Endpoint=sb://{place.host}{'' if place.port is None else f':{place.port}'}/"
            options = _routed(options, by_http=False)
            if isinstance(credential, AzureNamedKeyCredential):
                name, key = credential.named_key
                text = f"{host};SharedAccessKeyName={name};SharedAccessKey={key}"
                return ServiceBusAdministrationClient.from_connection_string(text, **options)
            if isinstance(credential, AzureSasCredential):
                text = f"{host};SharedAccessSignature={credential.signature}"
                return ServiceBusAdministrationClient.from_connection_string(text, **options)
            return ServiceBusAdministrationClient(namespace, cast(AsyncTokenCredential, credential), **options)

        def bus(ca: SSLContext | None = None, address: str | None = None, **options: Any) -> BusClient:
            return _at(BusClient.with_credential(namespace, credential, tls=ca or True, **options), address)

        return cls(NamespaceAddress.parse(namespace), client, admin, bus)


def _at(client: BusClient, address: str | None) -> BusClient:
    """A client that connects to another address; its tokens stay the namespace's."""
    if address is not None:
        place = NamespaceAddress.parse(address)
        client.host, client.port = place.host, place.port or 443
    return client


def _routed(options: dict[str, Any], *, by_http: bool) -> dict[str, Any]:
    """Options of an administration client, whose transport knows the way."""
    options = dict(options)
    address = options.pop("custom_endpoint_address", None)
    if by_http or address is not None:
        options.setdefault("transport", AsyncRoutedTransport(by_http=by_http, address=address, **options))
    return options
