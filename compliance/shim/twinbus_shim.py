"""pytest plugin: lets the SDK's live tests, unmodified, meet a Twinbus broker instead of the cloud.

It stands in for the packages that make cloud resources (`devtools_testutils`, `servicebus_preparer`, ...), makes
entities by our own means, and points clients of the namespace under test at the broker's port, without TLS. Nothing
else of the SDK is touched.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import time
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from administration import EnvironmentPreparer, recorded, redirect_administration
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus._base_handler import ServiceBusSharedKeyCredential
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.aio._base_handler_async import ServiceBusSharedKeyCredential as AsyncSharedKeyCredential
from control import Control, milliseconds

# The namespace name the tests see. It never resolves: only a redirected client can reach it.
NAMESPACE = "twinbus-under-test.invalid"
ENDPOINT = os.environ["TWINBUS_ENDPOINT"]
KEY_NAME = os.environ["TWINBUS_KEY_NAME"]
KEY = os.environ["TWINBUS_KEY"]
# Policy name -> key, of the policies in service.py.
POLICIES: dict[str, str] = json.loads(os.environ["TWINBUS_POLICIES"])
# "token": bearer tokens nobody can check (a broker in development mode takes them); "key": real signatures.
CREDENTIAL = os.environ.get("TWINBUS_CREDENTIAL", "token")


def connection_string(key_name: str = KEY_NAME, key: str = KEY, entity: str = "") -> str:
    path = f";EntityPath={entity}" if entity else ""
    return f"Endpoint=sb://{ENDPOINT};SharedAccessKeyName={key_name};SharedAccessKey={key};UseDevelopmentEmulator=true{path}"


@functools.cache
def control() -> Control:
    return Control(ENDPOINT, KEY_NAME, KEY)


# --- clients --------------------------------------------------------------------------------------------------------
def redirect(client: type) -> None:
    """Clients of NAMESPACE connect to the broker's port, also over WebSocket, which would take port 80."""
    original = client.__init__

    @functools.wraps(original)
    def init(self: Any, fully_qualified_namespace: str, credential: Any, **options: Any) -> None:
        host = fully_qualified_namespace.partition("//")[2] or fully_qualified_namespace
        if host.rstrip("/") in (NAMESPACE, ENDPOINT):
            fully_qualified_namespace = ENDPOINT
            options["use_tls"] = False
            if options.get("transport_type") == TransportType.AmqpOverWebsocket:
                options.setdefault("custom_endpoint_address", f"sb://{ENDPOINT}")
        original(self, fully_qualified_namespace, credential, **options)

    client.__init__ = init


# --- credentials ----------------------------------------------------------------------------------------------------
class BearerCredential:
    """Hands out a token in the shape of a JWT."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(f"twinbus.{uuid.uuid4().hex}.token", int(time.time()) + 3600)

    def close(self) -> None:
        pass


class AsyncBearerCredential:
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return BearerCredential().get_token(*scopes)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> AsyncBearerCredential:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass


def get_credential(is_async: bool = False, **options: Any) -> Any:
    if CREDENTIAL == "key":
        return (AsyncSharedKeyCredential if is_async else ServiceBusSharedKeyCredential)(KEY_NAME, KEY)
    return AsyncBearerCredential() if is_async else BearerCredential()


# --- preparers ------------------------------------------------------------------------------------------------------
class Resource:
    """What a preparer hands to a test: something with a name."""

    def __init__(self, name: str) -> None:
        self.name = self.id = name


class Preparer:
    """A decorator that makes something, passes it to the test by keyword, and removes it afterwards."""

    # Made once in this process and kept: (class, prefix, options) -> arguments.
    kept: dict[tuple[object, ...], dict[str, Any]] = {}  # noqa: RUF012

    def __init__(self, name_prefix: str = "", use_cache: bool = False, **options: Any) -> None:
        # First part of the resource's name.
        self.prefix = name_prefix or "twinbus"
        # True: one resource serves all tests that ask for the same.
        self.use_cache = use_cache
        # What the test asked for, in the cloud preparer's words.
        self.options = options

    def make(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Nothing, unless the class says otherwise."""

    @contextmanager
    def provided(self, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
        name = f"{self.prefix}-{uuid.uuid4().hex[:12]}"
        if self.use_cache:
            key = (type(self), self.prefix, repr(sorted(self.options.items())))
            if key not in self.kept:
                self.kept[key] = self.make(name, arguments)
            yield self.kept[key]
        else:
            made = self.make(name, arguments)
            try:
                yield made
            finally:
                self.remove(name)

    def __call__(self, test: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def prepared_async(case: object, **arguments: Any) -> None:
                with self.provided(arguments) as made:
                    await test(case, **arguments, **made)

            return prepared_async

        @functools.wraps(test)
        def prepared(case: object, **arguments: Any) -> None:
            with self.provided(arguments) as made:
                test(case, **arguments, **made)

        return prepared


class ResourceGroup(Preparer):
    def make(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"resource_group": Resource(name), "location": "local"}


class Namespace(Preparer):
    def make(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {
            "servicebus_namespace": Resource(NAMESPACE),
            "servicebus_namespace_connection_string": connection_string(),
            "servicebus_namespace_key_name": KEY_NAME,
            "servicebus_namespace_primary_key": KEY,
        }


class Queue(Preparer):
    def make(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        control().create_queue(
            name,
            # The cloud preparer's own default, not the service's.
            lock_duration_ms=milliseconds(self.options.get("lock_duration", "PT30S")),
            requires_duplicate_detection=self.options.get("requires_duplicate_detection", False),
            requires_session=self.options.get("requires_session", False),
            dead_letter_on_expiry=self.options.get("dead_lettering_on_message_expiration", False),
            enable_partitioning=self.options.get("enable_partitioning", False),
        )
        return {self.options.get("parameter_name", "servicebus_queue"): Resource(name)}

    def remove(self, name: str) -> None:
        control().delete_queue(name)


class Topic(Preparer):
    def make(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        control().request("twinbus:create-topic", {"path": name})
        return {self.options.get("parameter_name", "servicebus_topic"): Resource(name)}

    def remove(self, name: str) -> None:
        control().request("twinbus:delete-topic", {"name": name})


class Subscription(Preparer):
    """It goes with its topic."""

    def make(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        settings = {
            "topic": arguments["servicebus_topic"].name,
            "name": name,
            "lock_duration_ms": milliseconds(self.options.get("lock_duration", "PT60S")),
            "requires_session": self.options.get("requires_session", False),
        }
        control().request("twinbus:create-subscription", settings)
        return {self.options.get("parameter_name", "servicebus_subscription"): Resource(name)}


class AuthorizationRule(Preparer):
    """A shared access policy of the wanted rights; the broker was started with one of each kind."""

    def make(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        on_queue = self.options.get("on_queue", False)
        queue = arguments["servicebus_queue"].name if on_queue else ""
        rights = tuple(self.options.get("access_rights", ()))
        policy = {("Listen",): "listen-only", ("Send",): "send-only"}.get(rights, "everything")
        text = connection_string(policy, POLICIES[policy], queue)
        parameter = "servicebus_queue_authorization_rule" if on_queue else "servicebus_authorization_rule"
        return {parameter: Resource(policy), f"{parameter}_connection_string": text}


# --- packages that exist only in the cloud team's repository ----------------------------------------------------------
class RecordedTestCase:
    """Base class of the test classes; live, nothing recorded."""

    is_live = True
    in_recording = False

    @staticmethod
    def await_prepared_test(test: Callable[..., Any]) -> Callable[..., Any]:
        """Upstream runs the coroutine by hand; here pytest-asyncio does."""
        return test

    def get_resource_name(self, prefix: str) -> str:
        return f"{prefix}{uuid.uuid4().hex[:8]}"


def module(name: str, **members: Any) -> None:
    stand_in = types.ModuleType(name)
    stand_in.__dict__.update(members)
    # A package and a module at once, so that `import a.b` finds `a.b` in sys.modules.
    stand_in.__path__ = []
    sys.modules[name] = stand_in


def nothing(*arguments: Any, **options: Any) -> None:
    """Stands for the recorders' set-up functions."""


def install() -> None:
    cached = functools.partial
    module(
        "devtools_testutils",
        AzureMgmtRecordedTestCase=RecordedTestCase,
        AzureRecordedTestCase=RecordedTestCase,
        CachedResourceGroupPreparer=cached(ResourceGroup, use_cache=True),
        PowerShellPreparer=EnvironmentPreparer,
        RandomNameResourceGroupPreparer=ResourceGroup,
        get_credential=get_credential,
        recorded_by_proxy=recorded,
        set_custom_default_matcher=nothing,
    )
    module("devtools_testutils.aio", recorded_by_proxy_async=recorded)
    module(
        "devtools_testutils.sanitizers",
        add_remove_header_sanitizer=nothing,
        add_general_regex_sanitizer=nothing,
        add_oauth_response_sanitizer=nothing,
    )
    rights = types.SimpleNamespace(manage="Manage", send="Send", listen="Listen")
    module("azure.mgmt")
    module("azure.mgmt.servicebus")
    module("azure.mgmt.servicebus.models", AccessRights=rights)
    preparers: dict[str, Any] = {
        "ResourceGroup": ResourceGroup,
        "Namespace": Namespace,
        "Queue": Queue,
        "Topic": Topic,
        "Subscription": Subscription,
    }
    names: dict[str, Any] = {"SERVICEBUS_ENDPOINT_SUFFIX": ""}
    for name, preparer in preparers.items():
        names[f"ServiceBus{name}Preparer"] = preparer
        names[f"CachedServiceBus{name}Preparer"] = cached(preparer, use_cache=True)
    names["ServiceBusNamespaceAuthorizationRulePreparer"] = AuthorizationRule
    names["ServiceBusQueueAuthorizationRulePreparer"] = functools.partial(AuthorizationRule, on_queue=True)
    module("servicebus_preparer", **names)
    EnvironmentPreparer.known = {
        "servicebus_connection_str": connection_string(),
        "servicebus_fully_qualified_namespace": NAMESPACE,
        "servicebus_sas_policy": KEY_NAME,
        "servicebus_sas_key": KEY,
    }


install()
redirect(ServiceBusClient)
redirect(AsyncServiceBusClient)
redirect_administration(NAMESPACE, ENDPOINT)


@pytest.fixture(scope="session")
def test_proxy() -> None:
    """The recorder's process, which live runs do not have."""
