"""Reads our own configuration file, in TOML; see `docs/config.md`.

- Names are table names (`[namespaces.contoso.queues.orders]`); settings are the queue settings without their units.
- A policy without keys gets generated ones at the first start, stored with the data: the file need not contain secrets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinbus.auth.policies import Policy, rights_of
from twinbus.broker.configuration.config import (
    LEDGER_OFF,
    KeylessPolicy,
    NamespaceConfig,
    RuleConfig,
    SubscriptionConfig,
    TopicConfig,
)
from twinbus.broker.configuration.emulator import make_subscription, make_topic, plain_values
from twinbus.broker.configuration.jwt import read_jwt
from twinbus.broker.configuration.section import Section
from twinbus.entities.setting import QUEUE, SUBSCRIPTION, TOPIC
from twinbus.entities.settings import SETTINGS_OF, QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings, check_name
from twinbus.errors import ArgumentError, ConfigError
from twinbus.limits import RULE_NAME_CHARS_MAX

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
    """The content of a TOML file; None for what it does not set."""

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
    """Read a parsed TOML file; relative paths start at the file's folder."""
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
    """The tables under `name`: name, values, place."""
    if name not in section:
        return []
    tables = Section(section.get(name), section.place(name), None)
    return [(each, tables.get(each), tables.place(each)) for each in tables]


def _keys(kind: str) -> list[str]:
    return [setting.key for setting in SETTINGS_OF[kind]]


def _fields(section: Section, kind: str) -> dict[str, Any]:
    return {setting.name: section.value(setting.key, setting.kind) for setting in SETTINGS_OF[kind]}


def _namespace(name: str, values: object, where: str, folder: Path) -> NamespaceConfig:
    section = Section(values, where, (*_PORT_KEYS, "sku", "queues", "topics", "policies", "jwt"))
    policies: list[Policy] = []
    keyless: list[KeylessPolicy] = []
    for each in _tables(section, "policies"):
        _policy(*each, "", policies, keyless)
    queues = []
    for path, queue_values, place in _tables(section, "queues"):
        queue = Section(queue_values, place, (*_keys(QUEUE), "policies"))
        queues.append(queue.make(QueueSettings, path=path, **_fields(queue, QUEUE)))
        for each in _tables(queue, "policies"):
            _policy(*each, path, policies, keyless)
    topics = []
    for path, topic_values, place in _tables(section, "topics"):
        topic = Section(topic_values, place, (*_keys(TOPIC), "subscriptions", "policies"))
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
    settings = section.make(TopicSettings, path=path, **_fields(section, TOPIC))
    return make_topic(section, settings, [_subscription(path, *each) for each in _tables(section, "subscriptions")])


def _subscription(topic: str, name: str, values: object, where: str) -> SubscriptionConfig:
    section = Section(values, where, (*_keys(SUBSCRIPTION), "rules"))
    settings = section.make(SubscriptionSettings, topic=topic, name=name, **_fields(section, SUBSCRIPTION))
    return make_subscription(section, settings, [_rule(*each) for each in _tables(section, "rules")])


def _rule(name: str, values: object, where: str) -> RuleConfig:
    section = Section(values, where, ("sql", "correlation", "action"))
    section.make(check_name, name=name, chars_max=RULE_NAME_CHARS_MAX, what="rule")
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
