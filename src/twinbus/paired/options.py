"""The options of a pair and their ranges, the addresses of the namespaces, and the name of the primary.

- Everything is checked before any connection is made; the ValueError names the value and the range.
- Times are seconds; a `timedelta` is accepted as well.
- A host name with several labels gives the primary its name; one without (`localhost`, an address) does not.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from twinbus.ledger.words import BACKLOG_MARK
from twinbus.limits import (
    BACKLOG_QUEUE_PAUSE_S,
    BACKLOG_QUEUES_DEFAULT,
    FAILOVER_INTERVAL_S_DEFAULT,
    FAILOVER_INTERVAL_S_MAX,
    PAIRED_SEND_TIMEOUT_S_MIN,
    PING_INTERVAL_S_DEFAULT,
    PING_INTERVAL_S_MAX,
    PING_INTERVAL_S_MIN,
    PING_REFUSALS_DEFAULT,
    PING_REFUSALS_MAX,
    PRIMARY_NAME_CHARS_MAX,
    SENDS_IN_FLIGHT_DEFAULT,
    SENDS_IN_FLIGHT_MAX,
    TRY_TIMEOUT_S_DEFAULT,
    TRY_TIMEOUT_S_MAX,
    TRY_TIMEOUT_S_MIN,
)

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
# The port of a connection string with UseDevelopmentEmulator=true and no port.
EMULATOR_PORT: Final = 5672
# The service's ports for AMQP over TLS, WebSocket and administration, which may be omitted.
_USUAL_PORTS = frozenset({5671, 443})
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
# The domains of Azure's clouds, where a host name belongs to one namespace.
_AZURE = (
    ".servicebus.windows.net",
    ".servicebus.usgovcloudapi.net",
    ".servicebus.chinacloudapi.cn",
    ".servicebus.cloudapi.de",
)
# Top-level domains whose names mean another machine in every network.
_LOCAL_DOMAINS = frozenset(
    {"local", "localhost", "localdomain", "internal", "intranet", "private", "corp", "lan", "home", "arpa", "test"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PairingOptions:
    """The options of a pair.

    `hold_sends=False` raises while the timer runs, as the old SDK did. `session_order` keeps the order within a session
    across a failover. `max_in_flight` limits the concurrent sends of one sender, each on its own connection; the others
    wait. `try_timeout` limits one attempt to send. `backlog_pause` is how long a failed backlog queue is not used.
    `create_backlog_queues=False` assumes that the backlog queues exist: nothing is looked up or created, and the
    secondary's credential needs no Manage right. After `ping_refusals` pings in a row that the primary rejects (no such
    entity, unauthorised), the entity fails back; 0 for never.
    """

    backlog_queue_count: int = BACKLOG_QUEUES_DEFAULT
    failover_interval: float = FAILOVER_INTERVAL_S_DEFAULT
    ping_primary_interval: float = PING_INTERVAL_S_DEFAULT
    enable_syphon: bool = False
    primary_name: str | None = None
    hold_sends: bool = True
    session_order: bool = False
    max_in_flight: int = SENDS_IN_FLIGHT_DEFAULT
    try_timeout: float = TRY_TIMEOUT_S_DEFAULT
    backlog_pause: float = BACKLOG_QUEUE_PAUSE_S
    create_backlog_queues: bool = True
    ping_refusals: int = PING_REFUSALS_DEFAULT

    @classmethod
    def responsive(cls) -> PairingOptions:
        """For callers that cannot wait a minute: an entity fails over after 5 s and is pinged every 5 s."""
        return cls(failover_interval=5, ping_primary_interval=5, try_timeout=3, backlog_pause=10)

    def __post_init__(self) -> None:
        count = self.backlog_queue_count
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"backlog_queue_count is {count!r}: it must be a whole number, 1 or more.")
        in_flight = self.max_in_flight
        if isinstance(in_flight, bool) or not isinstance(in_flight, int) or not 1 <= in_flight <= SENDS_IN_FLIGHT_MAX:
            raise ValueError(f"max_in_flight is {in_flight!r}: it must be from 1 to {SENDS_IN_FLIGHT_MAX}.")
        refusals = self.ping_refusals
        if isinstance(refusals, bool) or not isinstance(refusals, int) or not 0 <= refusals <= PING_REFUSALS_MAX:
            raise ValueError(f"ping_refusals is {refusals!r}: it must be from 0 (never) to {PING_REFUSALS_MAX}.")
        self._set_seconds("failover_interval", 0, FAILOVER_INTERVAL_S_MAX)
        self._set_seconds("ping_primary_interval", PING_INTERVAL_S_MIN, PING_INTERVAL_S_MAX)
        self._set_seconds("try_timeout", TRY_TIMEOUT_S_MIN, TRY_TIMEOUT_S_MAX)
        self._set_seconds("backlog_pause", 0, FAILOVER_INTERVAL_S_MAX)
        for name in ("enable_syphon", "hold_sends", "session_order", "create_backlog_queues"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}: it must be True or False.")
        if self.primary_name is not None:
            check_name(self.primary_name)

    def _set_seconds(self, name: str, least: float, most: float) -> None:
        value = getattr(self, name)
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not math.isfinite(seconds) or not least <= seconds <= most:
            raise ValueError(f"{name} is {value!r}: it must be from {least:g} to {most:g} seconds.")
        # The dataclass is frozen, but this is still its construction.
        object.__setattr__(self, name, float(seconds))

    @property
    def send_timeout(self) -> float:
        """The default timeout of a send, long enough to outlast the interval."""
        return max(PAIRED_SEND_TIMEOUT_S_MIN, 2 * self.failover_interval)


@dataclass(frozen=True, slots=True)
class NamespaceAddress:
    """A namespace's address; a `port` of None is the service's default."""

    host: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> NamespaceAddress:
        """Parse `host`, `host:port`, or a URL with either."""
        try:
            parts = urlsplit(text if "//" in text else f"//{text}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ValueError(f"The namespace {text!r} is not an address: {error}.") from None
        if not host:
            raise ValueError(f"The namespace {text!r} has no host.")
        return cls(host, port)

    @property
    def key(self) -> tuple[str, int | None]:
        """Equal for the same namespace, however it is spelled."""
        host = self.host.rstrip(".").lower()
        return "localhost" if host in _HERE else host, None if self.port in _USUAL_PORTS else self.port

    @property
    def label(self) -> str | None:
        """The first label of the host name; None if it has only one, or is an address."""
        host = self.host.rstrip(".")
        try:
            ipaddress.ip_address(host)
        except ValueError:
            first, dot, _ = host.partition(".")
            return first.lower() if dot else None
        return None

    @property
    def azure(self) -> bool:
        """Whether it is a namespace of Azure."""
        return self.host.rstrip(".").lower().endswith(_AZURE)

    @property
    def lasting_host(self) -> str | None:
        """The host name, if it means the same machine everywhere; None for an address and for local names."""
        host = self.host.rstrip(".").lower()
        if self.label is None or host.rpartition(".")[2] in _LOCAL_DOMAINS:
            return None
        return host if self.port is None or self.port in _USUAL_PORTS else f"{host}:{self.port}"

    @property
    def place(self) -> str:
        """`host` or `host:port`, as given."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def plain_name(self) -> str:
        """`<host>-<port>`, for a namespace without a better name."""
        host = re.sub(r"[^A-Za-z0-9.-]+", "-", self.host).strip("-.") or "localhost"
        return host if self.port is None else f"{host}-{self.port}"


def check_pair(primary: NamespaceAddress, secondary: NamespaceAddress, paired: Iterable[NamespaceAddress] = ()) -> None:
    """Raise for an invalid pair; `paired` are the primaries of the open pairs."""
    if primary.key == secondary.key:
        raise ValueError(
            f"The secondary {secondary.host!r} is the primary itself: a pair needs two different namespaces."
        )
    if any(secondary.key == other.key for other in paired):
        raise ValueError(
            f"The secondary {secondary.host!r} is itself paired, as the primary of another pair: "
            "a secondary must be a namespace that is not."
        )


def check_name(name: str) -> str:
    """Check that the primary's name can be part of backlog queue names, and return it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > PRIMARY_NAME_CHARS_MAX:
        raise ValueError(
            f"primary_name is {name!r}: it must have 1 to {PRIMARY_NAME_CHARS_MAX} letters, digits, '.', '_' and '-', "
            "and begin and end with a letter or digit."
        )
    return name


def backlog_names(primary_name: str, count: int) -> list[str]:
    """The names of the backlog queues in the secondary."""
    return [f"{primary_name}{BACKLOG_MARK}{index}" for index in range(count)]
