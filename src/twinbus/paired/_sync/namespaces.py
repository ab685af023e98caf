"""Written by scripts/unasync.py from _async/namespaces.py: read and change that file, not this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ssl import SSLContext
from typing import Any, cast
from urllib.parse import urlsplit

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential, TokenCredential
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus import ServiceBusClient, parse_connection_string
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.client import BusClient
from twinbus.paired.options import EMULATOR_PORT, NamespaceAddress

Credential = TokenCredential | AzureSasCredential | AzureNamedKeyCredential | None


class RoutedTransport(RequestsTransport):  # type: ignore[misc]
    """Redirects the SDK's HTTPS requests to the namespace: to HTTP, or to another address."""

    def __init__(self, *, by_http: bool, address: str | None, **options: Any) -> None:
        super().__init__(**options)
        self._by_http = by_http
        self._address = None if address is None else urlsplit(address if "//" in address else f"//{address}").netloc

    def send(self, request: Any, **options: Any) -> Any:
        given = request.url
        parts = urlsplit(given)
        request.url = parts._replace(
            scheme="http" if self._by_http else parts.scheme, netloc=self._address or parts.netloc
        ).geturl()
        try:
            return super().send(request, **options)
        finally:
            request.url = given


class PairedNamespace:
    """A namespace's address, and how to create clients for it."""

    def __init__(
        self,
        address: NamespaceAddress,
        client: Callable[..., ServiceBusClient],
        admin: Callable[..., ServiceBusAdministrationClient],
        bus: Callable[..., BusClient],
        secret: str = "",
    ) -> None:
        self.address = address
        self.secret = secret
        self.name = address.label
        self.client = client
        self.admin = admin
        self.bus = bus
        self.options: Mapping[str, Any] = {}
        self.admin_options: Mapping[str, Any] = {}

    @classmethod
    def of_string(cls, text: str) -> PairedNamespace:
        """From a connection string."""
        endpoint = parse_connection_string(text).endpoint
        emulator = "usedevelopmentemulator=true" in text.lower()

        def client(**options: Any) -> ServiceBusClient:
            return ServiceBusClient.from_connection_string(text, **options)

        def admin(**options: Any) -> ServiceBusAdministrationClient:
            return ServiceBusAdministrationClient.from_connection_string(text, **_routed(options, by_http=emulator))

        def bus(ca: SSLContext | None = None, address: str | None = None, **options: Any) -> BusClient:
            tls = None if emulator else ca
            return _at(BusClient.from_connection_string(text, tls=tls, **options), address)

        address = NamespaceAddress.parse(endpoint)
        if emulator and address.port is None:
            address = NamespaceAddress(address.host, EMULATOR_PORT)
        return cls(address, client, admin, bus, _secret_of(text))

    @classmethod
    def of_credential(cls, namespace: str, credential: Credential) -> PairedNamespace:
        """From a host name and a credential of azure-identity or azure-core."""

        def client(**options: Any) -> ServiceBusClient:
            return ServiceBusClient(namespace, cast(TokenCredential, credential), **options)

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
            return ServiceBusAdministrationClient(namespace, cast(TokenCredential, credential), **options)

        def bus(ca: SSLContext | None = None, address: str | None = None, **options: Any) -> BusClient:
            return _at(BusClient.with_credential(namespace, credential, tls=ca or True, **options), address)

        key = credential.named_key.key if isinstance(credential, AzureNamedKeyCredential) else ""
        return cls(NamespaceAddress.parse(namespace), client, admin, bus, key)


def _secret_of(text: str) -> str:
    parts = (part.partition("=") for part in text.split(";"))
    return next((value.strip() for name, _, value in parts if name.strip().lower() == "sharedaccesskey"), "")


def _at(client: BusClient, address: str | None) -> BusClient:
    """Make a client connect to another address; its tokens stay those of the namespace."""
    if address is not None:
        place = NamespaceAddress.parse(address)
        client.host, client.port = place.host, place.port or 443
    return client


def _routed(options: dict[str, Any], *, by_http: bool) -> dict[str, Any]:
    """Options of an administration client, with a transport that redirects if needed."""
    options = dict(options)
    address = options.pop("custom_endpoint_address", None)
    if by_http or address is not None:
        options.setdefault("transport", RoutedTransport(by_http=by_http, address=address, **options))
    return options
