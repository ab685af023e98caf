"""The arguments of a paired client by name, typed so that editors can complete and checkers can check them.

- The SDK's options go to the clients of both namespaces and, as far as they apply, to administration.
- An unknown name is an error that suggests the nearest one, because the SDK would ignore it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from ssl import SSLContext
from typing import Any, Literal, TypedDict
from urllib.parse import quote

from azure.servicebus import ServiceBusReceiveMode, ServiceBusSessionFilter, ServiceBusSubQueue, TransportType

from twinbus.client import tls_context
from twinbus.limits import ADMIN_TIMEOUT_S_MIN, SYPHON_CONNECT_TIMEOUT_MS
from twinbus.paired.classify import Policy
from twinbus.paired.events import Listener
from twinbus.paired.options import PairingOptions
from twinbus.spelling import did_you_mean

# Prefix of the environment variables.
_PREFIX = "TWINBUS_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class SdkArguments(TypedDict, total=False):
    """Options of the SDK's clients of both namespaces."""

    retry_total: int
    retry_backoff_factor: float
    retry_backoff_max: float
    retry_mode: str
    transport_type: TransportType
    http_proxy: Mapping[str, Any]
    custom_endpoint_address: str
    connection_verify: str
    ssl_context: SSLContext
    socket_timeout: float
    user_agent: str
    logging_enable: bool
    uamqp_transport: bool


class PairedClientArguments(SdkArguments, total=False):
    """The keyword arguments of `PairedServiceBusClient`; see `docs/paired.md`."""

    options: PairingOptions
    backlog_queue_count: int
    failover_interval: float | timedelta
    ping_primary_interval: float | timedelta
    enable_syphon: bool
    primary_name: str | None
    hold_sends: bool
    session_order: bool
    max_in_flight: int
    try_timeout: float | timedelta
    backlog_pause: float | timedelta
    create_backlog_queues: bool
    ping_refusals: int
    classify: Policy
    on_event: Listener | Iterable[Listener]
    ledger: Path | str | None
    admin_options: Mapping[str, Any] | None
    primary_options: Mapping[str, Any] | None
    secondary_options: Mapping[str, Any] | None
    rng: Random | None


class SenderArguments(TypedDict, total=False):
    """A sender's options, as in the SDK."""

    client_identifier: str | None
    socket_timeout: float | None


class ReceiverArguments(SenderArguments, total=False):
    """A receiver's options, as in the SDK. The renewer is the sync or the async `AutoLockRenewer`, like the client."""

    session_id: str | Literal[ServiceBusSessionFilter.NEXT_AVAILABLE] | None
    sub_queue: ServiceBusSubQueue | str | None
    receive_mode: ServiceBusReceiveMode | str
    max_wait_time: float | None
    auto_lock_renewer: Any
    prefetch_count: int


class SessionListArguments(TypedDict, total=False):
    """The options of listing sessions, as in the SDK."""

    state_updated_after: datetime | None
    timeout: float | None


_OPTIONS = tuple(field.name for field in fields(PairingOptions))
_SDK = tuple(SdkArguments.__annotations__)


def check_names(given: Mapping[str, Any]) -> None:
    """Raise TypeError for an unknown name."""
    sides = {side: given.get(side) or {} for side in ("primary_options", "secondary_options")}
    for owner, names, known in (
        ("PairedServiceBusClient", given, tuple(PairedClientArguments.__annotations__)),
        *((side, names, _SDK) for side, names in sides.items()),
    ):
        for name in names:
            if name not in known:
                raise TypeError(f"{owner} has no option '{name}'.{did_you_mean(name, known)}")
    if any(names.get("uamqp_transport") for names in (given, *sides.values())):
        raise ValueError("uamqp_transport is True: the paired client works with the SDK's own transport only.")


def pairing_options(given: Mapping[str, Any]) -> PairingOptions:
    """The options of the pair: `options`, overridden by those given by name."""
    named = {name: given[name] for name in _OPTIONS if name in given}
    return replace(given.get("options") or PairingOptions(), **named)


def sdk_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options for the SDK's clients."""
    return {name: given[name] for name in _SDK if name in given}


def admin_options(given: Mapping[str, Any], side: str, timeout_s: float) -> dict[str, Any]:
    """The options for the administration client of the `primary` or the `secondary`."""
    ours = {**sdk_options(given), **(given.get(f"{side}_options") or {})}
    # Nobody waits for it, and a busy secondary must not be asked again and again.
    timeout_s = max(timeout_s, ADMIN_TIMEOUT_S_MIN)
    # No retries here: the search for the backlog queues is repeated as a whole.
    found: dict[str, Any] = {"connection_timeout": timeout_s, "read_timeout": timeout_s, "retry_total": 0}
    same = ("retry_total", "retry_backoff_factor", "retry_backoff_max", "retry_mode", "connection_verify")
    found |= {
        name: ours[name] for name in (*same, "user_agent", "logging_enable", "custom_endpoint_address") if name in ours
    }
    if ours.get("http_proxy"):
        proxy = proxy_url(ours["http_proxy"])
        found["proxies"] = {"http": proxy, "https": proxy}
    return found | dict(given.get("admin_options") or {})


def retry_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The retry options among those of the SDK's client."""
    return {name: value for name, value in options.items() if name.startswith("retry_")}


def bus_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of our own client, derived from the SDK's: a CA, WebSocket, another address, a proxy."""
    found: dict[str, Any] = {"timeout_ms": SYPHON_CONNECT_TIMEOUT_MS}
    verify = options.get("connection_verify")
    if isinstance(verify, str):
        found["ca"] = tls_context(verify)
    address, transport = options.get("custom_endpoint_address"), options.get("transport_type")
    if address is not None:
        found["address"] = address
    # In the SDK another address implies WebSocket, unless the transport is given.
    if transport is TransportType.AmqpOverWebsocket or (address is not None and transport is None):
        found["websocket"] = True
    if options.get("http_proxy"):
        found |= {"websocket": True, "proxy": proxy_url(options["http_proxy"])}
    return found


def from_environment(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options from the environment (TWINBUS_FAILOVER_INTERVAL, ...); given arguments override them."""
    found: dict[str, Any] = {}
    preset = os.environ.get(f"{_PREFIX}PAIRING", "").strip().lower() or "default"
    if preset not in ("default", "responsive"):
        raise ValueError(f"{_PREFIX}PAIRING is {preset!r}: it must be 'default' or 'responsive'.")
    if preset == "responsive":
        found["options"] = PairingOptions.responsive()
    for field in fields(PairingOptions):
        text = os.environ.get(_PREFIX + field.name.upper())
        if text is not None and text.strip():
            found[field.name] = _value(_PREFIX + field.name.upper(), field.type, text.strip())
    return {**found, **given}


def variable(name: str) -> str:
    """A required variable."""
    text = os.environ.get(_PREFIX + name, "").strip()
    if not text:
        raise ValueError(f"{_PREFIX}{name} is not set: it must hold a connection string.")
    return text


def _value(name: str, kind: Any, text: str) -> Any:
    if kind == "bool":
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise ValueError(f"{name} is {text!r}: it must be true or false.")
    if kind in ("int", "float"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            raise ValueError(f"{name} is {text!r}: it must be a number.") from None
    return text


def proxy_url(settings: Mapping[str, Any]) -> str:
    """The URL of a proxy from the SDK's `http_proxy` settings; the SDK's asyncio client needs a scheme."""
    user = settings.get("username")
    login = f"{quote(user, safe='')}:{quote(settings.get('password') or '', safe='')}@" if user else ""
    return f"http://{login}{settings['proxy_hostname'].removeprefix('http://')}:{settings['proxy_port']}"
