"""The configuration of a broker: namespaces with their entities and policies, and the addresses it listens on.

Rules:
- Every object is checked when it is created, and a ConfigError names the value and the fix.
- Listening on other interfaces needs TLS or `allow_plaintext`, and is refused with the well-known development key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from twinbus.auth.jwt import JWT_AUDIENCE, JWT_ROLES_CLAIM
from twinbus.auth.policies import Policies, Policy, Right
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ConfigError, ServiceError
from twinbus.limits import HOST_NAME_CHARS_MAX, NAMESPACE_NAME_CHARS_MAX, NAMESPACES_MAX

LOOPBACK = "127.0.0.1"
# The ledger's folder in the data folder, unless another is given.
LEDGER_NAME = "ledger"
# What is given in its place when no ledger is wanted.
LEDGER_OFF = "off"
# The official emulator's namespace and ports.
EMULATOR_NAME = "sbemulatorns"
EMULATOR_PORT = 5672
EMULATOR_ADMIN_PORT = 5300
# The service's tiers; the first is what a namespace is when nothing is said.
SKUS = ("Standard", "Premium")
_HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_][A-Za-z0-9._-]*|[0-9A-Fa-f:]+:[0-9A-Fa-f:.]*", re.ASCII)
_NAMESPACE_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class RuleConfig:
    """A subscription's rule: one filter, and perhaps an action."""

    name: str
    kind: Literal["sql", "correlation"]
    sql: str | None = None
    correlation: dict[str, str] = field(default_factory=dict)
    correlation_properties: dict[str, str | int | float | bool] = field(default_factory=dict)
    action: str | None = None


@dataclass(frozen=True, kw_only=True)
class SubscriptionConfig:
    """A topic's subscription, and the rules it must have."""

    settings: SubscriptionSettings
    rules: list[RuleConfig] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.settings.name


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """A topic with its subscriptions."""

    settings: TopicSettings
    subscriptions: list[SubscriptionConfig] = field(default_factory=list)

    @property
    def path(self) -> str:
        return self.settings.path


@dataclass(frozen=True)
class KeylessPolicy:
    """A policy that the file names without keys: they are made at first start and kept with the data."""

    name: str
    rights: frozenset[Right]
    scope: str = ""


@dataclass(frozen=True, kw_only=True)
class JwtConfig:
    """Whose JSON web tokens count, and what their roles may do. The keys are in files: nobody is asked for them."""

    issuer: str
    audience: str = JWT_AUDIENCE
    # A JWKS file, and files of PEM public keys; at least one of them.
    jwks: Path | None = None
    public_keys: tuple[Path, ...] = ()
    # Role names to rights; None: the service's own.
    roles: dict[str, frozenset[Right]] | None = None
    # The claim that lists the roles.
    roles_claim: str = JWT_ROLES_CLAIM


@dataclass
class NamespaceConfig:
    """One namespace: its own port, entities and policies. Port 0 takes a free one.

    The port takes every protocol; the three others are for clients that insist on a number, and take every one too.
    """

    name: str
    port: int = 0
    queues: list[QueueSettings] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)
    topics: list[TopicConfig] = field(default_factory=list)
    keyless: list[KeylessPolicy] = field(default_factory=list)
    # Scope and name of the policies whose keys are kept with the data and not in the configuration.
    kept: frozenset[tuple[str, str]] = frozenset()
    # How JSON web tokens are checked; None refuses them.
    jwt: JwtConfig | None = None
    amqp_port: int | None = None
    amqps_port: int | None = None
    admin_port: int | None = None
    # Ports that nobody asked for: one that is taken is left out, and a free one is used for the namespace's own.
    optional_ports: frozenset[int] = frozenset()
    # The tier admin clients see; "Premium" lets them choose the largest message of an entity.
    sku: str = SKUS[0]

    def __post_init__(self) -> None:
        if self.sku not in SKUS:
            raise ConfigError(f"The sku {self.sku!r} of namespace {self.name!r} is not one of {', '.join(SKUS)}.")
        if len(self.name) > NAMESPACE_NAME_CHARS_MAX or not _NAMESPACE_NAME.fullmatch(self.name):
            raise ConfigError(
                f"The namespace name {self.name!r} must have 1 to {NAMESPACE_NAME_CHARS_MAX} letters, digits and "
                "hyphens, start with a letter and not end with a hyphen."
            )
        for port in self.ports:
            if not 0 <= port <= 65535:
                raise ConfigError(f"The port {port} of namespace {self.name!r} is not between 0 and 65535.")
        paths = [queue.path for queue in self.queues] + [topic.path for topic in self.topics]
        check_unique(paths, f"Namespace {self.name!r} has the entity")
        try:
            Policies(
                [*self.policies, *(Policy(each.name, each.rights, "?", scope=each.scope) for each in self.keyless)]
            )
        except ServiceError as error:
            raise ConfigError(f"Namespace {self.name!r}: {error}") from None

    @property
    def ports(self) -> list[int]:
        """Every port it listens on."""
        classic = (self.amqp_port, self.amqps_port, self.admin_port)
        return [self.port, *(port for port in classic if port is not None)]

    @property
    def root(self) -> Policy:
        """The policy of the printed connection string: the first one that manages the whole namespace."""
        for policy in self.policies:
            if not policy.scope and Right.MANAGE in policy.rights:
                return policy
        raise ConfigError(f"Namespace {self.name!r} has no policy with Manage on the whole namespace.")


@dataclass
class BrokerConfig:
    """Everything a broker is started with. `data` None keeps nothing over a restart."""

    namespaces: list[NamespaceConfig]
    data: Path | None = None
    host: str = LOOPBACK
    dev: bool = False
    allow_plaintext: bool = False
    allow_faults: bool = False
    # Whether other machines may come although any key is accepted; plaintext is then allowed too.
    allow_remote_dev: bool = False
    # The folder of the operations ledger; None: no ledger.
    ledger: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    # Names that clients call the broker by, for the certificate of the development CA.
    tls_names: list[str] = field(default_factory=list)

    def check(self) -> None:
        """What can be wrong only in the whole; called before anything listens."""
        if not self.namespaces:
            raise ConfigError("There is no namespace: give --namespace NAME, or name one in the configuration file.")
        if len(self.namespaces) > NAMESPACES_MAX:
            raise ConfigError(
                f"There are {len(self.namespaces)} namespaces; one process serves at most {NAMESPACES_MAX}."
            )
        check_unique([namespace.name for namespace in self.namespaces], "The broker has the namespace")
        ports: dict[int, str] = {}
        for namespace in self.namespaces:
            for port in namespace.ports:
                other = ports.get(port)
                if port and other == namespace.name:
                    raise ConfigError(f"Namespace {other!r} has the port {port} twice: one listener takes everything.")
                if port and other is not None:
                    raise ConfigError(
                        f"Namespaces {other!r} and {namespace.name!r} both want port {port}: each needs its own."
                    )
                ports[port] = namespace.name
        if self.tls_key is not None and self.tls_certificate is None:
            raise ConfigError(f"There is a TLS key, {self.tls_key}, and no certificate: give --tls-certificate.")
        for name in self.tls_names:
            if not is_name(name):
                raise ConfigError(f"No certificate can be made for the name {name!r}.")
        if is_loopback(self.host):
            return
        if self.dev and self.allow_remote_dev:
            return
        if self.dev:
            raise ConfigError(
                f"Development mode accepts any key, so it listens on this machine only, not on {self.host!r}. "
                "Leave out --dev or --host, or add --allow-remote-dev if everyone on the network may use the broker."
            )
        if not (self.allow_plaintext or self.tls_certificate is not None or self.tls_names):
            raise ConfigError(
                f"Listening on {self.host!r} would carry keys and messages over the network. For TLS give "
                "--tls-certificate, or --tls-name with the name that clients use and have them trust the development "
                "CA; or add --allow-plaintext if the network is trusted."
            )

    @property
    def plain_anywhere(self) -> bool:
        """Whether a peer on another machine may come without TLS, if it can come at all."""
        return self.allow_plaintext or is_loopback(self.host) or (self.dev and self.allow_remote_dev)


def emulator_ports(namespace: NamespaceConfig) -> NamespaceConfig:
    """The namespace on the official emulator's ports, as far as they are free."""
    ports = frozenset((EMULATOR_PORT, EMULATOR_ADMIN_PORT))
    return replace(namespace, port=EMULATOR_PORT, admin_port=EMULATOR_ADMIN_PORT, optional_ports=ports)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_name(name: str) -> bool:
    """Whether a certificate can be for it: a host name, perhaps with `*.` before it, or an address."""
    return len(name) <= HOST_NAME_CHARS_MAX and bool(_HOST_NAME.fullmatch(name.strip("[]")))


def check_unique(names: Iterable[str], text: str) -> None:
    """ConfigError when two names differ at most in case."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.lower())
        seen[name.lower()] = name
        if other is not None:
            both = f"{name!r} twice" if other == name else f"{other!r} twice, the second time as {name!r}"
            raise ConfigError(f"{text} {both}.")
