"""The part of the shim for administration clients: their tests find a namespace by environment variables in the cloud.

Clients of the namespace under test go to the broker's port by HTTPS, as they always do, and trust the broker's own CA.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient

CA_FILE = os.environ.get("TWINBUS_CA", "")


def redirect_administration(namespace: str, endpoint: str) -> None:
    for client in (ServiceBusAdministrationClient, AsyncAdministrationClient):
        _redirect(client, namespace, endpoint)


def _redirect(client: type, namespace: str, endpoint: str) -> None:
    original = client.__init__

    @functools.wraps(original)
    def init(self: Any, fully_qualified_namespace: str, credential: Any, **options: Any) -> None:
        if fully_qualified_namespace.strip("/") in (namespace, endpoint):
            fully_qualified_namespace = endpoint
            options.setdefault("connection_verify", CA_FILE)
        original(self, fully_qualified_namespace, credential, **options)

    client.__init__ = init


def recorded(test: Callable[..., Any]) -> Callable[..., Any]:
    """Stands for the recorders: live, nothing is recorded."""
    return test


class EnvironmentPreparer:
    """A decorator that passes the namespace's data to a test, as far as the test asks for it by name."""

    # What a test can ask for; set by the shim.
    known: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, *prefixes: str, **fakes: str) -> None:
        pass

    def __call__(self, test: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(test).parameters
        takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
        wanted = {name: value for name, value in self.known.items() if takes_all or name in parameters}
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def prepared_async(case: object) -> None:
                await test(case, **wanted)

            return _without_arguments(prepared_async)

        @functools.wraps(test)
        def prepared(case: object) -> None:
            test(case, **wanted)

        return _without_arguments(prepared)


def _without_arguments(prepared: Callable[..., Any]) -> Callable[..., Any]:
    # pytest would take the test's own parameters for fixtures.
    del prepared.__wrapped__  # type: ignore[attr-defined]
    return prepared
