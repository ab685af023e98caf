"""Entities of Azure Service Bus, through the official SDK's administration client.

Rules:
- Requests and responses are those of a Twinbus directory, so commands need not know which service they talk to. What
  Azure does not report (deferred messages) is None.
- The SDK's errors are mapped to ours by their status.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from twinbus.auth.connection_string import ConnectionString
from twinbus.durations import format_ms, parse_ms
from twinbus.entities.setting import DURATION, NUMBER, Setting
from twinbus.entities.settings import SETTINGS_OF
from twinbus.errors import (
    ArgumentError,
    ConfigError,
    ConnectionForcedError,
    EntityExistsError,
    EntityNotFoundError,
    QuotaExceededError,
    ServerBusyError,
    ServiceError,
    UnauthorizedError,
    UnsupportedError,
)
from twinbus.limits import UNLIMITED_MS

Answer = dict[str, Any]

_NUMBERS = {
    "created_ms": "created_at_utc",
    "updated_ms": "updated_at_utc",
    "accessed_ms": "accessed_at_utc",
    "size_bytes": "size_in_bytes",
    "active_messages": "active_message_count",
    "scheduled_messages": "scheduled_message_count",
    "deferred_messages": "",
    "dead_letter_messages": "dead_letter_message_count",
    "transfer_dead_letter_messages": "transfer_dead_letter_message_count",
}
_TOPIC_NUMBERS = {
    name: _NUMBERS[name] for name in ("created_ms", "updated_ms", "accessed_ms", "size_bytes", "scheduled_messages")
} | {"subscriptions": "subscription_count"}
_STATUSES: dict[int, type[ServiceError]] = {
    400: ArgumentError,
    401: UnauthorizedError,
    403: QuotaExceededError,
    404: EntityNotFoundError,
    409: EntityExistsError,
    503: ServerBusyError,
}


def answer(broker: ConnectionString, ca_file: Path | None, operation: str, body: dict[str, Any]) -> Answer:
    """Answer a directory request."""
    try:
        from azure.core.exceptions import AzureError, HttpResponseError
        from azure.servicebus.management import ServiceBusAdministrationClient
    except ImportError:
        raise ConfigError("Entities of Azure need the official SDK: pip install azure-servicebus.") from None
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    asked = _OPERATIONS.get(operation)
    if asked is None:
        raise UnsupportedError(f"Azure does not support {operation}: it needs a Twinbus namespace.")
    options = {} if ca_file is None else {"connection_verify": str(ca_file)}
    try:
        with ServiceBusAdministrationClient.from_connection_string(broker.format(), **options) as admin:
            return asked(admin, body)
    except HttpResponseError as error:
        kind = _STATUSES.get(error.status_code or 404, ServiceError)
        raise kind(" ".join(str(error.message).split())) from None
    except AzureError as error:
        raise ConnectionForcedError(f"No connection to {broker.host}: {error}.") from None
    except ValueError as error:
        raise ArgumentError(str(error)) from None


# --- queues and topics ------------------------------------------------------------------------------------------------


def _create(kind: str) -> Callable[[Any, Answer], Answer]:
    def asked(admin: Any, body: Answer) -> Answer:
        made = getattr(admin, f"create_{kind}")(*_place(kind, body), **_given(kind, body))
        return {kind: _described(kind, body, made, None)}

    return asked


def _update(kind: str) -> Callable[[Any, Answer], Answer]:
    def asked(admin: Any, body: Answer) -> Answer:
        place = _place(kind, body)
        found = getattr(admin, f"get_{kind}")(*place)
        given = _given(kind, body)
        for setting in SETTINGS_OF[kind]:
            if setting.default is None:
                given.setdefault(setting.sdk_name, None)
        for name, value in given.items():
            setattr(found, name, value)
        getattr(admin, f"update_{kind}")(*place[:-1], found)
        return _get(kind)(admin, body)

    return asked


def _get(kind: str) -> Callable[[Any, Answer], Answer]:
    def asked(admin: Any, body: Answer) -> Answer:
        place = _place(kind, body)
        found = getattr(admin, f"get_{kind}")(*place)
        runtime = getattr(admin, f"get_{kind}_runtime_properties")(*place)
        return {kind: _described(kind, body, found, runtime)}

    return asked


def _list(kind: str) -> Callable[[Any, Answer], Answer]:
    def asked(admin: Any, body: Answer) -> Answer:
        place = [body["topic"]] if kind == "subscription" else []
        numbers = {each.name: each for each in getattr(admin, f"list_{kind}s_runtime_properties")(*place)}
        found = [
            _described(kind, body, each, numbers.get(each.name)) for each in getattr(admin, f"list_{kind}s")(*place)
        ]
        return {f"{kind}s": found}

    return asked


def _delete(kind: str) -> Callable[[Any, Answer], Answer]:
    def asked(admin: Any, body: Answer) -> Answer:
        getattr(admin, f"delete_{kind}")(*_place(kind, body))
        return {}

    return asked


def _place(kind: str, body: Answer) -> list[str]:
    name = body.get("name") or body.get("path") or ""
    return [body["topic"], name] if kind == "subscription" else [name]


def _given(kind: str, body: Answer) -> Answer:
    known = {setting.name: setting for setting in SETTINGS_OF[kind]}
    found = {}
    for name, value in body.items():
        if name in known:
            if known[name].sdk:
                found[known[name].sdk_name] = _theirs(known[name], value)
        elif name not in ("path", "name", "topic"):
            raise ArgumentError(f"A {kind} of Azure has no setting {name}.")
    return found


def _theirs(setting: Setting, value: Any) -> Any:
    if setting.kind == DURATION:
        return format_ms(value) if value >= UNLIMITED_MS else timedelta(milliseconds=value)
    return value // setting.azure_unit if setting.kind == NUMBER else value


def _described(kind: str, body: Answer, found: Any, runtime: Any) -> Answer:
    named = {"topic": body["topic"], "name": found.name} if kind == "subscription" else {"path": found.name}
    settings = {each.name: _ours(getattr(found, each.sdk_name, None), each) for each in SETTINGS_OF[kind] if each.sdk}
    numbers = _TOPIC_NUMBERS if kind == "topic" else _NUMBERS
    counts = {name: _ours(getattr(runtime, theirs, None)) for name, theirs in numbers.items()}
    return named | settings | counts


def _ours(value: Any, setting: Setting | None = None) -> Any:
    if value is None:
        return None
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, timedelta):
        return min(value // timedelta(milliseconds=1), UNLIMITED_MS)
    if setting is not None and setting.kind == NUMBER:
        return int(value) * setting.azure_unit
    if setting is not None and setting.kind == DURATION:
        return parse_ms(str(value))
    return getattr(value, "value", value)


# --- rules ------------------------------------------------------------------------------------------------------------


def _create_rule(admin: Any, body: Answer) -> Answer:
    from azure.servicebus.management import CorrelationRuleFilter, SqlRuleAction, SqlRuleFilter

    description = body["rule-description"]
    selects: Any
    if "correlation-filter" in description:
        fields = dict(description["correlation-filter"])
        own = fields.pop("properties", None) or None
        selects = CorrelationRuleFilter(
            properties=own, **{name.replace("-", "_"): value for name, value in fields.items()}
        )
    else:
        selects = SqlRuleFilter(description["sql-filter"]["expression"])
    action = description.get("sql-rule-action")
    options = {} if action is None else {"action": SqlRuleAction(action["expression"])}
    admin.create_rule(body["topic"], body["subscription"], body["name"], filter=selects, **options)
    return {}


def _delete_rule(admin: Any, body: Answer) -> Answer:
    admin.delete_rule(body["topic"], body["subscription"], body["name"])
    return {}


def _list_rules(admin: Any, body: Answer) -> Answer:
    found = admin.list_rules(body["topic"], body["subscription"])
    return {"rules": [{"rule-description": _rule(each)} for each in found]}


def _rule(rule: Any) -> Answer:
    from azure.servicebus.management import CorrelationRuleFilter, FalseRuleFilter, TrueRuleFilter

    from twinbus.cli.properties import to_json

    given = rule.filter
    if isinstance(given, TrueRuleFilter | FalseRuleFilter):
        selects: Answer = {"type": "true" if isinstance(given, TrueRuleFilter) else "false"}
    elif isinstance(given, CorrelationRuleFilter):
        from twinbus.cli.rule import FIELDS

        names = [name.replace("-", "_") for name in FIELDS]
        selects = {"type": "correlation", **{name: getattr(given, name) for name in names if getattr(given, name)}}
        selects["properties"] = to_json(given.properties or {})
    else:
        selects = {"type": "sql", "expression": given.sql_expression}
    created: Any = rule.created_at_utc
    return {
        "name": rule.name,
        "filter": selects,
        "action": rule.action.sql_expression if rule.action is not None else None,
        "created_ms": 0 if created is None else int(created.timestamp() * 1000),
    }


_OPERATIONS: dict[str, Callable[[Any, Answer], Answer]] = {
    f"{verb}-{kind}": made(kind)
    for kind in ("queue", "topic", "subscription")
    for verb, made in (("create", _create), ("update", _update), ("get", _get), ("delete", _delete))
} | {f"list-{kind}s": _list(kind) for kind in ("queue", "topic", "subscription")}
_OPERATIONS |= {"create-rule": _create_rule, "delete-rule": _delete_rule, "list-rules": _list_rules}
