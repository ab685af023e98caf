"""The configuration of a broker: namespaces with their entities and policies, and the addresses it listens on.

- Every object is checked when it is created; a ConfigError names the value and the fix.
- Listening on other interfaces needs TLS or `allow_plaintext`, and is refused with the well-known development key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from twinbus.auth.jwt import JWT_AUDIENCE, JWT_ROLES_CLAIM
from twinbus.auth.policies import Policies, Policy, Right
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ConfigError, ServiceError
from twinbus.limits import CLIENT_ID_CHARS_MAX, HOST_NAME_CHARS_MAX, NAMESPACE_NAME_CHARS_MAX, NAMESPACES_MAX

LOOPBACK = "127.0.0.1"
# The ledger's default folder, inside the data folder.
LEDGER_NAME = "ledger"
# Turns the ledger off.
LEDGER_OFF = "off"
# The official emulator's namespace and ports.
EMULATOR_NAME = "sbemulatorns"
EMULATOR_PORT = 5672
EMULATOR_ADMIN_PORT = 5300
# The service's tiers; the first is the default.
SKUS = ("Standard", "Premium")
# What the console sets in a request to an authorization endpoint.
AUTHORIZATION_PARAMETERS = frozenset(
    (
        *("response_type", "client_id", "redirect_uri", "scope"),
        *("state", "nonce", "code_challenge", "code_challenge_method"),
    )
)
_VISIBLE = re.compile(r"[!-~]+", re.ASCII)
_SCOPE = re.compile(r"[!#-\[\]-~]+", re.ASCII)
_HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_][A-Za-z0-9._-]*|[0-9A-Fa-f:]+:[0-9A-Fa-f:.]*", re.ASCII)
_NAMESPACE_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class RuleConfig:
    """A subscription's rule: a filter and an optional action."""

    name: str
    kind: Literal["sql", "correlation"]
    sql: str | None = None
    correlation: dict[str, str] = field(default_factory=dict)
    correlation_properties: dict[str, str | int | float | bool] = field(default_factory=dict)
    action: str | None = None


@dataclass(frozen=True, kw_only=True)
class SubscriptionConfig:
    """A subscription and its rules."""

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
    """A policy without keys in the file: they are generated at the first start and stored with the data."""

    name: str
    rights: frozenset[Right]
    scope: str = ""


@dataclass(frozen=True, kw_only=True)
class SignInConfig:
    """How people sign in to the console with an account of the tokens' issuer. The broker calls only `token_endpoint`.

    `authorization_endpoint` may have a query, which some providers need to choose the audience.
    """

    client_id: str
    authorization_endpoint: str
    token_endpoint: str
    # A file with the client's secret; None for a public client.
    client_secret_file: Path | None = None
    scope: str = "openid"

    def __post_init__(self) -> None:
        if len(self.client_id) > CLIENT_ID_CHARS_MAX or not _VISIBLE.fullmatch(self.client_id):
            raise ConfigError(f"'client_id' must have 1 to {CLIENT_ID_CHARS_MAX} visible ASCII characters.")
        for name in ("authorization_endpoint", "token_endpoint"):
            problem = _endpoint_problem(getattr(self, name))
            if problem:
                raise ConfigError(f"'{name}' {problem}")
        taken = {name for name, _ in parse_qsl(urlsplit(self.authorization_endpoint).query, keep_blank_values=True)}
        for name in sorted(taken & AUTHORIZATION_PARAMETERS):
            raise ConfigError(f"'authorization_endpoint' must not have the parameter '{name}': the broker sets it.")
        if not all(_SCOPE.fullmatch(each) for each in self.scope.split(" ")):
            raise ConfigError("'scope' must be names separated by single spaces, such as \"openid profile\".")
        if "openid" not in self.scope.split(" "):
            raise ConfigError("'scope' must contain 'openid': without it the provider does not say who signed in.")


def _endpoint_problem(address: str) -> str:
    """What is wrong with an endpoint of an identity provider; empty if nothing is."""
    try:
        parts = urlsplit(address)
        name, _ = parts.hostname or "", parts.port
    except ValueError:
        return 'is not an address such as "https://login.example/token".'
    if parts.scheme not in ("https", "http") or not is_name(name) or not _VISIBLE.fullmatch(address):
        return 'is not an address such as "https://login.example/token".'
    if parts.scheme == "http" and not is_loopback(name):
        return "must start with https://, because it carries codes and tokens; http:// is for this machine only."
    if "@" in parts.netloc or parts.fragment:
        return "must have neither a user nor a fragment."
    return ""


@dataclass(frozen=True, kw_only=True)
class JwtConfig:
    """Which JSON web tokens are trusted, and what their roles allow. Keys come from files, never from the network."""

    issuer: str
    audience: str = JWT_AUDIENCE
    # A JWKS file and PEM public key files; at least one is required.
    jwks: Path | None = None
    public_keys: tuple[Path, ...] = ()
    # Rights by role name; None uses the service's roles.
    roles: dict[str, frozenset[Right]] | None = None
    # The claim that lists the roles.
    roles_claim: str = JWT_ROLES_CLAIM
    # How people sign in to the console with an account of the issuer; None if they cannot.
    sign_in: SignInConfig | None = None


@dataclass
class NamespaceConfig:
    """One namespace: its own port, entities and policies. Port 0 picks a free one.

    The port accepts every protocol. The three others are for clients that require a certain number; they accept every
    protocol too.
    """

    name: str
    port: int = 0
    queues: list[QueueSettings] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)
    topics: list[TopicConfig] = field(default_factory=list)
    keyless: list[KeylessPolicy] = field(default_factory=list)
    # Scope and name of the policies whose keys are stored with the data instead of the configuration.
    kept: frozenset[tuple[str, str]] = frozenset()
    # How JSON web tokens are verified; None rejects them.
    jwt: JwtConfig | None = None
    amqp_port: int | None = None
    amqps_port: int | None = None
    admin_port: int | None = None
    # Default ports: if one is taken it is skipped, or replaced by a free one if it is the namespace's own.
    optional_ports: frozenset[int] = frozenset()
    # The tier that admin clients see; "Premium" lets them set an entity's maximum message size.
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
        """The policy of the printed connection string: the first with Manage on the whole namespace."""
        for policy in self.policies:
            if not policy.scope and Right.MANAGE in policy.rights:
                return policy
        raise ConfigError(f"Namespace {self.name!r} has no policy with Manage on the whole namespace.")


@dataclass
class BrokerConfig:
    """Everything a broker is started with. With `data` None, nothing survives a restart."""

    namespaces: list[NamespaceConfig]
    data: Path | None = None
    host: str = LOOPBACK
    dev: bool = False
    allow_plaintext: bool = False
    allow_faults: bool = False
    # Accept other machines in development mode, although any key is accepted; this also allows plaintext.
    allow_remote_dev: bool = False
    # The folder of the operations ledger; None disables it.
    ledger: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    # Host names that clients use, for the development CA's certificate.
    tls_names: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Check the configuration as a whole; called before anything listens."""
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
        """Whether peers on any reachable machine may connect without TLS."""
        return self.allow_plaintext or is_loopback(self.host) or (self.dev and self.allow_remote_dev)


def emulator_ports(namespace: NamespaceConfig) -> NamespaceConfig:
    """Move the namespace to the official emulator's ports, if they are free."""
    ports = frozenset((EMULATOR_PORT, EMULATOR_ADMIN_PORT))
    return replace(namespace, port=EMULATOR_PORT, admin_port=EMULATOR_ADMIN_PORT, optional_ports=ports)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_name(name: str) -> bool:
    """Whether a certificate can contain it: a host name, with or without a leading `*.`, or an address."""
    return len(name) <= HOST_NAME_CHARS_MAX and bool(_HOST_NAME.fullmatch(name.strip("[]")))


def check_unique(names: Iterable[str], text: str) -> None:
    """Raise ConfigError if two names differ only in case or not at all."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.lower())
        seen[name.lower()] = name
        if other is not None:
            both = f"{name!r} twice" if other == name else f"{other!r} twice, the second time as {name!r}"
            raise ConfigError(f"{text} {both}.")
