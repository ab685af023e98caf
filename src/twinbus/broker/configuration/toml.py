"""Our own configuration file, in TOML; `docs/config.md` shows it whole.

Rules:
- Names are table names (`[namespaces.contoso.queues.orders]`), settings are the queue settings without their units.
- A policy without keys gets its own at first start, kept with the data: no secret need stand in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twinbus.auth.policies import Policy, rights_of
from twinbus.broker.configuration.config import (
    LEDGER_OFF,
    KeylessPolicy,
    NamespaceConfig,
    RuleConfig,
    SubscriptionConfig,
    TopicConfig,
)
from twinbus.broker.configuration.emulator import check_name, make_subscription, make_topic, plain_values
from twinbus.broker.configuration.jwt import read_jwt
from twinbus.broker.configuration.section import Section
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ArgumentError, ConfigError
from twinbus.limits import RULE_NAME_CHARS_MAX

# A setting's name in the file (and on the command line), the field it sets, and what it holds.
QUEUE_KEYS: dict[str, tuple[str, str]] = {
    "lock_duration": ("lock_duration_ms", "duration"),
    "max_megabytes": ("max_megabytes", "number"),
    "requires_duplicate_detection": ("requires_duplicate_detection", "flag"),
    "requires_session": ("requires_session", "flag"),
    "default_ttl": ("default_ttl_ms", "duration"),
    "dead_letter_on_expiry": ("dead_letter_on_expiry", "flag"),
    "duplicate_window": ("duplicate_window_ms", "duration"),
    "max_delivery_count": ("max_delivery_count", "number"),
    "enable_batched_operations": ("enable_batched_operations", "flag"),
    "status": ("status", "text"),
    "auto_delete_on_idle": ("auto_delete_on_idle_ms", "duration"),
    "enable_partitioning": ("enable_partitioning", "flag"),
    "enable_express": ("enable_express", "flag"),
    "forward_to": ("forward_to", "text"),
    "forward_dead_letters_to": ("forward_dead_letters_to", "text"),
    "user_metadata": ("user_metadata", "text"),
    "max_message_bytes": ("max_message_bytes", "number"),
}
_TOP_KEYS = (
    "namespaces",
    "data",
    "host",
    "dev",
    "allow_plaintext",
    "ledger",
    "tls_certificate",
    "tls_key",
    "tls_names",
)
_PORT_KEYS = ("port", "amqp_port", "amqps_port", "admin_port")
# The same for topics and subscriptions: what they share with queues has the same name there.
TOPIC_KEYS: dict[str, tuple[str, str]] = {
    **{key: each for key, each in QUEUE_KEYS.items() if each[0] in TopicSettings.__dataclass_fields__},
    "support_ordering": ("support_ordering", "flag"),
    "filter_before_publishing": ("filter_before_publishing", "flag"),
}
SUBSCRIPTION_KEYS: dict[str, tuple[str, str]] = {
    **{key: each for key, each in QUEUE_KEYS.items() if each[0] in SubscriptionSettings.__dataclass_fields__},
    "dead_letter_on_filter_error": ("dead_letter_on_filter_error", "flag"),
}
_CORRELATION_KEYS = (
    "content_type",
    "correlation_id",
    "message_id",
    "reply_to",
    "reply_to_session_id",
    "session_id",
    "subject",
    "to",
)


@dataclass
class TomlConfig:
    """A TOML file's content; None where it is silent."""

    namespaces: list[NamespaceConfig] = field(default_factory=list)
    data: Path | None = None
    host: str | None = None
    dev: bool | None = None
    allow_plaintext: bool | None = None
    # A folder, or LEDGER_OFF.
    ledger: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_names: list[str] = field(default_factory=list)


def read_toml(document: object, file: str, folder: Path) -> TomlConfig:
    """The content of a parsed TOML file; relative paths are taken from the file's own folder."""
    top = Section(document, f"{file}:", _TOP_KEYS)

    def path(name: str) -> Path | None:
        value = top.text(name)
        return None if value is None else folder / Path(value).expanduser()

    return TomlConfig(
        namespaces=[_namespace(*each, folder) for each in _tables(top, "namespaces")],
        data=path("data"),
        host=top.text("host"),
        dev=top.flag("dev"),
        allow_plaintext=top.flag("allow_plaintext"),
        ledger=Path(LEDGER_OFF) if top.text("ledger") == LEDGER_OFF else path("ledger"),
        tls_certificate=path("tls_certificate"),
        tls_key=path("tls_key"),
        tls_names=top.texts("tls_names"),
    )


def _tables(section: Section, name: str) -> list[tuple[str, object, str]]:
    """The named tables under `name`: name, values, place."""
    if name not in section:
        return []
    tables = Section(section.get(name), section.place(name), None)
    return [(each, tables.get(each), tables.place(each)) for each in tables]


def _fields(section: Section, keys: Mapping[str, tuple[str, str]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, (name, kind) in keys.items():
        if kind == "duration":
            found[name] = section.duration_ms(key)
        elif kind == "number":
            found[name] = section.number(key)
        elif kind == "flag":
            found[name] = section.flag(key)
        else:
            found[name] = section.text(key) or None
    return found


def _namespace(name: str, values: object, where: str, folder: Path) -> NamespaceConfig:
    section = Section(values, where, (*_PORT_KEYS, "sku", "queues", "topics", "policies", "jwt"))
    policies: list[Policy] = []
    keyless: list[KeylessPolicy] = []
    for each in _tables(section, "policies"):
        _policy(*each, "", policies, keyless)
    queues = []
    for path, queue_values, place in _tables(section, "queues"):
        queue = Section(queue_values, place, (*QUEUE_KEYS, "policies"))
        queues.append(queue.make(QueueSettings, path=path, **_fields(queue, QUEUE_KEYS)))
        for each in _tables(queue, "policies"):
            _policy(*each, path, policies, keyless)
    topics = []
    for path, topic_values, place in _tables(section, "topics"):
        topic = Section(topic_values, place, (*TOPIC_KEYS, "subscriptions", "policies"))
        topics.append(_topic(path, topic))
        for each in _tables(topic, "policies"):
            _policy(*each, path, policies, keyless)
    return section.make(
        NamespaceConfig,
        name=name,
        **{key: section.number(key) for key in _PORT_KEYS},
        sku=section.text("sku"),
        queues=queues,
        policies=policies,
        topics=topics,
        keyless=keyless,
        jwt=read_jwt(section.get("jwt"), section.place("jwt"), folder) if "jwt" in section else None,
    )


def _policy(
    name: str, values: object, where: str, scope: str, policies: list[Policy], keyless: list[KeylessPolicy]
) -> None:
    section = Section(values, where, ("rights", "primary_key", "secondary_key"))
    try:
        rights = rights_of(section.texts("rights"))
        if not rights:
            raise ArgumentError("rights must name Send, Listen or Manage.")
        primary, secondary = section.text("primary_key"), section.text("secondary_key")
        if primary:
            policies.append(Policy(name, rights, primary, secondary or "", scope))
        elif secondary:
            raise ArgumentError("secondary_key is set and primary_key is not.")
        else:
            keyless.append(KeylessPolicy(name, rights, scope))
    except ArgumentError as error:
        raise ConfigError(f"{where}: {error}") from None


def _topic(path: str, section: Section) -> TopicConfig:
    settings = section.make(TopicSettings, path=path, **_fields(section, TOPIC_KEYS))
    return make_topic(section, settings, [_subscription(path, *each) for each in _tables(section, "subscriptions")])


def _subscription(topic: str, name: str, values: object, where: str) -> SubscriptionConfig:
    section = Section(values, where, (*SUBSCRIPTION_KEYS, "rules"))
    settings = section.make(SubscriptionSettings, topic=topic, name=name, **_fields(section, SUBSCRIPTION_KEYS))
    return make_subscription(section, settings, [_rule(*each) for each in _tables(section, "rules")])


def _rule(name: str, values: object, where: str) -> RuleConfig:
    check_name(name, RULE_NAME_CHARS_MAX, where)
    section = Section(values, where, ("sql", "correlation", "action"))
    if ("sql" in section) == ("correlation" in section):
        raise ConfigError(f"{where} must have 'sql' or 'correlation', and not both.")
    if "sql" in section:
        return RuleConfig(name=name, kind="sql", sql=section.need("sql"), action=section.text("action"))
    correlation = Section(section.get("correlation"), section.place("correlation"), (*_CORRELATION_KEYS, "properties"))
    values = correlation.get("properties")
    return RuleConfig(
        name=name,
        kind="correlation",
        correlation={key: text for key in _CORRELATION_KEYS if (text := correlation.text(key)) is not None},
        correlation_properties=plain_values({} if values is None else values, correlation.place("properties")),
        action=section.text("action"),
    )
