# Written by scripts/unasync.py from _async/namespaces.py: change that file, not this one.
"""A namespace as the application names it: by a connection string, or by a host and a credential.

Rules:
- Nothing is connected here; clients are made when they are needed.
- The administration client knows keys and signatures only out of connection strings, so such credentials become one.
- A string with `UseDevelopmentEmulator=true` means plain connections to one port. The SDK keeps to that for messages;
  its administration client always speaks HTTPS, unless its transport knows better.
"""

from __future__ import annotations

from collections.abc import Callable
from ssl import SSLContext
from typing import Any

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus import ServiceBusClient, parse_connection_string
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.client import BusClient
from twinbus.paired.options import Address


class PlainTransport(RequestsTransport):  # type: ignore[misc]
    """Sends by HTTP what the SDK means to send by HTTPS."""

    def send(self, request: Any, **options: Any) -> Any:
        given = request.url
        request.url = given.replace("https://", "http://", 1)
        try:
            return super().send(request, **options)
        finally:
            # The SDK may send it again, and insists on HTTPS before it shows a token.
            request.url = given


class Namespace:
    """Where a namespace is, and how to enter it."""

    def __init__(
        self,
        address: Address,
        client: Callable[..., ServiceBusClient],
        admin: Callable[..., ServiceBusAdministrationClient],
        bus: Callable[..., BusClient],
    ) -> None:
        # Host and port.
        self.address = address
        # Makes a client of the SDK.
        self.client = client
        # Makes an administration client of the SDK.
        self.admin = admin
        # Makes a client of our own, for bulk work: `ca` is a context for TLS, the rest are its options.
        self.bus = bus

    @classmethod
    def of_string(cls, text: str) -> Namespace:
        """By a connection string."""
        endpoint = parse_connection_string(text).endpoint
        emulator = "usedevelopmentemulator=true" in text.lower()

        def client(**options: Any) -> ServiceBusClient:
            return ServiceBusClient.from_connection_string(text, **options)

        def admin(**options: Any) -> ServiceBusAdministrationClient:
            if emulator:
                options.setdefault("transport", PlainTransport(**options))
            return ServiceBusAdministrationClient.from_connection_string(text, **options)

        def bus(ca: SSLContext | None = None, **options: Any) -> BusClient:
            # The emulator's way of connecting is plain whatever there is to trust.
            tls = None if emulator else ca
            return BusClient.from_connection_string(text, tls=tls, **options)

        return cls(Address.parse(endpoint), client, admin, bus)

    @classmethod
    def of_credential(cls, namespace: str, credential: Any) -> Namespace:
        """By a host name and a credential of azure-identity or azure-core."""

        def client(**options: Any) -> ServiceBusClient:
            return ServiceBusClient(namespace, credential, **options)

        def admin(**options: Any) -> ServiceBusAdministrationClient:
            host = f"Endpoint=sb://{Address.parse(namespace).host}/"
            if isinstance(credential, AzureNamedKeyCredential):
                name, key = credential.named_key
                text = f"{host};SharedAccessKeyName={name};SharedAccessKey={key}"
                return ServiceBusAdministrationClient.from_connection_string(text, **options)
            if isinstance(credential, AzureSasCredential):
                text = f"{host};SharedAccessSignature={credential.signature}"
                return ServiceBusAdministrationClient.from_connection_string(text, **options)
            return ServiceBusAdministrationClient(namespace, credential, **options)

        def bus(ca: SSLContext | None = None, **options: Any) -> BusClient:
            return BusClient.with_credential(namespace, credential, tls=ca or True, **options)

        return cls(Address.parse(namespace), client, admin, bus)
