"""Rules as `$management` carries them: maps in requests, described lists in answers, with the service's own codes.

The filter codes have one zero fewer than the others; clients expect exactly that.
"""

from __future__ import annotations

from typing import Any

from twinbus.amqp.types import Described, Int, Timestamp, ULong
from twinbus.broker.messages.message_view import given_value, wire_value
from twinbus.entities.filters import CorrelationFilter, FalseFilter, Filter, SqlAction, SqlFilter, TrueFilter
from twinbus.entities.rule import Rule
from twinbus.errors import ArgumentError

RULE_DESCRIPTION = ULong(0x13700000004)
EMPTY_ACTION = ULong(0x13700000005)
SQL_ACTION = ULong(0x13700000006)
SQL_FILTER = ULong(0x1370000006)
TRUE_FILTER = ULong(0x1370000007)
FALSE_FILTER = ULong(0x1370000008)
CORRELATION_FILTER = ULong(0x1370000009)

# The version of the SQL language; there is only one.
_LEVEL = Int(20)

# Fields of a correlation filter in the order of the described list, with their keys in a request's map.
_FIELDS = (
    ("correlation-id", "correlation_id"),
    ("message-id", "message_id"),
    ("to", "to"),
    ("reply-to", "reply_to"),
    ("label", "label"),
    ("session-id", "session_id"),
    ("reply-to-session-id", "reply_to_session_id"),
    ("content-type", "content_type"),
)


def rule_of(name: str, description: Any, now_ms: int) -> Rule:
    """Read the rule of an add-rule request."""
    if not isinstance(description, dict):
        raise ArgumentError("'rule-description' must be a map.")
    # The JavaScript client writes an empty map for no action.
    action = description.get("sql-rule-action") or None
    return Rule(
        name, _filter_of(description), None if action is None else SqlAction(_expression(action, "action")), now_ms
    )


def _filter_of(description: dict[Any, Any]) -> Filter:
    sql, correlation = description.get("sql-filter"), description.get("correlation-filter")
    if (sql is None) == (correlation is None):
        raise ArgumentError("A rule needs either 'sql-filter' or 'correlation-filter'.")
    if sql is not None:
        return sql_filter(_expression(sql, "filter"))
    if not isinstance(correlation, dict):
        raise ArgumentError("'correlation-filter' must be a map.")
    properties = correlation.get("properties") or {}
    if not isinstance(properties, dict):
        raise ArgumentError("The properties of a correlation filter must be a map.")
    # Some clients write an empty string for a field that may be anything.
    return CorrelationFilter(
        **{field: correlation.get(key) or None for key, field in _FIELDS},
        properties={str(name): given_value(value) for name, value in properties.items()},
    )


def sql_filter(expression: str) -> Filter:
    """A SQL filter; the texts of TrueFilter and FalseFilter give those."""
    known = expression.strip()
    if known == TrueFilter.expression:
        return TrueFilter()
    return FalseFilter() if known == FalseFilter.expression else SqlFilter(expression)


def _expression(given: Any, what: str) -> str:
    expression = given.get("expression") if isinstance(given, dict) else None
    if not isinstance(expression, str):
        raise ArgumentError(f"A SQL {what} needs its 'expression' as a string.")
    return str(expression)


def described(rule: Rule) -> Described:
    """The rule as an enumerate-rules answer describes it."""
    action = (
        Described(EMPTY_ACTION, []) if rule.action is None else Described(SQL_ACTION, [rule.action.expression, _LEVEL])
    )
    return Described(RULE_DESCRIPTION, [_described_filter(rule.filter), action, rule.name, Timestamp(rule.created_ms)])


def _described_filter(given: Filter) -> Described:
    if isinstance(given, TrueFilter):
        return Described(TRUE_FILTER, [])
    if isinstance(given, FalseFilter):
        return Described(FALSE_FILTER, [])
    if isinstance(given, SqlFilter):
        return Described(SQL_FILTER, [given.expression, _LEVEL])
    properties = {name: wire_value(value) for name, value in given.properties.items()}
    return Described(CORRELATION_FILTER, [*(getattr(given, field) for _, field in _FIELDS), properties])
